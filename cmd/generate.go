package cmd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"slices"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/internal/strict"
	"onering/policy"
	"onering/sampler"
	"onering/train/ranks"
)

// newGenerate makes the command generate, which samples responses to prompts.
func newGenerate() *cobra.Command {
	o := generateOptions{samplingOptions: samplingOptions{Generation: true}}
	s := talkSettings("no")
	c := newCommand("generate", &o, func(c *cobra.Command, args []string) (err error) {
		if err := o.adapters.parse(); err != nil {
			return err
		}
		if o.byAdapter, err = o.adapters.resolve(c, s); err != nil {
			return err
		}
		r := o.byAdapter[""] // what concerns all rows is the model's
		o.samples, o.slots = r.Rollout.SamplesPerPrompt, r.Rollout.Slots
		if o.typed = inputName(args) == "-" && cli.IsTerminal(c.InOrStdin()); o.typed {
			slog.Info("each line is a prompt, as text or as a JSON object; onering chat answers a line at once")
		}
		t, err := joinTeam(c, r.Distributed)
		if err != nil {
			return err
		}
		o.invariant = r.Rollout.Invariant || t.Size() > 1
		return t.End(r.with(c, t, args, o.byName, func(in io.Reader, name string, p *policy.Policy) error {
			rows, err := readRequests(in, name, p, o)
			if err != nil {
				return err
			}
			return generate(c, t, p, rows, o)
		}))
	})
	s.addModelFlags(c, slices.Concat(templateKeys, samplingPaths, []string{"rollout.samples_per_prompt", "rollout.slots", "rollout.invariant"})...)
	s.addShortcut(c, "chat", "model.template", "chat", "the same as --template chat: the chat template of the model's tokenizer")
	s.moreSources = append(s.moreSources, o.asSource)
	c.MarkFlagsMutuallyExclusive("chat", "template")
	return c
}

type generateOptions struct {
	samplingOptions
	adapters
	byAdapter      map[string]*resolved // settings by the adapter's name, "" for the model alone
	samples, slots int                  // responses to each prompt, and sequences at a time
	invariant      bool                 // see sampler.Invariant
	typed          bool                 // somebody types the input, so a line may be a plain prompt
}

// maxResponses bounds what a command samples, as maxSlots bounds what it samples at once.
const (
	maxSlots     = 65536
	maxResponses = 1 << 26
)

// A promptRow is a row of the input.
type promptRow struct {
	policy.Prompt
	Uniforms json.RawMessage `json:"uniforms"`
	Adapter  string          `json:"adapter"` // one of the named adapters; "" for the model without one
}

// request returns the request for the row with this index, from 0: its prompt in its adapter's template, and its
// uniforms.
func (r promptRow) request(index int, p *policy.Policy, o generateOptions) (sampler.Request, error) {
	var ids []int32
	var uniforms [][]float32
	p, err := p.With(r.Adapter)
	if err == nil {
		ids, err = r.IDs(p, o.byAdapter[r.Adapter].prompt)
	}
	if err == nil {
		uniforms, err = parseUniforms(r.Uniforms, o.samples)
	}
	return sampler.Request{Prompt: ids, ID: uint64(index), Samples: o.samples, Uniforms: uniforms}, err
}

// promptRows are the rows of the input.
type promptRows struct {
	requests map[string][]sampler.Request // by adapter: the requests of the rows without an error; their ID is the row's index
	total    int
	answers  cli.Answers // holds the errors of the other rows
}

// readRequests reads all rows, so that the number of responses is known before the first is sampled. A row that makes
// no request is noted in answers, by its line, and reading goes on; a line that is not a JSON object ends it.
func readRequests(in io.Reader, name string, p *policy.Policy, o generateOptions) (*promptRows, error) {
	rows := &promptRows{requests: map[string][]sampler.Request{}, answers: cli.Answers{Name: name, Lines: o.samples, Numbered: true}}
	if o.typed {
		in = typedPrompts(in)
	}
	empty := true
	if err := cli.EachRow(in, name, func(index, number int, row promptRow) error {
		empty = false
		q, err := row.request(index, p, o)
		if err != nil {
			return rows.answers.Fail(index, number, err)
		}
		rows.total++
		rows.requests[row.Adapter] = append(rows.requests[row.Adapter], q)
		return nil
	}); err != nil {
		return nil, err
	}
	if empty {
		return nil, fmt.Errorf("%s holds no prompts", name)
	}
	if n := rows.total * o.samples; n > maxResponses {
		return nil, usagef("--samples %d: for the %d prompts of %s these are %d responses, more than %d", o.samples, rows.total, name, n, maxResponses)
	}
	return rows, nil
}

// typedPrompts returns in with each line that does not look like a JSON object as one: {"prompt": LINE}.
func typedPrompts(in io.Reader) io.Reader {
	r, w := io.Pipe()
	go func() {
		lines := bufio.NewReader(in)
		for {
			line, err := cli.ReadLine(lines)
			if err == nil {
				if text := bytes.TrimSpace(line); len(text) > 0 && text[0] != '{' {
					line, err = json.Marshal(map[string]string{"prompt": string(line)})
				}
			}
			if err == nil {
				_, err = w.Write(append(line, '\n'))
			}
			if err != nil {
				w.CloseWithError(err)
				return
			}
		}
	}()
	return r
}

