package cmd

import (
	"fmt"
	"log/slog"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/models"
	"onering/policy"
	"onering/train/ranks"
	"onering/train/rl"
)

// maxRanks is more than the processors of any cluster that MPI has started.
const maxRanks = 1 << 20

// dryRun prints how much memory a run needs, of several ranks each of them, and returns
// an error if that is more than there is. planned is how many ranks the run shall have,
// each on a machine or a GPU of its own; 0 is as many as were started.
func dryRun(c *cobra.Command, config rl.Config, planned int, asJSON bool) error {
	if c.Flags().Changed("ranks") && (planned < 1 || planned > maxRanks) {
		return usagef("--ranks %d: must be in [1, %d]", planned, maxRanks)
	}
	t, err := joinTeam(c, config.Distributed)
	if err != nil {
		return err
	}
	split := splitOf(t)
	if planned > 0 {
		split.Ranks = planned
	}
	if launcher, _ := ranks.Launcher(); planned > 0 && launcher != "" {
		return t.End(usagef("--ranks %d: a launcher has started %d ranks, and the estimate is of those: leave one of the two out", planned, t.Size()))
	}
	_, err = ranks.FromFirst(t, func() (bool, error) { return true, printEstimate(c, config, split, asJSON) })
	return t.End(err)
}

// printEstimate prints what a run needs, and returns an error if that is more than there
// is.
func printEstimate(c *cobra.Command, config rl.Config, split rl.Split, asJSON bool) error {
	config, err := foreseen(c, config)
	if err != nil {
		return err
	}
	e, model, err := estimate(c, config, split)
	if err != nil {
		return err
	}
	if asJSON {
		err = cli.WriteLine(c.OutOrStdout(), e)
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

// foreseen is a configuration with the device that its run will be on in place of auto.
func foreseen(c *cobra.Command, config rl.Config) (rl.Config, error) {
	device, err := foreseenDevice(c, config.Runtime, config.LoRA.BaseDType, config.LoRA.On, config.Model.DType)
	config.Runtime.Device = device
	return config, err
}

// estimate computes how much memory a run needs.
func estimate(c *cobra.Command, config rl.Config, split rl.Split) (e rl.MemoryEstimate, model models.Model, err error) {
	local, err := localConfig(c, &config)
	if err != nil {
		return e, model, err
	}
	if model, err = policy.ReadModel(local.Model.Path); err != nil {
		return e, model, err
	}
	config.Model.Reference = local.Model.Reference
	e, err = rl.EstimateMemory(config, model, split)
	return e, model, err
}

// checkMemory refuses a run that cannot fit, and warns of one that may not fit.
func checkMemory(c *cobra.Command, config rl.Config, split rl.Split) error {
	config, err := foreseen(c, config)
	if err != nil {
		return err
	}
	e, model, err := estimate(c, config, split)
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
