package models

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"onering/internal/files"
)

// A Tensor is a named tensor in memory, row-major.
type Tensor struct {
	Name  string
	Shape []int
	Data  []float32
	// stored is the file that has the tensor in place of Data, in a type of its own; nil if Data has it.
	stored *File
	lend   func(use func(data []float32) error) error // has Data while it calls use; nil if Data is there
}

// bytes is how many bytes the tensor takes when it is written in type d.
func (t Tensor) bytes(d DType) int {
	if t.stored != nil {
		x := t.stored.tensors[t.Name]
		return int(x.end - x.begin)
	}
	return len(t.Data) * d.Size()
}

// WriteSafetensors writes tensors in the given order as type d: F32, F16 or BF16, rounded to nearest, ties to even;
// those that another file has stored keep their type. It copies the data through a small buffer, to the file that put
// writes. A finite number that d cannot hold is an error. metadata may be nil; transformers needs {"format": "pt"}.
func WriteSafetensors(put files.Put, path string, d DType, tensors []Tensor, metadata map[string]string) error {
	header, err := safetensorsHeader(d, tensors, metadata)
	if err != nil {
		return fmt.Errorf("models: %s: %w", path, err)
	}
	return put(path, func(w io.Writer) error {
		if _, err := w.Write(header); err != nil {
			return err
		}
		buf := make([]byte, chunkBytes)
		for _, t := range tensors {
			var err error
			if f := t.stored; f != nil {
				_, err = io.Copy(w, io.NewSectionReader(f.r, f.data+f.tensors[t.Name].begin, int64(t.bytes(d))))
			} else if t.lend != nil { // the elements are elsewhere, such as in a device's memory
				err = t.lend(func(data []float32) error { return writeElements(w, d, data, buf) })
			} else {
				err = writeElements(w, d, t.Data, buf)
			}
			if err != nil {
				return fmt.Errorf("tensor %q: %w", t.Name, err)
			}
		}
		return nil
	})
}

// writeElements writes data as type d, in portions that fit into buf.
func writeElements(w io.Writer, d DType, data []float32, buf []byte) error {
	if d == F32 && littleEndian {
		_, err := w.Write(Bytes(data))
		return err
	}
	for first := 0; first < len(data); {
		chunk := data[first:min(len(data), first+len(buf)/d.Size())]
		if i := overflow(chunk, d); i >= 0 {
			return fmt.Errorf("element %d is %g, which %s cannot hold; write F32 instead", first+i, chunk[i], d)
		}
		out := buf[:len(chunk)*d.Size()]
		Encode(out, chunk, d)
		if _, err := w.Write(out); err != nil {
			return err
		}
		first += len(chunk)
	}
	return nil
}

// safetensorsHeader returns the header with its length before it, padded so
// that the data begins on a multiple of 8 bytes.
func safetensorsHeader(d DType, tensors []Tensor, metadata map[string]string) ([]byte, error) {
	if d != F32 && d != F16 && d != BF16 {
		return nil, fmt.Errorf("cannot write %s: want F32, F16 or BF16", d)
	}
	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	b := bytes.NewBuffer(make([]byte, 8, 4096)) // 8 bytes for the length
	b.WriteByte('{')
	member := func(key string, value any) {
		if b.Len() > 9 { // more than the length and "{"
			b.WriteByte(',')
		}
		k, _ := json.Marshal(key) // names, texts and numbers can always be encoded
		v, _ := json.Marshal(value)
		fmt.Fprintf(b, "%s:%s", k, v)
	}
	if len(metadata) > 0 {
		member("__metadata__", metadata)
	}
	at, seen := 0, make(map[string]bool)
	for _, t := range tensors {
		n := 1
		for _, dim := range t.Shape {
			n *= dim
		}
		if t.stored == nil && n != len(t.Data) {
			return nil, fmt.Errorf("tensor %q: shape %v does not hold its %d elements", t.Name, t.Shape, len(t.Data))
		}
		if seen[t.Name] || t.Name == "__metadata__" {
			return nil, fmt.Errorf("tensor %q: the name is taken", t.Name)
		}
		seen[t.Name] = true
		end, name := at+t.bytes(d), d.String()
		if t.stored != nil {
			name = t.stored.tensors[t.Name].TypeName
		}
		member(t.Name, entry{name, append([]int{}, t.Shape...), [2]int{at, end}}) // a nil shape becomes [], not null
		at = end
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	binary.LittleEndian.PutUint64(b.Bytes(), uint64(b.Len()-8))
	return b.Bytes(), nil
}

// Names of the files that hold a Hugging Face model's tensors.
const (
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"
)

// WriteModel writes tensors into a folder as model.safetensors, or, if they take more than shardBytes (0: no limit),
// as shards with model.safetensors.index.json. A tensor is never split.
func WriteModel(put files.Put, d DType, tensors []Tensor, shardBytes int64) error {
	metadata := map[string]string{"format": "pt"}
	var shards [][]Tensor
	var size, total int64
	for _, t := range tensors {
		n := int64(t.bytes(d))
		if len(shards) == 0 || shardBytes > 0 && size+n > shardBytes {
			shards, size = append(shards, nil), 0
		}
		shards[len(shards)-1] = append(shards[len(shards)-1], t)
		size, total = size+n, total+n
	}
	if len(shards) <= 1 {
		return WriteSafetensors(put, singleFile, d, tensors, metadata)
	}
	var index struct {
		Metadata struct {
			TotalSize int64 `json:"total_size"`
		} `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}
	index.Metadata.TotalSize = total
	index.WeightMap = make(map[string]string)
	for i, shard := range shards {
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		for _, t := range shard {
			if _, twice := index.WeightMap[t.Name]; twice {
				return fmt.Errorf("models: %s: tensor %q: the name is taken", name, t.Name)
			}
			index.WeightMap[t.Name] = name
		}
		if err := WriteSafetensors(put, name, d, shard, metadata); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return fmt.Errorf("models: %s: %w", indexFile, err)
	}
	return put(indexFile, files.Content(append(text, '\n')))
}

// maxCopied bounds a file that copyFiles copies, in bytes.
const maxCopied = 256 << 20

// copyFiles copies the given files of the folder from, and skips missing ones. It follows
// links that stay in the folder.
func copyFiles(put files.Put, from string, names ...string) error {
	folder, err := files.OpenFolder(from)
	if err != nil {
		return fmt.Errorf("models: %w", err)
	}
	defer folder.Close()
	for _, name := range names {
		f, err := folder.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("models: copy: %w", err)
		}
		err = put(name, func(w io.Writer) error {
			n, err := io.Copy(w, io.LimitReader(f, maxCopied+1))
			if n > maxCopied {
				return fmt.Errorf("models: copy: %s has more than %d bytes", filepath.Join(from, name), maxCopied)
			}
			return err
		})
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
