package cmd

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"onering/data"
	"onering/internal/cli"
	"onering/internal/settings"
	"onering/policy"
	"onering/reward"
	"onering/tokenize"
	"onering/train"
	"onering/train/rl"
)

// A choice is the settings that a command has. Whatever states one, a flag, --set, the
// environment, a run file or the run of the model, goes through settings.Resolve, the stronger
// source over the weaker.
type choice struct {
	command settings.Command
	given   any                      // what flags state: at first the command's defaults
	fresh   func() rl.Config         // returns the defaults
	effect  []string                 // sections and settings that have an effect beside those with a flag
	all     bool                     // all settings have an effect
	needs   []string                 // settings that must be stated
	opens   bool                     // the command opens the model, so the model's run states settings, too
	samples bool                     // the command only samples with the model
	other   []func() settings.Source // what further flags state
	file    string
	recipe  string // of train: small, paper or ""
	sets    []string
	read    settings.Source // what the file states, once it was read: it may be stdin
}

// newChoice returns the settings of a run of onering train, changed to a command's defaults.
func newChoice(change func(*rl.Config), effect ...string) *choice {
	fresh := func() rl.Config {
		config := rl.Default()
		change(&config)
		return config
	}
	config := fresh()
	return &choice{given: &config, fresh: fresh, effect: effect, command: settings.Command{Flags: map[string]string{}}}
}

// asDefault leaves the defaults of a run as they are.
func asDefault(*rl.Config) {}

// register adds --config, --set and the flags of paths; see flags.
func (s *choice) register(c *cobra.Command, paths ...string) {
	c.Flags().StringVar(&s.file, "config", "", "run file in TOML, over whose settings flags and --set win; - is stdin")
	c.Flags().StringArrayVar(&s.sets, "set", nil, "section.key=value in place of a key of the run file; repeatable")
	must(c.MarkFlagFilename("config", "toml"))
	must(c.RegisterFlagCompletionFunc("set", func(*cobra.Command, []string, string) (keys []cobra.Completion, _ cobra.ShellCompDirective) {
		for _, t := range settings.Sections(s.chosen()) {
			for _, f := range t.Fields {
				if path := t.Name + "." + f.Key; s.has(path) {
					keys = append(keys, path+"=")
				}
			}
		}
		return keys, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}))
	s.flags(c, paths...)
}

// chosen returns the configuration that flags state, with the plug-ins that they name.
func (s *choice) chosen() any {
	for _, t := range settings.Sections(s.given) {
		name := t.Fields[0]
		if s.command.Flags[t.Name+".name"] != "" {
			_ = settings.Choose(s.given, t.Name, name.Value.String()) // a wrong name has no keys to offer
		}
	}
	return s.given
}

// flags adds flags for the settings at paths, such as model.path. A path may end in =NAME, the
// name of the flag, and a section stands for those of its settings that are not named apart.
func (s *choice) flags(c *cobra.Command, paths ...string) {
	for _, t := range settings.Sections(s.given) {
		for _, f := range t.Fields {
			path, flag := t.Name+"."+f.Key, ""
			for _, p := range paths {
				switch p, name, _ := strings.Cut(p, "="); p {
				case path:
					flag = cmp.Or(name, f.Flag)
				case t.Name:
					flag = cmp.Or(flag, f.Flag)
				}
			}
			if flag == "" {
				continue
			}
			s.command.Flags[path] = flag
			addFlag(c, f, flag)
			if flag == "adapter" { // beside which no new one is trained
				c.Flags().Lookup(flag).Usage = adapterHelp
			}
			must(c.Flags().SetAnnotation(flag, settingOf, []string{path}))
			if path == "model.template" {
				offer(c, tokenize.Templates(), flag)
			}
			if f.Key == "name" {
				c.Flags().Lookup(flag).Usage += "; " + settings.Listed(t.Name)
				offer(c, settings.Names(t.Name), flag)
			}
		}
	}
}

