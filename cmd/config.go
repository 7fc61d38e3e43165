package cmd

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"onering/internal/settings"
	"onering/objectives"
	"onering/reward"
	"onering/train/rl"
)

// Settings come from the defaults, a run file, the environment and flags, each
// layer stronger than the one before. The layers are merged here and not by a
// library such as koanf: it merges into one map, which no longer knows the file
// and line of a value and passes over unknown keys, so that an error could name
// neither place nor likely key.

// A layer is one source of settings.
type layer []setting

// A resolved Config remembers which setting decided each key, for messages.
type resolved struct {
	rl.Config
	decided map[string]setting // by path
}

// adapterRate is how much larger the default learning rate of an adapter is.
const adapterRate = 10

// resolve applies the layers to the defaults, weakest first. All problems are
// reported at once, each with the place of the setting. What the values mean
// together is for validate.
func resolve(layers ...layer) (*resolved, error) {
	r := &resolved{Config: rl.Default(), decided: map[string]setting{}}
	for _, p := range plugins(&r.Config) {
		var err error
		if layers, err = r.choosePlugin(p, layers); err != nil {
			return nil, usageError{err}
		}
	}
	var errs []error
	sections := sectionsOf(&r.Config)
	for _, l := range layers {
		for _, s := range l {
			if err := r.apply(s, sections); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", s.place, err))
			}
		}
	}
	if len(errs) > 0 {
		return nil, usageError{errors.Join(errs...)}
	}
	if s, decided := r.decided["optimizer.learning_rate"]; r.LoRA.On && (!decided || strings.HasPrefix(s.place, defaultName)) {
		r.Optimizer.LearningRate *= adapterRate
	}
	// What a reward takes from the template is part of the configuration. A template
	// that is impossible is for validate.
	if template, err := r.Model.PromptTemplate(); err == nil {
		reward.SetTemplate(r.Reward.Rule, template.Name)
	}
	return r, nil
}

// validate reports the impossible values of the whole configuration.
func (r *resolved) validate() error { return r.locate(r.Config.Validate()) }

// validateObjective reports those of [objective] alone.
func (r *resolved) validateObjective() error { return r.locate(r.Config.Objective.Validate()) }

// apply sets the field that s is for.
func (r *resolved) apply(s setting, sections []section) error {
	at := slices.IndexFunc(sections, func(t section) bool { return t.name == s.section })
	part, isPart := strings.CutPrefix(s.section, usePath+".")
	switch {
	case at < 0 && isPart:
		return r.unknownPart(part)
	case at < 0:
		return fmt.Errorf("unknown section [%s]%s", s.section, didYouMean(s.section, sectionNames()))
	case isPart && (s.key == "name" || s.key == "as"):
		return fmt.Errorf("%s cannot be changed alone: state the list %s anew", s.path(), usePath)
	}
	for _, f := range sections[at].fields {
		if f.Key == s.key {
			r.decided[s.path()] = s
			return assign(s, f.Value)
		}
	}
	hint := didYouMean(s.key, keysOf(sections[at].fields))
	if hint == "" {
		hint = r.elsewhere(s)
	}
	where := "[" + s.section + "]"
	for _, p := range plugins(&r.Config) {
		if p.section == s.section {
			where = fmt.Sprintf("[%s] for %q", p.section, p.running())
		}
	}
	if isPart {
		where = fmt.Sprintf("[[%s]] %q", usePath, part)
	}
	return fmt.Errorf("unknown key %q in %s%s", s.key, where, hint)
}

// locate puts in front of each validation error the place of the setting that
// decided the key.
func (r *resolved) locate(err error) error {
	if err == nil {
		return nil
	}
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	for i, err := range list {
		var bad *settings.Error
		if !errors.As(err, &bad) {
			continue
		}
		s, ok := r.decided[bad.Key]
		switch {
		case ok:
			list[i] = fmt.Errorf("%s: %s", s.place, bad.Error())
		case bad.Value == "":
			list[i] = fmt.Errorf("%s is not set: %s (--set %s=...)", bad.Key, bad.Remedy, bad.Key)
		}
	}
	return usageError{errors.Join(list...)}
}

// fileLayer reads a run file; "-" is stdin.
func fileLayer(name string, stdin io.Reader) (layer, error) {
	in, name, err := openInput("--config", name, stdin)
	if err != nil {
		return nil, usageError{err}
	}
	defer in.Close()
	const largest = 1 << 20
	data, err := io.ReadAll(io.LimitReader(in, largest+1))
	if err != nil {
		return nil, err
	}
	if len(data) > largest {
		return nil, usagef("%s: a run file has at most 1 MB", name)
	}
	settings, err := parseFile(name, data)
	if err != nil {
		return nil, usageError{err}
	}
	return settings, nil
}

