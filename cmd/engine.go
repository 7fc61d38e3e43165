package cmd

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"onering/data"
	"onering/internal/cli"
	"onering/internal/settings"
	"onering/models"
	"onering/policy"
	"onering/runtime"
	"onering/sampler"
	"onering/tokenize"
	"onering/train/ranks"
)

// engineFlags are the flags of the commands that run a model.
type engineFlags struct {
	model    string
	adapter  string // "" for the model alone
	named    map[string]string
	adapters []string // the values of a repeatable --adapter, from which adapter and adapters come
	dtype    string   // the type of the computation; "" is float32
	fresh    bool     // a new adapter goes beside the model
	base     string   // lora.base_dtype; "" is float32
	runtime  policy.RuntimeConfig
}

// register adds the flags for the model, for an adapter beside it (several if inputs may
// choose one), and for where to run.
func (f *engineFlags) register(c *cobra.Command, several bool) {
	flags := c.Flags()
	flags.StringVar(&f.model, "model", "", "model folder, or a run folder for its newest checkpoint, or ORG/NAME on a hub (required)")
	require(c, "model")
	if several {
		flags.StringArrayVar(&f.adapters, "adapter", nil, adapterHelp+"; NAME=DIR, repeatable, for rows with \"adapter\": NAME")
	} else {
		flags.StringVar(&f.adapter, "adapter", "", adapterHelp)
	}
	markDirs(c, "model", "adapter")
	flags.StringVar(&f.base, "base-dtype", "float32", "type to hold the model's layers in beside an adapter: "+strings.Join(baseTypes, ", "))
	offer(c, baseTypes, "base-dtype")
	addRuntime(c, &f.runtime, "device", "threads", "library")
}

// adapterHelp is the help of --adapter.
const adapterHelp = "folder of a LoRA adapter of the model, as PEFT and onering write it, or a run folder for its newest checkpoint"

// baseTypes are the values of --base-dtype.
var baseTypes = append(slices.Clone(dtypeNames), "int8")

