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

// A commandSettings is the settings that a command has. Whatever states one, a flag, --set, the environment, a run file
// or the run of the model, goes through settings.Resolve, the stronger source over the weaker.
type commandSettings struct {
	command      settings.Command
	fromFlags    any                      // pointer to a configuration whose fields the flags set: at first the command's defaults
	defaults     func() rl.Config         // returns the command's defaults; nil for sft and dpo
	effective    []string                 // sections and settings that have an effect in the command beside those with a flag
	allEffective bool                     // all settings have an effect
	required     []string                 // settings that a source must state
	opensModel   bool                     // the command opens the model, so the model's run states settings, too
	samplesOnly  bool                     // the command only samples with the model, so lora.base_dtype holds its head, too
	moreSources  []func() settings.Source // what further flags state
	runFile      string                   // the value of --config
	recipe       string                   // of train: small, paper or ""
	sets         []string                 // the values of --set
	fileSource   settings.Source          // what runFile states, once it was read: it may be stdin, which is read only once
}

// newSettings returns the settings of a command that has those of onering train; change makes the defaults of train those
// of the command. effective lists what has an effect in it without a flag: sections, such as "eval", and settings.
func newSettings(change func(*rl.Config), effective ...string) *commandSettings {
	defaults := func() rl.Config {
		config := rl.Default()
		change(&config)
		return config
	}
	config := defaults()
	return &commandSettings{fromFlags: &config, defaults: defaults, effective: effective, command: settings.Command{Flags: map[string]string{}}}
}

// withTrainDefaults leaves the defaults of onering train as they are.
func withTrainDefaults(*rl.Config) {}

// addRunFlags adds --config, whose shell completion knows run files, --set, whose completion knows the settings that
// have an effect, and the flags of paths; see addSettingFlags.
func (s *commandSettings) addRunFlags(c *cobra.Command, paths ...string) {
	c.Flags().StringVar(&s.runFile, "config", "", "run file in TOML, over whose settings flags and --set win; - is stdin")
	c.Flags().StringArrayVar(&s.sets, "set", nil, "section.key=value in place of a key of the run file; repeatable")
	must(c.MarkFlagFilename("config", "toml"))
	must(c.RegisterFlagCompletionFunc("set", func(*cobra.Command, []string, string) (keys []cobra.Completion, _ cobra.ShellCompDirective) {
		for _, t := range settings.Sections(s.chosen()) {
			for _, f := range t.Fields {
				if path := t.Name + "." + f.Key; s.isEffective(path) {
					keys = append(keys, path+"=")
				}
			}
		}
		return keys, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}))
	s.addSettingFlags(c, paths...)
}

// chosen returns fromFlags after it has set each plug-in in it, such as the objective, to the one that its flag names.
func (s *commandSettings) chosen() any {
	for _, t := range settings.Sections(s.fromFlags) {
		if s.command.Flags[t.Name+".name"] != "" { // the name is the first field of its section
			_ = settings.Choose(s.fromFlags, t.Name, t.Fields[0].Value.String()) // a wrong name has no keys to offer
		}
	}
	return s.fromFlags
}

// addSettingFlags adds flags for the settings at paths, such as model.path, with what the shell completes them by, and
// notes in s and in the flags which setting each has. A path may end in =NAME, the name of the flag; else the setting's
// tag names it. A section among the paths stands for those of its settings that are not named apart.
func (s *commandSettings) addSettingFlags(c *cobra.Command, paths ...string) {
	for _, t := range settings.Sections(s.fromFlags) {
		for _, f := range t.Fields {
			path, flag := t.Name+"."+f.Key, ""
			for _, p := range paths {
				switch p, name, _ := strings.Cut(p, "="); p {
				case path:
					flag = cmp.Or(name, f.Flag)
				case t.Name: // the whole section
					flag = cmp.Or(flag, f.Flag)
				}
			}
			if flag == "" {
				continue
			}
			s.command.Flags[path] = flag
			addFlag(c, f, flag)
			if flag == "adapter" { // the help of lora.adapter is about training, and here none is trained
				c.Flags().Lookup(flag).Usage = adapterHelp
			}
			must(c.Flags().SetAnnotation(flag, settingOf, []string{path}))
			if path == "model.template" {
				offer(c, tokenize.Templates(), flag)
			}
			if f.Key == "name" { // of a plug-in
				c.Flags().Lookup(flag).Usage += "; " + settings.Listed(t.Name)
				offer(c, settings.Names(t.Name), flag)
			}
		}
	}
}

