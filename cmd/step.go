package cmd

import (
	"cmp"
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/policy"
	"onering/train"
	"onering/train/rl"
)

// newStep makes the command step, which takes one optimizer step on weighted tokens that another program gives.
func newStep() *cobra.Command {
	var o stepOptions
	s := modelSettings(withTrainDefaults, "optimizer")
	s.samplesOnly = false
	c := newCommand("step", &o, func(c *cobra.Command, args []string) error { return o.run(c, s, args) })
	s.addModelFlags(c, adapterFlag, "lora", "rollout.temperature",
		"optimizer.learning_rate", "optimizer.max_grad_norm", "optimizer.beta1", "optimizer.beta2", "optimizer.eps", "optimizer.weight_decay")
	c.MarkFlagsMutuallyExclusive("adapter", "lora")
	c.MarkFlagsMutuallyExclusive("state", "lora")
	return c
}

// A stepOptions has the flags of step that are not settings.
type stepOptions struct {
	rl.StepFiles
	Seed uint64 `flag:"lora-seed" help:"seed of a new adapter"`
}

// run takes one optimizer step on the rows of the input, and prints its report. With --lora the adapter is new.
// Step.Take writes the files of o.StepFiles, such as the folder of --out.
func (o stepOptions) run(c *cobra.Command, s *commandSettings, args []string) error {
	switch {
	case o.Out == "" && !o.Dry:
		return usagef("--out is not set: name the folder to write, or try with --dry-run")
	case o.Out != "" && o.Dry:
		return usagef("--dry-run writes no --out")
	}
	r, err := s.resolveModel(c, folderOfSettings) // of the adapter, or else of the model, that the settings name
	if err == nil {
		// notResumed: checkIneffective also warns of settings in a run file that have no effect.
		err = cmp.Or(checkIneffective(r.Resolved, notResumed), checkOutput(c, "grads", o.Grads))
	}
	if err != nil {
		return err
	}
	newAdapter := r.LoRA.On && r.LoRA.Adapter == ""
	if !r.LoRA.Trainable() {
		return usagef("--base-dtype %q: %s", r.LoRA.BaseDType, train.NotTrainable)
	}
	checked := r.Config
	switch rate := checked.Optimizer.LearningRate; {
	case rate == 0: // a step may have the rate 0, which changes no weight, and a run may not
		checked.Optimizer.LearningRate = 1
	case !(rate > 0) || math.IsInf(rate, 1):
		return usagef("--lr %v: must be a finite number, at least 0", rate)
	}
	if err := r.check(checked); err != nil {
		return err
	}
	step := rl.NewStep()
	step.StepFiles, step.Update, step.Temperature = o.StepFiles, r.Optimizer.UpdateSettings, r.Rollout.Temperature
	if !newAdapter && !r.Stated("optimizer.learning_rate") { // resolveModel set the larger rate of a new adapter
		step.Update.LearningRate = s.defaults().Optimizer.LearningRate
	}
	// oneProcess: no other ranks share the work. noNamedAdapters: p has at most the adapter that the settings name.
	return r.with(c, oneProcess, args, noNamedAdapters, func(in io.Reader, name string, p *policy.Policy) error {
		if newAdapter {
			if err := p.NewAdapter(r.LoRA.Settings, r.modelAsNamed, o.Seed); err != nil {
				return err
			}
			announceAdapter(p, step.Update.LearningRate)
		}
		if err := cli.EachRow(in, name, func(_, number int, row rl.WeighedRow) error {
			if err := step.Add(p, row); err != nil {
				return fmt.Errorf("%s:%d: %w", name, number, err)
			}
			return nil
		}); err != nil {
			return err
		}
		if step.Empty() {
			return fmt.Errorf("%s holds no sequences", name)
		}
		report, err := step.Take(c.Context(), p)
		if err != nil {
			return err
		}
		return cli.WriteLine(c.OutOrStdout(), report)
	})
}

func newWeights() *cobra.Command {
	s := newSettings(withTrainDefaults, "objective")
	var o struct {
		Explain bool `help:"print a table for people instead of JSON"`
	}
	c := newCommand("weights", &o, s.withResolved(func(c *cobra.Command, args []string, r *resolved) error { return runWeights(c, args, r, o.Explain) }))
	s.addRunFlags(c, "objective.name=objective")
	return c
}

// runWeights reads a batch and prints the weights that the objective gives its tokens: as JSON, or as a table to explain.
func runWeights(c *cobra.Command, args []string, r *resolved, explain bool) error {
	if err := checkIneffective(r.Resolved, notResumed); err != nil { // notResumed: settings of a run file count, too
		return err
	}
	return withInput(c, args, func(text io.Reader, name string) error {
		in, err := rl.ReadWeights(text)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		out, err := in.Weigh(r.Objective.Settings)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return show(c, !explain, in.Widen(out), out.Print) // JSON also has the tokens of an environment, with the weight 0
	})
}
