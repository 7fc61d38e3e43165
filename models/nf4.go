package models

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"onering/internal/strict"
)

// bitsandbytes writes a matrix of NF4 as several tensors, which are read here: the packed numbers
// under the matrix's name; .quant_map, the 16 numbers; .absmax, the scales of blocks, perhaps as
// bytes that stand for one of 256 numbers (.nested_quant_map) times the scale of a larger block
// (.nested_absmax), plus an offset; and a state in JSON. QLoRA's models are published in this form,
// and its layout is that of narrow. GPTQ and AWQ have layouts for kernels of GPUs.
const nf4State = ".quant_state.bitsandbytes__nf4"

// A blockwise is a matrix that bitsandbytes has written in NF4.
type blockwise struct {
	folder        *Folder
	name          string
	codebook      []float32 // what four bits stand for
	scaleCodebook []float32 // what a byte of .absmax stands for; nil if that has the scales
	state         nf4Record
}

// An nf4Record is the state of a matrix.
type nf4Record struct {
	Kind   string  `json:"quant_type"`
	Block  int     `json:"blocksize"`
	Shape  []int   `json:"shape"`
	Nested int     `json:"nested_blocksize"`
	Offset float64 `json:"nested_offset"`
}

// openNF4 finds the matrices that bitsandbytes has written in NF4, and has Names, Info and ReadFloat32 of the folder
// give each as one tensor of numbers, without the tensors that it consists of.
func (d *Folder) openNF4() error {
	d.blockwise = map[string]*blockwise{}
	for _, state := range d.names {
		name, ok := strings.CutSuffix(state, nf4State)
		if !ok {
			continue
		}
		b := &blockwise{folder: d, name: name}
		if err := b.open(); err != nil {
			return fmt.Errorf("models: %s: tensor %q of bitsandbytes: %w", d.dir, name, err)
		}
		d.blockwise[name] = b
	}
	d.names = slices.DeleteFunc(d.names, func(name string) bool {
		for _, end := range []string{".quant_map", ".absmax", ".nested_quant_map", ".nested_absmax", nf4State} {
			if of, ok := strings.CutSuffix(name, end); ok && d.blockwise[of] != nil {
				return true
			}
		}
		return false
	})
	return nil
}

// open reads the state, codebook and scaleCodebook, and checks the sizes of all tensors of the matrix.
func (b *blockwise) open() error {
	t, _ := b.folder.Info(b.name + nf4State)
	text, err := b.read(nf4State, U8, 0, t.Elements)
	if err == nil {
		err = strict.JSON(text, &b.state)
	}
	s := &b.state
	if err == nil && (s.Kind != "nf4" || s.Block < 1 || len(s.Shape) != 2 || s.Shape[0] < 1 || s.Shape[1] < 1 || s.Shape[0] > maxElements/s.Shape[1]) {
		err = fmt.Errorf("the state %.80s is not that of a matrix in nf4", text)
	}
	if err != nil {
		return err
	}
	n := s.Shape[0] * s.Shape[1]
	blocks := (n + s.Block - 1) / s.Block
	sizes := map[string]int{"": (n + 1) / 2, ".quant_map": 16, ".absmax": blocks} // by suffix; "": the packed numbers
	if t, _ := b.folder.Info(b.name + ".absmax"); t.DType == U8 {
		if s.Nested < 1 {
			return errors.New("its scales are bytes, and the state has no nested_blocksize")
		}
		sizes[".nested_quant_map"], sizes[".nested_absmax"] = 256, (blocks+s.Nested-1)/s.Nested
	}
	for _, end := range slices.Sorted(maps.Keys(sizes)) {
		if t, ok := b.folder.Info(b.name + end); !ok || t.Elements != sizes[end] {
			return fmt.Errorf("%q has %d elements, want %d", b.name+end, t.Elements, sizes[end])
		}
	}
	if b.codebook, err = b.floats(".quant_map", 0, 16); err == nil && sizes[".nested_quant_map"] > 0 {
		b.scaleCodebook, err = b.floats(".nested_quant_map", 0, 256)
	}
	return err
}

// info describes the matrix.
func (b *blockwise) info() tensorInfo {
	return tensorInfo{Name: b.name, DType: F32, TypeName: "NF4", Shape: b.state.Shape, Elements: b.state.Shape[0] * b.state.Shape[1]}
}

// read reads n elements, from element first on, of the matrix's tensor with a suffix, which must have the type d.
func (b *blockwise) read(suffix string, d DType, first, n int) ([]byte, error) {
	name := b.name + suffix
	f := b.folder.fileOf[name]
	if f == nil {
		return nil, fmt.Errorf("%q: not in any file: %w", name, fs.ErrNotExist)
	}
	t, err := f.find(name, first, n)
	if err == nil && t.DType != d {
		err = f.errorf(name, "holds %s, want %v", t.TypeName, d)
	}
	if err != nil {
		return nil, err
	}
	out := make([]byte, n*d.Size())
	return out, f.readAt(name, out, f.data+t.begin+int64(first*d.Size()))
}

func (b *blockwise) floats(suffix string, first, n int) ([]float32, error) {
	raw, err := b.read(suffix, F32, first, n)
	out := make([]float32, len(raw)/4)
	Decode(out, raw, F32)
	return out, err
}

// scales reads the scales of n blocks, from block first on. Where they are stored as bytes it puts them together
// from scaleCodebook, the scales of larger blocks and the offset.
func (b *blockwise) scales(first, n int) ([]float32, error) {
	if b.scaleCodebook == nil {
		return b.floats(".absmax", first, n)
	}
	raw, err := b.read(".absmax", U8, first, n)
	if err != nil {
		return nil, err
	}
	from := first / b.state.Nested // the first larger block
	larger, err := b.floats(".nested_absmax", from, (first+n-1)/b.state.Nested-from+1)
	if err != nil {
		return nil, err
	}
	out := make([]float32, n)
	for i, x := range raw {
		out[i] = b.scaleCodebook[x]*larger[(first+i)/b.state.Nested-from] + float32(b.state.Offset)
	}
	return out, nil
}

// readFloat32 fills dst with elements of the matrix, from element first on.
func (b *blockwise) readFloat32(dst []float32, first int) error {
	if len(dst) == 0 {
		return nil
	}
	raw, err := b.read("", U8, first/2, (first+len(dst)+1)/2-first/2) // two elements a byte
	if err != nil {
		return err
	}
	from := first / b.state.Block // the first block
	scales, err := b.scales(from, (first+len(dst)-1)/b.state.Block-from+1)
	if err != nil {
		return err
	}
	for i := range dst {
		dst[i] = b.codebook[fourBits(raw, first%2+i)] * scales[(first+i)/b.state.Block-from] // raw begins at an even one
	}
	return nil
}
