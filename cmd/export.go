package cmd

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"onering/models"
	"onering/policy"
)

func newExport() *cobra.Command {
	o := exportOptions{Blocks: 1}
	s := newSettings(withTrainDefaults)
	c := newCommand("export", &o, s.withResolved(func(c *cobra.Command, _ []string, r *resolved) error { return o.run(c, r) }))
	s.required = []string{"model.path"}
	s.addRunFlags(c, "model.path", adapterFlag, "model.dtype", "runtime.device")
	return c
}

type exportOptions struct {
	Out    string `help:"folder to write" complete:"dir"`
	Ports  bool   `help:"print tables of the graphs' inputs and outputs instead, in Markdown"`
	Blocks int    `range:"[1,64]" help:"in how many blocks of queries layers compute attention; more take less memory with long rows"`
}

// run writes the graphs of a model to a folder, or prints their inputs and outputs.
func (o exportOptions) run(c *cobra.Command, r *resolved) error {
	provider, ok := map[string]models.Provider{"cpu": models.CPU, "cuda": models.CUDA}[r.Runtime.Device]
	switch {
	case o.Out == "" && !o.Ports:
		return usagef("--out is not set: folder to write; --ports prints the inputs and outputs of the graphs instead")
	case o.Out != "" && o.Ports:
		return usagef("--out and --ports exclude one another")
	case !ok:
		return usagef("--device %q: graphs are for cpu or cuda", r.Runtime.Device)
	case r.Model.DType == "bfloat16" && provider == models.CPU:
		return usagef("--dtype %q: ONNX Runtime has no products of bfloat16 on the CPU, and graphs have no operators of onering's own: "+
			"export in float32 or float16, or with --device cuda", r.Model.DType)
	}
	folder, err := tokenizerFolder(c, r.Model.Path) // without the weights, which graphs do not hold
	if err == nil && r.LoRA.Adapter != "" {
		r.LoRA.Adapter, err = newestOf(r.LoRA.Adapter)
	}
	if err != nil {
		return err
	}
	graphs, err := policy.Export(folder, r.LoRA.Adapter, models.Compute{Type: policy.ComputeTypes[r.Model.DType], Provider: provider}, r.Runtime.Device, o.Blocks)
	if err != nil {
		return err
	}
	if o.Ports {
		fmt.Fprint(c.OutOrStdout(), graphs.Ports())
		return nil
	}
	n, err := graphs.Write(o.Out)
	if err != nil {
		return err
	}
	slog.Info("wrote the graphs", "folder", o.Out, "graphs", n)
	fmt.Fprintln(c.OutOrStdout(), o.Out)
	return nil
}

type mergeOptions struct {
	Model   string `help:"model folder, or a run folder for its newest checkpoint, or ORG/NAME on a hub (required)" required:"true" complete:"dir"`
	Adapter string `help:"{adapter} (required)" required:"true" complete:"dir"`
	Out     string `help:"folder to write (required)" required:"true" complete:"dir"`
	DType   string `flag:"dtype" choice:"auto float32 float16 bfloat16" note:"auto is that of the model" help:"type of the tensors"`
}

// newMerge makes the command merge, which writes a model with its adapter added to the weights.
func newMerge() *cobra.Command {
	o := mergeOptions{DType: "auto"}
	return newCommand("merge", &o, func(c *cobra.Command, _ []string) error {
		if err := checkVacant(o.Out, "choose another folder with --out"); err != nil {
			return err
		}
		dir, remove, err := unpackedModel(c, o.Model)
		if err != nil {
			return err
		}
		defer remove()
		adapter, err := newestOf(o.Adapter)
		if err != nil {
			return err
		}
		if err := policy.Merge(dir, adapter, o.Out, policy.ComputeTypes[o.DType]); err != nil {
			return err
		}
		fmt.Fprintln(c.OutOrStdout(), o.Out)
		return nil
	})
}
