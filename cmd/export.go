package cmd

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"onering/models"
	"onering/models/export"
	"onering/train"
)

func newExport() *cobra.Command {
	var model, out string
	c := &cobra.Command{
		Use:   "export --model DIR --out DIR",
		Short: "Write the ONNX graphs of a model and a manifest",
		Long: `Write the ONNX graphs that sampling and training of a model run, and
manifest.json, which lists each graph with its inputs and outputs, and which
outputs may be bound to the buffer of an input. The graphs are stock ONNX: any
ONNX Runtime runs them. Weights are inputs of the graphs; the manifest says how
to make them from the tensors of the model folder. Only config.json is read.`,
		Example: "  onering export --model Qwen2.5-0.5B --out graphs",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			folder, err := localTokenizer(c, model) // the weights are not needed
			if err != nil {
				return err
			}
			config, err := train.ReadModel(folder)
			if err != nil {
				return err
			}
			arch, err := config.Architecture(models.Compute{})
			if err != nil {
				return err
			}
			n, err := export.Write(out, arch)
			if err != nil {
				return err
			}
			slog.Info("wrote the graphs", "folder", out, "graphs", n)
			fmt.Fprintln(c.OutOrStdout(), out)
			return nil
		},
	}
	flags := c.Flags()
	flags.StringVar(&model, "model", "", "model folder, or its config.json (required)")
	flags.StringVar(&out, "out", "", "folder to write (required)")
	must(c.MarkFlagRequired("model"))
	must(c.MarkFlagRequired("out"))
	must(c.MarkFlagDirname("model"))
	must(c.MarkFlagDirname("out"))
	return c
}
