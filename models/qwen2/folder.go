package qwen2

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"onering/models"
)

// Load reads a Hugging Face folder: its config, and its tensors as float32 into
// one arena. Names, shapes and element types must be exactly those that the
// config calls for, but for what transformers passes over too: rotary_emb.inv_freq,
// and where the embeddings are tied a second copy of them. The caller closes the
// weights.
func Load(dir string) (Config, *models.Weights, error) {
	c, err := ReadConfig(dir)
	if err != nil {
		return Config{}, nil, err
	}
	folder, err := models.OpenFolder(dir)
	if err != nil {
		return Config{}, nil, err
	}
	defer folder.Close()
	src := c.known(folder)
	layout := c.Layout()
	if err := layout.Check(src); err != nil { // before anything is allocated
		return Config{}, nil, err
	}
	w, err := models.NewWeights(layout)
	if err != nil {
		return Config{}, nil, err
	}
	err = w.Load(src)
	if err == nil && src.twin {
		err = c.checkTwin(folder, w)
	}
	if err != nil {
		w.Close()
		return Config{}, nil, err
	}
	return c, w, nil
}

// Check reads the config and the tensors' headers of a Hugging Face folder and
// returns the error that Load would, but for what is wrong with the numbers
// themselves. It takes milliseconds whatever the model's size.
func Check(dir string) error {
	c, err := ReadConfig(dir)
	if err != nil {
		return err
	}
	folder, err := models.OpenFolder(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	return c.Layout().Check(c.known(folder))
}

const headName = "lm_head.weight"

// A source is a folder without the tensors that are passed over.
type source struct {
	*models.Folder
	names []string
	// twin is set where a tied model's folder has the head as well.
	twin bool
	// headOnly is set where it has the head instead of the embedding.
	headOnly bool
}

func (c Config) known(folder *models.Folder) *source {
	embedding := c.Geometry().Embedding
	_, hasEmbedding := folder.Info(embedding)
	s := &source{Folder: folder}
	for _, name := range folder.Names() {
		switch {
		case strings.HasSuffix(name, "rotary_emb.inv_freq"):
			continue
		case name == headName && c.Tied && hasEmbedding:
			s.twin = true
			continue
		case name == headName && c.Tied:
			s.headOnly, name = true, embedding
		}
		s.names = append(s.names, name)
	}
	return s
}

func (s *source) stored(name string) string {
	if s.headOnly && name == (Config{}).Geometry().Embedding {
		return headName
	}
	return name
}

// Names implements models.Source.
func (s *source) Names() []string { return s.names }

// Info implements models.Source.
func (s *source) Info(name string) (models.TensorInfo, bool) {
	return s.Folder.Info(s.stored(name))
}

// ReadFloat32 implements models.Source.
func (s *source) ReadFloat32(name string, dst []float32, first int) error {
	return s.Folder.ReadFloat32(s.stored(name), dst, first)
}

// checkTwin compares a tied model's lm_head.weight with the embedding. Where
// they differ transformers unties them; here that must be said in the config.
func (c Config) checkTwin(folder *models.Folder, w *models.Weights) error {
	name := c.Geometry().Embedding
	embedding, shape, _ := w.View(name)
	differ := func(format string, args ...any) error {
		return fmt.Errorf("qwen2: %s: tie_word_embeddings is true, but %s %s; set it to false in %s, or remove %s from the tensors",
			folder.Path(), headName, fmt.Sprintf(format, args...), configFile, headName)
	}
	if t, _ := folder.Info(headName); !slices.Equal(t.Shape, shape) {
		return differ("has shape %v and %s %v", t.Shape, name, shape)
	}
	chunk := make([]float32, min(len(embedding), 1<<16))
	for first := 0; first < len(embedding); first += len(chunk) {
		chunk = chunk[:min(len(chunk), len(embedding)-first)]
		if err := folder.ReadFloat32(headName, chunk, first); err != nil {
			return err
		}
		for i, v := range chunk {
			if e := embedding[first+i]; v != e && (v == v || e == e) {
				return differ("differs from %s: %g and %g at element %d", name, v, e, first+i)
			}
		}
	}
	return nil
}

// SaveOptions are what Save may be told. The zero value writes float32.
type SaveOptions struct {
	// DType of the tensors: F32, F16 or BF16; Invalid is F32, which is exact.
	DType models.DType
	// Tokenizer is a model folder whose tokenizer files are copied; "" for none.
	Tokenizer string
	// ShardBytes is the size from which tensors go to several files, 0 for 5 GB.
	ShardBytes int64
	// Extra, if not nil, writes more files into the folder before it appears.
	Extra func(dir string) error
}

// tokenizerFiles are what the tokenizers of Qwen2 models consist of.
var tokenizerFiles = []string{
	"tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt",
	"special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "chat_template.json",
}

// Save writes a Hugging Face folder: config.json with the keys it was read with
// (only the value of dtype or torch_dtype follows the tensors),
// generation_config.json if there was one, the tensors under their Hugging Face
// names, and the tokenizer's files. dir appears when all of it is on the disk, or
// not at all; a dir that is there and not empty is an error.
func Save(dir string, c Config, w *models.Weights, o SaveOptions) error {
	if o.DType == models.Invalid {
		o.DType = models.F32
	}
	if o.ShardBytes == 0 {
		o.ShardBytes = 5e9
	}
	if c.config == nil {
		return fmt.Errorf("qwen2: save %s: the config was not read by ParseConfig, so there is no text for %s", dir, configFile)
	}
	config, err := c.text(o.DType)
	if err != nil {
		return fmt.Errorf("qwen2: save %s: %s: %w", dir, configFile, err)
	}
	return models.WriteFolder(dir, func(tmp string) error {
		if err := writeText(filepath.Join(tmp, configFile), config); err != nil {
			return err
		}
		if c.generation != nil {
			if err := writeText(filepath.Join(tmp, generationFile), c.generation); err != nil {
				return err
			}
		}
		if o.Tokenizer != "" {
			if err := models.CopyFiles(tmp, o.Tokenizer, tokenizerFiles...); err != nil {
				return err
			}
		}
		if err := models.WriteModel(tmp, o.DType, w.Tensors(), o.ShardBytes); err != nil {
			return err
		}
		if o.Extra != nil {
			return o.Extra(tmp)
		}
		return nil
	})
}

func writeText(path string, text []byte) error {
	return models.WriteFile(path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}
