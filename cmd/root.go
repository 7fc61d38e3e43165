// Package cmd is the program onering: its commands, flags and messages. Results go to stdout; logs and progress go to
// stderr. Exit codes: 0 success, 1 something failed, 2 the command line or the configuration is wrong.
//
// A program with further objectives imports them and calls [Main].
package cmd

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"regexp"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"onering/data"
	"onering/internal/cli"
	"onering/internal/settings"
	"onering/reward"
	"onering/train/ranks"
	"onering/train/rl"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// A usageError is a mistake in the command line or the configuration, not
// something that failed while the command ran.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// isUsage says whether err is a usage error, or an error about a setting that only the model shows to be wrong.
func isUsage(err error) bool {
	var usage usageError
	var setting *settings.Error
	return errors.As(err, &usage) || errors.As(err, &setting)
}

// checkSettings reports the values of the struct's settings that are out of their ranges, by flag.
func checkSettings(pointer any) error {
	return asUsage(settings.NameFlags(settings.Check(pointer), pointer))
}

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Main runs the program with its command line, and exits.
func Main() { ranks.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run executes one command line and returns its exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	refuseUnknownTopics(root)
	root.SetArgs(args)
	root.SetIn(stdin)
	out := &cli.Visible{To: stdout}
	stderr = &cli.Visible{To: stderr}
	root.SetOut(out)
	root.SetErr(stderr)

	// An error before the command's own code (a flag, the arguments, an unknown command) is a usage error.
	begun := false
	checkUsage(root, func() { begun = true })
	command, err := root.ExecuteC()
	if err == nil {
		if err = out.Failed; err == nil { // everything reached stdout
			return exitOK
		}
		begun = true // --help, which begins no command, can fail to write, too
	}
	if !begun {
		err = explainUsage(command, err, args)
	}
	printed, codeElsewhere := ranks.Said(err)
	if codeElsewhere {
		return exitOK // all ranks exit with the code of the first
	}
	if !printed {
		if isLaterRank() {
			// An error before the ranks have met mostly occurs on all of them. Rank 0 prints it at once, and
			// the launcher then ends the others before they print it, too.
			time.Sleep(2 * time.Second)
		}
		for _, line := range cli.ErrorLines(withFlags(command, err), args) {
			fmt.Fprintf(stderr, "onering: %s\n", line)
		}
	}
	if stopped, ok := errors.AsType[cli.Interrupted](err); ok {
		return stopped.ExitCode()
	}
	if begun && !isUsage(err) {
		return exitFailed
	}
	if !begun {
		fmt.Fprintf(stderr, "Run '%s --help' for usage.\n", command.CommandPath())
	}
	return exitUsage
}

// outlivesReaders are the commands whose work must not be lost because a reader of stdout or stderr goes away, as in
// "onering train | head -1". Other commands only print, and SIGPIPE ends them.
var outlivesReaders = map[string]bool{
	"onering train": true, "onering sft": true, "onering sweep": true, "onering eval": true, "onering step": true,
}

// checkUsage has each command below root check its arguments and flags, and call begin before its own code.
func checkUsage(root *cobra.Command, begin func()) {
	walk(root, func(c *cobra.Command) {
		if validate := c.Args; validate != nil {
			c.Args = func(c *cobra.Command, args []string) error { return checkArguments(c, validate, args) }
		}
		if inner := c.RunE; inner != nil {
			c.PreRunE = func(c *cobra.Command, _ []string) error { return checkFlags(c) }
			c.RunE = func(c *cobra.Command, args []string) error {
				begin()
				return inner(c, args)
			}
		}
	})
}

// withFlags adds to err which flags the command has for the settings that its remedy names.
func withFlags(c *cobra.Command, err error) error {
	flags := flagsOf(c)
	for _, path := range settings.Remedies(err) {
		if flag := flags[path]; flag != "" {
			err = fmt.Errorf("%w (%s is --%s)", err, path, flag)
		}
	}
	return err
}

// walk calls f for c and all commands below it.
func walk(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, child := range c.Commands() {
		walk(child, f)
	}
}

