package cmd

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"onering/data"
	"onering/internal/cli"
	"onering/internal/settings"
	"onering/policy"
	"onering/tokenize"
	"onering/train"
	"onering/train/ranks"
	"onering/train/sft"
)

func newSFT() *cobra.Command {
	given := sft.Default("")
	x := &sftCommand{choice: &choice{given: &given, all: true, of: settings.Command{Name: "sft", Flags: map[string]string{}}}, runOptions: runOptions{Report: true}}
	c := newCommand("sft", x, func(c *cobra.Command, _ []string) error {
		config, err := x.resolve(c)
		if err != nil {
			return err
		}
		t, err := joinTeam(c, config.Distributed)
		if err != nil {
			return err
		}
		return t.End(x.runOn(c, t, config))
	})
	x.register(c, "model", "lora", "data", "optimizer", "train", "runtime", "distributed", "output")
	return c
}

// An sftCommand has the settings and the other flags of sft.
type sftCommand struct {
	*choice
	runOptions
	Show int `range:"[0,)" help:"print the first so many demonstrations as the model sees them, and do not train: text, ids, and which ids are learned"`
}

// runOn runs the command on all ranks. The first rank makes the folder and reads the input.
func (s *sftCommand) runOn(c *cobra.Command, t *ranks.Group, config sft.Config) error {
	dir := config.Output.Dir
	finished, err := ranks.FromFirst(t, func() (bool, error) { return s.Resume && config.Finished(), nil })
	if err != nil {
		return err
	}
	if finished {
		if err := refuseChanges(config); err != nil {
			return err
		}
		for _, path := range []string{config.Data.Train, config.Data.Eval} {
			file, err := os.Stat(path)
			if run, failed := os.Stat(filepath.Join(dir, "run.toml")); err == nil && failed == nil && file.ModTime().After(run.ModTime()) {
				slog.Warn("the data were written after the run had begun, and it does not learn them again", "file", path)
			}
		}
		slog.Info("the run is finished: there is nothing to resume; to train further from it, name it with --model", "folder", dir)
		fmt.Fprintln(c.OutOrStdout(), dir)
		return nil
	}
	if err := shareInput(c, t, config.Data.Train); err != nil {
		return err
	}
	if s.Show > 0 {
		return s.showOn(c, t, config)
	}
	var x demonstrations
	end, err := runTraining(c, t, job[sft.Summary]{
		command: "sft", dir: &config.Output.Dir, sink: config.Output.Sink, runOptions: s.runOptions,
		prepare: func() (m trained, err error) {
			x, err = readDemonstrationsOf(c, &config)
			return trained{x.local.Model.Path, config.Model.Path, x.local.Model.DType, x.local.LoRA, x.local.Runtime, config.Optimizer.LearningRate, config.Train.Seed}, err
		},
		config: &config,
		open:   func(s train.Setup) (trainer[sft.Summary], error) { return sft.NewOn(x.local, s, x.list, x.held) },
		ended: func(end sft.Summary) {
			slog.Info("trained on demonstrations", "count", end.Demonstrations, "first_loss", end.Loss[0], "last_loss", end.Loss[1])
		},
	})
	if err != nil {
		return err
	}
	if s.JSON {
		return cli.WriteLine(c.OutOrStdout(), end)
	}
	fmt.Fprintln(c.OutOrStdout(), dir)
	return nil
}

// refuseChanges returns an error if a finished run is resumed with other settings than its
// own: what it would go on from, its moments and the place in its schedule, is not kept.
func refuseChanges(config sft.Config) error {
	dir := config.Output.Dir
	run, _, err := savedRun(dir)
	if err != nil {
		return err
	}
	path, _ := settings.Find("model.path", run).Value.(string)
	was := sft.Default(path)
	if _, err := settings.Resolve(&was, settings.Command{Name: "sft"}, run); err != nil {
		return usageError{err}
	}
	continued(&was.Model.Path, &was.LoRA)
	was.Runtime = config.Runtime // a finished run computes nothing more
	if changed := config.Changes(was); changed != "" {
		return fmt.Errorf("train: resume: the run in %s is finished, and since then %s: set it back, or train further from it with --model %s and another --out", dir, changed, shellQuoted(dir))
	}
	return nil
}

