package cmd

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"onering/reward"
	"onering/train"
)

// rewardFlags choose the reward of the commands that grade without a run.
type rewardFlags struct {
	file, name string
	sets       []string
}

func (f *rewardFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.file, "config", "", "run file whose [reward] grades")
	flags.StringVar(&f.name, "reward", "", "reward that grades, in place of the run file's: "+strings.Join(reward.Names(), ", "))
	flags.StringArrayVar(&f.sets, "set", nil, "section.key=value in place of a key of the run file, such as reward.name=math; repeatable")
	must(c.MarkFlagFilename("config", "toml"))
	must(c.RegisterFlagCompletionFunc("reward", cobra.FixedCompletions(reward.Names(), cobra.ShellCompDirectiveNoFileComp)))
}

// resolve returns the configuration that the flags state: the defaults without them.
// Only its reward is checked.
func (f *rewardFlags) resolve(c *cobra.Command) (train.Config, error) {
	var base layer
	if f.file != "" {
		var err error
		if base, err = fileLayer(f.file, c.InOrStdin()); err != nil {
			return train.Config{}, err
		}
	}
	flags, err := flagLayer(f.sets)
	if err != nil {
		return train.Config{}, err
	}
	if f.name != "" {
		flags = append(flags, parseText("reward", "name", "--reward", f.name))
	}
	r, err := resolve(base, envLayer(os.Environ()), flags)
	if err != nil {
		return train.Config{}, err
	}
	return r.Config, r.locate(r.Config.Reward.Validate())
}

// given says whether the reward may be another than the default.
func (f *rewardFlags) given() bool {
	return f.file != "" || f.name != "" || len(f.sets) > 0 || slices.ContainsFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, envPrefix+"REWARD_") })
}
