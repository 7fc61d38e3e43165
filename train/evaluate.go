package train

import (
	"context"
	"fmt"
	"hash/crc32"
	"unsafe"

	"onering/eval"
	"onering/reward"
	"onering/train/metrics"
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
	// Score has all of it, with confidence intervals.
	Score eval.Score
}

func (e Evaluation) record() metrics.Record {
	r := metrics.Record{}.With("kind", "eval").With("round", e.Round).With("step", e.Step)
	mean := 0.0
	for _, x := range e.Results {
		name := "eval/" + x.Suite
		r = r.With(name+"/pass@1", x.Pass1).With(name+"/pass@1_low", x.Score.Pass1.Low).With(name+"/pass@1_high", x.Score.Pass1.High)
		for j, at := range x.Score.PassK {
			r = r.With(fmt.Sprintf("%s/pass@%d", name, at.K), at.Value).With(fmt.Sprintf("%s/maj@%d", name, at.K), x.Score.MajorityK[j].Value)
		}
		r = r.With(name+"/response_length", x.Length).With(name+"/truncated_share", x.Cut)
		mean += x.Pass1 / float64(len(e.Results))
	}
	if len(e.Results) > 1 {
		r = r.With("eval/average/pass@1", mean)
	}
	return r
}

// Fingerprint tells these weights from others: a checksum over all of them.
func (p *Policy) Fingerprint() string {
	data := p.Weights.Data
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), len(data)*4)
	return fmt.Sprintf("crc32c:%08x", crc32.Checksum(bytes, crc32.MakeTable(crc32.Castagnoli)))
}

// evaluateSuite evaluates a suite during training, in the way that c says.
func (t *Trainer) evaluateSuite(ctx context.Context, s eval.Suite, c EvalConfig) (Result, error) {
	around := t.prompter.Template
	o := eval.Settings{
		Template: around.Name, System: around.System, Stops: around.Stops,
		Samples: c.Samples, Sampling: c.OrGreedy(), Seed: eval.TrainingSeed,
	}
	suites := []eval.Suite{s}
	responses, err := eval.New(eval.NewPlan(o, suites))
	if err != nil {
		return Result{}, err
	}
	e := eval.Evaluator{
		Decoder: t.decoder, Prompter: t.prompter, EOS: t.Policy.Model.EOS, Reward: t.reward,
		Progress: func(int) { t.observer.Advance(1) },
	}
	if err := e.Evaluate(ctx, suites, responses); err != nil {
		return Result{}, err
	}
	report, err := responses.Report(reward.SameAnswer(t.reward))
	if err != nil {
		return Result{}, err
	}
	x := report.Suites[0]
	return Result{Suite: x.Suite, Problems: x.Problems, Samples: x.Samples, Pass1: x.Pass1.Value, Length: x.Tokens, Cut: x.Truncated, Score: x}, nil
}
