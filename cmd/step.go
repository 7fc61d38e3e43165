package cmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/internal/files"
	"onering/internal/settings"
	"onering/models"
	"onering/policy"
	"onering/runtime"
	"onering/train"
	"onering/train/learn"
	"onering/train/rl"
)

func newStep() *cobra.Command {
	var e engineFlags
	o := defaultStep()
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
is updated or written but the gradients, if asked for.

With --adapter the step changes the adapter alone: --out receives its folder as
PEFT writes it, and --grads has the gradients under PEFT's names. --lora begins
a new adapter; the default learning rate is then ten times as large.`,
		Example: `  onering step --model M0 --out M1 --lr 1e-6 batch.jsonl
  onering step --model M1 --state M1/state --out M2 --lr 1e-6 batch.jsonl
  onering step --model M0 --dry-run --grads grads.safetensors batch.jsonl
  onering step --model M0 --lora --lora-rank 16 --out A1 --lr 1e-5 batch.jsonl
  onering step --model M0 --adapter A1 --state A1/state --out A2 --lr 1e-5 batch.jsonl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, e, args) },
	}
	e.register(c)
	e.registerAdapter(c)
	flags := c.Flags()
	flags.StringVar(&o.state, "state", "", "folder of the optimizer's moments, as an earlier step wrote it")
	flags.StringVar(&o.out, "out", "", "folder to write (required but for --dry-run)")
	flags.StringVar(&o.grads, "grads", "", "also write the gradients, before clipping, to this safetensors file")
	settings.AddFlags(flags, &o.update, "lr", "max-grad-norm", "beta1", "beta2", "eps", "weight-decay")
	settings.AddFlags(flags, &o.lora, "lora", "lora-rank", "lora-alpha", "lora-targets", "lora-rslora", "lora-init")
	flags.Uint64Var(&o.seed, "lora-seed", 0, "seed of a new adapter")
	exclusive(c, "adapter", "lora")
	exclusive(c, "state", "lora")
	flags.Float64Var(&o.Temperature, "temperature", o.Temperature, "divisor of the logits")
	flags.BoolVar(&o.dry, "dry-run", false, "compute loss and gradients, update nothing")
	must(c.MarkFlagDirname("state"))
	must(c.MarkFlagDirname("out"))
	return c
}

type stepOptions struct {
	learn.Options
	update            learn.UpdateSettings
	lora              train.LoRAConfig
	seed              uint64 // of a new adapter
	state, out, grads string
	dry               bool
}

func defaultStep() stepOptions {
	return stepOptions{
		update:  rl.Default().Optimizer.UpdateSettings,
		lora:    rl.Default().LoRA,
		Options: learn.Options{Temperature: 1, Passes: learn.Passes{MicroTokens: microTokens, Stash: models.StashAll}, Log: slog.Default()},
	}
}

func (o stepOptions) run(c *cobra.Command, f engineFlags, args []string) error {
	if err := o.validate(); err != nil {
		return err
	}
	if err := checkAdapterFlags(c.Flags(), o.lora.On); err != nil {
		return err
	}
	if o.lora.On && !c.Flags().Changed("lr") {
		o.update.LearningRate *= adapterRate
	}
	f.fresh = o.lora.On
	return f.with(c, args, func(in io.Reader, name string, p *policy.Policy) error {
		if err := o.begin(p, f.model); err != nil {
			return err
		}
		batch, err := readBatch(in, name, p)
		if err != nil {
			return err
		}
		report, err := takeStep(c.Context(), p, batch, o)
		if err != nil {
			return err
		}
		return cli.WriteLine(c.OutOrStdout(), report)
	})
}

// begin puts a new adapter beside the model that the flag --model calls name, where
// one is asked for.
func (o stepOptions) begin(policy *policy.Policy, name string) error {
	if !o.lora.On {
		return nil
	}
	if err := policy.NewAdapter(o.lora.Settings, name, o.seed); err != nil {
		return err
	}
	announceAdapter(policy, o.update.LearningRate)
	return nil
}

func (o stepOptions) validate() error {
	switch {
	case o.out == "" && !o.dry:
		return usagef("--out is not set: name the folder to write, or try with --dry-run")
	case o.out != "" && o.dry:
		return usagef("--dry-run writes no --out")
	case !(o.update.LearningRate >= 0) || math.IsInf(o.update.LearningRate, 1):
		return usagef("--lr %v: must be a finite number, at least 0", o.update.LearningRate)
	}
	if err := cmp.Or(checkTemperature(o.Temperature), checkSettings(&o.lora)); err != nil {
		return err
	}
	update := o.update
	update.LearningRate = 1 // checked: here it may be 0, for a step that changes no weight
	return checkSettings(&update)
}

