package cmd

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"

	"onering/objectives"
	_ "onering/objectives/all"
	"onering/objectives/scaffold"
	"onering/train"
)

func newObjectives() *cobra.Command {
	var asJSON bool
	list := func(c *cobra.Command, _ []string) error {
		if asJSON {
			return lineWriter{c.OutOrStdout()}.write(objectives.Names())
		}
		for _, name := range objectives.Names() {
			fmt.Fprintln(c.OutOrStdout(), name)
		}
		return nil
	}
	c := &cobra.Command{
		Use:     "objectives",
		Short:   "List the objectives, show one, or begin your own",
		Long:    "List the objectives, show the settings of one, or write a new one to begin with.",
		Example: "  onering objectives\n  onering objectives show pmpo\n  onering objectives new mine",
		Args:    knownCommand,
		RunE:    list,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON list")
	listCommand := &cobra.Command{
		Use:     "list",
		Short:   "List the names of the objectives",
		Example: "  onering objectives list\n  onering objectives list --json",
		Args:    cobra.NoArgs,
		RunE:    list,
	}
	listCommand.Flags().BoolVar(&asJSON, "json", false, "print one JSON list")
	c.AddCommand(listCommand, newObjectivesShow(), newObjectivesNew())
	return c
}

func newObjectivesShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Print the settings of an objective",
		Long: `Print the settings of an objective with their defaults, as the [objective]
section of a run file.`,
		Example:           "  onering objectives show pmpo\n  onering objectives show grpo >> run.toml",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeObjectives,
		RunE: func(c *cobra.Command, args []string) error {
			o, err := newObjective(args[0])
			if err != nil {
				return usageError{err}
			}
			config := train.Config{Objective: train.ObjectiveConfig{Name: args[0], Settings: o}}
			for _, s := range sectionsOf(&config) {
				if s.name == "objective" {
					return writeSection(c.OutOrStdout(), s)
				}
			}
			return nil
		},
	}
}

func newObjectivesNew() *cobra.Command {
	var module string
	c := &cobra.Command{
		Use:   "new NAME",
		Short: "Begin an objective of your own",
		Long: `Begin an objective of your own: write a folder with code that compiles and
passes the conformance test, that test, and the import that registers the
objective. Run it in the root of a checkout of onering. With --module the
objective goes to a new module with a main package; the checkout stays as it is.

Prints the names of the files that it wrote.`,
		Example: "  onering objectives new mine\n  onering objectives new mine --module ../mine",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			name := args[0]
			paths, try := []string(nil), "go test ./objectives/"+name
			var err error
			if module == "" {
				paths, err = scaffold.Add(".", name)
			} else {
				paths, err = scaffold.Module(".", module, name)
				try = "cd " + module + " && go test ."
			}
			if err != nil {
				return err
			}
			for _, path := range paths {
				fmt.Fprintln(c.OutOrStdout(), filepath.Join(module, path))
			}
			slog.Info("wrote an objective", "name", name, "next", try)
			return nil
		},
	}
	c.Flags().StringVar(&module, "module", "", "folder of a new module, instead of a folder of the checkout")
	must(c.MarkFlagDirname("module"))
	return c
}
