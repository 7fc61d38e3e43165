package models

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A Folder reads the tensors of a Hugging Face model folder: those of
// model.safetensors or, where there is none, of the shards that
// model.safetensors.index.json names.
type Folder struct {
	dir   string
	files []*File
	names []string
	where map[string]*File
}

// OpenFolder opens the tensor files of the folder dir and checks their headers.
// The shards must hold exactly the tensors that the index puts in each.
func OpenFolder(dir string) (*Folder, error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("models: model folder: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("models: model folder: %s is not a folder; give the folder that holds config.json", dir)
	}
	d := &Folder{dir: dir, where: make(map[string]*File)}
	f, err := OpenSafetensors(filepath.Join(dir, singleFile))
	switch {
	case err == nil:
		d.add(f)
		return d, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	index, err := readIndex(filepath.Join(dir, indexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("models: %s holds neither %s nor %s%s, the weights; fetch them, or make some with onering init: %w", dir, singleFile, indexFile, otherFormats(dir), fs.ErrNotExist)
	}
	if err == nil {
		err = d.openShards(index)
	}
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("models: %s: %w", filepath.Join(dir, indexFile), err)
	}
	return d, nil
}

// otherFormats returns a hint for an error message if the folder has weights in a
// format that onering does not read.
func otherFormats(dir string) string {
	for _, pattern := range []string{"pytorch_model*.bin", "*.gguf", "*.pt", "*.pth"} {
		if found, _ := filepath.Glob(filepath.Join(dir, pattern)); len(found) > 0 {
			return fmt.Sprintf(" (it has %s: save it with transformers' save_pretrained)", filepath.Base(found[0]))
		}
	}
	return ""
}

// add adds f to the folder, which closes it from then on. The folder must not have
// tensors of the same names yet.
func (d *Folder) add(f *File) {
	d.files = append(d.files, f)
	d.names = append(d.names, f.Names()...)
	for _, name := range f.Names() {
		d.where[name] = f
	}
}

// An index is the content of model.safetensors.index.json: the tensors of each
// shard, and the shards in the order in which the file first mentions them.
type index struct {
	shards []string
	within map[string]map[string]bool
	tensor map[string]string // tensor to shard
}

func readIndex(path string) (*index, error) {
	f, size, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > maxHeader {
		return nil, fmt.Errorf("%d bytes, at most %d are allowed: not an index", size, maxHeader)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxHeader))
	if err != nil {
		return nil, err
	}
	var weightMap []byte
	err = EachMember(text, func(key string, value []byte, _ int) error {
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
	x := &index{within: make(map[string]map[string]bool), tensor: make(map[string]string)}
	err = EachMember(weightMap, func(name string, value []byte, _ int) error {
		var file string
		if err := json.Unmarshal(value, &file); err != nil {
			return fmt.Errorf("tensor %q: want a file name, found %.40s", name, value)
		}
		if file != filepath.Base(file) || strings.ContainsAny(file, `/\:`) || file == "." || file == ".." || file == "" {
			return fmt.Errorf("tensor %q: %q is not a plain file name", name, file)
		}
		if x.within[file] == nil {
			x.within[file] = make(map[string]bool)
			x.shards = append(x.shards, file)
		}
		x.within[file][name] = true
		x.tensor[name] = file
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("weight_map: %w", err)
	}
	return x, nil
}

func (d *Folder) openShards(x *index) error {
	for _, shard := range x.shards {
		path := filepath.Join(d.dir, shard)
		if err := staysInside(d.dir, path); err != nil {
			return fmt.Errorf("shard %q: %w", shard, err)
		}
		f, err := OpenSafetensors(path)
		if err != nil {
			return fmt.Errorf("shard %q: %w", shard, err)
		}
		for _, name := range f.Names() {
			if !x.within[shard][name] {
				f.Close()
				return fmt.Errorf("shard %q holds the tensor %q, which the index does not put there; index and shards are of different models", shard, name)
			}
		}
		d.add(f)
	}
	for name, shard := range x.tensor {
		if d.where[name] == nil {
			return fmt.Errorf("shard %q lacks the tensor %q that the index puts there; fetch the shard again", shard, name)
		}
	}
	return nil
}

// staysInside refuses a link that leads out of the folder, since an index from
// elsewhere could name one. The one exception is Hugging Face's own cache,
// whose snapshots/REVISION folders link to the blobs folder beside snapshots.
func staysInside(dir, path string) error {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	if root, err = filepath.Abs(root); err != nil {
		return err
	}
	if target, err = filepath.Abs(target); err != nil {
		return err
	}
	allowed := []string{root}
	if snapshots := filepath.Dir(root); filepath.Base(snapshots) == "snapshots" {
		allowed = append(allowed, filepath.Join(filepath.Dir(snapshots), "blobs"))
	}
	for _, a := range allowed {
		if rel, err := filepath.Rel(a, target); err == nil && filepath.IsLocal(rel) {
			return nil
		}
	}
	return fmt.Errorf("a link leads out of the folder, to %s; copy the file into the folder", target)
}

// Path returns the folder's path.
func (d *Folder) Path() string { return d.dir }

// Names returns the tensors' names, shard by shard in the order of the data.
func (d *Folder) Names() []string { return d.names }

// Info returns a tensor's entry in the header of its file.
func (d *Folder) Info(name string) (TensorInfo, bool) {
	if f := d.where[name]; f != nil {
		return f.Info(name)
	}
	return TensorInfo{}, false
}

// ReadFloat32 implements Source.
func (d *Folder) ReadFloat32(name string, dst []float32, first int) error {
	f := d.where[name]
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
