package models

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"onering/internal/files"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Load reads a Hugging Face folder: its config, and its tensors as float32 into one arena. Names, shapes and element
// types must be exactly as the config demands. Two kinds of tensors that transformers ignores are ignored here too:
// rotary_emb.inv_freq and, if the embeddings are tied, a second copy of them. The caller must close the weights.
func Load(dir string) (Model, *Weights, error) { return LoadHeld(dir, Compute{}) }

// LoadHeld is Load for Programs of a Compute: matrices that the Programs read only in fewer bits are stored in those.
func LoadHeld(dir string, c Compute) (Model, *Weights, error) {
	return load(dir, func(m Model, l *Layout) (*Weights, error) {
		from, to, err := m.narrowRange(c)
		if err != nil {
			return nil, err
		}
		if from == to {
			return NewWeights(l)
		}
		return newNarrowWeights(l, c.Base, from, to)
	})
}

// load is LoadHeld into weights that allocate makes. The folder stays open for Save, until the weights are closed, if
// it has tensors beside the model.
func load(dir string, allocate func(m Model, l *Layout) (*Weights, error)) (Model, *Weights, error) {
	m, err := ReadConfig(dir)
	if err != nil {
		return Model{}, nil, err
	}
	layout := m.Layout()
	src, err := m.openTensors(dir, layout) // check before allocating memory
	if err != nil {
		return Model{}, nil, err
	}
	keepOpen := false
	defer func() {
		if !keepOpen {
			src.Close()
		}
	}()
	w, err := allocate(m, layout)
	if err != nil {
		return Model{}, nil, err
	}
	err = w.Load(src)
	if err == nil && src.headCopy != "" {
		err = m.checkHeadCopy(src.Folder, src.headCopy)
	}
	if err != nil {
		w.Close()
		return Model{}, nil, err
	}
	if keepOpen = len(src.besideModel) > 0; keepOpen {
		w.besideSource = src
	}
	return m, w, nil
}

// openTensors opens the tensors of a folder and checks that they are those of the layout.
func (m Model) openTensors(dir string, layout *Layout) (*modelSource, error) {
	folder, err := OpenFolder(dir)
	if err != nil {
		return nil, err
	}
	var src *modelSource
	if err = folder.openNF4(); err == nil {
		src = m.sortTensors(folder)
		err = cmp.Or(folder.checkComplete(layout), layout.Check(src))
	}
	if err != nil {
		folder.Close()
		return nil, err
	}
	return src, nil
}

// LoadModel reads the tensors of the model folder dir, which must be those of the layout.
func (w *Weights) LoadModel(dir string) error {
	m, err := ReadConfig(dir)
	if err != nil {
		return err
	}
	src, err := m.openTensors(dir, w.Layout)
	if err != nil {
		return err
	}
	defer src.Close()
	return w.Load(src)
}

// narrowRange returns the range of elements whose matrices a Compute stores in fewer bits.
func (m Model) narrowRange(c Compute) (from, to int, err error) {
	if !c.Narrow() {
		return 0, 0, nil
	}
	arch, err := m.Architecture(c)
	if err != nil {
		return 0, 0, err
	}
	from, to = arch.Held()
	return from, to, nil
}

// Check reads the config and the tensors' headers of a Hugging Face folder and returns the error that Load would
// return, except for errors in the tensors' values. It takes milliseconds for a model of any size.
func Check(dir string) error {
	m, err := ReadConfig(dir)
	if err != nil {
		return err
	}
	src, err := m.openTensors(dir, m.Layout())
	if err != nil {
		return err
	}
	return src.Close()
}

// IsAdapter says whether the folder dir holds a LoRA adapter in place of a model.
func IsAdapter(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, adapterFile))
	return err == nil
}

// headName is what the name of the head ends with in every decoder-only model of transformers.
const headName = "lm_head.weight"

// A modelSource holds a folder's tensors without those that Load ignores.
type modelSource struct {
	*Folder
	names []string
	// beside are tensors that are not part of the model, such as a vision tower's, which Save copies.
	besideModel []string
	// headCopy is the head's name if a tied model's folder also has the head.
	headCopy string
	// missingEmbedding is the embedding's name if a tied model's folder has only the head, under
	// the name headInstead.
	missingEmbedding, headInstead string
}

// sortTensors sorts the tensors of a folder: those beside the model, the ones that Load ignores, and the model's own under
// the names of the layout, so a head stands for the embedding where a tied model's folder has the head alone.
func (m Model) sortTensors(folder *Folder) *modelSource {
	embedding, tied := m.names.Embedding, m.names.Head == m.names.Embedding
	_, hasEmbedding := folder.Info(embedding)
	s := &modelSource{Folder: folder}
	for _, name := range folder.Names() {
		switch {
		case strings.HasSuffix(name, "rotary_emb.inv_freq"):
			continue
		case slices.ContainsFunc(m.names.Beside, func(prefix string) bool { return strings.HasPrefix(name, prefix) }):
			s.besideModel = append(s.besideModel, name)
			continue
		case strings.HasSuffix(name, headName) && tied && hasEmbedding:
			s.headCopy = name
			continue
		case strings.HasSuffix(name, headName) && tied:
			s.missingEmbedding, s.headInstead, name = embedding, name, embedding
		}
		s.names = append(s.names, name)
	}
	return s
}

