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

// samplingPaths are the settings that say how tokens are chosen.
var samplingPaths = []string{"rollout.temperature", "rollout.top_p", "rollout.top_k", "rollout.min_p", "rollout.max_new_tokens"}

// adapterFlag gives lora.adapter the name that it has where no adapter is trained.
const adapterFlag = "lora.adapter=adapter"

// modelSettings is newSettings for a command that runs a model: it requires one, and by default only samples with it.
func modelSettings(change func(*rl.Config), effective ...string) *commandSettings {
	s := newSettings(change, append(effective, "lora.adapter")...)
	s.required, s.opensModel, s.samplesOnly = []string{"model.path"}, true, true
	return s
}

// talkSettings is modelSettings for generate and chat: by default they sample one response in this template, without
// filters, and the limit of a response in the run.toml of the model's run counts, too.
func talkSettings(template string) *commandSettings {
	return modelSettings(func(config *rl.Config) {
		config.Model.Template, config.Rollout.Sampling = template, sampler.Plain(512)
		config.Rollout.SamplesPerPrompt = 1
	}, "rollout.max_new_tokens")
}

// addModelFlags is addRunFlags for a command that runs a model.
func (s *commandSettings) addModelFlags(c *cobra.Command, paths ...string) {
	s.addRunFlags(c, append(paths, "model.path", "model.dtype", "lora.base_dtype", "runtime")...)
}

// A samplingOptions has the flags that say how tokens are chosen and are not settings.
type samplingOptions struct {
	Seed       uint64 `help:"seed of the sampling"`
	Greedy     bool   `help:"take the likeliest token"`
	Generation bool   `flag:"generation-config" help:"take the temperature and the filters that nothing states from the model's generation_config.json"`
}

// adapterHelp is the help of --adapter.
const adapterHelp = "folder of a LoRA adapter of the model, as PEFT and onering write it, or a run folder for its newest checkpoint"

// An adapters holds the values of a repeatable --adapter: folders with names, and at most one
// without, which goes with the model.
type adapters struct {
	Given   []string          `flag:"adapter" complete:"dir" help:"{adapter}; NAME=DIR for rows with \"adapter\": NAME"`
	byName  map[string]string // folders
	unnamed string            // a folder, or ""
}

