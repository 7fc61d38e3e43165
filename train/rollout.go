package train

import (
	"context"
	"fmt"
	goruntime "runtime"
	"sync"

	"onering/runtime"
	"onering/sampler"
	"onering/tokenize"
	"onering/verifier"
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
	Verdict  verifier.Result
	// Truncated responses reached the token limit; they earn 0 whatever they say.
	Truncated bool
	Reward    float64
}

// sequence is the rollout as the learner wants it.
func (r *Rollout) sequence() runtime.Sequence {
	return runtime.Sequence{Tokens: append(append([]int32{}, r.Prompt...), r.Response...), Prompt: len(r.Prompt)}
}

// A Prompter turns problems into token ids.
type Prompter struct {
	policy   *Policy
	template tokenize.Template
}

// NewPrompter makes a Prompter for a policy that has a tokenizer and, where the
// template is its chat template, has that, too.
func NewPrompter(p *Policy, template tokenize.Template) (*Prompter, error) {
	if err := p.NeedTokenizer(); err != nil {
		return nil, err
	}
	if template.Chat { // what fails for one problem fails for all
		if _, _, err := p.Tokenizer.Prompt(template, "x"); err != nil {
			return nil, fmt.Errorf("train: template \"chat\" with the tokenizer of %s: %w", p.Dir, err)
		}
	}
	return &Prompter{p, template}, nil
}

// Encode returns the ids of a problem's prompt.
func (p *Prompter) Encode(q Problem) ([]int32, error) {
	if q.Plain {
		return p.policy.Tokenizer.Encode(q.Text), nil
	}
	_, ids, err := p.policy.Tokenizer.Prompt(p.template, q.Text)
	if err != nil {
		return nil, fmt.Errorf("train: problem %q: %w", q.ID, err)
	}
	return ids, nil
}

// Stops are the strings at which responses to this template end.
func (p *Prompter) Stops() []string { return p.template.Stops }

// A Sampling says how Roll samples.
type Sampling struct {
	Temperature, TopP float64
	TopK              int
	Greedy            bool
	MaxNewTokens      int
	Samples           int    // K
	Seed              uint64 // of the run
	FirstID           uint64 // the sampler's key of the first problem
}

// Roll samples K responses for each problem and grades them. The rollouts are
// in the order of the problems, then of the samples, whatever the schedule.
// progress may be nil; it is told of each response's tokens as it ends.
func Roll(ctx context.Context, d sampler.Decoder, p *Prompter, problems []Problem, s Sampling, v verifier.Verifier, progress func(tokens int)) ([]Rollout, sampler.Stats, error) {
	reqs := make([]sampler.Request, len(problems))
	for i, q := range problems {
		prompt, err := p.Encode(q)
		if err != nil {
			return nil, sampler.Stats{}, err
		}
		reqs[i] = sampler.Request{Prompt: prompt, ID: s.FirstID + uint64(i), Samples: s.Samples}
	}
	opts := sampler.Options{
		Temperature: s.Temperature, TopP: s.TopP, TopK: s.TopK, Greedy: s.Greedy,
		MaxNewTokens: s.MaxNewTokens, EOS: p.policy.Model.EOS, Seed: s.Seed,
		Stops: p.Stops(), Text: func() sampler.TextDecoder { return p.policy.Tokenizer.NewDecoder() },
	}
	var done func(sampler.Response)
	if progress != nil {
		done = func(r sampler.Response) { progress(len(r.IDs)) }
	}
	responses, stats, err := sampler.Sample(ctx, d, opts, reqs, done)
	if err != nil {
		return nil, stats, fmt.Errorf("train: sampling: %w", err)
	}
	out := make([]Rollout, len(responses))
	for i, r := range responses {
		out[i] = Rollout{
			Problem: r.Request, Sample: r.Sample, Prompt: reqs[r.Request].Prompt, Response: r.IDs,
			LogProb: float64s(r.LogProb), Entropy: float64s(r.Entropy), Truncated: r.Finish == sampler.Length,
		}
	}
	grade(out, problems, p, v)
	return out, stats, nil
}

// grade decodes and verifies the rollouts on all cores.
func grade(rollouts []Rollout, problems []Problem, p *Prompter, v verifier.Verifier) {
	var wg sync.WaitGroup
	workers := goruntime.GOMAXPROCS(0)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < len(rollouts); i += workers {
				r := &rollouts[i]
				r.Text = p.policy.Tokenizer.Decode(r.Response, true)
				r.Verdict = v.VerifyAny(problems[r.Problem].Answers, r.Text)
				if r.Verdict.Correct && !r.Truncated {
					r.Reward = 1
				}
			}
		})
	}
	wg.Wait()
}

func float64s(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}
