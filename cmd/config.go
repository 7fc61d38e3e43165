package cmd

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"onering/internal/settings"
	"onering/policy"
	"onering/reward"
	"onering/train"
	"onering/train/rl"
)

// A resolved is a Config with the setting that decided each key, for messages.
type resolved struct {
	rl.Config
	*settings.Resolved
}

// adapterRate is how much larger the default learning rate of an adapter is.
const adapterRate = 10

// resolve applies the sources to the defaults, weakest first. validate checks the values
// together.
func resolve(sources ...settings.Source) (*resolved, error) {
	r := &resolved{Config: rl.Default()}
	var err error
	if r.Resolved, err = settings.Resolve(&r.Config, "", sources...); err != nil {
		return nil, usageError{err}
	}
	continued(&r.Model.Path, &r.LoRA)
	if s := r.Decided("optimizer.learning_rate"); r.LoRA.On && (s.Key == "" || strings.HasPrefix(s.Place, defaultName)) {
		r.Optimizer.LearningRate *= adapterRate
	}
	if s := r.Decided("objective.constant_length"); s.Key == "" {
		for _, f := range settings.Fields(r.Objective.Settings) {
			if f.Key == "constant_length" { // Dr. GRPO's constant is the limit of the run's responses
				f.Value.SetFloat(float64(max(1, r.Rollout.MaxNewTokens)))
			}
		}
	}
	// The configuration includes what a reward takes from the template. validate refuses
	// an impossible template.
	if template, err := r.Model.PromptTemplate(); err == nil {
		reward.SetTemplate(r.Reward.Rule, template.Name)
	}
	return r, nil
}

// continued rewrites the model where it names a run that trained an adapter, or one of its
// checkpoints: it becomes the model of that run, and the adapter becomes lora.adapter.
func continued(model *string, l *train.LoRAConfig) {
	if dir, err := train.Folder(*model).Model(); err == nil && *model != "" && l.Adapter == "" {
		// An error in the model is reported where it is opened.
		if run, err := policy.ReadRun(dir); err == nil && run != nil && run.Adapter {
			*model, l.Adapter = run.Model, dir
		}
	}
	l.On = l.On || l.Adapter != ""
}

// takeAdapter completes an adapter that a run continues: its folder and its configuration.
func takeAdapter(model string, l *train.LoRAConfig) (err error) {
	if l.Adapter == "" {
		return nil
	}
	if l.Adapter, err = newestOf(l.Adapter); err != nil {
		return err
	}
	if l.Settings, err = policy.CheckAdapter(model, l.Adapter); err != nil {
		err = fmt.Errorf("lora.adapter: %w", err)
	}
	return err
}

// validate reports the impossible values of the whole configuration.
func (r *resolved) validate() error { return asUsage(r.Locate(r.Config.Validate())) }

// asUsage makes err a usage error, unless it is nil.
func asUsage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// encodeConfig writes a configuration as a run file.
func encodeConfig(config any) ([]byte, error) {
	var b bytes.Buffer
	err := settings.Write(&b, config)
	return b.Bytes(), err
}

// checkSettings reports the values of the struct's settings that are out of
// their ranges, by flag.
func checkSettings(pointer any) error {
	return asUsage(settings.NameFlags(settings.Check(pointer), pointer))
}

// checkAdapterFlags refuses flags about a new adapter where no adapter is trained (on is
// false): the command would train all weights instead.
func checkAdapterFlags(flags *pflag.FlagSet, on bool) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if strings.HasPrefix(f.Name, "lora-") && !on && err == nil {
			err = usagef("--%s is about a new adapter, and none is trained: add --lora, or leave it out", f.Name)
		}
	})
	return err
}

// sayIdle warns of the settings that have no effect on the run, but for those that defaults
// state and, if it is resumed, its run.toml. Those of an adapter are refused on the command
// line, since the run would train all weights instead, or another adapter.
func sayIdle(r *settings.Resolved, resume bool) (err error) {
	r.Idle(func(s settings.Setting, needs string) {
		switch typed := strings.HasPrefix(s.Place, "--"); {
		case typed && s.Section == "lora":
			err = usagef("%s has no effect: it counts where %s (--lora trains an adapter); leave it out, or set that", s.Place, needs)
		case !typed && s.Section == "eval": // run files are those of onering eval, too
		case typed || !resume && !strings.HasPrefix(s.Place, defaultName):
			slog.Warn("a setting has no effect in this run", "setting", s.Path(), "place", s.Place, "it_counts_where", needs)
		}
	})
	return err
}

// largestRunFile bounds a run file, in bytes.
const largestRunFile = 1 << 20