// nameAdapters reads the values of --adapter where it is repeatable.
func (f *engineFlags) nameAdapters() error {
	f.named = make(map[string]string)
	for _, value := range f.adapters {
		name, dir, named := strings.Cut(value, "=")
		if _, err := os.Stat(value); err == nil || strings.ContainsAny(name, `/\`) {
			named = false
		}
		switch {
		case !named && f.adapter != "" && f.adapter != value:
			return usagef("--adapter %s: there is one without a name already, %s: name them, as in --adapter NAME=%s", value, f.adapter, value)
		case !named:
			f.adapter = value
		case name == "" || dir == "":
			return usagef("--adapter %s: write NAME=DIR", value)
		case f.named[name] != "":
			return usagef("--adapter %s: there are two with the name %q", value, name)
		default:
			f.named[name] = dir
		}
	}
	return nil
}

// addRuntime adds the flags that say where to run.
func addRuntime(c *cobra.Command, r *policy.RuntimeConfig, names ...string) {
	r.Device = cmp.Or(r.Device, "cpu")
	settings.AddFlags(c.Flags(), r, names...)
	must(c.MarkFlagFilename("library"))
}

// registerDType adds the flag for the type of the computation.
func registerDType(c *cobra.Command, dtype *string) {
	c.Flags().StringVar(dtype, "dtype", "float32", "type to compute in: "+strings.Join(dtypeNames, ", ")+" (on a GPU)")
	offer(c, dtypeNames, "dtype")
}

// checkDType refuses an unknown type, and one that the device cannot multiply.
func checkDType(dtype, device string) error {
	if _, err := parseDType(dtype); err != nil {
		return err
	}
	if why := policy.RefusedType(dtype, device); why != "" {
		return usagef("--dtype %s with --device %s: %s", dtype, device, why)
	}
	return nil
}

func checkDevice(device string) error {
	if !runtime.IsDevice(device) {
		return usagef("--device %q: must be %s", device, runtime.Devices())
	}
	return nil
}

// open opens ONNX Runtime and the model with its adapters. It checks the folders first: the
// library may have to be fetched, and a wrong folder should be reported at once. Where an
// adapter may be named, a run folder with an adapter gives the adapter and the run's model.
func (f *engineFlags) open(c *cobra.Command) (*policy.Policy, error) {
	f.dtype, f.base = cmp.Or(f.dtype, "float32"), cmp.Or(f.base, "float32")
	if err := f.nameAdapters(); err != nil {
		return nil, err
	}
	model, err := f.folders(c)
	if err != nil {
		return nil, err
	}
	env, err := openRuntime(c, f.runtime.Options(), f.dtype)
	if err != nil {
		return nil, err
	}
	return policy.Open(env, policy.Options{Path: model, DType: f.dtype, Base: f.base, Adapter: f.adapter, Named: f.named, OwnEnv: true})
}

// check refuses types and devices that do not go together. adapted says that there is an
// adapter.
func (f *engineFlags) check(c *cobra.Command, adapted bool) error {
	if err := cmp.Or(checkSettings(&f.runtime), checkDevice(f.runtime.Device)); err != nil {
		return err
	}
	if _, ok := policy.BaseTypes[f.base]; !ok {
		return usagef("--base-dtype %q: must be one of %s", f.base, strings.Join(baseTypes, ", "))
	}
	if remedy := policy.RefusedBase(f.base, adapted, f.dtype, f.runtime.Device); remedy != "" {
		return usagef("--base-dtype %s: %s", f.base, remedy)
	}
	if err := checkDType(f.dtype, f.runtime.Device); err != nil {
		return err
	}
	if f.dtype != "float32" || f.base != "float32" {
		_, err := foreseenDevice(c, f.runtime, f.base, adapted, f.dtype)
		return err
	}
	return nil
}

// folders finds the folders of the model and of the adapters, and checks that they belong
// together.
func (f *engineFlags) folders(c *cobra.Command) (model string, err error) {
	adapted := f.adapter != "" || len(f.named) > 0
	if err := f.check(c, adapted || f.fresh); err != nil {
		return "", err
	}
	if model, err = newestModel(c, f.model); err != nil {
		return "", err
	}
	if c.Flags().Lookup("adapter") != nil && !adapted && !f.fresh {
		run, err := policy.ReadRun(model)
		if err != nil {
			return "", err
		}
		if run != nil && run.Adapter {
			slog.Info("the run trained an adapter", "of", run.Model, "adapter", model)
			f.adapter = model
			if !c.Flags().Changed("base-dtype") {
				f.base = cmp.Or(run.BaseDType, f.base)
			}
			if model, err = newestModel(c, run.Model); err == nil {
				err = errors.Join(f.check(c, true), checkModel(model))
			}
			if err != nil {
				return "", fmt.Errorf("%s holds an adapter of %s: %w; name the model with --model, and this folder with --adapter", f.adapter, run.Model, err)
			}
		}
	}
	if err := checkModel(model); err != nil {
		return "", err
	}
	find := func(dir string) (string, error) {
		dir, err := newestOf(dir)
		if err == nil {
			_, err = policy.CheckAdapter(model, dir)
		}
		if err != nil {
			err = fmt.Errorf("--adapter: %w", err)
		}
		return dir, err
	}
	if f.adapter != "" {
		if f.adapter, err = find(f.adapter); err != nil {
			return "", err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.named)) {
		if f.named[name], err = find(f.named[name]); err != nil {
			return "", err
		}
	}
	return model, nil
}

// foreseenDevice returns the device that a run will use. It refuses types that the device
// of auto lacks: validation does not know which device that is.
func foreseenDevice(c *cobra.Command, where policy.RuntimeConfig, base string, adapted bool, dtype string) (string, error) {
	device, _, err := where.Options().Foresee(c.Context())
	if err == nil && where.Device == "auto" {
		err = checkAuto(device, base, adapted, dtype)
	}
	return device, err
}

// checkAuto refuses the types that the device which auto chooses does not have.
func checkAuto(device, base string, adapted bool, dtype string) error {
	if why := policy.RefusedType(dtype, device); why != "" {
		return usagef("the device auto is %s on this machine, and the type (model.dtype, --dtype) is %s: %s", device, dtype, why)
	}
	if remedy := policy.RefusedBase(base, adapted, dtype, device); remedy != "" {
		return usagef("the device auto is %s on this machine, and lora.base_dtype (--base-dtype) = %q %s: choose the device cpu, or float32", device, base, remedy)
	}
	return nil
}

// checkModel returns an error if a model folder lacks what its config asks for. It
// does not read the weights.
func checkModel(path string) error {
	if path == data.Arithmetic {
		return nil
	}
	return models.Check(path)
}

// with opens the input that the arguments name and then the model, calls do, and closes
// both. name is the input's name in messages.
func (f *engineFlags) with(c *cobra.Command, args []string, do func(in io.Reader, name string, p *policy.Policy) error) error {
	return withInput(c, args, func(in io.Reader, name string) error {
		p, err := f.open(c)
		if err != nil {
			return err
		}
		defer p.Close()
		return do(in, name, p)
	})
}

// withTeam is with for a command whose work is divided among the ranks: the first rank
// has the input.
func (f *engineFlags) withTeam(c *cobra.Command, t *ranks.Group, args []string, do func(in io.Reader, name string, p *policy.Policy) error) error {
	if t.Size() == 1 {
		return f.with(c, args, do)
	}
	name := inputName(args)
	text, err := ranks.FromFirst(t, func() (text []byte, err error) {
		err = withInput(c, args, func(in io.Reader, shown string) (err error) {
			name = shown
			text, err = io.ReadAll(in)
			return err
		})
		return text, err
	})
	if err != nil {
		return err
	}
	var p *policy.Policy
	t.Place(&f.runtime.Device, &f.runtime.Threads)
	if err := t.InTurn(func() error { p, err = f.open(c); return err }); err != nil {
		return err
	}
	defer p.Close()
	return do(bytes.NewReader(text), name, p)
}

// noSpin is set by tests, whose processes share the processor cores.
var noSpin bool

// openRuntime opens ONNX Runtime for a type to compute in. If its library has to be
// fetched, it shows the progress.
func openRuntime(c *cobra.Command, o runtime.Options, dtype string) (*runtime.Env, error) {
	o.TF32, o.NoSpin = dtype != "float32", noSpin
	fetching := &cli.Download{Stderr: c.ErrOrStderr(), Quiet: isQuiet(c)}
	defer fetching.Finish()
	o.Progress = fetching.Show
	o.Notice = func(text string) { slog.Info(text) }
	return runtime.Open(c.Context(), o)
}

// isQuiet reports whether --quiet was given.
func isQuiet(c *cobra.Command) bool {
	quiet, _ := c.Flags().GetBool("quiet")
	return quiet
}

// addTemplate adds the flags that say what prompt to make of a problem: --template,
// whose default is name, --system, --template-args and, if asked for, --stop.
func addTemplate(c *cobra.Command, s *tokenize.TemplateSettings, name string, stop bool) {
	s.Template = name
	flags := []string{"template", "system", "template-args"}
	if stop {
		flags = append(flags, "stop")
	}
	settings.AddFlags(c.Flags(), s, flags...)
	offer(c, tokenize.Templates(), "template")
}

// addChat adds --chat, which is short for --template chat.
func addChat(c *cobra.Command, s *tokenize.TemplateSettings) {
	c.Flags().BoolFunc("chat", "the same as --template chat: the chat template of the model's tokenizer", func(text string) error {
		on, err := strconv.ParseBool(text)
		if on {
			s.Template = "chat"
		}
		return err
	})
	exclusive(c, "chat", "template")
}

// parseTemplate returns the template that the flags describe.
func parseTemplate(s tokenize.TemplateSettings) (tokenize.Template, error) {
	t, err := s.PromptTemplate()
	return t, asUsage(settings.NameFlags(err, &s))
}

// A manner is how a program talks to a model: template, limits, environment.
type manner struct {
	tokenize.Template
	limit       int    // most tokens of a response in the model's run; 0 if there is none
	environment string // of the model's run; "" if its responses are single turns
}

// warn says that the model's run had an environment, which this command does not play.
func (m manner) warn() bool {
	if m.environment != "" {
		slog.Warn("the environment of the run is played by train and eval, not here: a response is a single turn", "environment", m.environment)
	}
	return m.environment != ""
}

// mannerOf returns what the flags say. Where they name no template and dir is the folder of a run
// or of one of its checkpoints, the template is that of the run, changed by the other flags.
func mannerOf(c *cobra.Command, s tokenize.TemplateSettings, dir string) (m manner, err error) {
	own := c.Flags().Changed("template") || c.Flags().Changed("chat")
	run, err := policy.ReadRun(dir)
	switch {
	case err != nil && !own:
		return m, err
	case err == nil && run != nil:
		m.limit = run.MaxTokens
		if name, _ := settings.Find("environment.name", run.Settings).Value.(string); name != "single" {
			m.environment = name
		}
	}
	if run == nil || own {
		m.Template, err = parseTemplate(s)
		return m, err
	}
	if m.Template, err = parseTemplate(under(s, run.TemplateSettings)); err != nil {
		err = fmt.Errorf("%s: %w", run.File, err)
	}
	return m, err
}

// under returns the template of a run, changed by the flags.
func under(flags, run tokenize.TemplateSettings) tokenize.TemplateSettings {
	run.System = cmp.Or(flags.System, run.System)
	if len(flags.Args) > 0 {
		run.Args = flags.Args
	}
	if len(flags.Stop) > 0 {
		run.Stop = flags.Stop
	}
	return run
}

// manners returns the manner of the model, called "", and that of each named adapter. An
// adapter without a run has the manner of the model.
func (f *engineFlags) manners(c *cobra.Command, s tokenize.TemplateSettings) (map[string]manner, error) {
	all := make(map[string]manner)
	var err error
	if all[""], err = mannerOf(c, s, cmp.Or(f.adapter, f.model)); err != nil {
		return nil, err
	}
	for name, dir := range f.named {
		run, err := policy.ReadRun(dir)
		if all[name] = all[""]; err == nil && run != nil {
			all[name], err = mannerOf(c, s, dir)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// addGeneration adds the flag that ignores generation_config.json.
func addGeneration(c *cobra.Command) {
	c.Flags().Bool("generation-config", true, "take the temperature and the filters that no flag states from the model's generation_config.json")
}

// sampling completes how tokens are chosen: what no flag states comes from the run's
// limit and from generation_config.json.
func (m manner) sampling(c *cobra.Command, p *policy.Policy, s sampler.Sampling) (sampler.Sampling, error) {
	flags := c.Flags()
	if m.limit > 0 && !flags.Changed("max-tokens") {
		s.MaxNewTokens = m.limit
	}
	for _, f := range s.Drawing() {
		if s.Greedy && f.Key != "temperature" && flags.Changed(f.Flag) { // the temperature is that of the log-probs
			slog.Warn("a flag has no effect on greedy decoding", "flag", "--"+f.Flag)
		}
	}
	if on, _ := flags.GetBool("generation-config"); !on || s.Greedy {
		return s, nil
	}
	out, err := p.Sampling(s)
	return withFlags(c, out, s), err
}

// withFlags returns s with the values of the flags that given names.
func withFlags(c *cobra.Command, s, given sampler.Sampling) sampler.Sampling {
	if c.Flags().Changed("temperature") {
		s.Greedy = given.Greedy // a temperature of 0 means greedy decoding
	}
	values := settings.Fields(&given)
	for i, f := range settings.Fields(&s) {
		if c.Flags().Changed(f.Flag) {
			f.Value.Set(values[i].Value)
		}
	}
	return s
}