// shorten adds a flag that is short for a value of a setting.
func (s *choice) shorten(c *cobra.Command, flag, path string, value any, help string) {
	on := c.Flags().Bool(flag, false, help)
	s.other = append(s.other, func() settings.Source {
		if *on {
			return settings.Source{settings.State(path, flag, value)}
		}
		return nil
	})
}

// run has do run with the resolved settings, once they are found possible.
func (s *choice) run(do func(c *cobra.Command, args []string, r *resolved) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		r, err := s.resolveModel(c, "")
		if err == nil {
			err = r.check(r.Config)
		}
		if err != nil {
			return err
		}
		return do(c, args, r)
	}
}

// settingOf is the annotation of a flag with the path of its setting.
const settingOf = "onering_setting"

// flagsOf returns the flags of a command by the paths of their settings.
func flagsOf(c *cobra.Command) map[string]string {
	flags := map[string]string{}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		for _, path := range f.Annotations[settingOf] {
			flags[path] = f.Name
		}
	})
	return flags
}

// has says whether the setting at a path has an effect in the command.
func (s *choice) has(path string) bool {
	return s.all || s.command.Flags[path] != "" || slices.ContainsFunc(s.effect, func(e string) bool {
		return path == e || strings.HasPrefix(path, e+".")
	})
}

// sources returns what the command line and the environment state, the weakest source first.
func (s *choice) sources(c *cobra.Command) ([]settings.Source, error) {
	if s.file != "" && s.read == nil {
		var err error
		if s.read, err = readRunFile(s.file, c.InOrStdin()); err != nil {
			return nil, err
		}
	}
	typed, err := settings.Sets(s.sets)
	if err != nil {
		return nil, usageError{err}
	}
	typed = append(typed, s.command.Given(s.given, c.Flags().Changed)...)
	for _, states := range s.other {
		typed = append(typed, states()...)
	}
	return []settings.Source{s.read, settings.Environment(s.given, s.environment()), typed}, nil
}

// environment is the environment without the settings of sections that another command has.
func (s *choice) environment() []string {
	all := rl.Default()
	own := settings.Sections(s.given)
	others := slices.DeleteFunc(settings.Sections(&all), func(t settings.Section) bool {
		return slices.ContainsFunc(own, func(o settings.Section) bool { return o.Name == t.Name })
	})
	return slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return slices.ContainsFunc(others, func(t settings.Section) bool { return strings.HasPrefix(entry, "ONERING_"+strings.ToUpper(t.Name)+"_") })
	})
}

// resolve resolves the settings. If base is not nil, it makes a source that the others override. Settings that were typed,
// the last source, and have no effect in this command are warned about.
func (s *choice) resolve(c *cobra.Command, base func(others ...settings.Source) (settings.Source, error)) (*resolved, error) {
	sources, err := s.sources(c)
	if err != nil {
		return nil, err
	}
	if base != nil {
		weakest, err := base(sources...)
		if err != nil {
			return nil, err
		}
		sources = append([]settings.Source{weakest}, sources...)
	}
	r, err := resolveAs(s.fresh(), s.command, sources...)
	if err != nil {
		return nil, err
	}
	r.choice = s
	for _, x := range sources[len(sources)-1] {
		if !s.has(x.Path()) {
			slog.Warn("a setting has no effect in this command", "setting", x.Path(), "place", x.Place)
		}
	}
	return r, nil
}

// resolveModel resolves the settings, of a command that opens a model with those that its run
// states and no other source does: the run whose folder, or a checkpoint of it, is at dir. "" is
// the adapter or the model that is named.
func (s *choice) resolveModel(c *cobra.Command, dir string) (*resolved, error) {
	environment := ""
	r, err := s.resolve(c, func(others ...settings.Source) (run settings.Source, err error) {
		run, environment, err = s.ofRun(dir, others)
		return run, err
	})
	if err != nil {
		return nil, err
	}
	r.environment = environment
	if s.has("rollout.top_p") { // then the command samples
		r.Rollout.Sampling = r.Rollout.Sampling.OrGreedy()
	}
	r.prompt, _ = r.Model.PromptTemplate() // check reports the error
	return r, nil
}

