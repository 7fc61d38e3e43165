package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"onering/sampler"
	"onering/train"
)

func newGenerate() *cobra.Command {
	var e engineFlags
	o := generateOptions{Options: sampler.Options{Sampling: sampler.Plain(512)}, samples: 1, slots: 32}
	c := &cobra.Command{
		Use:   "generate --model DIR [FILE]",
		Short: "Sample responses to prompts",
		Long: `Sample responses to prompts. Input is one JSON object per line, from FILE or
stdin: {"prompt"}, {"prompt_ids"} or {"messages"}. Each sample gives a line

  {"index", "sample", "ids", "text", "logp", "finish"}

with the row's number from 0, the tokens and their log-probs at the sampling
temperature; "finish" is "stop" after an end-of-sequence token, which is part of
the response, and "length" if a limit was reached. The lines are in the order of
the input. Folders without a tokenizer work with ids.

Each sampled token takes one number u in [0, 1): it is the first in vocabulary
order whose cumulative probability exceeds u. The numbers follow from the seed,
the row, the sample and the position, or are given by the row as "uniforms", a
list (with -n K a list of K lists).`,
		Example: `  echo '{"prompt":"What is 1+1?"}' | onering generate --model DIR -n 4 --seed 1
  echo '{"prompt_ids":[3,1,4]}' | onering generate --model DIR --greedy --max-tokens 20
  onering generate --model DIR --temperature 0.6 --top-p 0.95 prompts.jsonl > out.jsonl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := validateSampling(o.Sampling, o.samples, o.slots); err != nil {
				return err
			}
			return e.with(c, args, func(in io.Reader, name string, engine *engine) error {
				requests, err := readRequests(in, name, engine.policy, o.samples)
				if err != nil {
					return err
				}
				return generate(c, engine, requests, o)
			})
		},
	}
	e.register(c)
	e.registerAdapter(c)
	registerDType(c, &e.dtype)
	flags := c.Flags()
	flags.IntVarP(&o.samples, "samples", "n", o.samples, "responses to each prompt")
	addSettings(flags, &o.Sampling)
	flags.Uint64Var(&o.Seed, "seed", 0, "seed of the sampling")
	flags.IntVar(&o.slots, "slots", o.slots, "sequences that are decoded at once; it decides speed and memory")
	return c
}

type generateOptions struct {
	sampler.Options
	samples, slots int
}

// What a machine can hold: the ranges of rollout.samples_per_prompt and rollout.slots.
const (
	maxSamples   = 65536
	maxSlots     = 65536
	maxResponses = 1 << 26
)

// validateSampling refuses impossible values of the flags that generate and
// eval share.
func validateSampling(s sampler.Sampling, samples, slots int) error {
	switch {
	case samples < 1:
		return usagef("--samples %d: must be at least 1", samples)
	case samples > maxSamples:
		return usagef("--samples %d: must be at most %d", samples, maxSamples)
	case slots < 1:
		return usagef("--slots %d: must be at least 1", slots)
	case slots > maxSlots:
		return usagef("--slots %d: must be at most %d", slots, maxSlots)
	case !(s.Temperature > 0) || math.IsInf(s.Temperature, 1):
		return usagef("--temperature %v: must be a finite number above 0; --greedy takes the likeliest token", s.Temperature)
	}
	return checkSettings(&s)
}

// readRequests reads all prompts, so that a bad row is reported before anything is
// computed.
func readRequests(in io.Reader, name string, policy *train.Policy, samples int) ([]sampler.Request, error) {
	type row struct {
		prompt
		Uniforms json.RawMessage `json:"uniforms"`
	}
	var requests []sampler.Request
	for number, line := range readLines[row](in, name) {
		if line.Err != nil {
			return nil, line.Err
		}
		ids, err := line.Row.ids(policy)
		if err == nil {
			err = checkLength("the prompt and a token of response", len(ids)+1, policy)
		}
		var uniforms [][]float32
		if err == nil {
			uniforms, err = parseUniforms(line.Row.Uniforms, samples)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, number, err)
		}
		requests = append(requests, sampler.Request{Prompt: ids, ID: uint64(len(requests)), Samples: samples, Uniforms: uniforms})
	}
	if len(requests) == 0 {
		return nil, fmt.Errorf("%s holds no prompts", name)
	}
	if n := len(requests) * samples; n > maxResponses {
		return nil, usagef("--samples %d: for the %d prompts of %s these are %d responses, more than %d", samples, len(requests), name, n, maxResponses)
	}
	return requests, nil
}

// parseUniforms reads a list of numbers for one sample, or a list of such lists.
func parseUniforms(text json.RawMessage, samples int) ([][]float32, error) {
	if len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	var lists [][]float64
	var list []float64
	if json.Unmarshal(text, &list) == nil {
		lists = [][]float64{list}
	} else if json.Unmarshal(text, &lists) != nil {
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

func generate(c *cobra.Command, e *engine, requests []sampler.Request, o generateOptions) error {
	longest := 0
	for _, r := range requests {
		longest = max(longest, len(r.Prompt))
	}
	total := len(requests) * o.samples
	decoder, err := e.env.NewDecoder(e.policy.Ring, min(o.slots, total), e.policy.MaxTokens(longest+o.MaxNewTokens))
	if err != nil {
		return err
	}
	defer decoder.Close()
	o.EOS = e.policy.Model.EOS

	bar := newProgress(c.ErrOrStderr(), isQuiet(c), "generate", "responses", int64(total))
	defer bar.finish()
	out := lineWriter{c.OutOrStdout()}
	// Lines are written in the order of the input, each when all before it are.
	ended, next := make(map[int]generated), 0
	var failed error
	_, _, err = sampler.Sample(c.Context(), decoder, o.Options, requests, func(r sampler.Response) {
		bar.add(1)
		g := generated{Index: r.Request, Sample: r.Sample, IDs: r.IDs, LogP: r.LogProb, Finish: r.Finish}
		if t := e.policy.Tokenizer; t != nil {
			text := t.Decode(r.IDs, true)
			g.Text = &text
		}
		ended[r.Request*o.samples+r.Sample] = g
		for g, ok := ended[next]; ok && failed == nil; g, ok = ended[next] {
			delete(ended, next)
			next++
			failed = out.write(g)
		}
	})
	return errors.Join(err, failed)
}
