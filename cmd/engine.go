package cmd

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"onering/data/arithmetic"
	"onering/models"
	_ "onering/models/all"
	"onering/policy"
	"onering/runtime"
	"onering/runtime/provision"
	"onering/train"
	"onering/train/rl"
)

// engineFlags are the flags of the commands that run a model.
type engineFlags struct {
	model    string
	adapter  string // "" for the model alone
	named    []namedAdapter
	adapters []string // the values of --adapter from which these two come, where it is repeatable
	dtype    string   // of the computation; "" is float32
	fresh    bool     // a new adapter goes beside the model
	base     string   // lora.base_dtype; "" is float32
	runtime  train.RuntimeConfig
}

func (f *engineFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.model, "model", "", "model folder, or a run folder for its newest checkpoint, or ORG/NAME on a hub (required)")
	must(c.MarkFlagRequired("model"))
	must(c.MarkFlagDirname("model"))
	addRuntime(c, &f.runtime, "device", "threads", "library")
}

// adapterHelp is the help of --adapter.
const adapterHelp = "folder of a LoRA adapter of the model, as PEFT and onering write it, or a run folder for its newest checkpoint"

// registerAdapter adds the flag for an adapter beside the model.
func (f *engineFlags) registerAdapter(c *cobra.Command) {
	c.Flags().StringVar(&f.adapter, "adapter", "", adapterHelp)
	must(c.MarkFlagDirname("adapter"))
	f.registerBase(c)
}

// baseTypes are the values of --base-dtype.
var baseTypes = append(slices.Clone(dtypeNames), "int8")

// registerBase adds the flag for the type of the model beside an adapter.
func (f *engineFlags) registerBase(c *cobra.Command) {
	c.Flags().StringVar(&f.base, "base-dtype", "float32", "type to hold the model's layers in beside an adapter: "+strings.Join(baseTypes, ", "))
	must(c.RegisterFlagCompletionFunc("base-dtype", cobra.FixedCompletions(baseTypes, cobra.ShellCompDirectiveNoFileComp)))
}

// A namedAdapter is an adapter that inputs choose by its name.
type namedAdapter struct{ name, dir string }

// registerAdapters is registerAdapter for commands whose inputs choose one of several.
func (f *engineFlags) registerAdapters(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.adapters, "adapter", nil, adapterHelp+"; NAME=DIR, repeatable, for rows with \"adapter\": NAME")
	must(c.MarkFlagDirname("adapter"))
	f.registerBase(c)
}