// ofRun returns what the run of a folder states and the command takes: not the template, the
// reward or the environment if another source names one. It also returns the name of the
// environment, "" if there is none.
func (s *choice) ofRun(dir string, others []settings.Source) (run settings.Source, environment string, err error) {
	stated := func(key string) bool { return settings.Find(key, others...).Key != "" }
	for _, key := range []string{"lora.adapter", "model.path"} {
		path, _ := settings.Find(key, others...).Value.(string)
		dir = cmp.Or(dir, path)
	}
	if dir == "" || !s.opens {
		return nil, "", nil
	}
	if dir == data.Arithmetic && s.has("model.template") && !stated("model.template") {
		return settings.Source{{Section: "model", Key: "template", Place: defaultName, Value: "no"}}, "", nil
	}
	of, err := policy.ReadRun(dir)
	if err != nil || of == nil {
		if stated("model.template") {
			err = nil
		}
		return nil, "", err
	}
	if name, _ := settings.Find("environment.name", of.Settings).Value.(string); name != "single" {
		environment = name
	}
	sampled := settings.Find("rollout.max_new_tokens", of.Settings).Key != ""
	own := settings.Find("model.template", of.Settings).Value
	template := cmp.Or(settings.Find("model.template", others...).Value, own)
	run = settings.Source{{Section: "model", Key: "template", Place: of.File, Value: tokenize.DefaultTemplate}}
	if !sampled && s.has("reward.extract") && !stated("reward.name") && !stated("reward.use") && slices.Contains([]any{"chat", "concat", "no"}, template) {
		// Demonstrations taught the form of the answers, for which these templates do not ask.
		run = append(run, settings.Setting{Section: "reward", Key: "extract", Place: of.File, Value: "auto"})
	}
	return append(run, slices.DeleteFunc(slices.Clone(of.Settings), func(x settings.Setting) bool {
		section, _, _ := strings.Cut(x.Section, ".")
		switch {
		case slices.Contains(templateKeys, x.Path()):
			return template != own || !s.has(x.Path())
		case x.Section == "data": // the columns of another file
			return true
		case x.Section == "lora":
			return !of.Adapter || x.Key != "base_dtype"
		case section == "reward" || section == "environment":
			return !sampled || !slices.Contains(s.effect, section) || stated(section+".name") || stated(section+".use")
		}
		return !sampled || !slices.Contains(s.effect, section) && !slices.Contains(s.effect, x.Path())
	})...), environment, nil
}

// templateKeys are the settings of a prompt's template.
var templateKeys = []string{"model.template", "model.system", "model.template_args", "model.stop"}

// A resolved is a Config with the setting that decided each key, for messages.
type resolved struct {
	rl.Config
	*settings.Resolved
	*choice
	named       string // the model as it was named, if it is the run of an adapter
	prompt      tokenize.Template
	environment string // of the model's run; "" if its responses are single turns
}

// resolve applies the sources to the defaults of a run, weakest first. validate checks the values
// together.
func resolve(sources ...settings.Source) (*resolved, error) {
	return resolveAs(rl.Default(), settings.Command{}, sources...)
}

