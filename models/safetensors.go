package models

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/bits"
	"os"
	"slices"
	"unsafe"

	"onering/internal/files"
	"onering/internal/ordered"
	"onering/internal/strict"
)

// A safetensors file is: the length of the header, 8 bytes little-endian; the
// header, a JSON object from each tensor's name to {dtype, shape, data_offsets}
// (and "__metadata__" to an object of strings); the tensors' bytes without gaps.

const (
	// maxHeader is the longest header the reference implementation reads.
	maxHeader = 100_000_000
	// chunkBytes is the size of the buffers for converting elements: small enough for the
	// cache of one core.
	chunkBytes = 256 << 10
)

// A tensorSource is a set of named tensors that can be read: a File, or all shards of a Folder.
// Several goroutines may read it at once.
type tensorSource interface {
	// Path says where the tensors come from, for error messages.
	Path() string
	// Names returns the tensors' names, in the order of the data.
	Names() []string
	Info(name string) (tensorInfo, bool)
	// ReadFloat32 fills dst with the tensor's elements, beginning with element first,
	// converted from F32, F16, BF16 or F64.
	ReadFloat32(name string, dst []float32, first int) error
}

// A tensorInfo is the entry of one tensor in a safetensors header.
type tensorInfo struct {
	Name string
	// DType is Invalid if onering does not know the element type; TypeName is always the
	// type's name in the file.
	DType    DType
	TypeName string
	Shape    []int
	// Elements is the product of Shape, 1 for a scalar.
	Elements int

	begin, end int64 // place in the data part of the file
}

// A File is an open safetensors file. Only its header is in memory.
type File struct {
	path     string
	r        io.ReaderAt
	close    func() error
	data     int64 // where the data part begins
	names    []string
	tensors  map[string]tensorInfo
	metadata map[string]string
}

// OpenSafetensors reads the header of a file and checks it as the reference implementation does: every tensor lies
// inside the file and has the length that its type and shape require; there are no gaps, no overlaps and nothing
// after the last tensor. It refuses a length beyond the end of the file before it allocates memory of that size. A
// link may not lead out of the folder of the file.
func OpenSafetensors(path string) (*File, error) {
	f, err := files.OpenIn(path)
	if err != nil {
		return nil, fmt.Errorf("models: %w", err)
	}
	s, err := newFile(f, path)
	if err != nil {
		return nil, fmt.Errorf("models: %w", err)
	}
	return s, nil
}