// newRoot makes the command onering with all commands below it; before each it sets up the log and checks flags.
func newRoot() *cobra.Command {
	var quiet, verbose, askVersion bool
	root := newCommand("onering", nil, func(c *cobra.Command, _ []string) error {
		if askVersion {
			_, err := fmt.Fprintln(c.OutOrStdout(), readVersion())
			return err
		}
		return c.Help()
	})
	root.SilenceErrors, root.SilenceUsage, root.Args = true, true, knownCommand // run prints the errors
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		level := slog.LevelInfo
		switch {
		case quiet:
			level = slog.LevelWarn
		case verbose:
			level = slog.LevelDebug
		}
		setLogger(c.ErrOrStderr(), level)
		if outlivesReaders[c.CommandPath()] {
			cli.SurviveClosedPipes(c.OutOrStdout(), c.ErrOrStderr())
		}
		return errors.Join(aloneOnly(c), unsetFlags(c), checkStdout(c))
	}
	flags := root.PersistentFlags()
	flags.BoolVarP(&quiet, "quiet", "q", false, "print only warnings and errors on stderr, no progress")
	flags.BoolVarP(&verbose, "verbose", "v", false, "also print debug messages on stderr")
	root.MarkFlagsMutuallyExclusive("quiet", "verbose")
	root.AddCommand(
		newChat(), newData(), newDoctor(), newTuned("dpo"), newEval(), newExport(), newBench(), newGenerate(), newGrade(),
		newImport(), newInit(), newMerge(), newPush(), newReport(), newReplay(), newCheck(), newScore(), newServe(), newTuned("sft"), newStep(), newSweep(),
		newTokenize(), newTrain(), newVerify(), newVersion(), newWatch(), newWeights(),
	)
	root.Flags().BoolVar(&askVersion, "version", false, "print the version of this program")
	for _, p := range plugins {
		root.AddCommand(p.command())
	}
	return root
}

// helps are the help texts of the commands: help/data-check.txt is that of "data check".
//
//go:embed help
var helps embed.FS

// placeholders replaces those in helps, such as {columns}, by lists that the program knows.
var placeholders = strings.NewReplacer("{columns}", columnsHelp(), "{benchmarks}", strings.Join(benchmarkNames(), ", "), "{slashes}", chatHelp,
	"{adapter}", adapterHelp, "{rules}", strings.Join(reward.ExtractRules, ", "))

// newCommand returns the command that the help called name describes, help/NAME.txt: its use in the first line, a
// short description in the second, then a long one and examples. The command takes the arguments that its use names,
// and has a flag for each field of options, a pointer to a struct or nil, whose values are checked before run.
func newCommand(name string, options any, run func(c *cobra.Command, args []string) error) *cobra.Command {
	text, err := helps.ReadFile("help/" + name + ".txt")
	must(err)
	use, rest, _ := strings.Cut(placeholders.Replace(string(text)), "\n")
	short, rest, _ := strings.Cut(rest, "\n")
	long, examples, _ := strings.Cut(rest, "\nExamples:\n")
	c := &cobra.Command{Use: use, Short: short, Long: strings.Trim(long, "\n"), Example: strings.TrimSuffix(examples, "\n"), Args: argumentsOf(use)}
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := checkSettings(options); err != nil {
			return err
		}
		return run(c, args)
	}
	addFlags(c, options)
	return c
}

// usedFlag matches a flag in the use of a command.
var usedFlag = regexp.MustCompile(` \[?--\S+ [^\s\]]+\]?`)

// argumentsOf accepts the arguments that the use of a command names: X, [X] or X...
func argumentsOf(use string) cobra.PositionalArgs {
	_, arguments, _ := strings.Cut(usedFlag.ReplaceAllString(use, ""), " ")
	switch {
	case arguments == "":
		return cobra.NoArgs
	case strings.HasPrefix(arguments, "["):
		return cobra.MaximumNArgs(1)
	case strings.HasSuffix(arguments, "..."):
		return cobra.MinimumNArgs(1)
	}
	return cobra.ExactArgs(1)
}

