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
	Results     []eval.Score
}

// record is the evaluation as a line of metrics.jsonl.
func (e Evaluation) record() metrics.Record {
	r := metrics.Record{}.With("kind", "eval").With("round", e.Round).With("step", e.Step)
	for _, x := range e.Results {
		name := "eval/" + x.Suite
		r = r.With(name+"/pass@1", x.Pass1.Value).With(name+"/pass@1_low", x.Pass1.Low).With(name+"/pass@1_high", x.Pass1.High)
		for j, at := range x.PassK {
			r = r.With(fmt.Sprintf("%s/pass@%d", name, at.K), at.Value).With(fmt.Sprintf("%s/maj@%d", name, at.K), x.MajorityK[j].Value)
		}
		r = r.With(name+"/response_length", x.Tokens).With(name+"/truncated_share", x.Truncated)
	}
	if len(e.Results) > 1 {
		r = r.With("eval/average/pass@1", *e.mean())
	}
	return r
}

// mean is the mean pass@1 of the suites, nil if there are none.
func (e Evaluation) mean() *float64 {
	if len(e.Results) == 0 {
		return nil
	}
	mean := 0.0
	for _, x := range e.Results {
		mean += x.Pass1.Value / float64(len(e.Results))
	}
	return &mean
}

// Fingerprint tells these weights from others: a checksum over all of them.
func (p *Policy) Fingerprint() string {
	data := p.Weights.Data
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), len(data)*4)
	return fmt.Sprintf("crc32c:%08x", crc32.Checksum(bytes, crc32.MakeTable(crc32.Castagnoli)))
}

// evaluateSuite evaluates a suite during training, in the way that c says.
func (t *Trainer) evaluateSuite(ctx context.Context, s eval.Suite, c EvalConfig) (eval.Score, error) {
	around := t.prompter.Template
	o := eval.Settings{
		Template: around.Name, System: around.System, Stops: around.Stops,
		Samples: c.Samples, Sampling: c.OrGreedy(), Seed: eval.TrainingSeed,
	}
	suites := []eval.Suite{s}
	responses, err := eval.New(eval.NewPlan(o, suites))
	if err != nil {
		return eval.Score{}, err
	}
	e := eval.Evaluator{
		Decoder: t.decoder, Prompter: t.prompter, EOS: t.Policy.Model.EOS, Reward: t.reward,
		Progress: func(int) { t.observer.Advance(1) },
	}
	if err := e.Evaluate(ctx, suites, responses); err != nil {
		return eval.Score{}, err
	}
	report, err := responses.Report(reward.SameAnswer(t.reward))
	if err != nil {
		return eval.Score{}, err
	}
	return report.Suites[0], nil
}
