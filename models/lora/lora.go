// Package lora reads and writes adapters as PEFT does: a folder with adapter_config.json
// and adapter_model.safetensors. Methods of PEFT that the graphs do not compute are
// refused with the name of their key.
package lora

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onering/internal/files"
	"onering/internal/settings"
	"onering/models"
)

const (
	configFile = "adapter_config.json"
	tensorFile = "adapter_model.safetensors"
)

// An Adapter describes an adapter of a model, without the values of its tensors.
type Adapter struct {
	models.Adapter
	// Dropout is the dropout with which other programs train the adapter. onering ignores it.
	Dropout float64

	text           []byte // the text of adapter_config.json
	unusedPatterns []string
	layout         *models.Layout
	naming         fileNaming
}

// Settings describe a new adapter.
type Settings struct {
	Rank    int      `toml:"rank" flag:"lora-rank" needs:"adapter=" range:"[1,65536]" help:"rows of A and columns of B: how many directions of a weight can change"`
	Alpha   float64  `toml:"alpha" flag:"lora-alpha" needs:"adapter=" range:"(0,)" help:"what scales the low-rank products: alpha / rank, or alpha / sqrt(rank) with rslora"`
	Targets []string `toml:"targets" flag:"lora-targets" needs:"adapter=" help:"modules with low-rank products: all-linear, or names such as q_proj"`
	RSLoRA  bool     `toml:"rslora" flag:"lora-rslora" needs:"adapter=" help:"scale by alpha / sqrt(rank)"`
	Init    string   `toml:"init" flag:"lora-init" needs:"adapter=" choice:"kaiming gaussian" help:"how A begins; B begins with zeros" note:"kaiming is uniform within 1/sqrt(in), as PEFT's default is; gaussian has a deviation of 1/rank"`
}

// Default returns the settings of an adapter for reinforcement learning.
func Default() Settings {
	return Settings{Rank: 32, Alpha: 32, Targets: []string{allLinear}, Init: "kaiming"}
}

// Settings returns the settings that make an adapter of the same modules, rank and scale.
func (a *Adapter) Settings() Settings {
	s := Default()
	s.Rank, s.Alpha, s.Targets = a.Rank, a.Scale*float64(a.Rank), slices.Clone(a.Modules)
	return s
}

// Differs returns an error if what is stated is neither a default nor what s, the settings of the
// adapter in dir, has.
func (s Settings) Differs(stated Settings, dir string) error {
	var errs settings.Errors
	usual, said := Default(), "the adapter in "+dir+" has %v: leave it out, or begin a new adapter"
	errs.Want("lora.rank", stated.Rank, stated.Rank == usual.Rank || stated.Rank == s.Rank, fmt.Sprintf(said, s.Rank))
	errs.Want("lora.alpha", stated.Alpha, stated.Alpha == usual.Alpha || stated.RSLoRA || stated.Alpha == s.Alpha, fmt.Sprintf(said, s.Alpha))
	errs.Want("lora.targets", stated.Targets, slices.Equal(stated.Targets, usual.Targets) || slices.Equal(stated.Targets, s.Targets), fmt.Sprintf(said, s.Targets))
	return errors.Join(errs...)
}

// New returns a new adapter of the model m, with the text of its adapter_config.json, in which model is the name of
// m. Targets that m lacks are a *settings.Error. The one target all-linear is, as in PEFT, no list but a single text, for
// all modules; their names are then in the new text.
func New(s Settings, m models.Model, model string) (*Adapter, error) {
	c := config{Rank: s.Rank, Alpha: s.Alpha, RSLoRA: s.RSLoRA, Targets: targets{list: s.Targets, single: len(s.Targets) == 1 && s.Targets[0] == allLinear}}
	base, err := modulesOf(m)
	if err != nil {
		return nil, err
	}
	for _, name := range s.Targets {
		if !c.Targets.single && !slices.ContainsFunc(base.paths, func(path string) bool { return namesEndOf(name, path) }) {
			return nil, &settings.Error{Key: "lora.targets", Remedy: fmt.Sprintf("%q is not a module of a layer: it has %s (all-linear is all of them)",
				name, strings.Join(base.names, ", "))}
		}
	}
	a, err := c.adapterOf(m)
	if err != nil {
		return nil, err
	}
	init := any(true) // PEFT's word for kaiming
	if s.Init == "gaussian" {
		init = s.Init
	}
	names := s.Targets
	if c.Targets.single {
		names = lastParts(a.Modules)
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err = e.Encode(map[string]any{
		"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": model, "r": s.Rank, "lora_alpha": s.Alpha, "lora_dropout": 0.0,
		"bias": "none", "target_modules": a.naming.targets(names), "use_rslora": s.RSLoRA, "use_dora": false, "fan_in_fan_out": false, "inference_mode": true,
		"init_lora_weights": init, "modules_to_save": nil, "rank_pattern": map[string]int{}, "alpha_pattern": map[string]int{},
	})
	if err != nil {
		return nil, err
	}
	a.text = text.Bytes()
	return a, nil
}

// Init returns the tensors of a new adapter. B is zero, so the adapter begins without an
// effect. A is uniform within 1/sqrt(in), as in PEFT, or normal with a deviation of
// 1/rank. The numbers depend on the seed and the tensor's name alone.
func (a *Adapter) Init(s Settings, seed uint64) (*models.Weights, error) {
	w, err := models.NewWeights(a.layout)
	if err != nil {
		return nil, err
	}
	for _, name := range a.layout.Names() {
		if !strings.HasSuffix(name, models.AdapterA) {
			continue
		}
		data, shape, _ := w.View(name)
		r := rand.New(rand.NewChaCha8(sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, name))))
		bound := 1 / math.Sqrt(float64(shape[1]))
		for i := range data {
			if s.Init == "gaussian" {
				data[i] = float32(r.NormFloat64() / float64(a.Rank))
			} else {
				data[i] = float32(bound * (2*r.Float64() - 1))
			}
		}
	}
	return w, nil
}

