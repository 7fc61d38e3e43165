package cmd

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"onering/models"
	"onering/runtime"
	"onering/train"
)

func newStep() *cobra.Command {
	var e engineFlags
	var o stepOptions
	c := &cobra.Command{
		Use:   "step --model DIR --out DIR [FILE]",
		Short: "Take one optimizer step with weights of your own",
		Long: `Take one optimizer step. Input is one batch, a JSON object per line from FILE or
stdin: {"prompt_ids", "response_ids", "weights"}, with a weight per response
token. The loss is the sum of weights[t] * logp[t] over all tokens of all lines,
so a weight is the derivative of your loss with respect to the log-prob of that
token. Its gradient is clipped by its norm and goes into one AdamW update.

Prints {"loss", "grad_norm", "tokens"}; the norm is the one before clipping.
--out receives a model folder and the optimizer's moments in its state/, which
--state reads. Without --state the moments begin at zero. With --dry-run nothing
is updated or written but the gradients, if asked for.`,
		Example: `  onering step --model M0 --out M1 --lr 1e-6 batch.jsonl
  onering step --model M1 --state M1/state --out M2 --lr 1e-6 batch.jsonl
  onering step --model M0 --dry-run --grads grads.safetensors batch.jsonl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return e.with(c, args, func(in io.Reader, name string, engine *engine) error {
				batch, err := readBatch(in, name, engine.policy)
				if err != nil {
					return err
				}
				report, err := takeStep(engine, batch, o)
				if err != nil {
					return err
				}
				return lineWriter{c.OutOrStdout()}.write(report)
			})
		},
	}
	e.register(c)
	flags := c.Flags()
	flags.StringVar(&o.state, "state", "", "folder of the optimizer's moments, as an earlier step wrote it")
	flags.StringVar(&o.out, "out", "", "folder to write (required but for --dry-run)")
	flags.StringVar(&o.grads, "grads", "", "also write the gradients, before clipping, to this safetensors file")
	flags.Float64Var(&o.adam.LearningRate, "lr", 1e-6, "learning rate")
	flags.Float64Var(&o.adam.Beta1, "beta1", 0.9, "decay of the first moment")
	flags.Float64Var(&o.adam.Beta2, "beta2", 0.95, "decay of the second moment")
	flags.Float64Var(&o.adam.Eps, "eps", 1e-8, "added to the root of the second moment")
	flags.Float64Var(&o.adam.WeightDecay, "weight-decay", 0, "decoupled weight decay")
	flags.Float64Var(&o.adam.MaxGradNorm, "max-grad-norm", 1, "clip the gradient to this norm; 0 is off")
	flags.Float64Var(&o.temperature, "temperature", 1, "divisor of the logits")
	flags.BoolVar(&o.dry, "dry-run", false, "compute loss and gradients, update nothing")
	must(c.MarkFlagDirname("state"))
	must(c.MarkFlagDirname("out"))
	return c
}

type stepOptions struct {
	state, out, grads string
	adam              runtime.AdamW
	temperature       float64
	dry               bool
}

func (o stepOptions) validate() error {
	a := o.adam
	finite := func(x float64) bool { return x-x == 0 }
	switch {
	case o.out == "" && !o.dry:
		return usagef("--out is not set: name the folder to write, or try with --dry-run")
	case o.out != "" && o.dry:
		return usagef("--dry-run writes no --out")
	case !(a.LearningRate >= 0) || !finite(a.LearningRate):
		return usagef("--lr %v: must be a finite number, at least 0", a.LearningRate)
	case !(a.Beta1 >= 0 && a.Beta1 < 1):
		return usagef("--beta1 %v: must be in [0, 1)", a.Beta1)
	case !(a.Beta2 >= 0 && a.Beta2 < 1):
		return usagef("--beta2 %v: must be in [0, 1)", a.Beta2)
	case !(a.Eps > 0) || !finite(a.Eps):
		return usagef("--eps %v: must be a finite number above 0", a.Eps)
	case !(a.WeightDecay >= 0) || !finite(a.WeightDecay):
		return usagef("--weight-decay %v: must be a finite number, at least 0", a.WeightDecay)
	case !(a.MaxGradNorm >= 0) || !finite(a.MaxGradNorm):
		return usagef("--max-grad-norm %v: must be a finite number, at least 0; 0 turns it off", a.MaxGradNorm)
	case !(o.temperature > 0) || !finite(o.temperature):
		return usagef("--temperature %v: must be a finite number above 0", o.temperature)
	}
	return nil
}

// A weighted sequence of the batch.
type weighted struct {
	runtime.Sequence
	weights []float64
}

func readBatch(in io.Reader, name string, policy *train.Policy) ([]weighted, error) {
	type row struct {
		pair
		Weights *[]float64 `json:"weights"`
	}
	var batch []weighted
	for number, line := range readLines[row](in, name) {
		if line.Err != nil {
			return nil, line.Err
		}
		s, err := line.Row.sequence(policy)
		switch {
		case err != nil:
		case line.Row.Weights == nil:
			return nil, missingField(name, number, "weights")
		case len(*line.Row.Weights) != len(s.Tokens)-s.Prompt:
			err = fmt.Errorf("%d weights for %d response tokens", len(*line.Row.Weights), len(s.Tokens)-s.Prompt)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, number, err)
		}
		batch = append(batch, weighted{s, *line.Row.Weights})
	}
	if len(batch) == 0 {
		return nil, fmt.Errorf("%s holds no sequences", name)
	}
	return batch, nil
}

// A stepReport is what `step` prints.
type stepReport struct {
	Loss     float64 `json:"loss"`
	GradNorm float64 `json:"grad_norm"`
	Tokens   int     `json:"tokens"` // of the responses
}

func takeStep(e *engine, batch []weighted, o stepOptions) (report stepReport, err error) {
	learner, err := e.env.NewLearner(e.policy.Ring, runtime.LearnerOptions{Stash: models.StashAll})
	if err != nil {
		return report, err
	}
	defer learner.Close()
	optimizer, err := e.env.NewOptimizer(e.policy.Ring, learner.Gradients, runtime.OptimizerOptions{})
	if err != nil {
		return report, err
	}
	defer optimizer.Close()
	if o.state != "" {
		if err := readState(o.state, optimizer); err != nil {
			return report, err
		}
		if err := e.env.Upload(optimizer.First, optimizer.Second); err != nil {
			return report, err
		}
	}
	if report.Loss, report.Tokens, err = accumulate(learner, batch, o.temperature); err != nil {
		return report, err
	}
	if report.GradNorm, err = optimizer.GradNorm(); err != nil {
		return report, err
	}
	if o.grads != "" {
		if err := e.env.Download(learner.Gradients); err != nil {
			return report, err
		}
		if err := models.WriteSafetensors(o.grads, models.F32, learner.Gradients.Tensors(), nil); err != nil {
			return report, err
		}
	}
	if o.dry {
		return report, nil
	}
	if _, err := optimizer.Step(o.adam); err != nil {
		return report, err
	}
	if err := e.env.Download(e.policy.Weights, optimizer.First, optimizer.Second); err != nil {
		return report, err
	}
	return report, e.policy.Model.Save(o.out, e.policy.Weights, models.SaveOptions{
		Tokenizer: e.policy.Dir,
		Extra:     func(dir string) error { return writeState(filepath.Join(dir, "state"), optimizer) },
	})
}

// accumulate adds the gradient of the batch to the learner's and returns the
// loss, sum w_t logp_t. Long sequences go first, so that the portions that
// follow fit into the memory they took.
func accumulate(l *runtime.Learner, batch []weighted, temperature float64) (loss float64, tokens int, err error) {
	batch = slices.Clone(batch)
	slices.SortStableFunc(batch, func(a, b weighted) int { return cmp.Compare(len(b.Tokens), len(a.Tokens)) })
	for from := 0; from < len(batch); {
		to, size := from, 0
		for to < len(batch) && (to == from || size+len(batch[to].Tokens) <= microTokens) {
			size += len(batch[to].Tokens)
			to++
		}
		part, n, err := accumulatePart(l, batch[from:to], temperature)
		if err != nil {
			return 0, 0, err
		}
		loss, tokens, from = loss+part, tokens+n, to
	}
	if loss-loss != 0 {
		return 0, 0, fmt.Errorf("step: the loss is %v; nothing was updated", loss)
	}
	return loss, tokens, nil
}

func accumulatePart(l *runtime.Learner, batch []weighted, temperature float64) (loss float64, tokens int, err error) {
	sequences, weights := make([]runtime.Sequence, len(batch)), make([][]float64, len(batch))
	for i, s := range batch {
		sequences[i], weights[i] = s.Sequence, s.weights
	}
	pass, err := l.Forward(sequences, temperature, true)
	if err != nil {
		return 0, 0, err
	}
	defer pass.Release()
	for i, logp := range pass.LogProb {
		for t, x := range logp {
			loss += weights[i][t] * float64(x)
		}
		tokens += len(logp)
	}
	return loss, tokens, pass.Backward(weights, nil)
}

// The files of a state folder. Those of a checkpoint have the same names.
const (
	stateFile        = "state.json"
	firstMomentFile  = "exp_avg.safetensors"
	secondMomentFile = "exp_avg_sq.safetensors"
)

// A stepState is what a state folder says besides the moments.
type stepState struct {
	Version int `json:"version"`
	Updates int `json:"updates"` // made so far, for AdamW's bias correction
}

func writeState(dir string, o *runtime.Optimizer) error {
	if err := os.Mkdir(dir, 0o777); err != nil {
		return err
	}
	text, err := json.Marshal(stepState{Version: 1, Updates: o.Steps})
	if err != nil {
		return err
	}
	err = models.WriteFile(filepath.Join(dir, stateFile), func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
	return errors.Join(err,
		models.WriteSafetensors(filepath.Join(dir, firstMomentFile), models.F32, o.First.Tensors(), nil),
		models.WriteSafetensors(filepath.Join(dir, secondMomentFile), models.F32, o.Second.Tensors(), nil))
}

func readState(dir string, o *runtime.Optimizer) error {
	path := filepath.Join(dir, stateFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	var s stepState
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("--state: %s: %w", path, err)
	}
	if s.Version != 1 || s.Updates < 0 || s.Updates > math.MaxInt32 {
		return fmt.Errorf("--state: %s: version %d with %d updates; this program reads version 1", path, s.Version, s.Updates)
	}
	for name, w := range map[string]*models.Weights{firstMomentFile: o.First, secondMomentFile: o.Second} {
		f, err := models.OpenSafetensors(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("--state: %w", err)
		}
		err = errors.Join(w.Load(f), f.Close())
		if err != nil {
			return fmt.Errorf("--state: %w", err)
		}
	}
	o.Steps = s.Updates
	return nil
}
