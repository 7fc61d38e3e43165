package train

import (
	"context"
	"path/filepath"
	"strings"

	"onering/sampler"
	"onering/verifier"
)

// An Evaluation is the results of all suites at one point of a run.
type Evaluation struct {
	Round, Step int
	Results     []Result
}

// A Result is how a policy did on one suite.
type Result struct {
	Suite    string
	Problems int
	Samples  int     // per problem
	Pass1    float64 // mean share of right responses, pass@1
	Length   float64 // mean response tokens
	Cut      float64 // share of truncated responses
}

func (e Evaluation) record() Record {
	r := Record{{"kind", "eval"}, {"round", e.Round}, {"step", e.Step}}
	for _, x := range e.Results {
		r = append(r, Metric{"eval/" + x.Suite + "/pass@1", x.Pass1}, Metric{"eval/" + x.Suite + "/response_length", x.Length}, Metric{"eval/" + x.Suite + "/truncated_share", x.Cut})
	}
	return r
}

// A suite is a set of held-out problems.
type suite struct {
	name     string
	problems []Problem
}

// heldOutSums is how many problems the embedded task is evaluated on: enough
// for a standard error of about two points.
const heldOutSums = 512

// evalSeed orders the embedded held-out problems; it is the same for every run
// so that runs compare.
const evalSeed = 1 << 40

func openSuite(name string) (suite, error) {
	problems, _, err := OpenProblems(name, "", 0, true)
	if err != nil {
		return suite{}, err
	}
	if t, ok := problems.(table); ok {
		base := filepath.Base(name)
		return suite{strings.TrimSuffix(base, filepath.Ext(base)), t}, nil
	}
	return suite{strings.TrimPrefix(name, "builtin:"), problems.Take(evalSeed, 0, heldOutSums)}, nil
}

// run samples each problem and grades the responses. The draws do not depend
// on the training seed or the round.
func (s suite) run(ctx context.Context, d sampler.Decoder, p *Prompter, c EvalConfig, maxNewTokens int, v verifier.Verifier, progress func(int)) (Result, error) {
	o := Sampling{Temperature: c.Temperature, TopP: 1, MaxNewTokens: maxNewTokens, Samples: c.Samples, Seed: evalSeed}
	if c.Temperature == 0 {
		o.Temperature, o.Greedy = 1, true
	}
	rollouts, _, err := Roll(ctx, d, p, s.problems, o, v, progress)
	if err != nil {
		return Result{}, err
	}
	r := Result{Suite: s.name, Problems: len(s.problems), Samples: c.Samples}
	for i := range rollouts {
		x := &rollouts[i]
		r.Pass1 += x.Reward
		r.Length += float64(len(x.Response))
		if x.Truncated {
			r.Cut++
		}
	}
	n := float64(len(rollouts))
	r.Pass1, r.Length, r.Cut = r.Pass1/n, r.Length/n, r.Cut/n
	return r, nil
}