// addShortcut adds a flag without a value, such as --greedy, that states one value of the setting at path.
func (s *commandSettings) addShortcut(c *cobra.Command, flag, path string, value any, help string) {
	on := c.Flags().Bool(flag, false, help)
	s.moreSources = append(s.moreSources, func() settings.Source {
		if *on {
			return settings.Source{settings.State(path, flag, value)}
		}
		return nil
	})
}

// withResolved returns the code of a command: it resolves and checks the settings, and then calls do with them.
func (s *commandSettings) withResolved(do func(c *cobra.Command, args []string, r *resolved) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		r, err := s.resolveModel(c, folderOfSettings)
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

// isEffective says whether the setting at a path has an effect in the command.
func (s *commandSettings) isEffective(path string) bool {
	return s.allEffective || s.command.Flags[path] != "" || slices.ContainsFunc(s.effective, func(e string) bool {
		return path == e || strings.HasPrefix(path, e+".")
	})
}

// sources returns what states settings, the weakest source first: the run file, the environment, the command line.
func (s *commandSettings) sources(c *cobra.Command) ([]settings.Source, error) {
	if s.runFile != "" && s.fileSource == nil {
		var err error
		if s.fileSource, err = readRunFile(s.runFile, c.InOrStdin()); err != nil {
			return nil, err
		}
	}
	typed, err := settings.Sets(s.sets)
	if err != nil {
		return nil, usageError{err}
	}
	typed = append(typed, s.command.Given(s.fromFlags, c.Flags().Changed)...)
	for _, states := range s.moreSources {
		typed = append(typed, states()...)
	}
	return []settings.Source{s.fileSource, settings.Environment(s.fromFlags, s.environment()), typed}, nil
}

// environment is the process's environment without variables for sections of onering train that this command lacks,
// such as ONERING_ROLLOUT_SLOTS for sft: they are meant for another command, and no error here.
func (s *commandSettings) environment() []string {
	all := rl.Default()
	own := settings.Sections(s.fromFlags)
	others := slices.DeleteFunc(settings.Sections(&all), func(t settings.Section) bool {
		return slices.ContainsFunc(own, func(o settings.Section) bool { return o.Name == t.Name })
	})
	return slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return slices.ContainsFunc(others, func(t settings.Section) bool { return strings.HasPrefix(entry, "ONERING_"+strings.ToUpper(t.Name)+"_") })
	})
}

// resolve resolves the settings, and warns of those on the command line that have no effect in this command. If weakest is
// not nil, it is called with all sources and returns one more, below them: what they do not state, that one decides.
func (s *commandSettings) resolve(c *cobra.Command, weakest func(others ...settings.Source) (settings.Source, error)) (*resolved, error) {
	sources, err := s.sources(c)
	if err != nil {
		return nil, err
	}
	if weakest != nil {
		below, err := weakest(sources...)
		if err != nil {
			return nil, err
		}
		sources = append([]settings.Source{below}, sources...)
	}
	r, err := resolveAs(s.defaults(), s.command, sources...)
	if err != nil {
		return nil, err
	}
	r.commandSettings = s
	for _, x := range sources[len(sources)-1] { // the command line
		if !s.isEffective(x.Path()) {
			slog.Warn("a setting has no effect in this command", "setting", x.Path(), "place", x.Place)
		}
	}
	return r, nil
}

// folderOfSettings stands for the folder of the adapter, or else of the model, that the settings name.
const folderOfSettings = ""

