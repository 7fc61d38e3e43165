package cmd

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"onering/internal/scaffold"
	"onering/models"
)

func newModels() *cobra.Command {
	return pluginCommands{
		kind: "family", article: "a", plural: "models",
		names: models.Families,
		list:  listFamilies,
		begin: scaffold.Model,
	}.command()
}

// listFamilies writes the model_type of each family and which models are of it.
func listFamilies(c *cobra.Command, asJSON bool) error {
	type line struct {
		Name  string `json:"name"`
		About string `json:"about"`
	}
	lines := []line{}
	for _, name := range models.Families() {
		lines = append(lines, line{name, models.About(name)})
	}
	if asJSON {
		return lineWriter{c.OutOrStdout()}.write(lines)
	}
	t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	for _, l := range lines {
		fmt.Fprintln(t, l.Name+"\t"+l.About)
	}
	return t.Flush()
}
