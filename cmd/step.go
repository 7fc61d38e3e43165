package cmd

import (
	"cmp"
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/internal/settings"
	"onering/policy"
	"onering/train/rl"
)

func newStep() *cobra.Command {
	var e engineFlags
	o := rl.NewStep()
	c := newCommand("step", nil, func(c *cobra.Command, args []string) error { return runStep(c, o, e, args) })
	e.register(c, false)
	flags := c.Flags()
	flags.StringVar(&o.State, "state", "", "folder of the optimizer's moments, as an earlier step wrote it")
	flags.StringVar(&o.Out, "out", "", "folder to write (required but for --dry-run)")
	flags.StringVar(&o.Grads, "grads", "", "also write the gradients, before clipping, to this safetensors file")
	settings.AddFlags(flags, &o.Update, "lr", "max-grad-norm", "beta1", "beta2", "eps", "weight-decay")
	settings.AddFlags(flags, &o.LoRA, "lora", "lora-rank", "lora-alpha", "lora-targets", "lora-rslora", "lora-init")
	flags.Uint64Var(&o.Seed, "lora-seed", 0, "seed of a new adapter")
	exclusive(c, "adapter", "lora")
	exclusive(c, "state", "lora")
	flags.Float64Var(&o.Temperature, "temperature", o.Temperature, "divisor of the logits")
	flags.BoolVar(&o.Dry, "dry-run", false, "compute loss and gradients, update nothing")
	markDirs(c, "state", "out")
	return c
}

func runStep(c *cobra.Command, o *rl.Step, f engineFlags, args []string) error {
	if err := cmp.Or(validateStep(o), checkOutput(c, "grads", o.Grads)); err != nil {
		return err
	}
	if err := checkAdapterFlags(c.Flags(), o.LoRA.On); err != nil {
		return err
	}
	if o.LoRA.On && !c.Flags().Changed("lr") {
		o.Update.LearningRate *= adapterRate
	}
	f.fresh = o.LoRA.On
	return f.with(c, args, func(in io.Reader, name string, p *policy.Policy) error {
		if o.LoRA.On {
			if err := p.NewAdapter(o.LoRA.Settings, f.model, o.Seed); err != nil {
				return err
			}
			announceAdapter(p, o.Update.LearningRate)
		}
		if err := eachRow(in, name, func(_, number int, row rl.WeighedRow) error {
			if err := o.Add(p, row); err != nil {
				return fmt.Errorf("%s:%d: %w", name, number, err)
			}
			return nil
		}); err != nil {
			return err
		}
		if o.Empty() {
			return fmt.Errorf("%s holds no sequences", name)
		}
		report, err := o.Take(c.Context(), p)
		if err != nil {
			return err
		}
		return cli.WriteLine(c.OutOrStdout(), report)
	})
}

func validateStep(o *rl.Step) error {
	switch {
	case o.Out == "" && !o.Dry:
		return usagef("--out is not set: name the folder to write, or try with --dry-run")
	case o.Out != "" && o.Dry:
		return usagef("--dry-run writes no --out")
	case !(o.Update.LearningRate >= 0) || math.IsInf(o.Update.LearningRate, 1):
		return usagef("--lr %v: must be a finite number, at least 0", o.Update.LearningRate)
	}
	if err := cmp.Or(checkTemperature(o.Temperature), checkSettings(&o.LoRA)); err != nil {
		return err
	}
	update := o.Update
	update.LearningRate = 1 // the rate passes this check: here it may be 0, for a step that changes no weight
	return checkSettings(&update)
}

func newWeights() *cobra.Command {
	var config configFlags
	var explain bool
	c := newCommand("weights", nil, func(c *cobra.Command, args []string) error { return runWeights(c, args, &config, explain) })
	config.registerObjective(c)
	c.Flags().BoolVar(&explain, "explain", false, "print a table for people instead of JSON")
	return c
}

// runWeights reads a batch and prints the weights that the objective gives its tokens.
func runWeights(c *cobra.Command, args []string, config *configFlags, explain bool) error {
	r, err := config.resolve(c, nil)
	if err != nil {
		return err
	}
	if err := r.Locate(r.Config.Objective.Validate()); err != nil {
		return usageError{err}
	}
	return withInput(c, args, func(text io.Reader, name string) error {
		in, err := rl.ReadWeights(text)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		out, err := in.Weigh(r.Objective.Settings)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		case explain:
			return out.Print(c.OutOrStdout())
		}
		return cli.WriteLine(c.OutOrStdout(), in.Widen(out))
	})
}
