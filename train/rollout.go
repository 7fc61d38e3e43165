package train

import (
	"context"

	"onering/data"
	"onering/reward"
	"onering/runtime"
	"onering/sampler"
)

// A Rollout is one response to a problem, graded.
type Rollout struct {
	Problem  int // index into the round's problems
	Sample   int // 0 to K-1
	Prompt   []int32
	Response []int32
	LogProb  []float64 // per response token, as the sampler saw it
	Entropy  []float64
	Text     string
	Score    reward.Score
	// Truncated responses reached the token limit.
	Truncated bool
}

// sequence is the rollout as the learner wants it.
func (r *Rollout) sequence() runtime.Sequence {
	return runtime.Sequence{Tokens: append(append([]int32{}, r.Prompt...), r.Response...), Prompt: len(r.Prompt)}
}

// A Request says how Roll samples.
type Request struct {
	sampler.Sampling
	EOS     []int32 // the tokens that end a response
	Samples int     // K
	Seed    uint64  // of the run
	FirstID uint64  // the sampler's key of the first problem
}

// Roll samples K responses to each problem and has r grade those to a problem
// together. The rollouts are in the order of the problems, then of the samples,
// whatever the schedule. progress may be nil; it is told of each response's
// tokens when it is graded.
func Roll(ctx context.Context, d sampler.Decoder, p *data.Prompter, problems []data.Problem, s Request, r reward.Reward, progress func(tokens int)) ([]Rollout, sampler.Stats, error) {
	tasks := make([]reward.Task, len(problems))
	for i, q := range problems {
		text, prompt, err := p.Prompt(q)
		if err != nil {
			return nil, sampler.Stats{}, err
		}
		tasks[i] = reward.Task{Problem: q, Prompt: text, Request: sampler.Request{Prompt: prompt, ID: s.FirstID + uint64(i), Samples: s.Samples}}
	}
	opts := sampler.Options{
		Sampling: s.Sampling, EOS: s.EOS, Seed: s.Seed,
		Stops: p.Template.Stops, Text: func() sampler.TextDecoder { return p.Tokenizer.NewDecoder() },
	}
	out := make([]Rollout, len(problems)*s.Samples)
	grader := reward.Grader{Reward: r, Decode: func(ids []int32) string { return p.Tokenizer.Decode(ids, true) }, Together: true}
	stats, err := grader.Sample(ctx, d, opts, tasks, func(g reward.Graded) error {
		out[g.Request*s.Samples+g.Sample] = Rollout{
			Problem: g.Request, Sample: g.Sample, Prompt: tasks[g.Request].Request.Prompt, Response: g.IDs,
			LogProb: float64s(g.LogProb), Entropy: float64s(g.Entropy), Text: g.Text,
			Score: g.Score, Truncated: g.Truncated(),
		}
		if progress != nil {
			progress(len(g.IDs))
		}
		return nil
	})
	return out, stats, err
}

func float64s(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}
