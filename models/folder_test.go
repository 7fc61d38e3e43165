package models

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/internal/files"
)

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// small returns a layout and weights whose elements are all different.
func small(t *testing.T) *Weights {
	t.Helper()
	l, err := NewLayout([]Fused{Plain("a", 3, 2), Concat("bc", Spec{"b", []int{2, 2}}, Spec{"c", []int{1, 2}}), Plain("d", 5)})
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWeights(l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	n := float32(0)
	for _, tensor := range w.Tensors() {
		for i := range tensor.Data {
			n++
			tensor.Data[i] = n
		}
	}
	return w
}

func TestFolder(t *testing.T) {
	w := small(t)
	for _, c := range []struct {
		shardBytes int64
		files      []string
	}{
		{0, []string{"model.safetensors"}},
		{1 << 20, []string{"model.safetensors"}},
		// a takes 24 bytes; b and c 24; d 20.
		{24, []string{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors", "model.safetensors.index.json"}},
		// A tensor larger than a shard gets a shard of its own.
		{1, []string{"model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors", "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors", "model.safetensors.index.json"}},
	} {
		dir := t.TempDir()
		if err := WriteModel((&files.Draft{Dir: dir}).WriteFile, F32, w.Tensors(), c.shardBytes); err != nil {
			t.Fatal(err)
		}
		var names []string
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if !slices.Equal(names, c.files) {
			t.Errorf("shards of %d bytes: %q, want %q", c.shardBytes, names, c.files)
		}
		f, err := OpenFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		back, err := NewWeights(w.Layout)
		if err != nil {
			t.Fatal(err)
		}
		if err := back.Load(f); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(back.Data, w.Data) {
			t.Errorf("shards of %d bytes: read back differently", c.shardBytes)
		}
		if err := errors.Join(f.Close(), back.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestLoadInPieces reads a tensor that several goroutines share.
func TestLoadInPieces(t *testing.T) {
	l, err := NewLayout([]Fused{Plain("a", 2*loadChunk+3), Plain("b", 7)})
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWeights(l)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for i := range w.Data[:2*loadChunk+3] {
		w.Data[i] = float32(i % 1021)
	}
	dir := t.TempDir()
	if err := WriteModel((&files.Draft{Dir: dir}).WriteFile, F32, w.Tensors(), 0); err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(w.Data)
	clear(w.Data)
	f, err := OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := w.Load(f); err != nil || !slices.Equal(w.Data, want) {
		t.Errorf("read back differently: %v", err)
	}
}

func TestCheckNamesAllThatIsWrong(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.safetensors")
	err := WriteSafetensors(files.WriteFile, path, F32, []Tensor{
		{Name: "a", Shape: []int{2, 3}, Data: make([]float32, 6)}, {Name: "b", Shape: []int{2, 2}, Data: make([]float32, 4)}, {Name: "e", Shape: []int{1}, Data: make([]float32, 1)},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := OpenSafetensors(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := small(t)
	err = w.Load(f)
	for _, want := range []string{path, `tensor "a" has shape [2 3], want [3 2]`, `missing tensor "c" [1 2]`, `missing tensor "d" [5]`, `unexpected tensor "e" [1]`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if w.Data[0] != 1 {
		t.Error("a refused file changed the weights")
	}
	var many []Fused
	for i := range 30 {
		many = append(many, Plain(fmt.Sprint("t", i), 1))
	}
	l, err := NewLayout(many)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Check(f); err == nil || !strings.Contains(err.Error(), "and 25 more") {
		t.Errorf("33 mistakes: %v", err)
	}
}

func TestFolderErrors(t *testing.T) {
	one := string(file(`{"a":`+entry("F32", "[1]", "[0,4]")+`}`, 4))
	const shard = "model-00001-of-00001.safetensors"
	index := func(tensor, file string) string {
		return fmt.Sprintf(`{"metadata":{"total_size":4},"weight_map":{%q:%q}}`, tensor, file)
	}
	cases := []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"empty", map[string]string{"x": ""}, "neither model.safetensors nor model.safetensors.index.json"},
		{"other format", map[string]string{"pytorch_model.bin": ""}, "pytorch_model.bin: save it with"},
		{"bad file", map[string]string{singleFile: "abc"}, "3 bytes"},
		{"bad index", map[string]string{indexFile: "abc"}, "not JSON"},
		{"no map", map[string]string{indexFile: "{}"}, `no "weight_map"`},
		{"map of numbers", map[string]string{indexFile: `{"weight_map":{"a":1}}`}, `tensor "a": want a file name`},
		{"twice", map[string]string{indexFile: `{"weight_map":{"a":"x","a":"y"}}`}, "stated twice"},
		{"upward", map[string]string{indexFile: index("a", "../"+shard)}, "not a plain file name"},
		{"absolute", map[string]string{indexFile: index("a", "/etc/passwd")}, "not a plain file name"},
		{"backslash", map[string]string{indexFile: index("a", `..\x`)}, "not a plain file name"},
		{"dots", map[string]string{indexFile: index("a", "..")}, "not a plain file name"},
		{"nothing", map[string]string{indexFile: index("a", "")}, "not a plain file name"},
		{"missing shard", map[string]string{indexFile: index("a", shard)}, "no such file"},
		{"other shard", map[string]string{indexFile: fmt.Sprintf(`{"weight_map":{"b":%q,"a":"x"}}`, shard), shard: one, "x": one}, `holds the tensor "a", whose place is "x"`},
		{"two shards", map[string]string{indexFile: fmt.Sprintf(`{"weight_map":{"b":%q,"c":"x"}}`, shard), shard: one, "x": one}, `shard "x" holds the tensor "a", whose place is "model-`},
		{"no index", map[string]string{shard: one}, "it has model-00001-of-00001.safetensors: fetch model.safetensors.index.json, too"},
		{"other name", map[string]string{"consolidated.safetensors": one}, "rename it to model.safetensors"},
		{"DeepSpeed", map[string]string{"global_step10": "", "zero_to_fp32.py": ""}, "it has global_step10: shards of DeepSpeed"},
		{"a page", map[string]string{singleFile: "<!DOCTYPE html><html>"}, "it is a web page"},
		{"a pointer", map[string]string{indexFile: "version https://git-lfs.github.com/spec/v1\noid"}, "git lfs pull"},
		{"packed", map[string]string{indexFile: index("a", shard), shard: "PK\x03\x04 and more than 8 bytes"}, "it is a zip archive"},
		{"truncated shard", map[string]string{indexFile: index("a", shard), shard: one[:len(one)-1]}, "truncated"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range c.files {
				mustWrite(t, filepath.Join(dir, name), text)
			}
			f, err := OpenFolder(dir)
			if err == nil {
				f.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%v, want the folder and %q", err, c.want)
			}
		})
	}
	if _, err := OpenFolder(filepath.Join(t.TempDir(), "gone")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func TestShardLinks(t *testing.T) {
	const shard = "model-00001-of-00001.safetensors"
	one := string(file(`{"a":`+entry("F32", "[1]", "[0,4]")+`}`, 4))
	index := fmt.Sprintf(`{"weight_map":{"a":%q}}`, shard)
	for _, c := range []struct{ name, folder, target, want string }{
		{"out of the folder", "m", "secret", "leads out of the folder"},
		{"within the folder", "m", "m/real", ""},
		{"Hugging Face cache", "models--x/snapshots/0123", "models--x/blobs/abc", ""},
		{"beside the cache's blobs", "models--x/snapshots/0123", "models--x/abc", "leads out of the folder"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, c.folder)
			mustWrite(t, filepath.Join(dir, indexFile), index)
			mustWrite(t, filepath.Join(root, c.target), one)
			if err := os.Symlink(filepath.Join(root, c.target), filepath.Join(dir, shard)); err != nil {
				t.Skipf("no symbolic links here: %v", err)
			}
			f, err := OpenFolder(dir)
			if err == nil {
				f.Close()
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"weight_map":{"a":"model-00001-of-00001.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../x"}}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(dir, indexFile)
		if err := os.WriteFile(path, text, 0o666); err != nil {
			t.Fatal(err)
		}
		folder, err := files.OpenFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer folder.Close()
		x, err := readIndex(folder)
		if err != nil {
			return
		}
		for _, shard := range x.shards {
			if filepath.Dir(filepath.Join(dir, shard)) != dir || strings.ContainsRune(shard, filepath.Separator) {
				t.Errorf("accepted the shard %q", shard)
			}
		}
	})
}