func readBatch(in io.Reader, name string, p *policy.Policy) (batch learn.Batch, err error) {
	type row struct {
		policy.Pair
		Weights *[]float64 `json:"weights"`
	}
	for number, line := range cli.ReadLines[row](in, name) {
		if line.Err != nil {
			return batch, line.Err
		}
		s, err := line.Row.Sequence(p)
		switch {
		case err != nil:
		case line.Row.Weights == nil:
			return batch, missingField(name, number, "weights")
		case len(*line.Row.Weights) != s.Count():
			err = fmt.Errorf("%d weights for %d response tokens", len(*line.Row.Weights), s.Count())
		}
		if err != nil {
			return batch, fmt.Errorf("%s:%d: %w", name, number, err)
		}
		batch.Sequences, batch.Weights = append(batch.Sequences, s), append(batch.Weights, *line.Row.Weights)
	}
	if len(batch.Sequences) == 0 {
		return batch, fmt.Errorf("%s holds no sequences", name)
	}
	return batch, nil
}

// A stepReport is what `step` prints.
type stepReport struct {
	Loss     float64 `json:"loss"`
	GradNorm float64 `json:"grad_norm"`
	Tokens   int     `json:"tokens"` // of the responses
}

func takeStep(ctx context.Context, p *policy.Policy, batch learn.Batch, o stepOptions) (report stepReport, err error) {
	o.Optimizer, o.MaxGradNorm = o.update.Rule, o.update.MaxGradNorm
	stepper, err := learn.New(p.Env, p.Ring, o.Options)
	if err != nil {
		return report, err
	}
	defer stepper.Close()
	if a := p.Adapter; a != nil && a.Dropout != 0 {
		o.Log.Warn("the adapter's lora_dropout is not applied: gradients are those without dropout", "lora_dropout", a.Dropout)
	}
	optimizer := stepper.Optimizer()
	kept := slices.Collect(maps.Values(optimizer.State))
	if o.state != "" {
		if err := readState(o.state, optimizer); err != nil {
			return report, err
		}
		if err := p.Env.Upload(kept...); err != nil {
			return report, err
		}
	}
	r, err := stepper.Gradients(ctx, batch, nil)
	if err != nil {
		return report, err
	}
	report = stepReport{r.Loss.Value, r.GradNorm, r.Tokens}
	if o.grads != "" {
		err := stepper.WithoutScale(func(gradients []models.Tensor) error {
			return models.WriteSafetensors(files.WriteFile, o.grads, models.F32, gradients, nil)
		})
		if err != nil {
			return report, err
		}
	}
	if o.dry {
		return report, nil
	}
	if err := stepper.Update(o.update.LearningRate); err != nil {
		return report, err
	}
	trained := p.Ring.Trained()
	if err := p.Env.Download(append(kept, trained)...); err != nil {
		return report, err
	}
	return report, p.Save(o.out, trained, models.F32, func(d *files.Draft) error {
		state := stepState{Version: 1, Updates: optimizer.Updates}
		if base := p.Base(); base != nil {
			state.Base = base
		}
		return state.write(d, optimizer)
	})
}

// stateFile and the optimizer's state, each by its name with .safetensors, are
// the files of a state folder. Those of a checkpoint have the same names.
const stateFile = "state.json"

// A stepState is what a state folder says besides the optimizer's state.
type stepState struct {
	Version int `json:"version"`
	Updates int `json:"updates"` // made so far, for AdamW's bias correction
	// Base is the model beside an adapter, where it is known.
	Base any `json:"base,omitempty"`
}

func (s stepState) write(d *files.Draft, o *runtime.Optimizer) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	err = d.WriteFile(filepath.Join("state", stateFile), files.Content(append(text, '\n')))
	for name, w := range o.State {
		err = errors.Join(err, models.WriteSafetensors(d.WriteFile, filepath.Join("state", name+".safetensors"), models.F32, w.Tensors(), nil))
	}
	return err
}

func readState(dir string, o *runtime.Optimizer) error {
	path := filepath.Join(dir, stateFile)
	text, err := files.ReadIn(path, 1<<20)
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
	for name, w := range o.State {
		f, err := models.OpenSafetensors(filepath.Join(dir, name+".safetensors"))
		if err != nil {
			return fmt.Errorf("--state: %w", err)
		}
		err = errors.Join(w.Load(f), f.Close())
		if err != nil {
			return fmt.Errorf("--state: %w", err)
		}
	}
	o.Updates = s.Updates
	return nil
}