// Read reads the description of the adapter in the folder dir, and checks that it fits the model m.
func Read(dir string, m models.Model) (*Adapter, error) {
	c, err := readConfig(filepath.Join(dir, configFile))
	if err != nil {
		return nil, err
	}
	a, err := c.adapterOf(m)
	if err != nil {
		return nil, fmt.Errorf("lora: %s: %w", filepath.Join(dir, configFile), err)
	}
	a.text, a.Dropout = c.text, c.Dropout
	return a, nil
}

// Load reads the tensors of the adapter in the folder dir.
func (a *Adapter) Load(dir string) (*models.Weights, error) {
	return readTensors(dir, a.layout, a.unusedPatterns)
}

// Check returns the error that Load would return for the folder dir. It reads only names
// and shapes, so it misses errors in the tensors' values.
func (a *Adapter) Check(dir string) error {
	f, err := openTensors(dir, a.layout)
	if err != nil {
		return err
	}
	return f.Close()
}

// openTensors opens the tensors of the adapter in the folder dir, which must be those of layout, if it is not nil. PEFT
// leaves out those of modules that are not targets, and begins missing ones anew, both with a warning.
func openTensors(dir string, layout *models.Layout) (*models.File, error) {
	f, err := models.OpenSafetensors(filepath.Join(dir, tensorFile))
	if errors.Is(err, fs.ErrNotExist) {
		if _, old := os.Stat(filepath.Join(dir, "adapter_model.bin")); old == nil {
			return nil, fmt.Errorf("lora: %s has adapter_model.bin and no %s: save it with PEFT's save_pretrained", dir, tensorFile)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("lora: %w", err)
	}
	if layout == nil {
		return f, nil
	}
	if err := layout.Check(f); err != nil {
		return nil, errors.Join(fmt.Errorf("lora: %s is not an adapter of this model with the modules and the ranks "+
			"of its %s, or only in part, of which PEFT would warn: %w", dir, configFile, err), f.Close())
	}
	return f, nil
}

// readTensors reads the tensors of the adapter in the folder dir, which must be those of layout.
// unused are patterns of its config that match nothing.
func readTensors(dir string, layout *models.Layout, unusedPatterns []string) (*models.Weights, error) {
	f, err := openTensors(dir, layout)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	w, err := models.NewWeights(layout)
	if err != nil {
		return nil, err
	}
	err = w.Load(f)
	for _, x := range w.Tensors() {
		if i := slices.IndexFunc(x.Data, func(v float32) bool { return v-v != 0 }); i >= 0 && err == nil { // NaN or an infinity
			err = fmt.Errorf("lora: %s: tensor %q has %v at its element %d: the training that wrote it had failed; take an earlier checkpoint",
				f.Path(), x.Name, x.Data[i], i)
		}
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	if len(unusedPatterns) > 0 {
		slog.Warn("patterns of "+configFile+" match no module with low-rank products, so they change nothing, as in PEFT",
			"adapter", dir, "patterns", strings.Join(unusedPatterns, ", "))
	}
	return w, nil
}

// Save writes the folder dir as PEFT does, with the tensors w. The folder appears completely
// or not at all. extra may be nil; otherwise it writes more files into the folder.
func (a *Adapter) Save(dir string, w *models.Weights, extra func(d *files.Draft) error) error {
	return files.WriteFolder(dir, func(d *files.Draft) error {
		d.Summed = extra != nil // extra gets the sums of the files
		err := d.WriteFile(configFile, files.Content(a.text))
		if err != nil {
			return err
		}
		tensors := w.Tensors()
		for i := range tensors {
			tensors[i].Name = a.layout.InFile(tensors[i].Name)
		}
		if err := models.WriteSafetensors(d.WriteFile, tensorFile, models.F32, tensors, map[string]string{"format": "pt"}); err != nil {
			return err
		}
		if extra != nil {
			return extra(d)
		}
		return nil
	})
}