// resolveAs is resolve for a command with defaults and flags of its own.
func resolveAs(config rl.Config, of settings.Command, sources ...settings.Source) (*resolved, error) {
	r, usual := &resolved{Config: config}, config.Optimizer.LearningRate
	var err error
	if r.Resolved, err = settings.Resolve(&r.Config, of, sources...); err != nil {
		return nil, usageError{err}
	}
	r.named = r.Model.Path
	completeAdapter(r.Resolved, &r.Model.Path, &r.LoRA, &r.Optimizer.LearningRate, usual)
	if !r.Stated("objective.constant_length") {
		for _, f := range settings.Fields(r.Objective.Settings) {
			if f.Key == "constant_length" && f.Value.Float() != 1 { // Dr. GRPO's constant is the limit of the run's responses; 1 is a sum
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

// mostAdapterRate is the highest default learning rate of an adapter: above it the embedded model, whose
// full training begins at 3e-3, loses what it knows.
const mostAdapterRate = 0.01

// completeAdapter completes what trains an adapter: the model and the adapter, see continued, and the
// learning rate, which is ten times the usual one, at most mostAdapterRate, unless another is stated. A run file that
// trains no adapter by itself states the usual one for full training.
func completeAdapter(r *settings.Resolved, model *string, l *train.LoRAConfig, rate *float64, usual float64) {
	continued(model, l)
	s, adapter := r.Decided("optimizer.learning_rate"), r.Decided("lora.adapter")
	full := s.InFile() && *rate == usual && !r.Decided("lora.on").InFile() && !(adapter.InFile() && adapter.Value != "")
	if l.On && (s.Key == "" || strings.HasPrefix(s.Place, defaultName) || full) {
		*rate, _ = strconv.ParseFloat(fmt.Sprintf("%.15g", min(*rate*10, mostAdapterRate)), 64) // 1e-6 times 10 is 1e-5, and not the number before it
	}
}

// sayRate says which learning rate an adapter has, and where it is from.
func sayRate(r *settings.Resolved, l train.LoRAConfig, rate float64) {
	s := r.Decided("optimizer.learning_rate")
	is := "as " + s.Place + " says"
	if stated, ok := s.Value.(float64); rate == mostAdapterRate && (!ok || stated != rate) {
		is = "the highest default one of an adapter"
	} else if !ok || stated != rate {
		is = "ten times that of full training, which " + cmp.Or(s.Place, "the default") + " has"
	}
	if l.On {
		slog.Info("the learning rate of the adapter", "learning_rate", rate, "is", is)
	}
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
	if l.Adapter, err = newestOf(l.Adapter); err == nil {
		l.Settings, err = policy.CheckAdapter(model, l.Adapter)
	}
	return err
}

// validate reports the impossible values of the whole configuration.
func (r *resolved) validate() error { return asUsage(r.Locate(r.Config.Validate())) }

// check reports the impossible values among those of config that have an effect in the command,
// and what must be stated and is not.
func (r *resolved) check(config rl.Config) error {
	errs := slices.DeleteFunc(settings.Flatten(config.Check()), func(err error) bool {
		bad, ok := errors.AsType[*settings.Error](err)
		return ok && (!r.has(bad.Key) || bad.Value == "" && !r.Stated(bad.Key) && !slices.Contains(r.needs, bad.Key))
	})
	return asUsage(r.Locate(errors.Join(errs...)))
}

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

// checkIdle warns of the settings that have no effect on the run, but for those that defaults
// state and, if it is resumed, its run.toml. Those of an adapter are refused on the command
// line, since the run would train all weights instead, or another adapter.
func checkIdle(r *settings.Resolved, resume bool) (err error) {
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

// largestRunFile bounds a run file, and a config of another trainer, in bytes.
const largestRunFile = 1 << 20

// readConfig reads a whole file of settings, of which what is the flag or the argument; "-" is stdin.
// It also returns the name for messages.
func readConfig(what, name string, stdin io.Reader) (text []byte, shown string, err error) {
	in, shown, err := cli.OpenInput(what, name, stdin)
	if err != nil {
		return nil, "", err
	}
	defer in.Close()
	if text, err = io.ReadAll(io.LimitReader(in, largestRunFile+1)); err == nil && len(text) > largestRunFile {
		err = fmt.Errorf("%s: a file of settings has at most 1 MB", shown)
	}
	return text, shown, err
}

// readRunFile reads a run file; "-" is stdin.
func readRunFile(name string, stdin io.Reader) (settings.Source, error) {
	data, name, err := readConfig("--config", name, stdin)
	if err != nil {
		return nil, usageError{err}
	}
	source, err := settings.File(name, data)
	if _, begun := os.Stat(filepath.Join(filepath.Dir(name), "checkpoints")); begun == nil && filepath.Base(name) == "run.toml" {
		source = rl.Renew(source)
	}
	return source, asUsage(err)
}

// take sorts the arguments of a command that trains into --config, --set and --data: a run file,
// files of data and settings need no flag.
func (s *choice) take(c *cobra.Command) error {
	all := settings.Sections(s.chosen())
	for _, arg := range c.Flags().Args() {
		name, _, stated := strings.Cut(arg, "=")
		section, _, _ := strings.Cut(name, ".")
		_, failed := os.Stat(arg)
		switch ext := filepath.Ext(arg); {
		case stated && failed != nil && slices.ContainsFunc(all, func(t settings.Section) bool { return t.Name == section }):
			s.sets = append(s.sets, arg)
		case stated && failed != nil && settingCalled(c, name) != "":
			return usagef("unexpected argument %q%s", arg, settingCalled(c, name))
		case slices.Contains([]string{".toml", ".yaml", ".yml"}, ext):
			if s.file != "" && s.file != arg {
				return usagef("unexpected argument %q: there is a run file already, %s; leave one of the two out", arg, s.file)
			}
			s.file = arg
		case slices.Contains(settings.Names("objective"), arg) && failed != nil:
			return usagef("unexpected argument %q: an objective is chosen with --objective %s", arg, arg)
		case hasFile(arg, "config.json"):
			return usagef("unexpected argument %q: a model is named with --model %s", arg, cli.ShellQuoted(arg))
		case hasFile(arg, "run.toml"):
			return usagef("unexpected argument %q: a run goes on with --resume --out %s, and another begins with its model by --model", arg, cli.ShellQuoted(arg))
		case c.Name() != "train" && c.Flags().Changed("data"):
			return usagef("unexpected argument %q: the data are in %s already (--data)", arg, c.Flags().Lookup("data").Value)
		case failed != nil && ext == "" && arg != "-" && !strings.ContainsAny(arg, ":*?/"):
			return usagef("unexpected argument %q: it is not a run file, a file of data or section.key=value", arg)
		default:
			if err := c.Flags().Set("data", arg); err != nil {
				return usageError{err}
			}
		}
	}
	return nil
}

// hasFile says whether a folder has a file.
func hasFile(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

// addFlags adds flags for the fields of a struct of options; see addFlag.
func addFlags(c *cobra.Command, options any) {
	for _, f := range settings.Fields(options) {
		if f.Flag != "" {
			addFlag(c, f, f.Flag)
		}
	}
}

// addFlag adds a flag for a field, with words in its help text. Beside the tags of settings the
// field may have the tag required.
func addFlag(c *cobra.Command, f settings.Field, name string) {
	f.AddFlag(c.Flags(), name)
	flag := c.Flags().Lookup(name)
	flag.Usage = words.Replace(flag.Usage)
	if f.Tag("required") != "" {
		must(c.MarkFlagRequired(name))
	}
	if choices := strings.Fields(f.Tag("choice")); len(choices) > 0 {
		offer(c, choices, name)
	}
	switch kind := f.Tag("complete"); kind {
	case "":
	case "dir":
		must(c.MarkFlagDirname(name))
	case "file":
		must(c.MarkFlagFilename(name))
	default:
		must(c.MarkFlagFilename(name, kind))
	}
}

// offer lets the shell complete a flag with values.
func offer(c *cobra.Command, values []string, name string) {
	must(c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
}

// must stops on a mistake in the program itself, such as completion for a flag
// that does not exist.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