// stored returns the name of a tensor in the folder.
func (s *modelSource) stored(name string) string {
	if name == s.missingEmbedding {
		return s.headInstead
	}
	return name
}

// Names implements tensorSource.
func (s *modelSource) Names() []string { return s.names }

// Info implements tensorSource.
func (s *modelSource) Info(name string) (tensorInfo, bool) {
	return s.Folder.Info(s.stored(name))
}

// ReadFloat32 implements tensorSource.
func (s *modelSource) ReadFloat32(name string, dst []float32, first int) error {
	return s.Folder.ReadFloat32(s.stored(name), dst, first)
}

// checkHeadCopy compares a tied model's lm_head.weight with the embedding. If they
// differ, transformers unties them; onering requires the config to say so.
func (m Model) checkHeadCopy(folder *Folder, headName string) error {
	name := m.names.Embedding
	embedding, _ := m.Layout().Find(name)
	differ := func(format string, args ...any) error {
		return fmt.Errorf("models: %s: tie_word_embeddings is true, but %s %s; set it to false in %s, or remove %s from the tensors",
			folder.Path(), headName, fmt.Sprintf(format, args...), configFile, headName)
	}
	if t, _ := folder.Info(headName); !slices.Equal(t.Shape, embedding.Shape) {
		return differ("has shape %v and %s %v", t.Shape, name, embedding.Shape)
	}
	var parts [2][1 << 16]float32
	for first := 0; first < embedding.Size; first += len(parts[0]) {
		n := min(len(parts[0]), embedding.Size-first)
		if err := cmp.Or(folder.ReadFloat32(name, parts[0][:n], first), folder.ReadFloat32(headName, parts[1][:n], first)); err != nil {
			return err
		}
		for i, e := range parts[0][:n] {
			if v := parts[1][i]; v != e && (v == v || e == e) { // two NaN count as equal
				return differ("differs from %s: %g and %g at element %d", name, v, e, first+i)
			}
		}
	}
	return nil
}

// SaveOptions are the settings of Save. The zero value writes float32.
type SaveOptions struct {
	// DType of the tensors: F32, F16 or BF16; Invalid is F32, which is exact.
	DType DType
	// Tokenizer is a model folder from which the tokenizer files are copied; "" for none.
	Tokenizer string
	// ShardBytes is the size above which tensors are divided among several files, 0 for 5 GB.
	ShardBytes int64
	// Extra, if not nil, writes more files into the folder before it appears. The draft
	// then has the sums of all files.
	Extra func(d *files.Draft) error
}

// TokenizerFiles are the files that a tokenizer can consist of.
var TokenizerFiles = []string{
	"tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt",
	"special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "chat_template.json",
}

// TemplateFolder holds chat templates for several uses, if a tokenizer has them.
const TemplateFolder = "additional_chat_templates"

// CopyTokenizer copies the files of the tokenizer in the folder from, including its chat templates.
func CopyTokenizer(put files.Put, from string) error {
	if err := copyFiles(put, from, TokenizerFiles...); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(from, TemplateFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("models: %w", err)
	}
	var names []string
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".jinja" {
			names = append(names, filepath.Join(TemplateFolder, e.Name()))
		}
	}
	return copyFiles(put, from, names...)
}

// Save writes a Hugging Face folder: config.json with the keys it was read with (only the value of dtype or
// torch_dtype follows the tensors), generation_config.json if there was one, the tensors under their Hugging Face
// names, those of the folder beside the model as they were there, and the tokenizer's files. dir appears completely,
// when all files are on the disk, or not at all; an existing dir that is not empty is an error.
func (m Model) Save(dir string, w *Weights, o SaveOptions) error {
	o.DType, o.ShardBytes = cmp.Or(o.DType, F32), cmp.Or(o.ShardBytes, 5e9)
	if m.Text.Config == nil {
		return fmt.Errorf("models: save %s: the model was not read from files, so there is no text for %s", dir, configFile)
	}
	config, err := withDType(m.Text.Config, o.DType)
	if err != nil {
		return fmt.Errorf("models: save %s: %s: %w", dir, configFile, err)
	}
	return files.WriteFolder(dir, func(d *files.Draft) error {
		d.Summed = o.Extra != nil // Extra gets the sums of the files
		if err := d.WriteFile(configFile, files.Content(config)); err != nil {
			return err
		}
		if m.Text.Generation != nil {
			if err := d.WriteFile(generationFile, files.Content(m.Text.Generation)); err != nil {
				return err
			}
		}
		if o.Tokenizer != "" {
			if err := CopyTokenizer(d.WriteFile, o.Tokenizer); err != nil {
				return err
			}
		}
		if err := WriteModel(d.WriteFile, o.DType, append(w.Tensors(), w.besideModel()...), o.ShardBytes); err != nil {
			return err
		}
		if o.Extra != nil {
			return o.Extra(d)
		}
		return nil
	})
}
