package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"onering/objectives"
)

func newWeights() *cobra.Command {
	var config configFlags
	var explain bool
	c := &cobra.Command{
		Use:   "weights [--objective NAME] [FILE]",
		Short: "Compute the loss and the token weights of an objective",
		Long: `Compute what an objective makes of a batch, without a model: the loss, and for
each token the derivative of the loss with respect to its log-prob. Input is one
JSON object, from FILE or stdin:

  {"groups": [[{"reward", "logp": [], "old_logp": [], "ref_logp": [],
     "entropy": [], "token_advantage": []}, ...], ...],
   "step", "steps", "state"}

A group is the responses to one prompt. Only "reward", "logp" and "old_logp" are
needed by all objectives. Output is one object with the same groups:

  {"loss", "groups": [[{"advantage", "p", "ess", "target_ess", "clip_fraction",
     "clipped", "ratio", "log_ratio", "weights": []}, ...], ...], "state"}

Fields that the objective lacks are left out. "state" is what it remembers from
step to step, to be given to the next call. Of a run file, --set and the
environment only the [objective] section counts.`,
		Example: `  onering weights --objective pmpo batch.json
  onering weights --objective pmpo --set objective.target=attainable --explain batch.json
  onering weights --config runs/grpo-qwen2.5-math-1.5b.toml < batch.json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := config.resolve(c, nil)
			if err != nil {
				return err
			}
			if err := r.validateObjective(); err != nil {
				return err
			}
			in, name, err := openInput("input", inputName(args), c.InOrStdin())
			if err != nil {
				return err
			}
			defer in.Close()
			batch, err := objectives.DecodeWeights(in)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			result, err := objectives.ComputeWeights(r.Objective.Settings, batch)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if explain {
				return result.Explain(c.OutOrStdout())
			}
			return lineWriter{c.OutOrStdout()}.write(result)
		},
	}
	config.register(c)
	c.Flags().BoolVar(&explain, "explain", false, "print a table for people instead of JSON")
	return c
}