// newFile reads the header of an open file; path names it in errors.
func newFile(f *os.File, path string) (*File, error) {
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	s, err := parseSafetensors(f, info.Size())
	if err != nil {
		head := make([]byte, 512)
		n, _ := f.ReadAt(head, 0)
		if what := files.Foreign(head[:n]); what != "" { // another known format is the better explanation
			err = errors.New("it is " + what)
		}
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s.path, s.close = path, f.Close
	return s, nil
}

// parseSafetensors reads and checks the header of a file of size bytes; newFile sets its path and close.
func parseSafetensors(r io.ReaderAt, size int64) (*File, error) {
	var prefix [8]byte
	if size < int64(len(prefix)) {
		return nil, fmt.Errorf("the file has %d bytes, a safetensors file has at least 8 and a header; fetch it again", size)
	}
	if _, err := r.ReadAt(prefix[:], 0); err != nil {
		return nil, fmt.Errorf("read the header's length: %w", err)
	}
	n := binary.LittleEndian.Uint64(prefix[:])
	if n > maxHeader {
		return nil, fmt.Errorf("the header claims %d bytes, at most %d are allowed: not a safetensors file", n, maxHeader)
	}
	if int64(n) > size-8 {
		return nil, fmt.Errorf("the header claims %d bytes, the file has %d after its length: truncated, or not a safetensors file; fetch it again", n, size-8)
	}
	header := make([]byte, n)
	if _, err := r.ReadAt(header, 8); err != nil && !(err == io.EOF && n == 0) { // an empty header is refused below
		return nil, fmt.Errorf("read the header: %w", err)
	}
	f := &File{r: r, data: 8 + int64(n), tensors: make(map[string]tensorInfo)}
	err := ordered.EachMember(header, func(name string, value []byte, _ int) error {
		if name == "__metadata__" {
			if err := strict.JSON(value, &f.metadata); err != nil {
				return fmt.Errorf("__metadata__: %w", err)
			}
			return nil
		}
		t, err := parseTensor(name, value)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		f.tensors[name] = t
		f.names = append(f.names, name)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	return f, f.checkData(size - f.data)
}

// parseTensor reads one entry of the header.
func parseTensor(name string, entry []byte) (tensorInfo, error) {
	t := tensorInfo{Name: name, Elements: 1}
	var shape, offsets []int
	err := ordered.EachMember(entry, func(key string, value []byte, _ int) (err error) {
		switch key {
		case "dtype":
			err = strict.JSON(value, &t.TypeName)
		case "shape":
			shape, err = parseSizes(value)
		case "data_offsets":
			offsets, err = parseSizes(value)
		default:
			return fmt.Errorf("unknown key %q", key)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", key, err)
		}
		return err
	})
	switch {
	case err != nil:
		return t, err
	case t.TypeName == "":
		return t, errors.New("no dtype")
	case shape == nil:
		return t, errors.New("no shape")
	case len(offsets) != 2 || offsets[0] > offsets[1]:
		return t, fmt.Errorf("data_offsets %v: want [begin, end]", offsets)
	}
	t.Shape = shape
	t.DType.UnmarshalText([]byte(t.TypeName)) // an unknown type makes it Invalid
	t.begin, t.end = int64(offsets[0]), int64(offsets[1])
	for _, d := range shape {
		hi, lo := bits.Mul64(uint64(t.Elements), uint64(d))
		if hi != 0 || lo > maxElements {
			return t, fmt.Errorf("shape %v has too many elements", shape)
		}
		t.Elements = int(lo)
	}
	if size := int64(t.DType.Size()); size > 0 && t.end-t.begin != size*int64(t.Elements) {
		return t, fmt.Errorf("%s %v takes %d bytes, data_offsets %v hold %d", t.TypeName, shape, size*int64(t.Elements), offsets, t.end-t.begin)
	}
	return t, nil
}

// parseSizes reads a JSON array of integers from 0 to 2^62; never nil.
func parseSizes(text []byte) ([]int, error) {
	var sizes []int
	if err := strict.JSON(text, &sizes); err != nil || sizes == nil {
		return nil, fmt.Errorf("want an array of whole numbers, found %.40s", text)
	}
	for _, n := range sizes {
		if n < 0 || n >= 1<<62 {
			return nil, fmt.Errorf("%d is not a whole number from 0 to 2^62", n)
		}
	}
	return sizes, nil
}

// checkData sorts the tensors by place and checks them against the data part.
func (f *File) checkData(size int64) error {
	slices.SortStableFunc(f.names, func(a, b string) int {
		x, y := f.tensors[a], f.tensors[b]
		return cmp.Or(cmp.Compare(x.begin, y.begin), cmp.Compare(x.end, y.end))
	})
	var end int64
	for _, name := range f.names {
		t := f.tensors[name]
		if t.begin != end {
			return fmt.Errorf("tensor %q begins at byte %d of the data, the tensor before it ends at %d: overlap or gap", name, t.begin, end)
		}
		end = t.end
		if end > size {
			return fmt.Errorf("tensor %q ends at byte %d of the data, the file has %d: truncated; fetch it again", name, end, size)
		}
	}
	if end != size {
		return fmt.Errorf("the tensors take %d bytes, the file has %d after its header: damaged; fetch it again", end, size)
	}
	return nil
}

// Path returns the path that the file was opened with.
func (f *File) Path() string { return f.path }

// Close closes the file.
func (f *File) Close() error {
	if f.close == nil {
		return nil
	}
	return f.close()
}

// Names returns the tensors' names in the order of the data.
func (f *File) Names() []string { return f.names }

// Info returns a tensor's entry in the header.
func (f *File) Info(name string) (tensorInfo, bool) {
	t, ok := f.tensors[name]
	return t, ok
}

// Metadata returns the strings under "__metadata__"; nil if there are none.
func (f *File) Metadata() map[string]string { return f.metadata }

// ReadFloat32 fills dst with the tensor's elements from element first on. F32 is read straight into
// dst; F16, BF16 and F64 are converted through a buffer of 256 KiB. Other types are an error.
func (f *File) ReadFloat32(name string, dst []float32, first int) error {
	t, err := f.find(name, first, len(dst))
	if err != nil {
		return err
	}
	switch t.DType {
	case F32, F16, BF16, F64:
	default:
		return f.errorf(name, "holds %s, want F32, F16, BF16 or F64; convert the file", t.TypeName)
	}
	at := f.data + t.begin + int64(first*t.DType.Size())
	if t.DType == F32 && littleEndian {
		return f.readAt(name, Bytes(dst), at)
	}
	buf := make([]byte, min(chunkBytes, len(dst)*t.DType.Size()))
	for len(dst) > 0 {
		n := min(len(dst), len(buf)/t.DType.Size())
		chunk := buf[:n*t.DType.Size()]
		if err := f.readAt(name, chunk, at); err != nil {
			return err
		}
		Decode(dst[:n], chunk, t.DType)
		if i := beyondFloat32(dst[:n], chunk, t.DType); i >= 0 {
			return f.errorf(name, "holds a number beyond float32 (%g); convert the file", math.Float64frombits(binary.LittleEndian.Uint64(chunk[8*i:])))
		}
		dst, at = dst[n:], at+int64(len(chunk))
	}
	return nil
}

// ReadInt64 returns all elements of a tensor of I64 or I32.
func (f *File) ReadInt64(name string) ([]int64, error) {
	t, err := f.find(name, 0, 0) // no elements: the size of any shape will do
	if err != nil {
		return nil, err
	}
	if t.DType != I64 && t.DType != I32 {
		return nil, f.errorf(name, "holds %s, want I64 or I32", t.TypeName)
	}
	buf := make([]byte, t.end-t.begin)
	if err := f.readAt(name, buf, f.data+t.begin); err != nil {
		return nil, err
	}
	v := make([]int64, t.Elements)
	for i := range v {
		if t.DType == I64 {
			v[i] = int64(binary.LittleEndian.Uint64(buf[8*i:]))
		} else {
			v[i] = int64(int32(binary.LittleEndian.Uint32(buf[4*i:])))
		}
	}
	return v, nil
}

// find looks a tensor up and checks that elements [first, first+n) are in it.
func (f *File) find(name string, first, n int) (tensorInfo, error) {
	t, ok := f.tensors[name]
	if !ok {
		return t, f.errorf(name, "not in the file: %w", fs.ErrNotExist)
	}
	if first < 0 || n > t.Elements-first {
		return t, f.errorf(name, "elements %d to %d asked for, shape %v has %d", first, first+n, t.Shape, t.Elements)
	}
	return t, nil
}

func (f *File) readAt(name string, dst []byte, at int64) error {
	if len(dst) == 0 {
		return nil
	}
	n, err := f.r.ReadAt(dst, at)
	if n == len(dst) {
		return nil
	}
	if err == io.EOF {
		return f.errorf(name, "the file became shorter while it was read")
	}
	return f.errorf(name, "%w", err)
}

func (f *File) errorf(name, format string, args ...any) error {
	return fmt.Errorf("models: %s: tensor %q: %w", f.path, name, fmt.Errorf(format, args...))
}

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// Bytes returns the memory of s as bytes, without a copy.
func Bytes[F float32 | float64](s []F) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(F(0))))
}
