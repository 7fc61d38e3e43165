// Package streams has parts of a loss beside an objective's: cross-entropy on demonstrations, on
// what an environment said or on right responses, and a pull to a teacher. Each stream is a mean
// over its own tokens, with its own weight and a schedule of it. The streams of prime-rl (rl, ce,
// ref_kl) and the mixture of CHORD (arXiv 2508.11408) are settings.
package streams

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"onering/internal/settings"
	"onering/objectives"
	"onering/policy"
	"onering/runtime"
	"onering/tokenize"
	"onering/train/learn"
	"onering/train/sft"
)

// Settings are the section that [[stream]] states.
type Settings struct {
	List List `toml:"list" help:"the streams, a table each, which may stand below [[stream]]"`
}

// A Stream is one part of the loss.
type Stream struct {
	Name      string  `toml:"name" help:"name in metrics, such as stream/NAME/loss; that of its tokens if not given"`
	Tokens    string  `toml:"tokens" choice:"demonstrations environment right policy" help:"what is learned: demonstrations of a file, what the environment said in the round's episodes, the responses of the round that are right, or all that the policy wrote; demonstrations where data is given, and policy where teacher is"`
	Data      string  `toml:"data" help:"file of demonstrations, whose rows are those of onering sft"`
	BatchSize int     `toml:"batch_size" range:"[0,4194304]" note:"0 is 8" help:"demonstrations of an optimizer step"`
	Teacher   string  `toml:"teacher" help:"folder of a model that the policy is drawn to, on its own tokens; it must have the tokens of the policy"`
	Loss      string  `toml:"loss" choice:"ce kl" help:"what is minimized: ce is the cross-entropy, with a teacher that between teacher and policy, and kl, which is for a teacher and its default, the KL divergence of the policy from the teacher, as opd has it"`
	Weight    float64 `toml:"weight" range:"(0,)" help:"factor of the stream's loss, the highest of its schedule (required)"`
	learn.Schedule
	Mix bool `toml:"mix" help:"take the weight from the objective's loss, which gets the factor 1 - weight, as in CHORD"`
	Phi bool `toml:"phi" help:"weigh a token of probability p by p (1 - p), a constant, as in CHORD: least where the policy is certain, of it or of another"`
}

// A List is the streams of a run.
type List []Stream

var tables = settings.Tables[Stream]{Key: "stream.list", Kind: "a stream"}

// Wanted implements settings.Special.
func (List) Wanted() string {
	return `tables such as [[stream]] with data = "a.jsonl" and weight = 0.1 below it, or a list of tables`
}

// UnmarshalTOML takes a list of tables, and gives them what they leave open: such as tokens = "demonstrations" and
// batch_size = 8 where data is given. A name left open is that of the tokens.
func (l *List) UnmarshalTOML(value any) error {
	list, _, err := tables.Read(value, l.Wanted())
	for i := range list {
		s := &list[i]
		switch {
		case s.Data != "":
			s.Tokens, s.BatchSize = cmp.Or(s.Tokens, "demonstrations"), cmp.Or(s.BatchSize, 8)
		case s.Teacher != "":
			s.Tokens, s.Loss = cmp.Or(s.Tokens, "policy"), cmp.Or(s.Loss, "kl")
		}
		s.Name, s.Loss, s.Shape = cmp.Or(s.Name, s.Tokens), cmp.Or(s.Loss, "ce"), cmp.Or(s.Shape, "constant")
	}
	if err == nil {
		*l = list
	}
	return err
}

// MarshalTOML writes what UnmarshalTOML reads.
func (l List) MarshalTOML() ([]byte, error) {
	texts, err := tables.Write(l, func(_ int, f settings.Field) bool { return !f.Value.IsZero() })
	return []byte("[" + strings.Join(texts, ", ") + "]"), err
}

// Check reports impossible streams; episodes says whether the run has an environment.
func (l List) Check(episodes bool) (errs settings.Errors) {
	mixed := 0.0
	for i, s := range l {
		check := func(ok bool, remedy string) {
			errs.Want("stream.list", cmp.Or(s.Name, fmt.Sprint("number ", i+1)), ok, remedy)
		}
		for _, err := range settings.Flatten(settings.Check(&s)) {
			check(false, "its "+err.Error())
		}
		first := slices.IndexFunc(l, func(x Stream) bool { return x.Name == s.Name })
		check(first == i && s.Name != "rl" && !strings.ContainsAny(s.Name, "/\n"), "needs a name that no other stream has, nor the objective (rl), without a slash")
		check((s.Tokens == "demonstrations") == (s.Data != ""), "tokens = \"demonstrations\" and a file of data belong together")
		check(s.Data != "" || s.BatchSize == 0, "its batch_size is for demonstrations")
		check((s.Tokens == "policy") == (s.Teacher != ""), "tokens = \"policy\" and a teacher belong together")
		check(s.Loss != "kl" || s.Teacher != "", "its loss \"kl\" needs a teacher")
		check(!s.Phi || s.Teacher == "", "its phi is for a cross-entropy without a teacher")
		check(s.Tokens != "environment" || episodes, "its tokens are an environment's: set environment.name")
		if s.Mix {
			mixed += s.Weight
		}
	}
	errs.Want("stream.list", mixed, mixed <= 1, "is more than 1: the weights of streams with mix are taken from that of the objective's loss")
	return errs
}

// An Opened stream has what it learns from.
type Opened struct {
	Stream
	Digest   string     // of the demonstrations
	examples sft.Scored // the demonstrations
	kl       objectives.Objective
}

// Open reads a stream's demonstrations. A prompt that is a text gets the template.
func (s Stream) Open(template tokenize.TemplateSettings, p *policy.Policy, log *slog.Logger) (o *Opened, err error) {
	o = &Opened{Stream: s}
	if s.Data != "" {
		o.examples, o.Digest, err = sft.Sequences(s.Data, template, p, log)
	} else if s.Loss == "kl" {
		o.kl, err = objectives.New("opd")
	}
	return o, err
}

// batch returns the demonstrations of the step after n others: the pass and the place in it
// follow from n, so a resumed run goes on where it was.
func (o *Opened) batch(n int, seed int64) []runtime.Sequence {
	return o.examples.Take(seed, n*o.BatchSize, o.BatchSize)
}
