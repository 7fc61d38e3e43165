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
	"onering/train/rl"
	"onering/train/sft"
)

// newTuned makes the command sft or dpo, with flags for all of its settings.
func newTuned(name string) *cobra.Command {
	s := &commandSettings{fromFlags: newTuning(name, ""), allEffective: true, command: settings.Command{Name: name, Flags: map[string]string{}}}
	x := &sftCommand{commandSettings: s, runOptions: runOptions{Report: true}}
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
	var sections []string
	for _, t := range settings.Sections(x.fromFlags) {
		sections = append(sections, t.Name)
	}
	x.addRunFlags(c, sections...)
	c.Args = cobra.ArbitraryArgs // sortArguments, which resolve calls, refuses what it does not know
	return c
}

// newTuning returns the defaults of the command sft or dpo for the model at path; "" is none yet.
func newTuning(command, path string) *sft.Config {
	config := sft.Default(path)
	if command == "dpo" {
		config = sft.DefaultPreferences(path)
	}
	return &config
}

// resolveTuning applies sources to a configuration.
func resolveTuning(config *sft.Config, of settings.Command, sources ...settings.Source) (*settings.Resolved, error) {
	r, err := settings.Resolve(config, of, sources...)
	return r, asUsage(err)
}

// An sftCommand has the settings and the other flags of sft or dpo.
type sftCommand struct {
	*commandSettings
	runOptions
	Show int `range:"[0,)" help:"print the first so many rows as the model sees them, and do not train: text, ids, and which ids are learned"`
}

// runOn trains on all ranks, or shows rows with --show. The first rank makes the folder and reads the input. A
// finished run is not resumed: it is refused with other settings, and otherwise its end is printed again.
func (s *sftCommand) runOn(c *cobra.Command, t *ranks.Group, config *sft.Config) error {
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
		return printEnd(c.OutOrStdout(), nil, s.command.Name, rl.Summary{Folder: dir}, nextTuned(config, nil)) // no demonstrations were read
	}
	if err := shareInput(c, t, config.Data.Train); err != nil {
		return err
	}
	if s.Show > 0 {
		return s.showOn(c, t, config)
	}
	var x demonstrations // prepare reads them
	end, err := runTraining(c, t, job[sft.Summary]{
		command: s.command.Name, dir: &config.Output.Dir, sink: config.Output.Sink, pushing: config.Output.Pushing, runOptions: s.runOptions,
		prepare: func() (m trainedModel, err error) {
			if x, err = readDemonstrations(c, config); err == nil && !s.Resume {
				err = x.local.AskAsTaught(x.list) // sets the template auto to the one of the demonstrations
				taught := x.local.Model           // run.toml is written from config, and states the template, too
				config.Model.Template, config.Model.System, config.Model.Args = taught.Template, taught.System, taught.Args
			}
			return trainedModel{x.local.Model.Path, config.Model.Path, x.local.Model.DType, x.local.LoRA, x.local.Runtime,
				config.Optimizer.LearningRate, config.Train.Seed}, err
		},
		config: config,
		open:   func(s train.Setup) (trainer[sft.Summary], error) { return sft.NewOn(x.local, s, x.list, x.heldOut) },
	})
	err, failedPush := splitUnpushed(err)
	if err != nil {
		return err
	}
	return errors.Join(show(c, s.JSON, end, func(w io.Writer) error { return printTuned(w, s.command.Name, config, end, x.list) }), failedPush)
}

// printTuned prints what was learned, where the result is and the next commands to type.
func printTuned(w io.Writer, command string, config *sft.Config, end sft.Summary, list []data.Demonstration) error {
	var table cli.Table
	what := map[string]string{"sft": "demonstrations", "dpo": "preferences"}[command]
	table.Add("trained", "%d %s, %d steps in %.1f s", end.Demonstrations, what, end.Steps, end.Seconds)
	if len(end.Loss) == 2 {
		table.Add("loss", "%.4f in the first step, %.4f in the last", end.Loss[0], end.Loss[1])
	}
	addEnding(&table, end.Ending)
	if end.HeldOut != nil {
		table.Add("held out", "loss %.4f before, %.4f after", end.HeldOut[0], end.HeldOut[1])
	}
	return printEnd(w, table, command, rl.Summary{Folder: config.Output.Dir, Diagnoses: end.Diagnoses}, nextTuned(config, list))
}

// nextTuned returns the command that asks the model a prompt of list, what it has learned, if that is short.
func nextTuned(config *sft.Config, list []data.Demonstration) []string {
	prompt := "What is 1+1?"
	if len(list) > 0 && list[0].Prompt != "" && len(list[0].Prompt) < 200 {
		prompt = list[0].Prompt
	} else if len(list) > 0 && list[0].Whole { // a text without a prompt: its first word
		prompt, _, _ = strings.Cut(list[0].Response, " ")
	}
	return []string{askCommand(" --model "+cli.ShellQuoted(cli.Nearest(config.Output.Dir)), config.Model.Template == "chat", prompt)}
}