// readRunFile reads a run file; "-" is stdin.
func readRunFile(name string, stdin io.Reader) (settings.Source, error) {
	in, name, err := openInput("--config", name, stdin)
	if err != nil {
		return nil, usageError{err}
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, largestRunFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > largestRunFile {
		return nil, usagef("%s: a run file has at most 1 MB", name)
	}
	source, err := settings.File(name, data)
	if _, begun := os.Stat(filepath.Join(filepath.Dir(name), "checkpoints")); begun == nil && filepath.Base(name) == "run.toml" {
		source = rl.Renew(source)
	}
	return source, asUsage(err)
}

// statedSettings returns what a run file states, if its name is not empty, and what
// values of --set state.
func statedSettings(c *cobra.Command, file string, sets []string) (run, flags settings.Source, err error) {
	if file != "" {
		if run, err = readRunFile(file, c.InOrStdin()); err != nil {
			return nil, nil, err
		}
	}
	flags, err = settings.Sets(sets)
	return run, flags, asUsage(err)
}

// configFlags are the flags of the commands that take a run file.
type configFlags struct {
	file       string
	sets       []string
	kind, name string          // the kind of plug-in, objective or reward, that a flag chooses, and the chosen name
	lora       bool            // the LoRA flags of train
	flags      settings.Source // what other flags state
}

// registerObjective adds the flags of the commands that are about an objective.
func (f *configFlags) registerObjective(c *cobra.Command) {
	f.register(c, "objective", "objective to use", "run file in TOML; - is stdin", "")
}

// registerReward adds the flags of the commands that grade without a run.
func (f *configFlags) registerReward(c *cobra.Command) {
	f.register(c, "reward", "reward that grades, in place of the run file's", "run file whose [reward] grades", ", such as reward.name=math")
}

func (f *configFlags) register(c *cobra.Command, kind, about, file, example string) {
	f.kind = kind
	flags, names := c.Flags(), settings.Names(kind)
	flags.StringVar(&f.file, "config", "", file)
	flags.StringVar(&f.name, kind, "", about+": "+strings.Join(names, ", "))
	flags.StringArrayVar(&f.sets, "set", nil, "section.key=value in place of a key of the run file"+example+"; repeatable")
	must(c.MarkFlagFilename("config", "toml"))
	offer(c, names, kind)
	must(c.RegisterFlagCompletionFunc("set", f.completeSet))
}

// resolve reads the settings of the flags and the environment. If base is not nil, it
// makes a source that the others override; the run file is the first of them.
func (f *configFlags) resolve(c *cobra.Command, base func(others ...settings.Source) (settings.Source, error)) (*resolved, error) {
	run, flags, err := statedSettings(c, f.file, f.sets)
	if err != nil {
		return nil, err
	}
	if f.name != "" {
		flags = append(flags, settings.Setting{Section: f.kind, Key: "name", Place: "--" + f.kind, Value: f.name})
	}
	flags = append(flags, f.flags...)
	environment := settings.Environment(new(rl.Config), os.Environ())
	sources := []settings.Source{run, environment, flags}
	if base != nil {
		weakest, err := base(sources...)
		if err != nil {
			return nil, err
		}
		sources = append([]settings.Source{weakest}, sources...)
	}
	return resolve(sources...)
}

// resolveReward returns the configuration that the flags state; what they omit has its
// default. It checks only the reward.
func (f *configFlags) resolveReward(c *cobra.Command) (rl.Config, error) {
	r, err := f.resolve(c, nil)
	if err != nil {
		return rl.Config{}, err
	}
	return r.Config, asUsage(r.Locate(r.Config.Reward.Validate()))
}

// completeSet offers the keys of --set, those of the chosen plug-in included.
func (f *configFlags) completeSet(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	c := rl.Default()
	_ = settings.Choose(&c, f.kind, f.name) // the plug-in, if one is chosen
	var keys []cobra.Completion
	for _, s := range settings.Sections(&c) {
		for _, field := range s.Fields {
			keys = append(keys, s.Name+"."+field.Key+"=")
		}
	}
	return keys, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

// addFlags adds flags for the fields of a struct of options, as settings.AddFlags does,
// with words in their help texts. Fields may have two more tags: required, and complete,
// which is dir, file or the ending of a file.
func addFlags(c *cobra.Command, options any) {
	settings.AddFlags(c.Flags(), options)
	for _, f := range settings.Fields(options) {
		flag := c.Flags().Lookup(f.Flag)
		flag.Usage = words.Replace(flag.Usage)
		if f.Tag("required") != "" {
			require(c, f.Flag)
		}
		switch kind := f.Tag("complete"); kind {
		case "":
		case "dir":
			markDirs(c, f.Flag)
		case "file":
			must(c.MarkFlagFilename(f.Flag))
		default:
			must(c.MarkFlagFilename(f.Flag, kind))
		}
	}
}

// markDirs lets the shell complete flags with folders.
func markDirs(c *cobra.Command, names ...string) {
	for _, name := range names {
		must(c.MarkFlagDirname(name))
	}
}

// require makes flags required.
func require(c *cobra.Command, names ...string) {
	for _, name := range names {
		must(c.MarkFlagRequired(name))
	}
}

// offer lets the shell complete flags with values.
func offer(c *cobra.Command, values []string, names ...string) {
	for _, name := range names {
		must(c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
	}
}

// must stops on a mistake in the program itself, such as completion for a flag
// that does not exist.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