// resolveModel resolves the settings. Of a command that opens a model, the run that trained it decides what no other
// source states. dir is the folder of that run, or of a checkpoint in it, or folderOfSettings. In a command
// that samples, a temperature of 0 becomes greedy decoding.
func (s *commandSettings) resolveModel(c *cobra.Command, dir string) (*resolved, error) {
	environment := ""
	r, err := s.resolve(c, func(others ...settings.Source) (run settings.Source, err error) {
		run, environment, err = s.settingsOfRun(dir, others)
		return run, err
	})
	if err != nil {
		return nil, err
	}
	r.environment = environment
	if s.isEffective("rollout.top_p") { // then the command samples
		r.Rollout.Sampling = r.Rollout.Sampling.OrGreedy()
	}
	r.prompt, _ = r.Model.PromptTemplate() // check reports the error
	return r, nil
}

// settingsOfRun returns those settings in the run.toml of the run at dir (see resolveModel) that also count when this
// command opens the run's model: not the template, the reward or the environment if another source names one. It also
// returns the name of the run's environment, "" if its responses were single turns.
func (s *commandSettings) settingsOfRun(dir string, others []settings.Source) (run settings.Source, environment string, err error) {
	stated := func(key string) bool { return settings.Find(key, others...).Key != "" }
	for _, key := range []string{"lora.adapter", "model.path"} { // only where dir is folderOfSettings, which is ""
		path, _ := settings.Find(key, others...).Value.(string)
		dir = cmp.Or(dir, path)
	}
	if dir == "" || !s.opensModel {
		return nil, "", nil
	}
	if dir == data.Arithmetic && s.isEffective("model.template") && !stated("model.template") { // the embedded model, which has no run.toml
		return settings.Source{{Section: "model", Key: "template", Place: defaultName, Value: "no"}}, "", nil
	}
	saved, err := policy.ReadRun(dir)
	if err != nil || saved == nil {
		if stated("model.template") {
			err = nil // the run is read for its template above all, and here another one counts
		}
		return nil, "", err
	}
	if name, _ := settings.Find("environment.name", saved.Settings).Value.(string); name != "single" {
		environment = name
	}
	ofTrain := settings.Find("rollout.max_new_tokens", saved.Settings).Key != "" // a run of train, not of sft or dpo
	runTemplate := settings.Find("model.template", saved.Settings).Value
	template := cmp.Or(settings.Find("model.template", others...).Value, runTemplate)
	run = settings.Source{{Section: "model", Key: "template", Place: saved.File, Value: tokenize.DefaultTemplate}} // the run's own wins: it stands later
	if !ofTrain && s.isEffective("reward.extract") && !stated("reward.name") && !stated("reward.use") && slices.Contains([]any{"chat", "concat", "no"}, template) {
		// Demonstrations taught the form of the answers, for which these templates do not ask.
		run = append(run, settings.Setting{Section: "reward", Key: "extract", Place: saved.File, Value: "auto"})
	}
	ignored := func(x settings.Setting) bool { // says that a setting of the run does not count here
		section, _, _ := strings.Cut(x.Section, ".")
		switch {
		case slices.Contains(templateKeys, x.Path()):
			return template != runTemplate || !s.isEffective(x.Path())
		case x.Section == "data": // the columns of another file
			return true
		case x.Section == "lora": // the type of the base model counts where the run's adapter is opened; the rest is about training
			return !saved.Adapter || x.Key != "base_dtype"
		case section == "reward" || section == "environment":
			return !ofTrain || !slices.Contains(s.effective, section) || stated(section+".name") || stated(section+".use")
		}
		return !ofTrain || !slices.Contains(s.effective, section) && !slices.Contains(s.effective, x.Path())
	}
	return append(run, slices.DeleteFunc(slices.Clone(saved.Settings), ignored)...), environment, nil
}

// templateKeys are the settings of a prompt's template.
var templateKeys = []string{"model.template", "model.system", "model.template_args", "model.stop"}

// A resolved is a Config with the setting that decided each key, for messages.
type resolved struct {
	rl.Config
	*settings.Resolved
	*commandSettings
	modelAsNamed string            // model.path as it was stated; Model.Path is another one if it names the run of an adapter
	prompt       tokenize.Template // that of [model]
	environment  string            // that of the model's run, by name; "" if its responses are single turns
}

