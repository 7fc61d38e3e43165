package cmd

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"onering/models"
	"onering/policy"
)

func newExport() *cobra.Command {
	var o exportOptions
	c := &cobra.Command{
		Use:   "export --model DIR --out DIR",
		Short: "Write the ONNX graphs of a model and a manifest",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			n, err := o.write(c)
			if err != nil {
				return err
			}
			slog.Info("wrote the graphs", "folder", o.out, "graphs", n)
			fmt.Fprintln(c.OutOrStdout(), o.out)
			return nil
		},
	}
	flags := c.Flags()
	flags.StringVar(&o.model, "model", "", "model folder, or a run folder for its newest checkpoint, or a config.json, or ORG/NAME on a hub (required)")
	flags.StringVar(&o.out, "out", "", "folder to write (required)")
	flags.StringVar(&o.adapter, "adapter", "", adapterHelp)
	flags.StringVar(&o.dtype, "dtype", "float32", "type to compute in: float32, bfloat16 or float16")
	flags.StringVar(&o.device, "device", "cpu", "what the graphs are for: cpu or cuda")
	flags.IntVar(&o.blocks, "blocks", 1, "in how many blocks of queries layers compute attention; more take less memory with long rows")
	require(c, "model", "out")
	markDirs(c, "model", "out", "adapter")
	return c
}

type exportOptions struct {
	model, out, adapter, dtype, device string
	blocks                             int
}

// compute returns how the graphs are to compute.
func (o exportOptions) compute() (models.Compute, error) {
	dtype, ok := policy.ComputeTypes[o.dtype]
	switch {
	case !ok:
		return models.Compute{}, usagef("--dtype %s: want float32, bfloat16 or float16", o.dtype)
	case strings.HasPrefix(o.device, "webgpu"):
		return models.Compute{}, usagef("--device %s: want cpu or cuda: the graphs for WebGPU rest on what onering does between them, so they are not exported", o.device)
	case o.device != "cpu" && o.device != "cuda":
		return models.Compute{}, usagef("--device %s: want cpu or cuda", o.device)
	case dtype == models.BF16 && o.device == "cpu":
		return models.Compute{}, usagef("--dtype bfloat16 with --device cpu: %s", policy.RefusedType("bfloat16", "cpu"))
	case o.blocks < 1 || o.blocks > 64:
		return models.Compute{}, usagef("--blocks %d: want 1 to 64", o.blocks)
	}
	return models.Compute{Type: dtype, Provider: map[string]models.Provider{"cpu": models.CPU, "cuda": models.CUDA}[o.device]}, nil
}

// write writes the graphs and returns how many there are.
func (o exportOptions) write(c *cobra.Command) (int, error) {
	compute, err := o.compute()
	if err != nil {
		return 0, err
	}
	folder, err := modelFolder(c, o.model, localTokenizer) // the weights are not needed
	if err != nil {
		return 0, err
	}
	if o.adapter != "" {
		if o.adapter, err = newestOf(o.adapter); err != nil {
			return 0, err
		}
	}
	return policy.Export(o.out, folder, o.adapter, compute, o.device, o.blocks)
}

func newMerge() *cobra.Command {
	var model, adapter, out, dtype string
	c := &cobra.Command{
		Use:   "merge --model DIR --adapter DIR --out DIR",
		Short: "Add a LoRA adapter to the weights of its model",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			element := models.Invalid
			if dtype != "" {
				var err error
				if element, err = parseDType(dtype); err != nil {
					return err
				}
			}
			if err := checkVacant(out, "choose another folder with --out"); err != nil {
				return err
			}
			dir, remove, err := unpackedModel(c, model)
			if err != nil {
				return err
			}
			defer remove()
			if adapter, err = newestOf(adapter); err != nil {
				return err
			}
			if err := policy.Merge(dir, adapter, out, element); err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), out)
			return nil
		},
	}
	flags := c.Flags()
	flags.StringVar(&model, "model", "", "model folder, or a run folder for its newest checkpoint, or ORG/NAME on a hub (required)")
	flags.StringVar(&adapter, "adapter", "", adapterHelp+" (required)")
	flags.StringVar(&out, "out", "", "folder to write (required)")
	flags.StringVar(&dtype, "dtype", "", "type of the tensors: "+strings.Join(dtypeNames, ", ")+" (default: that of the model)")
	offer(c, dtypeNames, "dtype")
	require(c, "model", "adapter", "out")
	markDirs(c, "model", "adapter", "out")
	return c
}
