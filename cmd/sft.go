package cmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

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
	return newTuned("sft", "model", "lora", "data", "optimizer", "train", "runtime", "distributed", "output")
}

func newDPO() *cobra.Command {
	return newTuned("dpo", "model", "lora", "data", "preference", "optimizer", "train", "runtime", "distributed", "output")
}

func newTuned(name string, sections ...string) *cobra.Command {
	x := &sftCommand{choice: &choice{given: newTuning(name, "").settings(), all: true, command: settings.Command{Name: name, Flags: map[string]string{}}},
		runOptions: runOptions{Report: true}}
	c := newCommand(name, x, func(c *cobra.Command, _ []string) error {
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
	x.register(c, sections...)
	c.Args = cobra.ArbitraryArgs
	return c
}

// A tuning is the configuration of sft, or of dpo.
type tuning struct {
	sft.Config
	preference *sft.PreferenceConfig // nil in sft
}

// newTuning returns a command's defaults for a model.
func newTuning(command, path string) *tuning {
	if command == "sft" {
		return &tuning{Config: sft.Default(path)}
	}
	p := sft.DefaultPreferences(path)
	return &tuning{p.Demonstrations(), &p}
}

// settings returns the pointer to the configuration, with the sections of the command.
func (t *tuning) settings() any {
	if t.preference == nil {
		return &t.Config
	}
	*t.preference = t.preference.With(t.Config)
	return t.preference
}

// resolve applies sources to the configuration.
func (t *tuning) resolve(of settings.Command, sources ...settings.Source) (*settings.Resolved, error) {
	r, err := settings.Resolve(t.settings(), of, sources...)
	if t.preference != nil {
		t.Config = t.preference.Demonstrations()
	}
	if err != nil {
		return nil, usageError{err}
	}
	return r, nil
}

// validate reports the impossible values.
func (t *tuning) validate() error {
	t.settings()
	if t.preference != nil {
		return t.preference.Validate()
	}
	return t.Config.Validate()
}

// changes says which settings that decide a run are others than in an earlier configuration.
func (t *tuning) changes(was *tuning) string {
	changed := t.Config.Changes(was.Config)
	if t.preference != nil && changed == "" {
		changed = train.Plan{Settings: train.Values(t.preference, "preference")}.Changes(train.Values(was.preference, "preference")).String()
	}
	return changed
}

// An sftCommand has the settings and the other flags of sft or dpo.
type sftCommand struct {
	*choice
	runOptions
	Show int `range:"[0,)" help:"print the first so many rows as the model sees them, and do not train: text, ids, and which ids are learned"`
}

// runOn runs the command on all ranks. The first rank makes the folder and reads the input.
func (s *sftCommand) runOn(c *cobra.Command, t *ranks.Group, config *tuning) error {
	dir := config.Output.Dir
	finished, err := ranks.FromFirst(t, func() (bool, error) { return s.Resume && config.Finished(), nil })
	if err != nil {
		return err
	}
	if finished {
		if err := s.refuseChanges(config); err != nil {
			return err
		}
		for _, path := range []string{config.Data.Train, config.Data.Eval} {
			file, err := os.Stat(path)
			if run, failed := os.Stat(filepath.Join(dir, "run.toml")); err == nil && failed == nil && file.ModTime().After(run.ModTime()) {
				slog.Warn("the data were written after the run had begun, and it does not learn them again", "file", path)
			}
		}
		slog.Info("the run is finished: there is nothing to resume; to train further from it, name it with --model", "folder", dir)
		summaryTable(nil).print(c.OutOrStdout(), dir, config.next(nil))
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
		command: s.command.Name, dir: &config.Output.Dir, sink: config.Output.Sink, push: config.Output.Pushing, runOptions: s.runOptions,
		prepare: func() (m trained, err error) {
			if x, err = readDemonstrationsOf(c, config); err == nil && !s.Resume {
				err = x.local.AskAsTaught(x.list)
				m := x.local.Model
				config.Model.Template, config.Model.System, config.Model.Args = m.Template, m.System, m.Args
			}
			config.settings()
			return trained{x.local.Model.Path, config.Model.Path, x.local.Model.DType, x.local.LoRA, x.local.Runtime,
				config.Optimizer.LearningRate, config.Train.Seed}, err
		},
		config: config.settings(),
		open: func(s train.Setup) (trainer[sft.Summary], error) {
			if config.preference != nil {
				return sft.NewPreferences(config.preference.With(x.local), s, x.list, x.heldOut)
			}
			return sft.NewOn(x.local, s, x.list, x.heldOut)
		},
	})
	err, late := apart(err)
	if err != nil {
		return err
	}
	if s.JSON {
		return errors.Join(cli.WriteLine(c.OutOrStdout(), end), late)
	}
	config.print(c.OutOrStdout(), end, x.list)
	return late
}

// print prints what was learned, where the result is and the next commands to type.
func (t *tuning) print(w io.Writer, end sft.Summary, list []data.Demonstration) {
	var table summaryTable
	command, what := "sft", "demonstrations"
	if t.preference != nil {
		command, what = "dpo", "preferences"
	}
	table.add("trained", "%d %s, %d steps in %.1f s", end.Demonstrations, what, end.Steps, end.Seconds)
	if len(end.Loss) == 2 {
		table.add("loss", "%.4f in the first step, %.4f in the last", end.Loss[0], end.Loss[1])
	}
	table.ending(end.Ending)
	if end.HeldOut != nil {
		table.add("held out", "loss %.4f before, %.4f after", end.HeldOut[0], end.HeldOut[1])
	}
	var sets []string
	for _, f := range end.Diagnoses {
		table.add("diagnosis", "%s", f.Text)
		sets = append(sets, f.Set)
	}
	table.print(w, t.Output.Dir, append(remedied(command, t.Output.Dir, sets), t.next(list)...))
}

// next returns commands that show what was learned from the list, of which nil is unknown.
func (t *tuning) next(list []data.Demonstration) []string {
	prompt := "What is 1+1?"
	if len(list) > 0 && list[0].Prompt != "" && len(list[0].Prompt) < 200 {
		prompt = list[0].Prompt
	} else if len(list) > 0 && list[0].Whole {
		prompt, _, _ = strings.Cut(list[0].Response, " ")
	}
	return []string{talk(" --model "+shellQuoted(nearest(t.Output.Dir)), t.Model.Template == "chat", prompt)}
}

// refuseChanges returns an error if a finished run is resumed with other settings than its
// own: what it would go on from, its moments and the place in its schedule, is not kept.
func (s *sftCommand) refuseChanges(config *tuning) error {
	dir := config.Output.Dir
	run, _, err := savedRun(dir)
	if err != nil {
		return err
	}
	path, _ := settings.Find("model.path", run).Value.(string)
	was := newTuning(s.command.Name, path)
	if _, err := was.resolve(settings.Command{Name: s.command.Name}, run); err != nil {
		return err
	}
	continued(&was.Model.Path, &was.LoRA)
	was.Runtime = config.Runtime // a finished run computes nothing more
	if changed := config.changes(was); changed != "" {
		return fmt.Errorf("train: resume: the run in %s is finished, and since then %s: set it back, or train further "+
			"from it with --model %s and another --out", dir, changed, shellQuoted(dir))
	}
	return nil
}

// showOn shows the first demonstrations. Only the first rank's output is printed.
func (s *sftCommand) showOn(c *cobra.Command, t *ranks.Group, config *tuning) error {
	return t.InTurn(func() error {
		x, err := readDemonstrationsOf(c, config)
		if err != nil {
			return err
		}
		shown := s.Show
		if config.preference != nil && x.list[0].Good == nil {
			shown *= 2 // the chosen and the rejected response
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
		return showDemonstrations(c, x.local, p, x.list[:min(shown, len(x.list))])
	})
}

// demonstrations are the data that a model is trained on.
type demonstrations struct {
	local         sft.Config // the configuration with paths in place of names on a hub
	list, heldOut []data.Demonstration
}

// readDemonstrationsOf reads the demonstrations, and checks what can be checked before ONNX Runtime is
// opened.
func readDemonstrationsOf(c *cobra.Command, config *tuning) (x demonstrations, err error) {
	if x.local, err = localSFT(c, &config.Config); err != nil {
		return x, err
	}
	d := x.local.Data
	if x.list, err = config.read(c, "--data", d.Train); err != nil {
		return x, err
	}
	if d.Eval != "" {
		if x.heldOut, err = config.read(c, "--eval-data", d.Eval); err != nil {
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

// read reads a file of demonstrations or preferences.
func (t *tuning) read(c *cobra.Command, flag, path string) (list []data.Demonstration, err error) {
	template, err := tokenize.ParseTemplate(t.Model.Template)
	if err != nil {
		return nil, err
	}
	d := t.Data
	o := data.Options{Filter: d.Filter, Keep: template.Columns, OnBad: data.LeaveOut}
	o.Input = inputOf(c, path)
	var report data.Report
	if t.preference != nil {
		list, report, err = data.LoadPreferences(openedName(path), t.preference.Data.PreferenceColumns, o)
	} else {
		list, report, err = data.LoadDemonstrations(openedName(path), d.DemonstrationColumns, o)
	}
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

// resolve applies what states settings to the defaults for the model. All settings that are
// wrong are reported at once, unless a flag of an adapter has no effect, which is reported alone.
func (s *sftCommand) resolve(c *cobra.Command) (config *tuning, err error) {
	if err := s.take(c); err != nil {
		return config, err
	}
	if s.Resume {
		dir, _ := settings.Find("output.dir", s.command.Given(s.given, c.Flags().Changed)).Value.(string)
		if s.file, err = resumedFile(dir, s.command.Name); err != nil {
			return config, err
		}
	}
	sources, err := s.sources(c)
	if err != nil {
		return config, err
	}
	path, _ := settings.Find("model.path", sources...).Value.(string)
	config = newTuning(s.command.Name, path)
	usual := config.Optimizer.LearningRate
	r, err := config.resolve(s.command, sources...)
	if err != nil {
		return config, err
	}
	completeAdapter(r, &config.Model.Path, &config.LoRA, &config.Optimizer.LearningRate, usual)
	sayRate(r, config.LoRA, config.Optimizer.LearningRate)
	named := config.Output.Dir
	if s.Show > 0 {
		config.Output.Dir = cmp.Or(named, ".") // --show writes nothing
	}
	impossible := config.validate()
	config.Output.Dir = named
	return config, cmp.Or(checkIdle(r, s.Resume), asUsage(r.Locate(impossible)))
}
