package models

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"onering/internal/files"
)

// A Model holds what the config files of a model folder state: everything except
// the weights.
type Model struct {
	Design // says which weights the model has and how its Programs are built
	Sizes  // sizes of the Design

	// EOS are the ids that end a response: generation_config.json's
	// eos_token_id, else config.json's. It may be empty.
	EOS []int32
	// Pad is pad_token_id, nil if the model has none. Init zeroes its embedding.
	Pad *int32
	// DType is the type of the folder's tensors; Invalid if the config does not state it.
	DType DType
	// InitRange is initializer_range, the standard deviation of random weights.
	// 0 stands for 0.02.
	InitRange float64
	// Text is the text of config.json, and Generation that of generation_config.json (nil
	// without one). Save writes the same keys in the same order.
	Text struct{ Config, Generation []byte }

	names Geometry // the names of the model's tensors
}

const (
	configFile     = "config.json"
	generationFile = "generation_config.json"
	defaultInit    = 0.02 // transformers' initializer_range
	maxConfig      = 1 << 20
)

// NewModel returns a Model of a design that no file states. It can be initialised and run, but not saved.
func NewModel(d Design) (Model, error) {
	a, err := d.Architecture(Compute{})
	if err != nil {
		return Model{}, err
	}
	g := a.Geometry()
	return Model{Design: d, Sizes: g.Sizes, InitRange: defaultInit, names: g}, nil
}

// A noFolder is the path of a folder that is not there. It is fs.ErrNotExist.
type noFolder string

func (e noFolder) Error() string { return fmt.Sprintf("there is no folder %q", string(e)) }

func (noFolder) Unwrap() error { return fs.ErrNotExist }

// ReadConfig reads a model folder's config.json, or the file that path names,
// and the generation_config.json beside it if there is one.
func ReadConfig(path string) (Model, error) {
	dir, name := path, configFile
	if info, err := os.Stat(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = noFolder(path)
		}
		return Model{}, fmt.Errorf("models: model: %w; name a folder with config.json and *.safetensors, such as onering init makes, or ORG/NAME on a hub", err)
	} else if !info.IsDir() {
		dir, name = filepath.Dir(path), filepath.Base(path)
		if what := foreignFile(path); what != "" {
			return Model{}, fmt.Errorf("models: %s is not a model folder: %s", path, what)
		}
	} else if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
		if what := foreignFolder(path); what != "" {
			return Model{}, fmt.Errorf("models: %s is not a model folder: %s", path, what)
		}
		return Model{}, fmt.Errorf("models: a model folder needs its config: %w; fetch the whole folder", err)
	}
	folder, err := files.OpenFolder(dir)
	if err != nil {
		return Model{}, fmt.Errorf("models: model folder: %w", err)
	}
	defer folder.Close()
	config, err := folder.Read(name, maxConfig)
	if err != nil {
		return Model{}, fmt.Errorf("models: a model folder needs its config: %w; fetch the whole folder", err)
	}
	generation, err := folder.Read(generationFile, maxConfig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Model{}, fmt.Errorf("models: %w", err)
	}
	m, err := ParseConfig(config, generation)
	if err != nil {
		return Model{}, fmt.Errorf("%w (in %s)", err, path)
	}
	return m, nil
}

// ParseConfig reads the text of config.json and of generation_config.json, nil if there is none. The family of the
// model_type reads the shape; the error for an unknown family lists the known ones.
func ParseConfig(config, generation []byte) (Model, error) {
	f, err := parseConfigFile(configFile, config)
	if err != nil {
		return Model{}, err
	}
	d, err := readDesign(f)
	if err != nil {
		return Model{}, err
	}
	m, err := NewModel(d)
	if err != nil {
		return Model{}, fmt.Errorf("models: %s: %w", configFile, err)
	}
	m.Text.Config, m.Text.Generation = bytes.Clone(config), bytes.Clone(generation)
	if f.textConfig != nil { // a larger model: all that follows is stated for the language model
		f = f.textConfig
	}
	m.DType = f.dtype()
	m.InitRange = f.Number("initializer_range", defaultInit)
	if m.InitRange < 0 {
		f.Fail("initializer_range (%g) must not be negative", m.InitRange)
	}
	if err := m.readTokens(f, generation); err != nil {
		return Model{}, err
	}
	return m, nil
}

// readTokens sets EOS and Pad of m from config.json (f) and the text of generation_config.json, whose EOS ids come
// first. It returns the first error of f, also one of an earlier read.
func (m *Model) readTokens(f *ConfigFile, generation []byte) error {
	m.EOS = f.ids("eos_token_id")
	if pad := f.ids("pad_token_id"); len(pad) == 1 {
		m.Pad = &pad[0]
	}
	if f.Err() == nil && generation != nil {
		g, err := parseConfigFile(generationFile, generation)
		if err != nil {
			return err
		}
		if eos := g.ids("eos_token_id"); eos != nil {
			m.EOS = eos
		}
		if err := g.Err(); err != nil {
			return err
		}
	}
	outside := func(id int32) bool { return id < 0 || int(id) >= m.Vocab }
	for _, id := range m.EOS {
		if outside(id) {
			f.Fail("eos_token_id (%d) is not in the vocabulary of %d (vocab_size)", id, m.Vocab)
		}
	}
	if m.Pad != nil && outside(*m.Pad) {
		f.Fail("pad_token_id (%d) is not in the vocabulary of %d (vocab_size)", *m.Pad, m.Vocab)
	}
	return f.Err()
}