// parseUniforms reads the numbers in [0, 1) by which the tokens of each sample of a row are drawn: a list of them for
// one sample, or a list of such lists; nil if the row states none.
func parseUniforms(text json.RawMessage, samples int) ([][]float32, error) {
	if len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	var lists [][]float64
	var list []float64
	if strict.JSON(text, &list) == nil {
		lists = [][]float64{list}
	} else if strict.JSON(text, &lists) != nil {
		return nil, errors.New(`"uniforms" must be a list of numbers, or a list of such lists`)
	}
	if len(lists) != samples {
		return nil, fmt.Errorf(`"uniforms" holds numbers for %d samples, -n is %d`, len(lists), samples)
	}
	uniforms := make([][]float32, len(lists))
	for k, list := range lists {
		uniforms[k] = make([]float32, len(list))
		for i, u := range list {
			if !(u >= 0 && u < 1) {
				return nil, fmt.Errorf(`"uniforms" holds %v at %d: want numbers in [0, 1)`, u, i)
			}
			// A number just below 1 must not be rounded to 1.
			uniforms[k][i] = min(float32(u), math.Nextafter32(1, 0))
		}
	}
	return uniforms, nil
}

// A generated is a line of output. Text is nil if the model has no tokenizer.
type generated struct {
	Index  int            `json:"index"`
	Sample int            `json:"sample"`
	IDs    []int32        `json:"ids"`
	Text   *string        `json:"text,omitempty"`
	LogP   []float32      `json:"logp"`
	Finish sampler.Finish `json:"finish"`
}

// generate samples the responses to rows and writes a line for each and for each error, on the first rank. Each rank
// has its share of the rows, and the others give theirs to the first at the end.
func generate(c *cobra.Command, t *ranks.Group, p *policy.Policy, rows *promptRows, o generateOptions) error {
	out := &rows.answers
	out.Out = c.OutOrStdout()
	err := out.Flush() // the errors that come before the first response
	if err != nil || rows.total == 0 {
		return errors.Join(err, out.Err())
	}
	bar := cli.StartProgress(c.ErrOrStderr(), isQuiet(c), "generate", "responses", int64(rows.total*o.samples))
	defer bar.Finish()
	var own []generated                                            // this rank's lines, if it is not the first
	for _, name := range slices.Sorted(maps.Keys(rows.requests)) { // of adapters, "" for the model alone
		requests := slices.DeleteFunc(rows.requests[name], func(r sampler.Request) bool { return int(r.ID)%t.Size() != t.Rank() }) // this rank's
		if len(requests) == 0 {
			continue
		}
		model, _ := p.With(name) // request has found each adapter
		settings := o.byAdapter[name]
		how := sampler.Options{Seed: o.Seed}
		if how.Sampling, err = settings.sampling(model, o.samplingOptions); err == nil {
			err = model.Ends(&how, settings.prompt) // where responses end
		}
		if err == nil {
			err = sampleRows(c.Context(), model, requests, how, o, func(g generated) error {
				bar.Add(1)
				if !t.First() {
					own = append(own, g)
					return nil
				}
				return out.Give(g.Index, g.Sample, g)
			})
		}
		if err != nil {
			break
		}
	}
	return errors.Join(addOthers(t, own, err, func(g generated) error { // an error on one rank is one on all
		if !t.First() {
			return nil
		}
		if g.Text == nil && p.Tokenizer != nil { // ranks do not tell an empty text from none
			g.Text = new(string)
		}
		return out.Give(g.Index, g.Sample, g)
	}), out.Err())
}

// ifAsked returns which invariance a decoder has: the given one if the settings or the ranks ask for any, else none.
func ifAsked(invariant bool, invariance sampler.Invariance) sampler.Invariance {
	if !invariant {
		return sampler.NoInvariance
	}
	return invariance
}

// sampleRows samples the responses to requests and hands each over as a line of output when it has ended. After an
// error of each it hands over no more, and returns that error at the end.
func sampleRows(ctx context.Context, p *policy.Policy, requests []sampler.Request, how sampler.Options, o generateOptions, each func(generated) error) error {
	longest := 0
	for _, r := range requests {
		longest = max(longest, len(r.Prompt))
	}
	decoder, free, err := p.Decoder(min(o.slots, len(requests)*o.samples), longest+how.MaxNewTokens, ifAsked(o.invariant, sampler.InvariantToSlots))
	if err != nil {
		return err
	}
	defer free()
	var failed error
	_, _, err = sampler.Sample(ctx, decoder, how, requests, func(r sampler.Response) {
		g := generated{Index: int(requests[r.Request].ID), Sample: r.Sample, IDs: r.IDs, LogP: r.LogProb, Finish: r.Finish}
		if t := p.Tokenizer; t != nil {
			text := t.Decode(r.IDs, true) // without special tokens
			g.Text = &text
		}
		if failed == nil {
			failed = each(g)
		}
	})
	return errors.Join(err, failed)
}
