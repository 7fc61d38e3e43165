package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"onering/internal/files"
	"onering/models"
	"onering/tokenize"
)

// adapterTokenizer reads the tokenizer in an adapter's folder dir, as PEFT's trainers write it; nil if there is no file
// of one. If there are some, such as a chat template alone, those of the folder model complete it.
func adapterTokenizer(dir, model string) (*tokenize.Tokenizer, error) {
	switch has := isIn(dir); {
	case hasVocabulary(dir): // it is complete
		return tokenize.Load(dir)
	case !has(models.TemplateFolder) && !slices.ContainsFunc(models.TokenizerFiles, has):
		return nil, nil
	}
	own, err := files.OpenFolder(dir)
	if err != nil {
		return nil, err
	}
	defer own.Close()
	rest, err := files.OpenFolder(model)
	if err != nil {
		return nil, err
	}
	defer rest.Close()
	return tokenize.LoadFS(overlay{own.FS(), rest.FS()}) // the model's files where the adapter has none
}

// hasVocabulary reports whether a folder has a complete tokenizer.
func hasVocabulary(dir string) bool { return isIn(dir)("tokenizer.json") || isIn(dir)("vocab.json") }

// isIn returns a function that reports whether a folder has a file.
func isIn(dir string) func(name string) bool {
	return func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
}

// An overlay has the files of a folder and, for missing ones, those of another folder.
type overlay struct{ above, below fs.FS }

// Open implements fs.FS.
func (o overlay) Open(name string) (fs.File, error) {
	f, err := o.above.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return o.below.Open(name)
	}
	return f, err
}

// ReadDir implements fs.ReadDirFS: it lists the files of both folders.
func (o overlay) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(o.above, name)
	below, failed := fs.ReadDir(o.below, name)
	for _, e := range below {
		if !slices.ContainsFunc(list, func(x fs.DirEntry) bool { return x.Name() == e.Name() }) {
			list = append(list, e)
		}
	}
	if failed == nil {
		err = nil
	}
	return list, err
}

// ShareBase reads the model of a folder, beside which runs train adapters, into memory
// that their processes share: see models.Share. base is a value of lora.base_dtype, and
// name is the model's name in the adapters' files.
func ShareBase(path, base, name string) (*os.File, error) {
	dir, remove, err := Unpacked(path)
	if err != nil {
		return nil, err
	}
	defer remove()
	compute := models.Compute{Base: BaseTypes[base]}
	return models.Share(dir, sharedKey(name, compute), compute)
}

// sharedKey names the weights of a model by the types that hold them.
func sharedKey(base string, c models.Compute) string { return fmt.Sprintf("%s %v", base, c.Base) }