// resolve applies the sources to the defaults of a run, weakest first. validate checks the values together.
func resolve(sources ...settings.Source) (*resolved, error) {
	return resolveAs(rl.Default(), settings.Command{}, sources...)
}

// resolveAs is resolve for a command (of) with defaults and flags of its own. Where no source states them, it also fills
// in what follows from other settings: the model and the rate of an adapter, and the constant length of an objective.
func resolveAs(defaults rl.Config, of settings.Command, sources ...settings.Source) (*resolved, error) {
	r := &resolved{Config: defaults}
	var err error
	if r.Resolved, err = settings.Resolve(&r.Config, of, sources...); err != nil {
		return nil, usageError{err}
	}
	r.modelAsNamed = r.Model.Path
	completeAdapter(r.Resolved, &r.Model.Path, &r.LoRA, &r.Optimizer.LearningRate, defaults.Optimizer.LearningRate)
	if !r.Stated("objective.constant_length") {
		for _, f := range settings.Fields(r.Objective.Settings) {
			// Dr. GRPO divides by the limit of the run's responses. A default of 1 means that the objective sums over tokens: it stays.
			if f.Key == "constant_length" && f.Value.Float() != 1 {
				f.Value.SetFloat(float64(max(1, r.Rollout.MaxNewTokens)))
			}
		}
	}
	// A reward that extracts answers looks for them where the template asks for them. validate refuses an impossible template.
	if template, err := r.Model.PromptTemplate(); err == nil {
		reward.SetTemplate(r.Reward.Rule, template.Name)
	}
	return r, nil
}

// mostAdapterRate is the highest default learning rate of an adapter: above it the embedded model, whose
// full training begins at 3e-3, loses what it knows.
const mostAdapterRate = 0.01

// completeAdapter completes what trains an adapter: the model and the adapter, see followAdapterRun, and *rate, which
// is ten times the default one, at most mostAdapterRate, unless another is stated. A run file that states defaultRate
// and trains no adapter by itself is one for full training, whose rate does not count as stated for an adapter.
func completeAdapter(r *settings.Resolved, model *string, l *train.LoRAConfig, rate *float64, defaultRate float64) {
	followAdapterRun(model, l)
	decidedRate, adapter := r.Decided("optimizer.learning_rate"), r.Decided("lora.adapter")
	forFullTraining := decidedRate.InFile() && *rate == defaultRate && !r.Decided("lora.on").InFile() && !(adapter.InFile() && adapter.Value != "")
	if l.On && (decidedRate.Key == "" || strings.HasPrefix(decidedRate.Place, defaultName) || forFullTraining) {
		*rate, _ = strconv.ParseFloat(fmt.Sprintf("%.15g", min(*rate*10, mostAdapterRate)), 64) // rounded: 1e-6 times 10 is 1e-5, and not the number before it
	}
}

// logAdapterRate says which learning rate the adapter of a run has and where it is from; nothing if it trains none.
func logAdapterRate(r *settings.Resolved, l train.LoRAConfig, rate float64) {
	if !l.On {
		return
	}
	s := r.Decided("optimizer.learning_rate")
	source := "as " + s.Place + " says"
	if stated, ok := s.Value.(float64); !ok || stated != rate { // completeAdapter has chosen it
		source = "ten times that of full training, which " + cmp.Or(s.Place, "the default") + " has"
		if rate == mostAdapterRate {
			source = "the highest default one of an adapter"
		}
	}
	slog.Info("the learning rate of the adapter", "learning_rate", rate, "is", source)
}

// followAdapterRun rewrites *model where it names a run that trained an adapter, or one of its checkpoints: it becomes the
// model of that run, and the run's adapter becomes l.Adapter. It switches l on wherever there is an adapter.
func followAdapterRun(model *string, l *train.LoRAConfig) {
	if dir, err := train.Folder(*model).Model(); err == nil && *model != "" && l.Adapter == "" {
		// An error in the model is reported where it is opened.
		if run, err := policy.ReadRun(dir); err == nil && run != nil && run.Adapter {
			*model, l.Adapter = run.Model, dir
		}
	}
	l.On = l.On || l.Adapter != ""
}

