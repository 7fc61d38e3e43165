package models

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onering/internal/files"
	"onering/internal/ordered"
	"onering/internal/strict"
)

// A Folder reads the tensors of a Hugging Face model folder: those of
// model.safetensors or, where there is none, of the shards that
// model.safetensors.index.json names.
type Folder struct {
	dir    string
	files  []*File
	names  []string
	fileOf map[string]*File
	index  map[string]string // from a tensor to its shard; nil without an index

	blockwise map[string]*blockwise // matrices that are several tensors; see openNF4
}

// OpenFolder opens the tensor files of the folder dir and checks their headers. A shard
// may not hold a tensor that the index puts into another one.
func OpenFolder(dir string) (*Folder, error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("models: model folder: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("models: model folder: %s is not a folder; give the folder that holds config.json", dir)
	}
	d := &Folder{dir: dir, fileOf: make(map[string]*File)}
	folder, err := files.OpenFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("models: model folder: %w", err)
	}
	defer folder.Close()
	f, err := openMember(folder, dir, singleFile)
	switch {
	case err == nil:
		d.add(f)
		return d, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("models: %w", err)
	}
	index, err := readIndex(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("models: %s holds neither %s nor %s%s, the weights; fetch them, or make some with onering init: %w",
			dir, singleFile, indexFile, otherFormats(dir), fs.ErrNotExist)
	}
	if err == nil {
		err = d.openShards(folder, index)
	}
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("models: %s: %w", filepath.Join(dir, indexFile), err)
	}
	return d, nil
}

// openMember opens a safetensors file of the folder dir.
func openMember(folder *files.Folder, dir, name string) (*File, error) {
	f, err := folder.Open(name)
	if err != nil {
		return nil, err
	}
	return newFile(f, filepath.Join(dir, name))
}

// formats are files of weights that are not those of a model folder, and what to do.
var formats = [][2]string{
	{"global_step*", "shards of DeepSpeed: make weights of them with its zero_to_fp32.py --safe_serialization"},
	{"pytorch_model_fsdp*", "shards of FSDP: make weights of them with accelerate merge-weights"},
	{"*.bin", savePretrained}, {"*.pt", savePretrained}, {"*.pth", savePretrained},
	{"model-*-of-*.safetensors", "fetch " + indexFile + ", too"},
	{"*.safetensors", "rename it to " + singleFile},
}

const savePretrained = "save it with transformers' save_pretrained"

// otherFormats returns a hint for an error message if the folder has weights in a format that onering does not read.
func otherFormats(dir string) string {
	if what := foreignFolder(dir); what != "" {
		return " (" + what + ")"
	}
	for _, format := range formats {
		if found := files.Glob(dir, format[0]); len(found) > 0 {
			return fmt.Sprintf(" (it has %s: %s)", filepath.Base(found[0]), format[1])
		}
	}
	return ""
}

// add adds f to the folder, which will close it. The folder must not have tensors of the same names yet.
func (d *Folder) add(f *File) {
	d.files = append(d.files, f)
	d.names = append(d.names, f.Names()...)
	for _, name := range f.Names() {
		d.fileOf[name] = f
	}
}

// An index is the content of model.safetensors.index.json.
type index struct {
	shards  []string          // in the order in which the file first mentions them
	shardOf map[string]string // by tensor
}

// readIndex reads the weight_map of a folder's index, and nothing else of it. Shards are files right in the folder.
func readIndex(folder *files.Folder) (*index, error) {
	text, err := folder.Read(indexFile, maxHeader)
	if err != nil {
		return nil, err
	}
	var weightMap []byte
	err = ordered.EachMember(text, func(key string, value []byte, _ int) error {
		if key == "weight_map" {
			weightMap = value
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if weightMap == nil {
		return nil, errors.New(`no "weight_map"`)
	}
	x := &index{shardOf: make(map[string]string)}
	err = ordered.EachMember(weightMap, func(name string, value []byte, _ int) error {
		var file string
		if err := strict.JSON(value, &file); err != nil {
			return fmt.Errorf("tensor %q: want a file name, found %.40s", name, value)
		}
		if file != filepath.Base(file) || strings.ContainsAny(file, `/\:`) || file == "." || file == ".." || file == "" {
			return fmt.Errorf("tensor %q: %q is not a plain file name", name, file)
		}
		if !slices.Contains(x.shards, file) {
			x.shards = append(x.shards, file)
		}
		x.shardOf[name] = file
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("weight_map: %w", err)
	}
	return x, nil
}

// openShards opens the shards of an index and adds to it the tensors that it leaves out.
func (d *Folder) openShards(folder *files.Folder, x *index) error {
	for _, shard := range x.shards {
		f, err := openMember(folder, d.dir, shard)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("%w; fetch it again", err)
			}
			return fmt.Errorf("shard %q: %w", shard, err)
		}
		for _, name := range f.Names() {
			indexed := cmp.Or(x.shardOf[name], shard) // transformers reads tensors that the index leaves out
			x.shardOf[name] = indexed
			if indexed != shard {
				f.Close()
				return fmt.Errorf("shard %q holds the tensor %q, whose place is %q; index and shards are of different models", shard, name, indexed)
			}
		}
		d.add(f)
	}
	d.index = x.shardOf
	return nil
}

// checkComplete refuses a folder without a tensor of l that its index names. Indexes also name
// tensors that no shard has and no model needs: a tied head, frequencies.
func (d *Folder) checkComplete(l *Layout) error {
	for _, name := range l.names {
		if shard, ok := d.index[name]; ok && d.fileOf[name] == nil {
			return fmt.Errorf("models: %s: shard %q lacks the tensor %q that the index puts there; fetch the shard again", filepath.Join(d.dir, indexFile), shard, name)
		}
	}
	return nil
}

// Path returns the folder's path.
func (d *Folder) Path() string { return d.dir }

// Names returns the tensors' names, shard by shard in the order of the data.
func (d *Folder) Names() []string { return d.names }

// Info returns a tensor's entry in the header of its file.
func (d *Folder) Info(name string) (tensorInfo, bool) {
	if b := d.blockwise[name]; b != nil {
		return b.info(), true
	}
	if f := d.fileOf[name]; f != nil {
		return f.Info(name)
	}
	return tensorInfo{}, false
}

// ReadFloat32 implements tensorSource.
func (d *Folder) ReadFloat32(name string, dst []float32, first int) error {
	if b := d.blockwise[name]; b != nil {
		return b.readFloat32(dst, first)
	}
	f := d.fileOf[name]
	if f == nil {
		return fmt.Errorf("models: %s: tensor %q: not in any file: %w", d.dir, name, fs.ErrNotExist)
	}
	return f.ReadFloat32(name, dst, first)
}

// Close closes the files.
func (d *Folder) Close() error {
	var errs []error
	for _, f := range d.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
