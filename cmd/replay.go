package cmd

import (
	"encoding"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"onering/models"
	"onering/runtime"
	"onering/runtime/provision"
	"onering/train"
)

func newReplay() *cobra.Command {
	var model, library string
	var threads int
	c := &cobra.Command{
		Use:   "replay FILE",
		Short: "Compute a training step again that met NaN or an infinity",
		Long: `Compute a training step again that met NaN or an infinity, without the update.
FILE is failures/step-NNNNNN.json of a run folder; the weights come from the
checkpoint that the run wrote with it, the objective from its run.toml.

Prints one JSON object: what was not finite (the weight, layer or gradient it
begins with), and for each trajectory its figures and, where the gradient is
what overflows, the first tensor whose gradient from it alone does.`,
		Example: `  onering replay run/failures/step-000123.json`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f, err := train.ReadFailure(args[0])
			if err != nil {
				return err
			}
			here := filepath.Dir(args[0])
			checkpoint := filepath.Join(here, filepath.FromSlash(f.Checkpoint))
			if model == "" {
				model = checkpoint
			} else if model, err = localModel(c, model); err != nil {
				return err
			}
			if _, err := models.ReadConfig(model); err != nil {
				return fmt.Errorf("%w (the weights before the step; --model names another folder that has them)", err)
			}
			config := configFlags{file: filepath.Join(here, "..", "run.toml")}
			r, err := config.resolve(c, nil)
			if err != nil {
				return err
			}
			if r.Objective.Name != f.Objective {
				return fmt.Errorf("%s is of a run with objective %q, run.toml has %q", args[0], f.Objective, r.Objective.Name)
			}
			// Without a checkpoint the objective has forgotten, too.
			if state, err := train.ObjectiveState(checkpoint); err == nil && state != "" {
				if u, ok := r.Objective.Settings.(encoding.TextUnmarshaler); ok {
					if err := u.UnmarshalText([]byte(state)); err != nil {
						return fmt.Errorf("state of objective %q: %w", f.Objective, err)
					}
				}
			}
			env, err := openRuntime(c, runtime.Options{Options: provision.Options{Library: library}, Device: r.Runtime.Device, Threads: threads}, r.Model.DType)
			if err != nil {
				return err
			}
			defer env.Close()
			policy, err := train.OpenPolicyOn(env, model, r.Model.DType)
			if err != nil {
				return err
			}
			defer policy.Close()
			if model == checkpoint {
				if err := policy.LoadExact(checkpoint); err != nil {
					return err
				}
			}
			out, err := f.Replay(c.Context(), env, policy, r.Objective.Settings)
			if err != nil {
				return err
			}
			if err := (lineWriter{c.OutOrStdout()}).write(out); err != nil {
				return err
			}
			if len(out.Found) > 0 {
				return fmt.Errorf("not finite again: %s", strings.Join(out.Found, "; "))
			}
			return nil
		},
	}
	flags := c.Flags()
	flags.StringVar(&model, "model", "", "model folder in place of the run's checkpoint")
	flags.StringVar(&library, "library", "", "ONNX Runtime library, in place of the usual places")
	flags.IntVar(&threads, "threads", 0, "threads of the kernels; 0 is one per core")
	must(c.MarkFlagDirname("model"))
	must(c.MarkFlagFilename("library"))
	return c
}
