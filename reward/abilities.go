package reward

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"

	"onering/data"
)

// Groups returns how many groups r can grade at once, if r says so: a reward that waits
// for something else, such as a server. Others get a group for each processor core.
func Groups(r Reward) int {
	if x, ok := r.(interface{ Groups() int }); ok {
		return max(1, x.Groups())
	}
	return runtime.GOMAXPROCS(0)
}

// Varies reports whether r says that equal groups may get different scores, as from a
// judge that samples its verdicts. A training run stores such scores in its folder, so
// that a resumed run has the same ones. rewardtest does not compare them.
func Varies(r Reward) bool {
	x, ok := r.(interface{ Varies() bool })
	return ok && x.Varies()
}

// Ready asks a reward or an environment that depends on another program, such as a
// server, whether that can be reached. A run asks before it samples.
func Ready(ctx context.Context, plugin any) error {
	if x, ok := plugin.(interface{ Ready(context.Context) error }); ok {
		return x.Ready(ctx)
	}
	return nil
}

// Close ends the processes and the like that a reward or an environment has started, if
// it is an io.Closer. After Close it may be used again, and starts again what it needs.
func Close(plugin any) error {
	if c, ok := plugin.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// SetTemplate calls r's method of this name, if it has one, with the prompt template, which
// asks for the answer in a form: in a box, in tags. It is called before the first Score with
// the template's name (qwen_math, r1, no, chat), or with the text of another template.
func SetTemplate(r Reward, name string) {
	if x, ok := r.(interface{ SetTemplate(name string) }); ok {
		x.SetTemplate(name)
	}
}

// An Extractor finds the answers in responses by a rule that can be chosen.
type Extractor interface {
	// Extract is the name of the rule: boxed, tag, auto or last. It is empty if the
	// reward extracts nothing after all.
	Extract() string
	// WithExtract returns the same reward with another rule, and does not change the
	// receiver. rule is one of the names.
	WithExtract(rule string) Reward
}

// ExtractRules are the names of the rules of extraction.
var ExtractRules = []string{"boxed", "tag", "auto", "last"}

// Extract returns the rule by which r finds answers in responses, "" if it has none.
func Extract(r Reward) string {
	if e, ok := r.(Extractor); ok {
		return e.Extract()
	}
	return ""
}

// FindsAnswers says whether r looks for answers in responses, so that a response
// without one is worth counting.
func FindsAnswers(r Reward) bool {
	if c, ok := r.(*Combined); ok {
		return slices.ContainsFunc(c.Parts, func(p Part) bool { return FindsAnswers(p.Reward) })
	}
	return SameAnswer(r) != nil || Extract(r) != ""
}

// Reading returns o for rows that r grades: with rows without answers if r needs none, with the choices
// that r compares, and with whole texts as answers if r, or the part that decides, extracts none from
// responses. A nil r changes nothing but that answers are not whole.
func Reading(r Reward, o data.Options) data.Options {
	parts := []Part{{Reward: r}}
	if c, ok := r.(*Combined); ok {
		parts = c.Parts
	}
	needed := false
	for _, part := range parts {
		if x, ok := part.Reward.(interface{ NeedsAnswers() bool }); ok {
			needed = needed || x.NeedsAnswers()
		} else { // what a response states is compared with the row's answers
			needed = needed || FindsAnswers(part.Reward)
		}
		if x, ok := part.Reward.(interface {
			Offers(row data.Object) (labels, texts []string)
		}); ok {
			o.Offers = x.Offers
		}
	}
	o.NoAnswers, o.AsWritten = o.NoAnswers || r != nil && !needed, r != nil && Extract(r) == ""
	return o
}

// WithExtract returns r with another rule of extraction; "" does not change the rule. It
// is an error if r has none.
func WithExtract(r Reward, rule string) (Reward, error) {
	if rule == "" {
		return r, nil
	}
	e, ok := r.(Extractor)
	if !ok || e.Extract() == "" {
		return nil, fmt.Errorf("reward: extract = %q: the reward does not look for answers in responses", rule)
	}
	return e.WithExtract(rule), nil
}
