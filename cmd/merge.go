package cmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"onering/models"
	"onering/policy"
)

func newMerge() *cobra.Command {
	var model, adapter, out, dtype string
	c := &cobra.Command{
		Use:   "merge --model DIR --adapter DIR --out DIR",
		Short: "Add a LoRA adapter to the weights of its model",
		Long: `Add a LoRA adapter to the weights of its model, W + scale B A, and write a model
folder that needs no adapter. All other tensors stay as they are. The sums are
rounded to the type of the tensors, by default that of the model.`,
		Example: `  onering merge --model M0 --adapter A1 --out M1`,
		Args:    cobra.NoArgs,
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