// flagLayer reads the arguments of --set, each section.key=value.
func flagLayer(sets []string) (layer, error) {
	var l layer
	for _, set := range sets {
		path, text, ok := strings.Cut(set, "=")
		section, key, dotted := strings.Cut(path, ".")
		if !ok || !dotted {
			return nil, usagef("--set %q: write section.key=value, such as optimizer.learning_rate=1e-6", set)
		}
		if at := strings.LastIndexByte(path, '.'); strings.HasPrefix(path, usePath+".") {
			section, key = path[:at], path[at+1:] // reward.use.PART.KEY
		}
		l = append(l, parseText(strings.TrimSpace(section), strings.TrimSpace(key), "--set "+set, strings.TrimSpace(text)))
	}
	return l, nil
}

// envPrefix begins the environment variables that are settings:
// ONERING_OPTIMIZER_LEARNING_RATE is optimizer.learning_rate.
const envPrefix = "ONERING_"

// envOthers are variables of the same prefix that are not settings of a run.
var envOthers = []string{"ONERING_CACHE", "ONERING_OFFLINE", "ONERING_MPI"}

// envLayer reads the settings in environ, whose entries are NAME=value. An empty
// variable counts as none.
func envLayer(environ []string) layer {
	var l layer
	for _, entry := range environ {
		name, text, _ := strings.Cut(entry, "=")
		rest, ok := strings.CutPrefix(name, envPrefix)
		if !ok || text == "" || slices.Contains(envOthers, name) {
			continue
		}
		section, key, ok := strings.Cut(strings.ToLower(rest), "_")
		if !ok || !slices.Contains(sectionNames(), section) {
			slog.Warn("an environment variable names no setting", "name", name, "want", envPrefix+"SECTION_KEY")
			continue
		}
		l = append(l, parseText(section, key, name, text))
	}
	slices.SortFunc(l, func(a, b setting) int { return strings.Compare(a.place, b.place) })
	return l
}

// configFlags are the flags of the commands that take a run file.
type configFlags struct {
	lora      bool // of train
	file      string
	sets      []string
	objective string
}

func (f *configFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.file, "config", "", "run file in TOML; - is stdin")
	flags.StringVar(&f.objective, "objective", "", "objective to use: "+strings.Join(objectives.Names(), ", "))
	flags.StringArrayVar(&f.sets, "set", nil, "section.key=value in place of a key of the run file; repeatable")
	must(c.MarkFlagFilename("config", "toml"))
	must(c.RegisterFlagCompletionFunc("objective", completeObjectives))
	must(c.RegisterFlagCompletionFunc("set", f.completeSet))
}

// resolve reads what the flags name; base is that of resolveFlags.
func (f *configFlags) resolve(c *cobra.Command, base func(others ...layer) (layer, error)) (*resolved, error) {
	return resolveFlags(c, f.file, f.sets, "objective", f.objective, base)
}

// resolveFlags reads the run file, the environment, --set, and the flag of the same
// name as the section whose implementation it chooses; an empty file or choice is
// none. Where no run file is given, the weakest layer is what base makes of the
// others, nothing if base is nil.
func resolveFlags(c *cobra.Command, file string, sets []string, section, choice string, base func(others ...layer) (layer, error)) (*resolved, error) {
	var run layer
	if file != "" {
		var err error
		if run, err = fileLayer(file, c.InOrStdin()); err != nil {
			return nil, err
		}
	}
	flags, err := flagLayer(sets)
	if err != nil {
		return nil, err
	}
	if choice != "" {
		flags = append(flags, parseText(section, "name", "--"+section, choice))
	}
	environment := envLayer(os.Environ())
	if file == "" && base != nil {
		if run, err = base(environment, flags); err != nil {
			return nil, err
		}
	}
	return resolve(run, environment, flags)
}

// completeSet offers the keys of --set, those of the chosen objective included.
func (f *configFlags) completeSet(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	c := rl.Default()
	if settings, err := objectives.New(f.objective); err == nil {
		c.Objective.Settings = settings
	}
	var keys []cobra.Completion
	for _, s := range sectionsOf(&c) {
		for _, field := range s.fields {
			keys = append(keys, s.name+"."+field.Key+"=")
		}
	}
	return keys, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

func completeObjectives(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return objectives.Names(), cobra.ShellCompDirectiveNoFileComp
}

// must stops on a mistake in the program itself, such as completion for a flag
// that does not exist.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
