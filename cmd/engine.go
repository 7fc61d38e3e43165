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
	"strings"

	"github.com/spf13/cobra"

	"onering/data"
	"onering/internal/cli"
	"onering/internal/settings"
	"onering/models"
	"onering/policy"
	"onering/runtime"
	"onering/sampler"
	"onering/train"
	"onering/train/ranks"
	"onering/train/rl"
)

// samplingFlags are the settings that say how tokens are chosen.
var samplingFlags = []string{"rollout.temperature", "rollout.top_p", "rollout.top_k", "rollout.min_p", "rollout.max_new_tokens"}

// adapterFlag gives lora.adapter the name that it has where no adapter is trained.
const adapterFlag = "lora.adapter=adapter"

// modelChoice returns the settings of a command that runs a model.
func modelChoice(change func(*rl.Config), effect ...string) *choice {
	s := newChoice(change, append(effect, "lora.adapter")...)
	s.needs, s.opens, s.samples = []string{"model.path"}, true, true
	return s
}

// talkChoice returns the settings of a command that talks to a model: the template is another
// by default, and of the model's run the limit of a response counts, too.
func talkChoice(template string) *choice {
	return modelChoice(func(config *rl.Config) {
		config.Model.Template, config.Rollout.Sampling = template, sampler.Plain(512)
		config.Rollout.SamplesPerPrompt = 1
	}, "rollout.max_new_tokens")
}

// registerModel is register for a command that runs a model.
func (s *choice) registerModel(c *cobra.Command, paths ...string) {
	s.register(c, append(paths, "model.path", "model.dtype", "lora.base_dtype", "runtime")...)
}

// drawn are the flags of the commands that sample beside their settings.
type drawn struct {
	Seed       uint64 `help:"seed of the sampling"`
	Greedy     bool   `help:"take the likeliest token"`
	Generation bool   `flag:"generation-config" help:"take the temperature and the filters that nothing states from the model's generation_config.json"`
}

// adapterHelp is the help of --adapter.
const adapterHelp = "folder of a LoRA adapter of the model, as PEFT and onering write it, or a run folder for its newest checkpoint"

// An adapters holds the values of a repeatable --adapter: folders with names, and at most one
// without, which goes with the model.
type adapters struct {
	Given []string `flag:"adapter" complete:"dir" help:"{adapter}; NAME=DIR for rows with \"adapter\": NAME"`
	named map[string]string
	alone string
}

