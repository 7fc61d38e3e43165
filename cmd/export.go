package cmd

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"onering/models"
	"onering/policy"
)

func newExport() *cobra.Command {
	o := exportOptions{DType: "float32", Device: "cpu", Blocks: 1}
	c := newCommand("export", &o, func(c *cobra.Command, _ []string) error {
		switch {
		case o.Out == "" && !o.Ports:
			return usagef("--out is not set: folder to write; --ports prints the inputs and outputs of the graphs instead")
		case o.Out != "" && o.Ports:
			return usagef("--out and --ports exclude one another")
		}
		folder, compute, err := o.open(c)
		if err != nil {
			return err
		}
		graphs, err := policy.Export(folder, o.Adapter, compute, o.Device, o.Blocks)
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
	})
	return c
}

type exportOptions struct {
	Model   string `help:"model folder, or a run folder for its newest checkpoint, or a config.json, or ORG/NAME on a hub (required)" required:"true" complete:"dir"`
	Out     string `help:"folder to write" complete:"dir"`
	Ports   bool   `help:"print tables of the graphs' inputs and outputs instead, in Markdown"`
	Adapter string `help:"{adapter}" complete:"dir"`
	DType   string `flag:"dtype" help:"type to compute in: float32, bfloat16 or float16"`
	Device  string `help:"what the graphs are for: cpu or cuda"`
	Blocks  int    `help:"in how many blocks of queries layers compute attention; more take less memory with long rows"`
}

// compute returns the types and forms in which the graphs compute.
func (o exportOptions) compute() (models.Compute, error) {
	dtype, ok := policy.ComputeTypes[o.DType]
	switch {
	case !ok:
		return models.Compute{}, usagef("--dtype %s: want float32, bfloat16 or float16", o.DType)
	case o.Device != "cpu" && o.Device != "cuda":
		return models.Compute{}, usagef("--device %s: want cpu or cuda", o.Device)
	case dtype == models.BF16 && o.Device == "cpu":
		return models.Compute{}, usagef("--dtype bfloat16 with --device cpu: %s", policy.RefusedType("bfloat16", "cpu"))
	case o.Blocks < 1 || o.Blocks > 64:
		return models.Compute{}, usagef("--blocks %d: want 1 to 64", o.Blocks)
	}
	return models.Compute{Type: dtype, Provider: map[string]models.Provider{"cpu": models.CPU, "cuda": models.CUDA}[o.Device]}, nil
}

// open finds the folders of the model and of the adapter.
func (o *exportOptions) open(c *cobra.Command) (folder string, compute models.Compute, err error) {
	if compute, err = o.compute(); err != nil {
		return "", compute, err
	}
	if folder, err = modelFolder(c, o.Model, localTokenizer); err == nil && o.Adapter != "" { // the weights are not needed
		o.Adapter, err = newestOf(o.Adapter)
	}
	return folder, compute, err
}

type mergeOptions struct {
	Model   string `help:"model folder, or a run folder for its newest checkpoint, or ORG/NAME on a hub (required)" required:"true" complete:"dir"`
	Adapter string `help:"{adapter} (required)" required:"true" complete:"dir"`
	Out     string `help:"folder to write (required)" required:"true" complete:"dir"`
	DType   string `flag:"dtype" help:"type of the tensors: {dtypes} (default: that of the model)"`
}

func newMerge() *cobra.Command {
	var o mergeOptions
	c := newCommand("merge", &o, func(c *cobra.Command, _ []string) error {
		element := models.Invalid
		if o.DType != "" {
			var err error
			if element, err = parseDType(o.DType); err != nil {
				return err
			}
		}
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
		if err := policy.Merge(dir, adapter, o.Out, element); err != nil {
			return err
		}
		fmt.Fprintln(c.OutOrStdout(), o.Out)
		return nil
	})
	offer(c, dtypeNames, "dtype")
	return c
}