// refuseUnknownTopics makes cobra's own commands, completion and help, refuse arguments that they would ignore.
func refuseUnknownTopics(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "completion":
			c.Args = knownCommand
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				if found, rest, err := root.Find(args); err != nil || len(rest) > 0 { // with an error rest may be empty
					return knownCommand(found, args[len(args)-max(1, len(rest)):])
				}
				return nil
			}
		}
	}
}

// peersCommands are the commands of other programs for what ours do.
var peersCommands = map[string]string{"grpo": "train", "rloo": "train", "ppo": "train", "finetune": "sft", "kto": "dpo", "orpo": "dpo",
	"evaluate": "eval", "lm_eval": "eval", "vllm": "serve", "infer": "generate"}

// knownCommand refuses arguments after a command that only has subcommands, and names the one that may be meant.
func knownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, child := range c.Commands() {
		if child.IsAvailableCommand() {
			names = append(names, child.Name())
		}
	}
	meant := settings.DidYouMean(args[0], names)
	if name := peersCommands[args[0]]; slices.Contains(names, name) {
		meant = fmt.Sprintf("; here it is %q", name)
	}
	return usagef("unknown command %q%s", c.CommandPath()+" "+args[0], meant)
}

// A buildVersion is what "onering version" prints.
type buildVersion struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // git commit of the build
	Time     string `json:"time,omitempty"`     // the time of that commit
	Modified bool   `json:"modified,omitempty"` // the tree had uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// version is that of a release, which release/build states.
var version string

// readVersion returns the version of the release, else what the go command recorded in the
// binary: the version of the module, or "devel", and the commit.
func readVersion() buildVersion {
	v := buildVersion{Version: "devel", Go: goruntime.Version(), Platform: goruntime.GOOS + "/" + goruntime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if m := cmp.Or(version, info.Main.Version); m != "" && m != "(devel)" {
		v.Version = m
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// commit says which commit the program was built from.
func (v buildVersion) commit() string {
	if v.Revision == "" {
		return "commit not recorded (go run and -buildvcs=false record none; go install ./cmd/onering in a git checkout does)"
	}
	text := "commit " + v.Revision
	if v.Time != "" {
		text += " of " + v.Time
	}
	if v.Modified {
		text += ", modified"
	}
	return text
}

func (v buildVersion) String() string {
	return fmt.Sprintf("onering %s %s %s, %s", v.Version, v.Go, v.Platform, v.commit())
}

// newVersion makes the command version.
func newVersion() *cobra.Command {
	var o struct {
		JSON bool `help:"print one JSON object"`
	}
	return newCommand("version", &o, func(c *cobra.Command, _ []string) error {
		v := readVersion()
		return show(c, o.JSON, v, func(w io.Writer) error { _, err := fmt.Fprintln(w, v); return err })
	})
}

// show prints what a command has found: as one JSON object if asked for, else as print does for people.
func show(c *cobra.Command, asJSON bool, found any, print func(io.Writer) error) error {
	if asJSON {
		return cli.WriteLine(c.OutOrStdout(), found)
	}
	return print(c.OutOrStdout())
}

// explainUsage rewrites the libraries' errors about a flag in the words of this program: the flag, what is wrong with
// it, and what it takes. Of unknown flags it names all; args is the whole command line.
func explainUsage(c *cobra.Command, err error, args []string) error {
	if value, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if wanted := kinds[value.GetFlag().Value.Type()]; wanted != "" {
			return fmt.Errorf("--%s %q: must be %s", value.GetFlag().Name, value.GetValue(), wanted)
		}
		return fmt.Errorf("--%s: %w", value.GetFlag().Name, value.Unwrap())
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedShortnames() == "" {
		firstFlag := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "-") })
		words := args[:max(0, firstFlag)] // commands, and arguments before the flags
		if depth := strings.Count(c.CommandPath(), " "); c.HasSubCommands() && len(words) > depth {
			return knownCommand(c, words[depth:]) // the flag may be one of the command that was meant
		}
		var known []string
		c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		var list []error
		seen := slices.Clone(known)
		for _, arg := range args { // the library stops at the first
			name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			if strings.HasPrefix(arg, "--") && !slices.Contains(seen, name) {
				seen = append(seen, name)
				list = append(list, fmt.Errorf("unknown flag: --%s%s", name, cmp.Or(settingCalled(c, name), settings.DidYouMean(name, known))))
			}
		}
		return cmp.Or(errors.Join(list...), err)
	}
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Errorf("%w: %s", err, purpose(missing.GetFlag()))
	}
	return err
}

