package cmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"onering/reward"
	"onering/train/rl"
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
// Only its reward is checked. The reward is told the prompt template, unless it is
// "" and that of the configuration holds.
func (f *rewardFlags) resolve(c *cobra.Command, template string) (rl.Config, error) {
	r, err := resolveFlags(c, f.file, f.sets, "reward", f.name, nil)
	if err != nil {
		return rl.Config{}, err
	}
	if err := r.locate(r.Config.Reward.Validate()); err != nil {
		return rl.Config{}, err
	}
	if template != "" {
		reward.SetTemplate(r.Reward.Rule, template)
	}
	return r.Config, nil
}

// describeReward states the settings of a reward in a line; nothing for the default,
// wherever that looks for answers.
func describeReward(c rl.Config) string {
	text := func(c rl.Config) string {
		var list []string
		for _, s := range sectionsOf(&c) {
			for _, f := range s.fields {
				if section, ok := strings.CutPrefix(s.name+".", "reward."); ok {
					list = append(list, fmt.Sprintf("%s%s=%v", section, f.Key, f.Value))
				}
			}
		}
		return strings.Join(list, " ")
	}
	plain := rl.Default()
	if rule, err := reward.WithExtract(plain.Reward.Rule, reward.Extract(c.Reward.Rule)); err == nil {
		plain.Reward.Rule = rule
	}
	if s := text(c); s != text(plain) {
		return s
	}
	return ""
}
