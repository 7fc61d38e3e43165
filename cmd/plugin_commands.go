package cmd

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/internal/scaffold"
	"onering/internal/settings"
	"onering/models"
	"onering/objectives"
	"onering/objectives/objectivetest"
	"onering/objectives/policy"
	"onering/reward"
	"onering/train/rl"
)

// pluginCommands says how the command line lists, shows and starts one kind of plug-in.
type pluginCommands struct {
	kind, article string // such as "objective" and "an"; kind is one of scaffold.Kinds
	plural        string // the name of the command, such as "objectives"
	sample        string // a name, for the examples; "" where a plug-in has no settings to show
	names         func() []string
	about         func(name string) string // nil where families says what they are
	// families lists the names for people, and describe says in lines what one is; nil for kinds of few words.
	families func(names []string) string
	describe func(name string) string
}

// command returns the command of the kind, such as objectives: it lists the plug-ins, as its subcommand list does,
// and has the subcommands new, show where plug-ins have settings, and check for objectives. One help text serves all
// kinds: fill puts the words of the kind in place of its {placeholders}.
func (p pluginCommands) command() *cobra.Command {
	var asJSON bool
	run := func(c *cobra.Command, _ []string) error { return p.list(c, asJSON) }
	c, list := newCommand("models", nil, run), newCommand("plugins-list", nil, run)
	if p.sample != "" { // the plug-ins have settings; families of models have none, and a help of their own
		c = newCommand("plugins", nil, run)
		c.AddCommand(p.show())
	}
	c.Args = knownCommand
	list.Short, _, _ = strings.Cut(c.Short, ",")
	for _, c := range []*cobra.Command{c, list} {
		c.Flags().BoolVar(&asJSON, "json", false, "print one JSON list")
	}
	c.AddCommand(list, p.new())
	if p.kind == "objective" {
		c.AddCommand(newObjectivesCheck())
	}
	walk(c, func(c *cobra.Command) {
		c.Use, c.Short, c.Long, c.Example = p.fill(c.Use), p.fill(c.Short), p.fill(c.Long), p.fill(c.Example)
	})
	return c
}

// list prints the names of the plug-ins and, where known, a description of each. Without descriptions it prints JSON
// in any case.
func (p pluginCommands) list(c *cobra.Command, asJSON bool) error {
	if p.families != nil && !asJSON {
		_, err := fmt.Fprint(c.OutOrStdout(), p.families(p.names()))
		return err
	}
	type line struct {
		Name  string `json:"name"`
		About string `json:"about"`
	}
	if p.about == nil {
		return cli.WriteLine(c.OutOrStdout(), p.names())
	}
	lines, table := []line{}, cli.Table{}
	for _, name := range p.names() {
		lines = append(lines, line{name, p.about(name)})
		table.Add(name, "%s", p.about(name))
	}
	return show(c, asJSON, lines, table.Write)
}

// fill inserts the words of the kind into a text.
func (p pluginCommands) fill(text string) string {
	return strings.NewReplacer("{plural}", p.plural, "{article}", p.article, "{kind}", p.kind, "{sample}", p.sample).Replace(text)
}

// show makes the command that prints the settings of one plug-in, with their defaults, as a section of a run file.
func (p pluginCommands) show() *cobra.Command {
	c := newCommand("plugins-show", nil, func(c *cobra.Command, args []string) error {
		config := rl.Default()
		if err := settings.Choose(&config, p.kind, args[0]); err != nil {
			return usageError{err}
		}
		if p.describe != nil {
			for line := range strings.Lines(p.describe(args[0])) { // the output is the section of a run file
				fmt.Fprint(c.OutOrStdout(), strings.TrimRight("# "+line, " \n")+"\n")
			}
		}
		for _, s := range settings.Sections(&config) {
			if s.Name == p.kind {
				return s.Write(c.OutOrStdout())
			}
		}
		return nil
	})
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return p.names(), cobra.ShellCompDirectiveNoFileComp
	}
	return c
}

// new makes the command that writes the source of a new plug-in: in Go into this checkout or a module of its own, or
// with --python, for objectives, as a program. It prints the files, and logs how to test them.
func (p pluginCommands) new() *cobra.Command {
	var o struct {
		Module string `complete:"dir" help:"folder of a new module, instead of a folder of the checkout"`
	}
	python := false
	c := newCommand("plugins-new", &o, func(c *cobra.Command, args []string) error {
		name, module := args[0], o.Module
		if python {
			path, err := scaffold.Python(".", name)
			if err == nil {
				fmt.Fprintln(c.OutOrStdout(), path)
				slog.Info("wrote an objective", "name", name, "next", fmt.Sprintf(`onering objectives check --set 'objective.command=["python3", %q]'`, path))
			}
			return err
		}
		source := scaffold.Kinds[p.kind]
		try := "go test ./" + source.Folder + "/" + name
		var paths []string
		var err error
		if module != "" && slices.Contains(p.names(), name) {
			return usagef(p.fill("there is {article} {kind} %q already: choose another name"), name)
		}
		if module == "" {
			paths, err = source.Add(".", name)
		} else {
			paths, err = source.Module(".", module, name)
			try = "cd " + module + " && go test ."
		}
		if err != nil {
			return err
		}
		for _, path := range paths {
			fmt.Fprintln(c.OutOrStdout(), filepath.Join(module, path))
		}
		slog.Info(p.fill("wrote {article} {kind}"), "name", name, "next", try)
		return nil
	})
	if p.kind == "objective" {
		c.Flags().BoolVar(&python, "python", false, "write a program with a loss in PyTorch, for objective.name = \"command\"")
	}
	return c
}

// newObjectivesCheck makes the command that runs the conformance suite on an objective with settings, by default a program.
func newObjectivesCheck() *cobra.Command {
	s := newSettings(func(c *rl.Config) { _ = settings.Choose(c, "objective", "command") }, "objective")
	c := newCommand("objectives-check", nil, s.withResolved(func(c *cobra.Command, _ []string, r *resolved) error {
		err := reward.Ready(c.Context(), r.Objective.Settings) // also asks an objective whether its program or server is there
		if err == nil {
			err = objectivetest.Check(func() objectives.Objective {
				again, err := s.resolveModel(c, folderOfSettings)
				must(err) // the same settings were resolved for r
				return again.Objective.Settings
			})
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "%s keeps all %d rules\n", r.Objective.Name, len(objectivetest.Rules()))
		return nil
	}))
	s.addRunFlags(c, "objective.name=objective")
	return c
}

// plugins are the kinds of plug-ins.
var plugins = []pluginCommands{
	{kind: "family", article: "a", plural: "models", names: models.Families, about: models.About},
	{kind: "objective", article: "an", plural: "objectives", sample: "pmpo", names: namesOf("objective"), families: policy.List, describe: policy.Describe},
	{kind: "reward", article: "a", plural: "rewards", sample: "math", names: namesOf("reward"), about: func(name string) string {
		return reward.About(withPlugin("reward", name).Reward.Rule)
	}},
	{kind: "environment", article: "an", plural: "environments", sample: "tools", names: namesOf("environment"), about: func(name string) string {
		return reward.About(withPlugin("environment", name).Environment.Settings)
	}},
}

// namesOf returns a function that lists the plug-ins of a kind, from which a run chooses one.
func namesOf(kind string) func() []string { return func() []string { return settings.Names(kind) } }

// withPlugin is the default configuration of a run with a registered plug-in.
func withPlugin(kind, name string) rl.Config {
	config := rl.Default()
	_ = settings.Choose(&config, kind, name)
	return config
}