// showOn shows the first demonstrations. Only the first rank's output is printed.
func (s *sftCommand) showOn(c *cobra.Command, t *ranks.Group, config sft.Config) error {
	return t.InTurn(func() error {
		x, err := readDemonstrationsOf(c, &config)
		if err != nil {
			return err
		}
		var r resolved
		r.Model.Path, r.Model.DType, r.LoRA.BaseDType, r.Runtime = x.local.Model.Path, x.local.Model.DType, x.local.LoRA.BaseDType, x.local.Runtime
		r.named = r.Model.Path
		t.Place(&r.Runtime.Device, &r.Runtime.Threads)
		p, err := r.open(c, nil)
		if err != nil {
			return err
		}
		defer p.Close()
		return showDemonstrations(c, x.local, p, x.list[:min(s.Show, len(x.list))])
	})
}

// demonstrations are the data that a model is trained on.
type demonstrations struct {
	local      sft.Config // the configuration with paths in place of names on a hub
	list, held []data.Demonstration
}

// readDemonstrationsOf reads the demonstrations, and checks what can be checked before ONNX Runtime is
// opened.
func readDemonstrationsOf(c *cobra.Command, config *sft.Config) (x demonstrations, err error) {
	if x.local, err = localSFT(c, config); err != nil {
		return x, err
	}
	d := x.local.Data
	if x.list, err = readDemonstrations(c, "--data", d.Train, x.local); err != nil {
		return x, err
	}
	if d.Eval != "" {
		if x.held, err = readDemonstrations(c, "--eval-data", d.Eval, x.local); err != nil {
			return x, err
		}
	}
	_, err = foreseenDevice(c, x.local.Runtime, x.local.LoRA, x.local.Model.DType)
	return x, err
}

// localSFT returns the configuration with paths instead of names on a hub, which it
// pins in config.
func localSFT(c *cobra.Command, config *sft.Config) (local sft.Config, err error) {
	local = *config
	if err := pinPolicy(c, &config.Model.Path, &local.Model.Path, &config.LoRA, &local.LoRA); err != nil {
		return local, err
	}
	for _, x := range []struct{ named, local *string }{{&config.Data.Train, &local.Data.Train}, {&config.Data.Eval, &local.Data.Eval}} {
		if err := pin(c, localData, x.named, x.local); err != nil {
			return local, err
		}
	}
	// Report a wrong folder before fetching a library.
	return local, checkModel(local.Model.Path)
}

func readDemonstrations(c *cobra.Command, flag, path string, config sft.Config) ([]data.Demonstration, error) {
	template, err := tokenize.ParseTemplate(config.Model.Template)
	if err != nil {
		return nil, err
	}
	d := config.Data
	o := data.Options{Filter: d.Filter, Keep: template.Columns, OnBad: data.WarnLeftOut(slog.Default())}
	o.Input = inputOf(c, path)
	list, report, err := data.LoadDemonstrations(openedName(path), d.DemonstrationColumns, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	report.Log(slog.Default(), path)
	return list, nil
}

// showDemonstrations prints demonstrations as the model sees them.
func showDemonstrations(c *cobra.Command, config sft.Config, p *policy.Policy, list []data.Demonstration) error {
	encoder, err := config.Encoder(p)
	if err != nil {
		return err
	}
	for _, d := range list {
		x, err := encoder.Encode(d)
		if err != nil {
			return err
		}
		if x == nil {
			slog.Warn("a demonstration is left out for its length", "place", d.Place)
			continue
		}
		if err := cli.WriteLine(c.OutOrStdout(), struct {
			Text string `json:"text"`
			*sft.Example
		}{p.Tokenizer.Decode(x.IDs, false), x}); err != nil {
			return err
		}
	}
	return nil
}

// resolve applies what states settings to the defaults for the model. All problems are reported
// at once.
func (s *sftCommand) resolve(c *cobra.Command) (config sft.Config, err error) {
	if s.Resume {
		if s.file, err = resumedFile(s.given.(*sft.Config).Output.Dir, "sft"); err != nil {
			return config, err
		}
	}
	sources, err := s.sources(c)
	if err != nil {
		return config, err
	}
	path, _ := settings.Find("model.path", sources...).Value.(string)
	config = sft.Default(path)
	r, err := settings.Resolve(&config, s.of, sources...)
	if err != nil {
		return config, usageError{err}
	}
	ofAdapter(r, &config.Model.Path, &config.LoRA, &config.Optimizer.LearningRate)
	checked := config
	if s.Show > 0 {
		checked.Output.Dir = cmp.Or(checked.Output.Dir, ".") // --show writes nothing
	}
	return config, cmp.Or(sayIdle(r, s.Resume), asUsage(r.Locate(checked.Validate())))
}
