package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/policy"
	"onering/train"
	"onering/train/rl"
)

// A replayCommand has the flags of `onering replay`.
type replayCommand struct {
	Model   string `complete:"dir" help:"model folder in place of the run's checkpoint, or of the model beside its adapter"`
	runtime *commandSettings
}

func newReplay() *cobra.Command {
	r := replayCommand{runtime: newSettings(withTrainDefaults)}
	c := newCommand("replay", &r, func(c *cobra.Command, args []string) error { return r.run(c, args[0]) })
	r.runtime.addSettingFlags(c, "runtime.threads", "runtime.library")
	return c
}

// run repeats the failed step that a file of failures/ in a run folder describes, with the model and device that the
// step had, and prints what it found. It is an error if numbers are not finite again.
func (r replayCommand) run(c *cobra.Command, file string) error {
	f, err := rl.ReadFailure(file)
	if err == nil && r.Model != "" {
		r.Model, err = newestModel(c, r.Model)
	}
	if err != nil {
		return err
	}
	checkpoint := filepath.Join(filepath.Dir(file), filepath.FromSlash(f.Checkpoint))
	run, err := settingsOf(file, f)
	if err != nil {
		return err
	}
	model, err := r.modelOf(c, run.Config, checkpoint)
	if err != nil {
		return err
	}
	here, err := r.runtime.resolve(c, nil) // the threads and the library are this machine's
	if err != nil {
		return err
	}
	here.Runtime.Device = run.Runtime.Device
	policy, err := openPolicy(c, here.Runtime, policy.Options{Path: model, DType: run.Model.DType, Base: run.LoRA.BaseDType})
	if err != nil {
		return err
	}
	defer policy.Close()
	atCheckpoint := policy // the policy whose weights Restore reads from the checkpoint, nil for none
	switch {
	case run.LoRA.On:
		err, atCheckpoint = policy.LoadAdapter(checkpoint), nil // these are the weights that the run trains
	case model != checkpoint: // of --model
		atCheckpoint = nil
	}
	if err := errors.Join(err, run.Objective.Restore(checkpoint, atCheckpoint)); err != nil {
		return err
	}
	out, err := f.Replay(c.Context(), policy.Env, policy, run.Objective.Settings)
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

// settingsOf returns the settings of the run of f, a failure in file; they must be of train and of f's objective.
func settingsOf(file string, f rl.Failure) (*resolved, error) {
	settings, err := savedConfig(filepath.Dir(filepath.Dir(file))) // RUN/failures/FILE
	switch {
	case err != nil:
		return nil, err
	case settings == nil:
		return nil, fmt.Errorf("%s is not of a run of onering train", file)
	case settings.Objective.Name != f.Objective:
		return nil, fmt.Errorf("%s is of a run with objective %q, run.toml has %q", file, f.Objective, settings.Objective.Name)
	case len(settings.Stream.List) > 0:
		slog.Warn("the step is repeated without the run's streams, which add to its loss: where nothing is wrong here, look at their data and teachers")
	}
	return settings, nil
}

// modelOf returns the folder of the weights before a failed step of a run: the model of --model if there is one, else
// the checkpoint before the step, or of a run that trains an adapter the model beside it.
func (r replayCommand) modelOf(c *cobra.Command, config rl.Config, checkpoint string) (model string, err error) {
	switch {
	case r.Model != "":
		model = r.Model
	case config.LoRA.On:
		if model, err = newestModel(c, config.Model.Path); err != nil {
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

// newCheck makes the command check, which verifies the files of a run folder and, on request, its data and a step. It
// prints a line for each, and ends with an error if one is wrong.
func newCheck() *cobra.Command {
	var o struct {
		Replay   bool `help:"repeat a step and compare the checkpoint after it"`
		Step     int  `help:"with --replay: the step to repeat; 0 draws one"`
		ReadData bool `help:"read the data, and compare them with the newest checkpoint's digest"`
	}
	return newCommand("check", &o, func(c *cobra.Command, args []string) error {
		checked, bad := 0, 0
		visit := func(path string, err error) {
			checked++
			result := "ok"
			if err != nil {
				bad++
				result = strings.TrimPrefix(err.Error(), path+": ")
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: %s\n", path, result)
		}
		if err := train.Folder(args[0]).Check(visit); err != nil {
			return err
		}
		r, err := savedConfig(args[0])
		if err != nil {
			visit("the settings in "+filepath.Join(args[0], "run.toml"), err)
		} else if o.ReadData {
			visit("data.train", checkData(c, args[0], r))
		}
		if o.Replay || c.Flags().Changed("step") {
			what, err := replayStep(c, args[0], o.Step)
			if what == "" { // nothing could be repeated
				return err
			}
			visit(what, err)
		}
		if bad > 0 {
			return fmt.Errorf("%d of the %d checkpoints and files of %s are damaged or have changed", bad, checked, args[0])
		}
		return nil
	})
}

// checkData reads the training problems of a run and compares them with what its newest checkpoint notes of them. r
// is the run's settings, nil if it is of sft or dpo.
func checkData(c *cobra.Command, run string, r *resolved) error {
	if r == nil {
		return errors.New("only the problems of a run of onering train can be compared, and this one is of sft")
	}
	checkpoint, err := train.Folder(run).Model()
	if err != nil {
		return err
	}
	model := checkpoint
	if r.LoRA.On { // a checkpoint of an adapter has no tokenizer
		if model, err = newestModel(c, r.Model.Path); err != nil {
			return err
		}
	}
	model, remove, err := policy.Unpacked(model)
	if err != nil {
		return err
	}
	defer remove()
	template, err := r.Model.PromptTemplate()
	if err != nil {
		return err
	}
	prompter, err := prompterOf(model, template)
	if err != nil {
		return err
	}
	return r.CheckData(checkpoint, prompter, slog.Default())
}

// A setupKey is the key in a context under which runTraining finds the function that changes its Setup.
type setupKey struct{}

// replayStep repeats a step of a run in a temporary folder, a random one for 0, and compares the result with the
// run's own checkpoint. what describes what was repeated, "" if nothing could be; then err is the reason, else a
// difference.
func replayStep(c *cobra.Command, run string, step int) (what string, err error) {
	folder := train.Folder(run)
	dirs, states, step, err := folder.Around(step) // the checkpoints before and after the step
	if err != nil {
		return "", err
	}
	from, before := dirs[0], states[0]
	again, err := os.MkdirTemp("", "onering-replay-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(again)
	if err := folder.CopyTo(again, from, before); err != nil {
		return "", err
	}
	os.Setenv("ONERING_OFFLINE", "1") // a missing model is not a reason to wait for a download
	_, command, err := savedRun(run)
	if err != nil {
		return "", err
	}
	root := newRoot() // a second command line in this process; start calls the function under setupKey, which ends the run after the step
	root.SetArgs([]string{command, "--resume", "--out", again, "--report=false", "--quiet", "--set", "output.sink=[]"})
	root.SetIn(c.InOrStdin())
	root.SetOut(io.Discard)
	root.SetErr(c.ErrOrStderr())
	if err := root.ExecuteContext(context.WithValue(c.Context(), setupKey{}, func(s *train.Setup) { s.Until = &states[1] })); err != nil {
		return "", fmt.Errorf("step %d cannot be repeated here: %w", step, err)
	}
	return fmt.Sprintf("step %d, repeated from %s", step, from), folder.Compare(again, before, dirs[1])
}
