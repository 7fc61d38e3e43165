package cmd

import (
	"fmt"
	"log/slog"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"onering/models"
	"onering/train"
)

// dryRun prints how much memory a run needs, and returns an error if that is more
// than there is.
func dryRun(c *cobra.Command, config train.Config, asJSON bool) error {
	e, model, err := estimate(c, config)
	if err != nil {
		return err
	}
	if asJSON {
		err = lineWriter{c.OutOrStdout()}.write(e)
	} else {
		t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
		for _, line := range e.Lines() {
			fmt.Fprintf(t, "%s\t%s\n", line[0], line[1])
		}
		err = t.Flush()
	}
	if err != nil {
		return err
	}
	return e.Check(config, model)
}

// estimate computes how much memory a run needs.
func estimate(c *cobra.Command, config train.Config) (e train.MemoryEstimate, model models.Model, err error) {
	local, err := localConfig(c, &config)
	if err != nil {
		return e, model, err
	}
	if model, err = train.ReadModel(local.Model.Path); err != nil {
		return e, model, err
	}
	config.Model.Reference = local.Model.Reference
	e, err = train.EstimateMemory(config, model)
	return e, model, err
}

// checkMemory refuses a run that cannot fit, and warns of one that may not fit.
func checkMemory(c *cobra.Command, config train.Config) error {
	e, model, err := estimate(c, config)
	if err != nil {
		return err
	}
	if err := e.Refuse(config, model); err != nil {
		return err
	}
	if err := e.Check(config, model); err != nil {
		slog.Warn(err.Error())
	}
	return nil
}
