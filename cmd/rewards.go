package cmd

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"onering/internal/scaffold"
	"onering/reward"
	_ "onering/reward/all"
	"onering/train/rl"
)

func newRewards() *cobra.Command {
	return pluginCommands{
		kind: "reward", article: "a", plural: "rewards", sample: "math",
		names: reward.Names,
		list:  listRewards,
		choose: func(name string) (rl.Config, error) {
			r, err := newReward(name)
			return rl.Config{Reward: rl.RewardConfig{Name: name, Rule: r}}, err
		},
		begin: scaffold.Reward,
	}.command()
}

// listRewards writes the name of each reward and what it does.
func listRewards(c *cobra.Command, asJSON bool) error {
	type line struct {
		Name  string `json:"name"`
		About string `json:"about"`
	}
	lines := []line{}
	for _, name := range reward.Names() {
		r, err := reward.New(name)
		if err != nil {
			return err
		}
		lines = append(lines, line{name, reward.About(r)})
	}
	if asJSON {
		return lineWriter{c.OutOrStdout()}.write(lines)
	}
	t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	for _, l := range lines {
		fmt.Fprintln(t, strings.TrimSuffix(l.Name+"\t"+l.About, "\t"))
	}
	return t.Flush()
}
