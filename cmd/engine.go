package cmd

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"onering/models"
	_ "onering/models/all"
	"onering/runtime"
	"onering/runtime/provision"
	"onering/train"
)

// engineFlags are the flags of the commands that run a model.
type engineFlags struct {
	model   string
	adapter string // "" for the model alone
	dtype   string // of the computation; "" is float32
	runtime train.RuntimeConfig
}

func (f *engineFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.model, "model", "", "model folder, or a run folder for its newest checkpoint, or ORG/NAME on a hub (required)")
	must(c.MarkFlagRequired("model"))
	must(c.MarkFlagDirname("model"))
	addRuntime(c, &f.runtime, "device", "threads", "library")
}

// registerAdapter adds the flag for an adapter beside the model.
func (f *engineFlags) registerAdapter(c *cobra.Command) {
	c.Flags().StringVar(&f.adapter, "adapter", "", "folder of a LoRA adapter of the model, as PEFT and onering write it")
	must(c.MarkFlagDirname("adapter"))
}

// addRuntime adds those of the flags that say where to run.
func addRuntime(c *cobra.Command, r *train.RuntimeConfig, names ...string) {
	if r.Device == "" {
		r.Device = train.Default().Runtime.Device
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
	d, err := parseDType(dtype)
	if err != nil {
		return err
	}
	if d == models.BF16 && device == "cpu" {
		return usagef("--dtype bfloat16 with --device cpu: %s", train.BFloat16OnCPU)
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
	policy *train.Policy
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
	if f.dtype == "" {
		f.dtype = "float32"
	}
	if err := checkDType(f.dtype, f.runtime.Device); err != nil {
		return nil, err
	}
	model, err := modelFolder(c, f.model, localModel)
	if err != nil {
		return nil, err
	}
	if err := checkModel(model); err != nil {
		return nil, err
	}
	if f.adapter != "" {
		if err := train.CheckAdapter(model, f.adapter); err != nil {
			return nil, fmt.Errorf("--adapter: %w", err)
		}
	}
	env, err := openRuntime(c, f.runtime.Options(), f.dtype)
	if err != nil {
		return nil, err
	}
	policy, err := train.OpenPolicyOn(env, model, f.dtype)
	if err != nil {
		env.Close()
		return nil, err
	}
	e := &engine{env, policy}
	if f.adapter != "" {
		if err := policy.LoadAdapter(f.adapter); err != nil {
			e.Close()
			return nil, fmt.Errorf("--adapter: %w", err)
		}
	}
	return e, nil
}

// checkModel returns an error if a model folder lacks what its config asks for. It
// does not read the weights.
func checkModel(path string) error {
	if path == train.Arithmetic {
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

func (e *engine) Close() {
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
	env, err := runtime.Open(c.Context(), o)
	if err == nil && env.Device() != "cpu" {
		slog.Warn("onering has not been tried on a GPU yet: compare with the cpu", "device", env.Device())
	}
	return env, err
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
