package cmd

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"onering/environment"
	"onering/internal/cli"
	"onering/internal/scaffold"
	"onering/internal/settings"
	"onering/models"
	"onering/objectives"
	"onering/reward"
	"onering/train/rl"
)

// pluginCommands says how one kind of plug-in is listed, shown and begun on the
// command line.
type pluginCommands struct {
	kind, article string // "objective", "an"
	plural        string // the command
	sample        string // a name, for the examples
	names         func() []string
	about         func(name string) string // nil where the list is of names alone
	shown         bool                     // a plug-in has settings, in the section of a run file called as the kind
	begin         scaffold.Kind
}

// command is the command of the kind: it lists, and has list, show and new.
func (p pluginCommands) command() *cobra.Command {
	var asJSON bool
	run := func(c *cobra.Command, _ []string) error { return p.list(c, asJSON) }
	c := &cobra.Command{
		Use:     p.plural,
		Short:   p.fill("List the PLURAL, show one, or begin your own"),
		Long:    p.fill("List the PLURAL, show the settings of one, or write a new one to begin\nwith."),
		Example: p.fill("  onering PLURAL\n  onering PLURAL show SAMPLE\n  onering PLURAL new mine"),
		Args:    knownCommand,
		RunE:    run,
	}
	if !p.shown {
		c.Short, c.Long = p.fill("List every KIND of PLURAL, or begin your own"), p.fill("List every KIND of PLURAL, or write a new one to begin with.")
		c.Example = p.fill("  onering PLURAL\n  onering PLURAL new mine")
	}
	list := &cobra.Command{
		Use:     "list",
		Short:   c.Short[:strings.IndexByte(c.Short, ',')],
		Example: p.fill("  onering PLURAL list\n  onering PLURAL list --json"),
		Args:    cobra.NoArgs,
		RunE:    run,
	}
	for _, c := range []*cobra.Command{c, list} {
		c.Flags().BoolVar(&asJSON, "json", false, "print one JSON list")
	}
	c.AddCommand(list, p.new())
	if p.shown {
		c.AddCommand(p.show())
	}
	return c
}

// list writes the names and, where they are known, what they are; asJSON asks for one line.
func (p pluginCommands) list(c *cobra.Command, asJSON bool) error {
	type line struct {
		Name  string `json:"name"`
		About string `json:"about"`
	}
	lines := []line{}
	t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	for _, name := range p.names() {
		l := line{Name: name}
		if p.about != nil {
			l.About = p.about(name)
		}
		lines = append(lines, l)
		if !asJSON {
			fmt.Fprintln(t, strings.TrimSuffix(l.Name+"\t"+l.About, "\t"))
		}
	}
	switch {
	case asJSON && p.about == nil:
		return cli.WriteLine(c.OutOrStdout(), p.names())
	case asJSON:
		return cli.WriteLine(c.OutOrStdout(), lines)
	}
	return t.Flush()
}

// fill puts the words of the kind into a text.
func (p pluginCommands) fill(text string) string {
	return strings.NewReplacer("PLURAL", p.plural, "ARTICLE", p.article, "KIND", p.kind, "SAMPLE", p.sample).Replace(text)
}

func (p pluginCommands) show() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: p.fill("Print the settings of ARTICLE KIND"),
		Long: p.fill(`Print the settings of ARTICLE KIND with their defaults, as the [KIND]
section of a run file.`),
		Example: p.fill("  onering PLURAL show SAMPLE\n  onering PLURAL show SAMPLE >> run.toml"),
		Args:    cobra.ExactArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return p.names(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			config := rl.Default()
			if err := settings.Choose(&config, p.kind, args[0]); err != nil {
				return usageError{err}
			}
			for _, s := range settings.Sections(&config) {
				if s.Name == p.kind {
					return s.Write(c.OutOrStdout())
				}
			}
			return nil
		},
	}
}

func (p pluginCommands) new() *cobra.Command {
	var module string
	c := &cobra.Command{
		Use:   "new NAME",
		Short: p.fill("Begin ARTICLE KIND of your own"),
		Long: p.fill(`Begin ARTICLE KIND of your own: write a folder with code that compiles and
passes the conformance test, that test, and the import that registers the
KIND. Run it in the root of a checkout of onering. With --module the
KIND goes to a new module with a main package; the checkout stays
as it is.

Prints the names of the files that it wrote.`),
		Example: p.fill("  onering PLURAL new mine\n  onering PLURAL new mine --module ../mine"),
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			name := args[0]
			paths, try := []string(nil), "go test ./"+p.begin.Folder+"/"+name
			var err error
			if module != "" && slices.Contains(p.names(), name) {
				return usagef(p.fill("there is ARTICLE KIND %q already: choose another name"), name)
			}
			if module == "" {
				paths, err = p.begin.Add(".", name)
			} else {
				paths, err = p.begin.Module(".", module, name)
				try = "cd " + module + " && go test ."
			}
			if err != nil {
				return err
			}
			for _, path := range paths {
				fmt.Fprintln(c.OutOrStdout(), filepath.Join(module, path))
			}
			slog.Info(p.fill("wrote ARTICLE KIND"), "name", name, "next", try)
			return nil
		},
	}
	c.Flags().StringVar(&module, "module", "", "folder of a new module, instead of a folder of the checkout")
	markDirs(c, "module")
	return c
}

func newModels() *cobra.Command {
	return pluginCommands{
		kind: "family", article: "a", plural: "models", names: models.Families, about: models.About, begin: scaffold.Model,
	}.command()
}

func newObjectives() *cobra.Command {
	return pluginCommands{
		kind: "objective", article: "an", plural: "objectives", sample: "pmpo", names: objectives.Names, shown: true, begin: scaffold.Objective,
	}.command()
}

func newRewards() *cobra.Command {
	return pluginCommands{
		kind: "reward", article: "a", plural: "rewards", sample: "math", names: reward.Names, shown: true, begin: scaffold.Reward,
		about: aboutOf(reward.New),
	}.command()
}

func newEnvironments() *cobra.Command {
	return pluginCommands{
		kind: "environment", article: "an", plural: "environments", sample: "tools", names: environment.Names, shown: true, begin: scaffold.Environment,
		about: aboutOf(environment.New),
	}.command()
}

// aboutOf returns what a plug-in, which find makes, says of itself.
func aboutOf[T any](find func(name string) (T, error)) func(name string) string {
	return func(name string) string {
		plugin, _ := find(name) // it is registered
		return reward.About(plugin)
	}
}
