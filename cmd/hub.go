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

// newestModel returns the folder of a model. It downloads one that is named on a hub; of a run
// folder the newest checkpoint is the model.
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

// unpackedModel is newestModel for a model that is read at once; the embedded one is
// unpacked into a folder that remove deletes.
func unpackedModel(c *cobra.Command, name string) (dir string, remove func(), err error) {
	if dir, err = newestModel(c, name); err != nil {
		return "", nil, err
	}
	return policy.Unpacked(dir)
}

// newestOf returns the newest checkpoint of a run folder. It returns any other folder unchanged.
func newestOf(dir string) (string, error) {
	// The files of a run are checked; any other folder is returned unchanged.
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

// localSuite is localData for a suite, NAME=hf:ORG/DATA or without NAME=. It always
// returns a name, since the folders in the cache are named after commits.
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

// pin sets local to what resolve finds for a name, and pins the name to the commit. It
// leaves an empty name empty.
func pin(c *cobra.Command, resolve func(c *cobra.Command, name string) (string, error), name, local *string) (err error) {
	if *name == "" {
		return nil
	}
	if *local, err = resolve(c, *name); err == nil {
		*name = hub.Pin(*name, *local)
	}
	return err
}

// pinPolicy is pin for the model of a run and its adapter.
func pinPolicy(c *cobra.Command, named, local *string, l, found *train.LoRAConfig) error {
	err := pin(c, newestModel, named, local)
	if err == nil {
		stated := l.Settings
		if err = takeAdapter(*local, l); err != nil {
			err = fmt.Errorf("lora.adapter: %w", err)
		} else if l.Adapter != "" {
			err = asUsage(l.Settings.Differs(stated, l.Adapter))
		}
		*found = *l
	}
	return err
}

// localConfig returns the configuration with paths instead of names on a hub. In
// config itself it pins such names to the commit, so that run.toml keeps its
// meaning when the hub changes.
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
	config.Stream.List, local.Stream.List = slices.Clone(config.Stream.List), slices.Clone(config.Stream.List)
	for i := range local.Stream.List {
		named, found := &config.Stream.List[i], &local.Stream.List[i]
		if err := cmp.Or(pin(c, newestModel, &named.Teacher, &found.Teacher), pin(c, localData, &named.Data, &found.Data)); err != nil {
			return local, fmt.Errorf("stream %q: %w", named.Name, err)
		}
	}
	if len(config.Data.Train) > 1 {
		local.Data.Train = config.Data.Train.Named() // a folder in the cache is named after a commit
	}
	local.Data.Train = slices.Clone(local.Data.Train)
	config.Data.Train = slices.Clone(config.Data.Train)
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
	options, shown := hubOptions(c)
	defer shown()
	return resolve(options)
}

// hubOptions returns the options of all transfers. They show progress until shown is
// called.
func hubOptions(c *cobra.Command) (o hub.Options, shown func()) {
	download := &cli.Download{Stderr: c.ErrOrStderr(), Quiet: isQuiet(c)}
	o = hub.Options{Offline: os.Getenv("ONERING_OFFLINE") != "", Progress: download.Show, Notice: func(text string) { slog.Warn(text) }}
	return o, download.Finish
}
