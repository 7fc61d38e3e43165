package cmd

import (
	"encoding"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/policy"
	"onering/train/rl"
	"onering/train/rundir"
)

// A replayCommand is the flags of `onering replay`.
type replayCommand struct {
	model string
	where policy.RuntimeConfig
}

func newReplay() *cobra.Command {
	var r replayCommand
	c := &cobra.Command{
		Use:   "replay FILE",
		Short: "Compute a training step again that met NaN or an infinity",
		Long: `Compute a training step again that met NaN or an infinity, without the update.
FILE is failures/step-NNNNNN.json of a run folder; the weights come from the
checkpoint that the run wrote with it, the objective from its run.toml. If that
checkpoint is an adapter, its model is the run's, or the one that --model names.

Prints one JSON object: what was not finite (the weight, layer or gradient it
begins with), and for each trajectory its figures and, where the gradient is
what overflows, the first tensor whose gradient from it alone does.`,
		Example: `  onering replay run/failures/step-000123.json`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return r.run(c, args[0]) },
	}
	flags := c.Flags()
	flags.StringVar(&r.model, "model", "", "model folder in place of the run's checkpoint, or of the model beside its adapter")
	addRuntime(c, &r.where, "threads", "library")
	must(c.MarkFlagDirname("model"))
	return c
}

func (r replayCommand) run(c *cobra.Command, file string) error {
	f, err := rl.ReadFailure(file)
	if err != nil {
		return err
	}
	if r.model != "" {
		if r.model, err = localModel(c, r.model); err != nil {
			return err
		}
	}
	here := filepath.Dir(file)
	checkpoint := filepath.Join(here, filepath.FromSlash(f.Checkpoint))
	config := configFlags{file: filepath.Join(here, "..", "run.toml")}
	settings, err := config.resolve(c, nil)
	if err != nil {
		return err
	}
	model, err := r.modelOf(c, settings.Config, checkpoint)
	if err != nil {
		return err
	}
	if settings.Objective.Name != f.Objective {
		return fmt.Errorf("%s is of a run with objective %q, run.toml has %q", file, f.Objective, settings.Objective.Name)
	}
	if err := restoreObjective(settings.Objective, checkpoint); err != nil {
		return err
	}
	r.where.Device = settings.Runtime.Device
	env, err := openRuntime(c, r.where.Options(), settings.Model.DType)
	if err != nil {
		return err
	}
	defer env.Close()
	policy, err := policy.Open(env, policy.Options{Path: model, DType: settings.Model.DType, Base: settings.LoRA.BaseDType})
	if err != nil {
		return err
	}
	defer policy.Close()
	if settings.LoRA.On {
		err = policy.LoadAdapter(checkpoint)
	} else if model == checkpoint {
		err = rundir.LoadWeights(checkpoint, policy.Ring.Trained())
	}
	if err != nil {
		return err
	}
	out, err := f.Replay(c.Context(), env, policy, settings.Objective.Settings)
	if err != nil {
		return err
	}
	if err := cli.WriteLine(c.OutOrStdout(), out); err != nil {
		return err
	}
	if len(out.Found) > 0 {
		return fmt.Errorf("not finite again: %s", strings.Join(out.Found, "; "))
	}
	return nil
}

// modelOf returns the folder of the model that a failed step of a run is computed
// with: the checkpoint, the model beside it if it is an adapter, or what --model says.
func (r replayCommand) modelOf(c *cobra.Command, config rl.Config, checkpoint string) (model string, err error) {
	switch {
	case r.model != "":
		model = r.model
	case config.LoRA.On:
		if model, err = localModel(c, config.Model.Path); err != nil {
			return "", err
		}
	default:
		model = checkpoint
	}
	if _, err := policy.ReadModel(model); err != nil {
		return "", fmt.Errorf("%w (the weights before the step; --model names another folder that has them)", err)
	}
	return model, nil
}

// restoreObjective gives an objective the state that a checkpoint has of it. A
// checkpoint that is not there, as where --model replaces it, has none.
func restoreObjective(o rl.ObjectiveConfig, checkpoint string) error {
	state, err := rl.ObjectiveState(checkpoint)
	u, ok := o.Settings.(encoding.TextUnmarshaler)
	if err != nil || state == "" || !ok {
		return nil
	}
	if err := u.UnmarshalText([]byte(state)); err != nil {
		return fmt.Errorf("state of objective %q: %w", o.Name, err)
	}
	return nil
}