// nameAdapters reads the values of --adapter where it is repeatable.
func (f *engineFlags) nameAdapters() error {
	for _, value := range f.adapters {
		name, dir, named := strings.Cut(value, "=")
		if _, err := os.Stat(value); err == nil || strings.ContainsAny(name, `/\`) {
			named = false
		}
		switch {
		case !named && f.adapter != "":
			return usagef("--adapter %s: there is one without a name already, %s: name them, as in --adapter NAME=%s", value, f.adapter, value)
		case !named:
			f.adapter = value
		case name == "" || dir == "":
			return usagef("--adapter %s: write NAME=DIR", value)
		case slices.ContainsFunc(f.named, func(x namedAdapter) bool { return x.name == name }):
			return usagef("--adapter %s: there are two with the name %q", value, name)
		default:
			f.named = append(f.named, namedAdapter{name, dir})
		}
	}
	return nil
}

// addRuntime adds those of the flags that say where to run.
func addRuntime(c *cobra.Command, r *train.RuntimeConfig, names ...string) {
	if r.Device == "" {
		r.Device = rl.Default().Runtime.Device
	}
	addSettings(c.Flags(), r, names...)
	must(c.MarkFlagFilename("library"))
}

// registerDType adds the flag for the type of the computation.
func registerDType(c *cobra.Command, dtype *string) {
	c.Flags().StringVar(dtype, "dtype", "float32", "type to compute in: "+strings.Join(dtypeNames, ", ")+" (on a GPU)")
	must(c.RegisterFlagCompletionFunc("dtype", cobra.FixedCompletions(dtypeNames, cobra.ShellCompDirectiveNoFileComp)))
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
	if !train.IsDevice(device) {
		return usagef("--device %q: must be %s", device, train.Devices)
	}
	return nil
}

// An engine is a model folder opened for sampling and learning.
type engine struct {
	env    *runtime.Env
	policy *policy.Policy
	named  map[string]*policy.Policy // of the same weights with other adapters
}

// open opens ONNX Runtime and the model. It checks the model's folder first: the
// library may have to be fetched, and a wrong folder should be reported at once.
func (f *engineFlags) open(c *cobra.Command) (*engine, error) {
	if err := checkSettings(&f.runtime); err != nil {
		return nil, err
	}
	if err := checkDevice(f.runtime.Device); err != nil {
		return nil, err
	}
	lora := train.LoRAConfig{On: f.adapter != "" || len(f.adapters) > 0 || f.fresh, BaseDType: cmp.Or(f.base, "float32")}
	if _, ok := policy.BaseTypes[lora.BaseDType]; !ok {
		return nil, usagef("--base-dtype %q: must be one of %s", lora.BaseDType, strings.Join(baseTypes, ", "))
	}
	if ok, remedy := lora.Check(cmp.Or(f.dtype, "float32"), f.runtime.Device); !ok {
		return nil, usagef("--base-dtype %s: %s", f.base, remedy)
	}
	if f.dtype == "" {
		f.dtype = "float32"
	}
	if err := checkDType(f.dtype, f.runtime.Device); err != nil {
		return nil, err
	}
	if f.dtype != "float32" || lora.BaseDType != "float32" {
		if _, err := foreseenDevice(c, f.runtime, lora, f.dtype); err != nil {
			return nil, err
		}
	}
	model, err := modelFolder(c, f.model, localModel)
	if err != nil {
		return nil, err
	}
	if err := checkModel(model); err != nil {
		return nil, err
	}
	if err := f.checkAdapters(model); err != nil {
		return nil, err
	}
	env, err := openRuntime(c, f.runtime.Options(), f.dtype)
	if err != nil {
		return nil, err
	}
	opened, err := policy.Open(env, policy.Options{Path: model, DType: f.dtype, Base: lora.BaseDType})
	if err != nil {
		env.Close()
		return nil, err
	}
	e := &engine{env, opened, map[string]*policy.Policy{}}
	if err := e.adapt(f); err != nil {
		e.Close()
		return nil, fmt.Errorf("--adapter: %w", err)
	}
	return e, nil
}

// checkAdapters finds the folders of the adapters and checks that they are the model's.
func (f *engineFlags) checkAdapters(model string) (err error) {
	if err := f.nameAdapters(); err != nil {
		return err
	}
	dirs := []*string{&f.adapter}
	for i := range f.named {
		dirs = append(dirs, &f.named[i].dir)
	}
	for _, dir := range dirs {
		if *dir == "" {
			continue
		}
		if *dir, err = newestOf(*dir); err == nil {
			err = policy.CheckAdapter(model, *dir)
		}
		if err != nil {
			return fmt.Errorf("--adapter: %w", err)
		}
	}
	return nil
}

// policyOf returns the policy with the adapter of a name, "" for the one without; nil
// if there is none.
func (e *engine) policyOf(name string) *policy.Policy {
	if name == "" {
		return e.policy
	}
	return e.named[name]
}

// adapt loads the adapters.
func (e *engine) adapt(f *engineFlags) (err error) {
	if f.adapter != "" {
		if err := e.policy.LoadAdapter(f.adapter); err != nil {
			return err
		}
	}
	for _, a := range f.named {
		if e.named[a.name], err = e.policy.Beside(a.dir); err != nil {
			delete(e.named, a.name)
			return err
		}
	}
	return nil
}

// checkModel returns an error if a model folder lacks what its config asks for. It
// does not read the weights.
func checkModel(path string) error {
	if path == arithmetic.Name {
		return nil
	}
	return models.Check(path)
}

// with opens the input that the arguments name and then the model, calls do, and
// closes both. name is what messages call the input.
func (f *engineFlags) with(c *cobra.Command, args []string, do func(in io.Reader, name string, engine *engine) error) error {
	in, name, err := openInput("input", inputName(args), c.InOrStdin())
	if err != nil {
		return err
	}
	defer in.Close()
	engine, err := f.open(c)
	if err != nil {
		return err
	}
	defer engine.Close()
	return do(in, name, engine)
}

// withTeam is with for a command whose work the ranks divide: the first one has the
// input.
func (f *engineFlags) withTeam(c *cobra.Command, t team, args []string, do func(in io.Reader, name string, engine *engine) error) error {
	if t.Size() == 1 {
		return f.with(c, args, do)
	}
	name, text := inputName(args), []byte(nil)
	var err error
	if t.First() {
		text, err = readInput(c, &name)
	}
	if err := t.AgreeOn(err); err != nil {
		return err
	}
	if text, err = t.Tell(text); err != nil {
		return err
	}
	var e *engine
	t.place(&f.runtime)
	if err := t.inTurn(func() error { e, err = f.open(c); return err }); err != nil {
		return err
	}
	defer e.Close()
	return do(bytes.NewReader(text), name, e)
}

// readInput reads all of an input, and sets what messages call it.
func readInput(c *cobra.Command, name *string) ([]byte, error) {
	in, shown, err := openInput("input", *name, c.InOrStdin())
	if err != nil {
		return nil, err
	}
	defer in.Close()
	*name = shown
	return io.ReadAll(in)
}

func (e *engine) Close() {
	for _, p := range e.named {
		p.Close()
	}
	e.policy.Close()
	e.env.Close()
}

// openRuntime opens ONNX Runtime for a type to compute in. If its library has to be
// fetched, it shows the progress.
func openRuntime(c *cobra.Command, o runtime.Options, dtype string) (*runtime.Env, error) {
	o.TF32 = dtype != "float32"
	fetching := &download{stderr: c.ErrOrStderr(), quiet: isQuiet(c)}
	defer fetching.finish()
	o.Progress = fetching.show
	o.Notice = func(text string) { slog.Info(text) }
	return runtime.Open(c.Context(), o)
}

// A download shows each step of a fetch as a progress of its own.
type download struct {
	stderr io.Writer
	quiet  bool
	step   string
	bar    *progress
}

func (d *download) show(p provision.Progress) {
	if d.bar == nil || p.Step != d.step {
		d.finish()
		d.step = p.Step
		d.bar = newProgress(d.stderr, d.quiet, p.Step, "B", p.Total)
	}
	d.bar.set(p.Done, p.Total)
}

func (d *download) finish() {
	if d.bar != nil {
		d.bar.finish()
	}
}

// isQuiet reports whether --quiet was given.
func isQuiet(c *cobra.Command) bool {
	quiet, _ := c.Flags().GetBool("quiet")
	return quiet
}