// read sorts the values of --adapter, NAME=DIR or DIR, into adapters with a name and the one without.
func (a *adapters) read() error {
	a.named, a.alone = make(map[string]string), ""
	for _, value := range a.Given {
		name, dir, named := strings.Cut(value, "=")
		if _, err := os.Stat(value); err == nil || strings.ContainsAny(name, `/\`) {
			named = false
		}
		switch {
		case !named && a.alone != "" && a.alone != value:
			return usagef("--adapter %s: there is one without a name already, %s: name them, as in --adapter NAME=%s", value, a.alone, value)
		case !named:
			a.alone = value
		case name == "" || dir == "":
			return usagef("--adapter %s: write NAME=DIR", value)
		case a.named[name] != "":
			return usagef("--adapter %s: there are two with the name %q", value, name)
		default:
			a.named[name] = dir
		}
	}
	return nil
}

// stated is the adapter without a name as a setting.
func (a *adapters) stated() (s settings.Source) {
	if a.alone != "" {
		s = settings.Source{settings.State("lora.adapter", "adapter", a.alone)}
	}
	return s
}

// resolve returns the settings for the model, called "", and for each named adapter: those of its
// own run, or of the model if it has none. They are checked.
func (a *adapters) resolve(c *cobra.Command, s *choice) (map[string]*resolved, error) {
	r, err := s.resolveModel(c, "")
	if err != nil {
		return nil, err
	}
	all := map[string]*resolved{"": r}
	for _, name := range slices.Sorted(maps.Keys(a.named)) {
		if all[name], err = s.resolveAdapter(c, a.named[name], r); err != nil {
			return nil, err
		}
	}
	r.LoRA.On = r.LoRA.On || len(a.named) > 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name].warnOfEpisodes() {
			break
		}
	}
	return all, r.check(r.Config)
}

// warnOfEpisodes says that the model's run had an environment, which the command does not play.
func (r *resolved) warnOfEpisodes() bool {
	if r.environment != "" {
		slog.Warn("the environment of the run is played by train and eval, not here: a response is a single turn", "environment", r.environment)
	}
	return r.environment != ""
}

// resolveAdapter returns the settings of the run in whose folder an adapter lies, or those of the
// model if it lies in none.
func (s *choice) resolveAdapter(c *cobra.Command, dir string, model *resolved) (*resolved, error) {
	if run, err := policy.ReadRun(dir); err != nil || run == nil {
		return model, nil
	}
	r, err := s.resolveModel(c, dir)
	if err == nil {
		r.LoRA.On = true
		err = r.check(r.Config)
	}
	return r, err
}

// open opens ONNX Runtime and the model with its adapter, and with further ones by their names. It
// checks the folders first: the library may have to be fetched, and a wrong folder should be
// reported at once.
func (r *resolved) open(c *cobra.Command, named map[string]string) (*policy.Policy, error) {
	model, err := r.folders(c, named)
	if err != nil {
		return nil, err
	}
	return openPolicy(c, r.Runtime, policy.Options{Path: model, DType: r.Model.DType, Base: r.LoRA.BaseDType, Adapter: r.LoRA.Adapter, Named: named,
		Sampled: r.choice != nil && r.samples})
}

// openPolicy opens ONNX Runtime and the model in a folder. Closing the policy closes both.
func openPolicy(c *cobra.Command, where policy.RuntimeConfig, o policy.Options) (*policy.Policy, error) {
	env, err := openRuntime(c, where.Options(), o.DType)
	if err != nil {
		return nil, err
	}
	o.OwnEnv = true
	return policy.Open(env, o)
}

// folders finds the folders of the model and of the adapters, and checks that they belong
// together.
func (r *resolved) folders(c *cobra.Command, named map[string]string) (model string, err error) {
	if r.Model.DType != "float32" || r.LoRA.BaseDType != "float32" {
		if _, err := foreseenDevice(c, r.Runtime, r.LoRA, r.Model.DType); err != nil {
			return "", err
		}
	}
	if model, err = newestModel(c, r.Model.Path); err == nil {
		err = checkModel(model)
	}
	if r.Model.Path != r.named {
		slog.Info("the run trained an adapter", "of", r.Model.Path, "adapter", r.LoRA.Adapter)
		if err != nil {
			err = fmt.Errorf("%s holds an adapter of %s: %w; name the model with --model, and this folder with --adapter", r.named, r.Model.Path, err)
		}
	}
	if err != nil {
		return "", err
	}
	err = takeAdapter(model, &r.LoRA)
	for _, name := range slices.Sorted(maps.Keys(named)) {
		l := train.LoRAConfig{Adapter: named[name]}
		err = cmp.Or(err, takeAdapter(model, &l))
		named[name] = l.Adapter
	}
	if err != nil {
		err = fmt.Errorf("--adapter: %w", err)
	}
	return model, err
}

// foreseenDevice returns the device that a run will use. It refuses types that the device
// of auto lacks: validation does not know which device that is.
func foreseenDevice(c *cobra.Command, where policy.RuntimeConfig, l train.LoRAConfig, dtype string) (string, error) {
	device, _, err := where.Options().Foresee(c.Context())
	if err == nil && where.Device == "auto" {
		err = checkAuto(device, l.BaseDType, dtype)
	}
	return device, err
}

// checkAuto refuses the types that the device which auto chooses does not have.
func checkAuto(device, base, dtype string) error {
	if errs := policy.CheckTypes(dtype, base, device); len(errs) > 0 {
		return usageError{settings.About(fmt.Errorf("the device auto is %s on this machine, and %w; choose the device cpu, or float32",
			device, errors.Join(errs...)), "model.dtype", "lora.base_dtype")}
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

// with opens the input that the arguments name and then the model with further adapters, calls do,
// and closes both. name is the input's name in messages. Where ranks divide the work, the first one
// of t has the input; t may be nil.
func (r *resolved) with(c *cobra.Command, t *ranks.Group, args []string, named map[string]string,
	do func(in io.Reader, name string, p *policy.Policy) error) error {
	opened := func(in io.Reader, name string) error {
		p, err := r.open(c, named)
		if err != nil {
			return err
		}
		defer p.Close()
		return do(in, name, p)
	}
	if t == nil || t.Size() == 1 {
		return withInput(c, args, opened)
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
	t.Place(&r.Runtime.Device, &r.Runtime.Threads)
	var p *policy.Policy
	if err := t.InTurn(func() error { p, err = r.open(c, named); return err }); err != nil {
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

// sampling says how tokens are chosen. What nothing states is as generation_config.json says,
// unless a flag turns that off.
func (r *resolved) sampling(p *policy.Policy, o drawn) (sampler.Sampling, error) {
	s := r.Rollout.Sampling
	s.Greedy = s.Greedy || o.Greedy
	stated := func(f settings.Field) bool { return r.Stated("rollout." + f.Key) }
	for _, f := range s.Drawing() {
		if s.Greedy && f.Key != "temperature" && stated(f) { // the temperature is that of the log-probs
			slog.Warn("a setting has no effect on greedy decoding", "setting", r.Decided("rollout."+f.Key).Place)
		}
	}
	if !o.Generation || s.Greedy {
		return s, nil
	}
	out, err := p.Sampling(s)
	values := settings.Fields(&s)
	for i, f := range settings.Fields(&out) {
		if stated(f) || f.Key == "" && r.Stated("rollout.temperature") { // a temperature of 0 is greedy decoding
			f.Value.Set(values[i].Value)
		}
	}
	return out, err
}