// findAdapter replaces l.Adapter, which may be a run folder, by its newest checkpoint, and l.Settings by the settings that
// lie there, once it has checked that the adapter fits the model in a folder. Without an adapter it does nothing.
func findAdapter(model string, l *train.LoRAConfig) (err error) {
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

// check reports the impossible values among those of config that have an effect in the command, and what must be stated
// and is not. An empty text that nothing states is no error where the command does not require the setting.
func (r *resolved) check(config rl.Config) error {
	errs := slices.DeleteFunc(settings.Flatten(config.Check()), func(err error) bool {
		bad, ok := errors.AsType[*settings.Error](err)
		return ok && (!r.isEffective(bad.Key) || bad.Value == "" && !r.Stated(bad.Key) && !slices.Contains(r.required, bad.Key))
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

// checkIneffective warns of the settings that have no effect beside the others, but for those that defaults state
// and, if the run is resumed, its run.toml. It refuses those of an adapter on the command line, as the run would
// train all weights, or another adapter.
func checkIneffective(r *settings.Resolved, resume bool) (err error) {
	r.Idle(func(s settings.Setting, needs string) { // needs says which setting is not as s needs it
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

// notResumed says that the settings are not those of a resumed run.
const notResumed = false

// largestRunFile bounds a run file, and a config of another trainer, in bytes.
const largestRunFile = 1 << 20

// readConfig reads a file of settings that the flag or argument what names; "-" is stdin. shown is for messages.
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

// readRunFile reads a run file; "-" is stdin. The run.toml of an earlier version gets the keys of today.
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

// sortArguments takes the arguments of train, sft or dpo as values of --config, --set and --data, since a run file, files of
// data and settings need no flag. Any other argument, such as a model's folder, is refused with the flag that it needs.
func (s *commandSettings) sortArguments(c *cobra.Command) error {
	sections := settings.Sections(s.chosen())
	for _, arg := range c.Flags().Args() {
		name, _, hasValue := strings.Cut(arg, "=")
		section, _, _ := strings.Cut(name, ".")
		_, noFile := os.Stat(arg)
		switch ext := filepath.Ext(arg); {
		case hasValue && noFile != nil && slices.ContainsFunc(sections, func(t settings.Section) bool { return t.Name == section }):
			s.sets = append(s.sets, arg)
		case hasValue && noFile != nil && settingCalled(c, name) != "":
			return usagef("unexpected argument %q%s", arg, settingCalled(c, name))
		case slices.Contains([]string{".toml", ".yaml", ".yml"}, ext):
			if s.runFile != "" && s.runFile != arg {
				return usagef("unexpected argument %q: there is a run file already, %s; leave one of the two out", arg, s.runFile)
			}
			s.runFile = arg
		case slices.Contains(settings.Names("objective"), arg) && noFile != nil:
			return usagef("unexpected argument %q: an objective is chosen with --objective %s", arg, arg)
		case hasFile(arg, "config.json"):
			return usagef("unexpected argument %q: a model is named with --model %s", arg, cli.ShellQuoted(arg))
		case hasFile(arg, "run.toml"):
			return usagef("unexpected argument %q: a run goes on with --resume --out %s, and another begins with its model by --model", arg, cli.ShellQuoted(arg))
		case c.Name() != "train" && c.Flags().Changed("data"):
			return usagef("unexpected argument %q: the data are in %s already (--data)", arg, c.Flags().Lookup("data").Value)
		case noFile != nil && ext == "" && arg != "-" && !strings.ContainsAny(arg, ":*?/"):
			return usagef("unexpected argument %q: it is not a run file, a file of data or section.key=value", arg)
		default: // also a name on a hub, a pattern of files, or stdin
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

// addFlag adds a flag called name for a field, with lists in place of the {placeholders} of its help, and with what
// the shell completes it by. Beside the tags of package settings the field may have the tag required.
func addFlag(c *cobra.Command, f settings.Field, name string) {
	f.AddFlag(c.Flags(), name)
	flag := c.Flags().Lookup(name)
	flag.Usage = placeholders.Replace(flag.Usage)
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

// must stops on a mistake in the program itself, such as completion for a flag that does not exist.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
