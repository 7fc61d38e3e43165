package cmd

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"onering/data"
	"onering/internal/cli"
	"onering/models/hub"
	"onering/policy"
	"onering/train"
	"onering/train/rl"
)

// Every flag for a model folder or a file of problems also takes a name on a
// Hugging Face hub: ORG/NAME for a model, hf:ORG/NAME for either.

// newestModel returns the folder of the model called name: a folder, or a model on a hub, which it downloads. Of a
// run folder the newest checkpoint is the model.
func newestModel(c *cobra.Command, name string) (string, error) { return modelFolder(c, name, false) }

// tokenizerFolder is newestModel without the weights.
func tokenizerFolder(c *cobra.Command, name string) (string, error) {
	return modelFolder(c, name, true)
}

func modelFolder(c *cobra.Command, name string, noWeights bool) (string, error) {
	dir, err := fromHub(c, func(o hub.Options) (string, error) {
		o.NoWeights = noWeights
		return hub.Resolve(c.Context(), name, o)
	})
	if err != nil {
		return "", err
	}
	return newestOf(dir)
}

// unpackedModel is newestModel for a model that is read at once; remove deletes the folder of the embedded one.
func unpackedModel(c *cobra.Command, name string) (dir string, remove func(), err error) {
	if dir, err = newestModel(c, name); err != nil {
		return "", nil, err
	}
	return policy.Unpacked(dir)
}

// newestOf returns the newest checkpoint of a run folder, whose files it checks, and any other folder unchanged.
func newestOf(dir string) (string, error) {
	if _, err := os.Stat(filepath.Join(dir, "run.toml")); err != nil {
		return dir, nil
	}
	newest, err := train.Folder(dir).Model()
	if err == nil && newest != dir {
		slog.Info("the run's newest checkpoint", "model", newest)
	}
	return newest, err
}

// localData returns the path of a data set. It downloads one that is named on a hub.
func localData(c *cobra.Command, name string) (string, error) {
	isData := func(name string) bool { _, ext := data.Split(name); return ext != "" }
	return fromHub(c, func(o hub.Options) (string, error) { return hub.ResolveData(c.Context(), name, isData, o) })
}

// localSuite is localData for a suite, NAME=hf:ORG/DATA or hf:ORG/DATA. Its result has a name in any case, that of
// the data set by default, since folders in the cache are named after commits.
func localSuite(c *cobra.Command, spec string) (string, error) {
	label, name, ok := strings.Cut(spec, "=")
	if !ok {
		label, name = "", spec
	}
	if !strings.HasPrefix(name, "hf:") {
		return spec, nil
	}
	resolved, err := localData(c, name)
	if label == "" {
		label, _, _ = strings.Cut(path.Base(name), "@")
		label, _ = data.Split(label)
	}
	return label + "=" + resolved, err
}

// pin sets *local to the path that resolve finds for *name, in which it fixes the commit on a hub. "" stays "".
func pin(c *cobra.Command, resolve func(c *cobra.Command, name string) (string, error), name, local *string) (err error) {
	if *name == "" {
		return nil
	}
	if *local, err = resolve(c, *name); err == nil {
		*name = hub.Pin(*name, *local)
	}
	return err
}

// pinPolicy is pin for the model of a run, and completes the adapter that the run continues, l, which it also copies
// to *local. It refuses stated settings that differ from those of that adapter.
func pinPolicy(c *cobra.Command, model, localModel *string, l, local *train.LoRAConfig) error {
	err := pin(c, newestModel, model, localModel)
	if err == nil {
		stated := l.Settings
		if err = findAdapter(*localModel, l); err != nil {
			err = fmt.Errorf("lora.adapter: %w", err)
		} else if l.Adapter != "" {
			err = asUsage(l.Settings.Differs(stated, l.Adapter))
		}
		*local = *l
	}
	return err
}

// localConfig returns the configuration with paths in place of names on a hub, for this process. In config itself it
// pins such names to the commit, so that run.toml keeps its meaning when the hub changes; it leaves those of suites.
func localConfig(c *cobra.Command, config *rl.Config) (local rl.Config, err error) {
	local = *config
	if err := pinPolicy(c, &config.Model.Path, &local.Model.Path, &config.LoRA, &local.LoRA); err != nil {
		return local, err
	}
	if _, err := os.Stat(filepath.Join(config.Model.Path, "run.toml")); err == nil {
		config.Model.Path = local.Model.Path // the run may go on, and its newest checkpoint be another one when this run is resumed
	}
	if err := pin(c, newestModel, &config.Model.Reference, &local.Model.Reference); err != nil {
		return local, err
	}
	config.Stream.List, local.Stream.List = slices.Clone(config.Stream.List), slices.Clone(config.Stream.List) // pin writes to their elements
	for i := range local.Stream.List {
		x, l := &config.Stream.List[i], &local.Stream.List[i]
		if err := cmp.Or(pin(c, newestModel, &x.Teacher, &l.Teacher), pin(c, localData, &x.Data, &l.Data)); err != nil {
			return local, fmt.Errorf("stream %q: %w", x.Name, err)
		}
	}
	if len(config.Data.Train) > 1 { // messages and figures tell several files apart by the names of their paths
		local.Data.Train = config.Data.Train.Named() // states those names before pin sets paths in the cache, named after commits
	}
	config.Data.Train, local.Data.Train = slices.Clone(config.Data.Train), slices.Clone(local.Data.Train) // pin writes to their elements
	for i := range config.Data.Train {
		if err := pin(c, localData, &config.Data.Train[i].Path, &local.Data.Train[i].Path); err != nil {
			return local, err
		}
	}
	local.Eval.Suites = slices.Clone(config.Eval.Suites)
	for i, suite := range local.Eval.Suites {
		if local.Eval.Suites[i].Path, err = localSuite(c, suite.Path); err != nil {
			return local, err
		}
	}
	return local, nil
}

// fromHub calls resolve and shows the progress of what it fetches.
func fromHub(c *cobra.Command, resolve func(hub.Options) (string, error)) (string, error) {
	options, endProgress := hubOptions(c)
	defer endProgress()
	return resolve(options)
}

// hubOptions returns the options of all transfers. They show progress on stderr until endProgress is called.
func hubOptions(c *cobra.Command) (o hub.Options, endProgress func()) {
	download := &cli.Download{Stderr: c.ErrOrStderr(), Quiet: isQuiet(c)}
	o = hub.Options{Offline: os.Getenv("ONERING_OFFLINE") != "", Progress: download.Show, Notice: func(text string) { slog.Warn(text) }}
	return o, download.Finish
}