// parse sorts the values of --adapter, NAME=DIR or DIR, into byName and unnamed. A DIR that exists may hold a =, and
// what stands before a = is no NAME if it has a slash.
func (a *adapters) parse() error {
	a.byName, a.unnamed = make(map[string]string), ""
	for _, value := range a.Given {
		name, dir, named := strings.Cut(value, "=")
		if _, err := os.Stat(value); err == nil || strings.ContainsAny(name, `/\`) {
			named = false
		}
		switch {
		case !named && a.unnamed != "" && a.unnamed != value:
			return usagef("--adapter %s: there is one without a name already, %s: name them, as in --adapter NAME=%s", value, a.unnamed, value)
		case !named:
			a.unnamed = value
		case name == "" || dir == "":
			return usagef("--adapter %s: write NAME=DIR", value)
		case a.byName[name] != "":
			return usagef("--adapter %s: there are two with the name %q", value, name)
		default:
			a.byName[name] = dir
		}
	}
	return nil
}

// asSource states the adapter without a name as the setting lora.adapter; nothing if there is none.
func (a *adapters) asSource() (s settings.Source) {
	if a.unnamed != "" {
		s = settings.Source{settings.State("lora.adapter", "adapter", a.unnamed)}
	}
	return s
}

// resolve returns the checked settings for the model, under the name "", and for each named adapter: those of the run
// that trained it, or of the model if that is unknown. It warns if one of these runs had an environment.
func (a *adapters) resolve(c *cobra.Command, s *commandSettings) (map[string]*resolved, error) {
	r, err := s.resolveModel(c, folderOfSettings)
	if err != nil {
		return nil, err
	}
	byAdapter := map[string]*resolved{"": r}
	for _, name := range slices.Sorted(maps.Keys(a.byName)) {
		if byAdapter[name], err = s.resolveAdapter(c, a.byName[name], r); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byAdapter)) {
		if byAdapter[name].warnOfEpisodes() {
			break // one warning is enough
		}
	}
	return byAdapter, r.check(r.Config) // resolveAdapter has checked those of the adapters
}

// warnOfEpisodes warns if the model's run had an environment, which the command does not play, and says whether it had.
func (r *resolved) warnOfEpisodes() bool {
	if r.environment != "" {
		slog.Warn("the environment of the run is played by train and eval, not here: a response is a single turn", "environment", r.environment)
	}
	return r.environment != ""
}

// resolveAdapter returns the checked settings of the run of an adapter at dir, or of the model if it is of none.
func (s *commandSettings) resolveAdapter(c *cobra.Command, dir string, model *resolved) (*resolved, error) {
	if run, err := policy.ReadRun(dir); err != nil || run == nil {
		return model, nil
	}
	r, err := s.resolveModel(c, dir)
	if err == nil {
		err = r.check(r.Config)
	}
	return r, err
}

// noNamedAdapters says that the model has no adapters by name, beside the one that its settings may state.
var noNamedAdapters map[string]string

// open opens ONNX Runtime and the model with its adapter, and with further ones, folders by name. It finds and checks
// the folders first: the library may have to be fetched, and a wrong folder should be reported at once.
func (r *resolved) open(c *cobra.Command, byName map[string]string) (*policy.Policy, error) {
	model, err := r.findFolders(c, byName)
	if err != nil {
		return nil, err
	}
	return openPolicy(c, r.Runtime, policy.Options{Path: model, DType: r.Model.DType, Base: r.LoRA.BaseDType, Adapter: r.LoRA.Adapter, Named: byName,
		Sampled: r.commandSettings != nil && r.samplesOnly})
}

// openPolicy opens ONNX Runtime for the type o.DType, and then the model in the folder o.Path. Closing the policy closes both.
func openPolicy(c *cobra.Command, where policy.RuntimeConfig, o policy.Options) (*policy.Policy, error) {
	env, err := openRuntime(c, where.Options(), o.DType)
	if err != nil {
		return nil, err
	}
	o.OwnEnv = true
	return policy.Open(env, o)
}

// findFolders returns the folder of the model, which it downloads if it is on a hub, and checks that its adapters fit
// it. It replaces r.LoRA.Adapter and the values of byName by the folders of the newest checkpoints. It refuses types
// that the device lacks.
func (r *resolved) findFolders(c *cobra.Command, byName map[string]string) (model string, err error) {
	if r.Model.DType != "float32" || r.LoRA.BaseDType != "float32" { // every device has float32
		if _, err := foreseenDevice(c, r.Runtime, r.LoRA, r.Model.DType); err != nil {
			return "", err
		}
	}
	if model, err = newestModel(c, r.Model.Path); err == nil {
		err = checkModel(model)
	}
	if r.Model.Path != r.modelAsNamed { // --model names the run of an adapter, so its base model and adapter are opened; see followAdapterRun
		slog.Info("the run trained an adapter", "of", r.Model.Path, "adapter", r.LoRA.Adapter)
		if err != nil {
			err = fmt.Errorf("%s holds an adapter of %s: %w; name the model with --model, and this folder with --adapter", r.modelAsNamed, r.Model.Path, err)
		}
	}
	if err != nil {
		return "", err
	}
	err = findAdapter(model, &r.LoRA)
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		l := train.LoRAConfig{Adapter: byName[name]}
		err = cmp.Or(err, findAdapter(model, &l))
		byName[name] = l.Adapter
	}
	if err != nil {
		err = fmt.Errorf("--adapter: %w", err)
	}
	return model, err
}

// foreseenDevice returns the device that a run will use, such as cpu; it opens and downloads nothing. If
// runtime.device is auto, it refuses types that the device lacks: validation does not know which device that is.
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

// checkModel returns an error if a model folder lacks what its config asks for. It does not read the weights.
func checkModel(path string) error {
	if path == data.Arithmetic {
		return nil
	}
	return models.Check(path)
}

// oneProcess is the group of ranks of a command that runs as a single process.
var oneProcess *ranks.Group

// with opens the input that the arguments name and then the model with further adapters, folders by name, calls do,
// and closes both. name is the input's name in messages. Where the ranks of t divide the work, the first one reads
// the whole input and gives it to the others, and each opens the model.
func (r *resolved) with(c *cobra.Command, t *ranks.Group, args []string, byName map[string]string,
	do func(in io.Reader, name string, p *policy.Policy) error) error {
	if t == oneProcess || t.Size() == 1 {
		return withInput(c, args, func(in io.Reader, name string) error {
			p, err := r.open(c, byName)
			if err != nil {
				return err
			}
			defer p.Close()
			return do(in, name, p)
		})
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
	t.Place(&r.Runtime.Device, &r.Runtime.Threads) // this rank's device, and its share of the host's cores
	var p *policy.Policy
	if err := t.InTurn(func() error { p, err = r.open(c, byName); return err }); err != nil {
		return err
	}
	defer p.Close()
	return do(bytes.NewReader(text), name, p)
}

// noSpin is set by tests, whose processes share the processor cores.
var noSpin bool

// openRuntime opens ONNX Runtime to compute in dtype. If its library has to be fetched, it shows the progress.
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

// sampling returns how tokens are chosen: as [rollout] and the flags o say, and where no source states a setting, as
// the model's generation_config.json says, unless the decoding is greedy or a flag turns that off. It warns of what
// greedy decoding ignores.
func (r *resolved) sampling(p *policy.Policy, o samplingOptions) (sampler.Sampling, error) {
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
	out, err := p.Sampling(s) // with all that generation_config.json says
	own := settings.Fields(&s)
	for i, f := range settings.Fields(&out) {
		if stated(f) || f.Key == "" && r.Stated("rollout.temperature") { // Greedy has no key: a temperature of 0 states it
			f.Value.Set(own[i].Value)
		}
	}
	return out, err
}
