package graphtest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"onering/models"
)

// A Tensor is one value of a graph. Its elements are float64 for every Type: booleans are
// 0 and 1, and integers are exact up to 2^53. NaN marks elements that an operator leaves
// unspecified.
type Tensor struct {
	Type models.DType
	Dims []int
	Data []float64 // in row-major order
}

// Zeros makes a float tensor of zeros.
func Zeros(dims ...int) Tensor { return zeros(models.F32, dims) }

// Floats makes a float tensor that holds data.
func Floats(data []float64, dims ...int) Tensor {
	return Tensor{Type: models.F32, Dims: dims, Data: data}
}

// Ints makes an int64 tensor; without dims, of one dimension.
func Ints(data []int, dims ...int) Tensor {
	if dims == nil {
		dims = []int{len(data)}
	}
	t := Tensor{Type: models.I64, Dims: dims}
	for _, v := range data {
		t.Data = append(t.Data, float64(v))
	}
	return t
}

// Int32 makes an int32 tensor; no dims make a scalar.
func Int32(data []int, dims ...int) Tensor {
	t := Ints(data, append([]int{}, dims...)...)
	t.Type = models.I32
	return t
}

// Normal makes a float tensor of random numbers with mean 0 and deviation 1.
func Normal(r *rand.Rand, dims ...int) Tensor {
	t := Zeros(dims...)
	for i := range t.Data {
		t.Data[i] = r.NormFloat64()
	}
	return t
}

// Clone returns a copy that shares no memory with t.
func (t Tensor) Clone() Tensor {
	return Tensor{t.Type, slices.Clone(t.Dims), slices.Clone(t.Data)}
}

// As converts t to a floating-point type, rounding its elements to that type. A
// tensor of another type stays as it is.
func (t Tensor) As(elem models.DType) Tensor {
	var to func(float64) float64
	switch elem {
	case models.F32:
		to = func(v float64) float64 { return float64(float32(v)) }
	case models.F16:
		to = func(v float64) float64 { return float64(models.F16ToFloat32(models.Float32ToF16(float32(v)))) }
	case models.BF16:
		to = func(v float64) float64 { return float64(models.BF16ToFloat32(models.Float32ToBF16(float32(v)))) }
	default:
		return t
	}
	t = t.mapped(to)
	t.Type = elem
	return t
}

// Row returns slice i of the first axis as a view.
func (t Tensor) Row(i int) []float64 {
	n := size(t.Dims[1:])
	return t.Data[i*n : (i+1)*n]
}

func (t Tensor) String() string { return fmt.Sprintf("%v%v", t.Type, t.Dims) }

func zeros(elem models.DType, dims []int) Tensor {
	return Tensor{Type: elem, Dims: dims, Data: make([]float64, size(dims))}
}

// mapped makes a tensor of t's type and dims from a function of its elements.
func (t Tensor) mapped(f func(float64) float64) Tensor {
	out := zeros(t.Type, t.Dims)
	for i, v := range t.Data {
		out.Data[i] = f(v)
	}
	return out
}

func (t Tensor) ints() []int {
	v := make([]int, len(t.Data))
	for i, x := range t.Data {
		v[i] = int(x)
	}
	return v
}

func size(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// strides returns how far apart in Data the elements along each axis are.
func strides(dims []int) []int {
	s, n := make([]int, len(dims)), 1
	for i := len(dims) - 1; i >= 0; i-- {
		s[i] = n
		n *= dims[i]
	}
	return s
}

// viewOffsets returns the offsets of a view: start plus every sum of index*step.
func viewOffsets(start int, dims, step []int) []int {
	at := []int{start}
	for axis, n := range dims {
		next := make([]int, 0, len(at)*n)
		for _, o := range at {
			for i := range n {
				next = append(next, o+i*step[axis])
			}
		}
		at = next
	}
	return at
}

// broadcastPlaces returns, for each element of a tensor of shape dims, the index in Data of
// the element of t that is broadcast to it.
func (t Tensor) broadcastPlaces(dims []int) []int {
	step, own := make([]int, len(dims)), strides(t.Dims)
	for i, n := range t.Dims {
		j := i + len(dims) - len(t.Dims)
		if j < 0 || n != 1 && n != dims[j] {
			fail("%v does not broadcast to %v", t, dims)
		}
		if n != 1 {
			step[j] = own[i]
		}
	}
	return viewOffsets(0, dims, step)
}

// elementsAt makes a tensor of the elements at the given places.
func (t Tensor) elementsAt(dims, at []int) Tensor {
	out := Tensor{t.Type, dims, make([]float64, len(at))}
	for i, o := range at {
		out.Data[i] = t.Data[o]
	}
	return out
}

// eachLine calls f with the places of the elements of each line along an axis, in the order of the other axes.
func (t Tensor) eachLine(axis int, f func(at []int)) {
	s := strides(t.Dims)
	dims := slices.Delete(slices.Clone(t.Dims), axis, axis+1)
	step := slices.Delete(slices.Clone(s), axis, axis+1)
	for _, start := range viewOffsets(0, dims, step) {
		f(viewOffsets(start, t.Dims[axis:axis+1], s[axis:axis+1]))
	}
}

// Bytes encodes the elements as a little-endian buffer of the Type.
func (t Tensor) Bytes() []byte {
	raw := make([]byte, 0, t.Type.Size()*len(t.Data))
	for _, v := range t.Data {
		switch t.Type {
		case models.F32:
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(v)))
		case models.F16:
			raw = binary.LittleEndian.AppendUint16(raw, models.Float32ToF16(float32(v)))
		case models.BF16:
			raw = binary.LittleEndian.AppendUint16(raw, models.Float32ToBF16(float32(v)))
		case models.F64:
			raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(v))
		case models.I64:
			raw = binary.LittleEndian.AppendUint64(raw, uint64(int64(v)))
		case models.I32:
			raw = binary.LittleEndian.AppendUint32(raw, uint32(int32(v)))
		case models.Bool, models.U8:
			raw = append(raw, byte(v))
		default:
			panic("graphtest: no buffers of " + t.Type.String())
		}
	}
	return raw
}

// FromBytes is the inverse of Bytes, apart from rounding to the Type.
func FromBytes(elem models.DType, raw []byte, dims ...int) Tensor {
	t := Tensor{Type: elem, Dims: dims, Data: make([]float64, 0, len(raw)/elem.Size())}
	for n := elem.Size(); len(raw) > 0; raw = raw[n:] {
		var v float64
		switch elem {
		case models.F32:
			v = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw)))
		case models.F16:
			v = float64(models.F16ToFloat32(binary.LittleEndian.Uint16(raw)))
		case models.BF16:
			v = float64(models.BF16ToFloat32(binary.LittleEndian.Uint16(raw)))
		case models.F64:
			v = math.Float64frombits(binary.LittleEndian.Uint64(raw))
		case models.I64:
			v = float64(int64(binary.LittleEndian.Uint64(raw)))
		case models.I32:
			v = float64(int32(binary.LittleEndian.Uint32(raw)))
		case models.Bool, models.U8:
			v = float64(raw[0])
		default:
			panic("graphtest: no buffers of " + elem.String())
		}
		t.Data = append(t.Data, v)
	}
	return t
}
