package cmd

import (
	"fmt"

	"github.com/spf13/cobra"
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
     "sample_logp": [], "entropy": [], "token_advantage": [], "ids": [],
     "truncated", "components": {"NAME": {"value", "weight"}}, "greedy_reward"},
     ...], ...],
   "step", "steps", "state"}

A group is the responses to one prompt, and all groups are one round. Only
"reward", "logp" and "old_logp" are needed by all objectives. "sample_logp" are
the sampler's log-probs, where "old_logp" are others. "greedy_reward" is that of
the greedy response to the prompt, which remax needs. Output is one object with
the same groups:

  {"loss", "groups": [[{"advantage", "p", "ess", "target_ess", "clip_fraction",
     "clipped", "ratio", "log_ratio", "weights": []}, ...], ...], "state"}

Fields that the objective does not compute are left out. "state" is what the
objective remembers from step to step: give it to the next call. Only the
[objective] section of a run file, of --set and of the environment counts.

With --explain the output is a table with one line per response: its group and
number, its tokens, and

  A          the advantage
  f          the share of tokens with |d| > eps_ess
  eta*       the target ESS
  p, ESS     the exponent, and the ESS there
  r, log r   the effective ratio
  clipped    the share of tokens that the training clip cut
  top 10 %   the share of the gradient on the 10 % of tokens with most of it`,
		Example: `  onering weights --objective pmpo batch.json
  onering weights --objective pmpo --set objective.target=attainable --explain batch.json
  onering weights --config runs/grpo-qwen2.5-math-1.5b.toml < batch.json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return runWeights(c, args, &config, explain) },
	}
	config.register(c)
	c.Flags().BoolVar(&explain, "explain", false, "print a table for people instead of JSON")
	return c
}

// runWeights reads a batch and prints what the objective makes of it.
func runWeights(c *cobra.Command, args []string, config *configFlags, explain bool) error {
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
	batch, err := decodeWeights(in)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	result, state, err := computeWeights(r.Objective.Settings, batch)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if explain {
		return printWeights(c.OutOrStdout(), result)
	}
	return lineWriter{c.OutOrStdout()}.write(weightsOutput{result.Loss, result.Groups, state})
}