// settingCalled returns the end of a message about an unknown flag of a command: which flag, argument or, of a
// command that trains, run setting the user may have meant by it; "" if none is known. It knows names of other
// trainers, too.
func settingCalled(c *cobra.Command, flag string) string {
	config := rl.Default()
	trains := slices.Contains([]string{"train", "sft", "dpo"}, c.Name())
	command := settings.Command{Flags: flagsOf(c), Others: map[string]string{}, Sets: trains} // it takes all settings by --set
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[settingOf] == nil {
			command.Others["--"+f.Name] = purpose(f)
		}
	})
	if strings.Contains(c.Use, "FILE") {
		command.Others["FILE"] = "it has no flag, as in " + c.UseLine()
	}
	var all any = &config // has all settings of the command, for their names alone
	if trains && c.Name() != "train" {
		all = newTuning(c.Name(), "")
	}
	for _, t := range settings.Sections(all) {
		for _, f := range t.Fields {
			if path := t.Name + "." + f.Key; command.Flags[path] == "" && c.Flags().Lookup(f.Flag) != nil {
				command.Flags[path] = f.Flag // a flag that means the same elsewhere
			}
		}
	}
	names, _ := settings.Resolve(all, command)
	hint := names.Called(flag)
	// A name of a column means the setting that says which column it is.
	for column, known := range map[string][]string{"prompt": data.PromptNames, "answer": data.AnswerNames} {
		if hint == "" && slices.Contains(known, strings.ReplaceAll(flag, "-", "_")) {
			hint = cmp.Or(names.Called(column), names.Called(column+"_key"))
		}
	}
	return hint
}

// checkArguments has a command validate its arguments, and returns an error that names the argument that is missing
// or too many. validate is one of cobra's, whose errors say less, or of this program's, with a usageError.
func checkArguments(c *cobra.Command, validate cobra.PositionalArgs, args []string) error {
	err := validate(c, args)
	if _, usage := errors.AsType[usageError](err); err == nil || usage {
		return err
	}
	for n, arg := range slices.Backward(args) {
		if validate(c, args[:n]) == nil {
			hint := ""
			if model := c.Flags().Lookup("model"); model != nil && !model.Changed {
				hint = "; a model is named with --model " + cli.ShellQuoted(arg)
			}
			return fmt.Errorf("%q is an argument too many: %s%s", arg, c.UseLine(), hint)
		}
	}
	return fmt.Errorf("an argument is missing: %s", c.UseLine())
}

// checkFlags returns an error that names given flags that exclude one another. cobra has the
// same rule, but no type for its error.
func checkFlags(c *cobra.Command) error {
	given := map[string][]string{} // by the name of the group
	c.Flags().Visit(func(f *pflag.Flag) {
		for _, group := range f.Annotations["cobra_annotation_mutually_exclusive"] {
			given[group] = append(given[group], f.Name)
		}
	})
	for _, group := range slices.Sorted(maps.Keys(given)) {
		if len(given[group]) > 1 {
			return fmt.Errorf("--%s exclude one another", strings.Join(given[group], " and --"))
		}
	}
	return nil
}

// unsetFlags returns an error that names the required flags without a value.
func unsetFlags(c *cobra.Command) error {
	var list []error
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if _, required := f.Annotations[cobra.BashCompOneRequiredFlag]; required && f.Value.String() == "" {
			list = append(list, fmt.Errorf("--%s is not set: %s", f.Name, purpose(f)))
		}
	})
	return errors.Join(list...)
}

// kinds describe the values that flags of a type take.
var kinds = map[string]string{
	"int": "a whole number", "int64": "a whole number", "uint64": "a whole number, at least 0", "float64": "a number", "bool": "true or false",
	"duration": "a time such as 30s or 5m", "intSlice": "whole numbers with commas between them",
}

// purpose returns what a flag's help says.
func purpose(f *pflag.Flag) string { return strings.TrimSuffix(f.Usage, " (required)") }
