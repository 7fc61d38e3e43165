package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"onering/internal/scaffold"
	"onering/objectives"
	_ "onering/objectives/all"
	"onering/train/rl"
)

func newObjectives() *cobra.Command {
	return pluginCommands{
		kind: "objective", article: "an", plural: "objectives", sample: "pmpo",
		names: objectives.Names,
		list: func(c *cobra.Command, asJSON bool) error {
			if asJSON {
				return lineWriter{c.OutOrStdout()}.write(objectives.Names())
			}
			for _, name := range objectives.Names() {
				fmt.Fprintln(c.OutOrStdout(), name)
			}
			return nil
		},
		choose: func(name string) (rl.Config, error) {
			o, err := newObjective(name)
			return rl.Config{Objective: rl.ObjectiveConfig{Name: name, Settings: o}}, err
		},
		begin: scaffold.Objective,
	}.command()
}
