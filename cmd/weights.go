package cmd

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/train/rl"
)

func newWeights() *cobra.Command {
	var config configFlags
	var explain bool
	c := newCommand("weights", nil, func(c *cobra.Command, args []string) error { return runWeights(c, args, &config, explain) })
	config.registerObjective(c)
	c.Flags().BoolVar(&explain, "explain", false, "print a table for people instead of JSON")
	return c
}

// runWeights reads a batch and prints what the objective makes of it.
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
		return cli.WriteLine(c.OutOrStdout(), in.Spread(out))
	})
}