// refuseChanges returns an error if config, with which a finished run is resumed, has other settings than the run's
// own: the run could not go on, since its moments and the place in its schedule are not kept.
func (s *sftCommand) refuseChanges(config *sft.Config) error {
	dir := config.Output.Dir
	run, _, err := savedRun(dir)
	if err != nil {
		return err
	}
	path, _ := settings.Find("model.path", run).Value.(string)
	was := newTuning(s.command.Name, path)
	if _, err := resolveTuning(was, settings.Command{Name: s.command.Name}, run); err != nil {
		return err
	}
	followAdapterRun(&was.Model.Path, &was.LoRA) // as resolve does for config
	was.Runtime = config.Runtime                 // a finished run computes nothing more
	if changed := config.Changes(*was); changed != "" {
		return fmt.Errorf("train: resume: the run in %s is finished, and since then %s: set it back, or train further "+
			"from it with --model %s and another --out", dir, changed, cli.ShellQuoted(dir))
	}
	return nil
}

// showOn prints the first --show rows of the data as the model sees them. Only that of the first rank is printed.
func (s *sftCommand) showOn(c *cobra.Command, t *ranks.Group, config *sft.Config) error {
	return t.InTurn(func() error {
		x, err := readDemonstrations(c, config)
		if err != nil {
			return err
		}
		shown := s.Show
		if config.Preference != nil && x.list[0].Good == nil { // Good is the label of a row with a single response
			shown *= 2 // a row is two demonstrations, the chosen and the rejected response
		}
		where := x.local.Runtime
		t.Place(&where.Device, &where.Threads) // this rank's device, and its share of the host's cores
		p, err := openPolicy(c, where, policy.Options{Path: x.local.Model.Path, DType: x.local.Model.DType, Base: x.local.LoRA.BaseDType})
		if err != nil {
			return err
		}
		defer p.Close()
		encoder, err := x.local.Encoder(p)
		if err != nil {
			return err
		}
		for _, d := range x.list[:min(shown, len(x.list))] {
			e, err := encoder.Encode(d)
			if err == nil && e == nil {
				slog.Warn("a demonstration is left out for its length", "place", d.Place)
				continue
			}
			if err == nil {
				err = cli.WriteLine(c.OutOrStdout(), struct {
					Text string `json:"text"`
					*sft.Example
				}{p.Tokenizer.Decode(e.IDs, false), e}) // with special tokens
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// demonstrations are the data that a model is trained on.
type demonstrations struct {
	local         sft.Config // the configuration with paths in place of names on a hub
	list, heldOut []data.Demonstration
}

// readDemonstrations reads the data of a run, and checks what else can be checked before ONNX Runtime is opened: the
// model's folder and the types that the device has.
func readDemonstrations(c *cobra.Command, config *sft.Config) (x demonstrations, err error) {
	if x.local, err = localSFT(c, config); err != nil {
		return x, err
	}
	d := x.local.Data
	if x.list, err = readTuned(c, config, "--data", d.Train); err != nil {
		return x, err
	}
	if d.Eval != "" {
		if x.heldOut, err = readTuned(c, config, "--eval-data", d.Eval); err != nil {
			return x, err
		}
	}
	_, err = foreseenDevice(c, x.local.Runtime, x.local.LoRA, x.local.Model.DType)
	return x, err
}

// localSFT returns the configuration with paths instead of names on a hub, which it pins in config.
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

// readTuned reads a file of demonstrations or, for dpo, preferences, and logs what it leaves out. flag is for errors.
func readTuned(c *cobra.Command, config *sft.Config, flag, path string) (list []data.Demonstration, err error) {
	template, err := tokenize.ParseTemplate(config.Model.Template)
	if err != nil {
		return nil, err
	}
	d := config.Data
	o := data.Options{Filter: d.Filter, Keep: template.Columns, OnBad: data.LeaveOut}
	o.Input = inputOf(c, path)
	var report data.Report
	if config.Preference != nil {
		list, report, err = data.LoadPreferences(orStdin(path), *d.PreferenceColumns, o)
	} else {
		list, report, err = data.LoadDemonstrations(orStdin(path), d.DemonstrationColumns, o)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	report.Log(slog.Default(), path)
	return list, nil
}

// resolve applies what states settings to the defaults, which depend on the model, and returns them checked. All
// settings that are wrong are reported at once, unless a flag of an adapter has no effect, which is reported alone.
// With --resume the sources include the run.toml in --out.
func (s *sftCommand) resolve(c *cobra.Command) (config *sft.Config, err error) {
	if err := s.sortArguments(c); err != nil {
		return config, err
	}
	if s.Resume {
		dir, _ := settings.Find("output.dir", s.command.Given(s.fromFlags, c.Flags().Changed)).Value.(string) // of --out
		if s.runFile, err = resumedFile(dir, s.command.Name); err != nil {
			return config, err
		}
	}
	sources, err := s.sources(c)
	if err != nil {
		return config, err
	}
	path, _ := settings.Find("model.path", sources...).Value.(string)
	config = newTuning(s.command.Name, path)
	defaultRate := config.Optimizer.LearningRate
	r, err := resolveTuning(config, s.command, sources...)
	if err != nil {
		return config, err
	}
	completeAdapter(r, &config.Model.Path, &config.LoRA, &config.Optimizer.LearningRate, defaultRate)
	logAdapterRate(r, config.LoRA, config.Optimizer.LearningRate)
	out := config.Output.Dir
	if s.Show > 0 {
		config.Output.Dir = cmp.Or(out, ".") // --show writes nothing, so Validate need not ask for a folder
	}
	impossible := config.Validate()
	config.Output.Dir = out
	return config, cmp.Or(checkIneffective(r, s.Resume), asUsage(r.Locate(impossible)))
}
