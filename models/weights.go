package models

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sort"
	"unsafe"
)

// Weights is one arena of float32 that holds every tensor of a layout: the
// parameters, or their gradients, or one of AdamW's moments. Every graph binds
// slices of Data, so the process holds one copy of each weight.
//
// Data lies outside the Go heap where the platform allows it. It never moves, and
// the garbage collector neither scans it nor counts it, so gigabytes of weights do
// not delay the next collection. Data starts as zeros; padding stays zero.
type Weights struct {
	Layout *Layout
	Data   []float32
	// Narrow has the matrices that are not in Data; nil if Data has all.
	Narrow *narrow

	free   func() error
	beside *modelSource // has the tensors beside the model; nil if there are none
}

// NewWeights allocates an arena of zeros. Close frees its memory. If
// Close is not called, the memory is kept until the process ends, because slices of Data may outlive the Weights itself.
func NewWeights(l *Layout) (*Weights, error) {
	data, free, err := allocate(l.Size)
	if err != nil {
		return nil, fmt.Errorf("models: allocate %.2f GB for %d tensors: %w", float64(l.Size)*4e-9, len(l.names), err)
	}
	return &Weights{Layout: l, Data: data, free: free}, nil
}

// View returns the tensor of a Hugging Face or fused name, as a slice of Data, and its
// shape. It does not find tensors of Narrow.
func (w *Weights) View(name string) ([]float32, []int, bool) {
	p, ok := w.Layout.Find(name)
	if !ok || w.Narrow.holds(p) {
		return nil, nil, false
	}
	return w.Data[p.Offset : p.Offset+p.Size : p.Offset+p.Size], p.Shape, true
}

// Tensors returns a view of every Hugging Face tensor, in the layout's order; views of
// tensors in Narrow have no Data.
func (w *Weights) Tensors() []Tensor {
	tensors := make([]Tensor, len(w.Layout.names))
	for i, name := range w.Layout.names {
		data, shape, _ := w.View(name)
		tensors[i] = Tensor{Name: name, Shape: shape, Data: data}
	}
	return tensors
}

// besides returns the tensors that the model's folder has beside the model.
func (w *Weights) besides() (list []Tensor) {
	if w.beside == nil {
		return nil
	}
	for _, name := range w.beside.beside {
		info, _ := w.beside.Folder.Info(name)
		list = append(list, Tensor{Name: name, Shape: info.Shape, stored: w.beside.where[name]})
	}
	return list
}

// Parameters counts the elements of all tensors.
func (w *Weights) Parameters() (n int) {
	for _, name := range w.Layout.names {
		n += w.Layout.place[name].Size
	}
	return n
}

// ForgetPart returns the memory of the elements from (included) to to (excluded) to the
// system if the platform allows it. The elements are undefined until they are written again.
func (w *Weights) ForgetPart(from, to int) {
	// The system takes only whole pages; partial pages at the two ends stay.
	page := os.Getpagesize() / 4
	from = (from + page - 1) / page * page
	if to < len(w.Data) {
		to = to / page * page
	}
	if from < to {
		forget(w.Data[from:to])
	}
}

// Close frees the memory. Afterwards no slice of Data may be used, and no session that
// has one bound may run.
func (w *Weights) Close() error {
	free := w.free
	if w.beside != nil {
		w.beside.Close()
	}
	w.Data, w.Narrow, w.free, w.beside = nil, nil, nil, nil
	if free == nil {
		return nil
	}
	if err := free(); err != nil {
		return fmt.Errorf("models: free weights: %w", err)
	}
	return nil
}

// narrow are the matrices of Weights that are held in fewer bits in place of float32:
// those of whole matrices between two elements of the arena. They cannot be trained.
// Element i of the arena lies at i-From of Data, times the size of the type.
//
// In int8, every Block elements of a row have a scale, by which they are multiplied. The
// largest of them is 127 times the scale, so rounding moves an element by at most 1/254 of
// the largest. The scale of the block of element i is (i-From)/Block of Scales.
type narrow struct {
	DType    DType // BF16, F16 or I8
	From, To int
	Data     []byte
	Scales   []float32 // the scales of I8
}

// Block is how many elements of a row share one scale in int8.
const Block = 32

// ScaleSuffix is appended to a matrix's name for the name of its scales.
const ScaleSuffix = ".scale"

// newNarrow makes the narrow for the elements between two places of an arena, in memory
// of NarrowBytes bytes.
func newNarrow(d DType, from, to int, memory []byte) *narrow {
	n := &narrow{DType: d, From: from, To: to, Data: memory[: (to-from)*d.Size() : (to-from)*d.Size()]}
	if d == I8 {
		scales := memory[NarrowBytes(d, to-from)-4*scalesOf(to-from):]
		n.Scales = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(scales))), scalesOf(to-from))
	}
	return n
}

// scalesOf returns how many scales n elements have, wherever the first block begins.
func scalesOf(n int) int { return n/Block + 1 }

// NarrowBytes returns how many bytes the matrices of n elements take in a type, scales included.
func NarrowBytes(d DType, n int) int {
	if d != I8 {
		return d.Size() * n
	}
	return (n+3)/4*4 + 4*scalesOf(n)
}

// newNarrowWeights is NewWeights for weights whose matrices between two places of the
// arena are stored in the type d. View does not find those matrices, and their elements
// in Data take no memory.
func newNarrowWeights(l *Layout, d DType, from, to int) (*Weights, error) {
	w, err := NewWeights(l)
	if err != nil {
		return nil, err
	}
	noHuge(w.Data[from:to]) // otherwise each norm between them would occupy a huge page of 2 MB
	bytes := NarrowBytes(d, to-from)
	memory, free, err := allocate((bytes + 3) / 4)
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("models: allocate %.2f GB: %w", float64(bytes)*1e-9, err)
	}
	w.Narrow = newNarrow(d, from, to, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(memory))), bytes))
	wide := w.free
	w.free = func() error { return errors.Join(free(), wide()) }
	return w, nil
}

// Narrowed returns a copy of weights in which the matrices between two places are rounded
// to the type d.
func (w *Weights) Narrowed(d DType, from, to int) (*Weights, error) {
	out, err := newNarrowWeights(w.Layout, d, from, to)
	if err != nil {
		return nil, err
	}
	for _, name := range w.Layout.names {
		p := w.Layout.place[name]
		data := w.Data[p.Offset : p.Offset+p.Size]
		if out.Narrow.holds(p) {
			out.Narrow.encode(p.Offset, data)
		} else {
			copy(out.Data[p.Offset:], data)
		}
	}
	return out, nil
}

// holds reports whether n has the tensor.
func (n *narrow) holds(p place) bool {
	return n != nil && len(p.Shape) > 1 && n.From <= p.Offset && p.Offset+p.Size <= n.To
}

// at returns the bytes of count elements from element first on.
func (n *narrow) at(first, count int) []byte {
	size := n.DType.Size()
	return n.Data[size*(first-n.From):][: size*count : size*count]
}

// scales returns the scales of count elements from element first on, which must begin a block.
func (n *narrow) scales(first, count int) []float32 {
	return n.Scales[(first-n.From)/Block:][: count/Block : count/Block]
}

// ScalesOf returns the scales of a matrix in int8.
func (n *narrow) ScalesOf(p place) []float32 { return n.scales(p.Offset, p.Size) }

// encode rounds elements and stores them from element first on. In int8 they must be
// whole blocks.
func (n *narrow) encode(first int, src []float32) {
	to := n.at(first, len(src))
	if n.DType != I8 {
		Encode(to, src, n.DType)
		return
	}
	scales := n.scales(first, len(src))
	for b := range scales {
		block, largest := src[b*Block:(b+1)*Block], float32(0)
		for _, x := range block {
			largest = max(largest, float32(math.Abs(float64(x))))
		}
		scale := largest / 127
		scales[b] = scale
		for i, x := range block {
			q := float64(0)
			if scale > 0 {
				q = math.RoundToEven(float64(x) / float64(scale))
			}
			to[b*Block+i] = byte(int8(max(-127, min(127, q))))
		}
	}
}

// decode converts elements from element first on to float32. In int8 they must be whole blocks.
func (n *narrow) decode(dst []float32, first int) {
	from := n.at(first, len(dst))
	if n.DType != I8 {
		Decode(dst, from, n.DType)
		return
	}
	for b, scale := range n.scales(first, len(dst)) {
		for i := b * Block; i < (b+1)*Block; i++ {
			dst[i] = float32(int8(from[i])) * scale
		}
	}
}

// Each calls f with all elements in order, a portion at a time; first is the index of the
// portion's first element. Elements of Narrow are converted to float32. f must not keep
// or change the portion.
func (w *Weights) Each(f func(first int, part []float32)) {
	if w.Narrow == nil {
		f(0, w.Data)
		return
	}
	buffer := make([]float32, 1<<16)
	at := 0
	for _, fused := range w.Layout.fused {
		p := w.Layout.place[fused.Name]
		if !w.Narrow.holds(p) {
			continue
		}
		if at < p.Offset {
			f(at, w.Data[at:p.Offset])
		}
		for at = p.Offset; at < p.Offset+p.Size; {
			part := buffer[:min(len(buffer), p.Offset+p.Size-at)]
			w.Narrow.decode(part, at)
			f(at, part)
			at += len(part)
		}
	}
	f(at, w.Data[at:])
}

// NameOf returns the Hugging Face tensor to which an element of the arena belongs, and
// the element's index in the tensor; "" for padding.
func (l *Layout) NameOf(element int) (name string, index int) {
	after := sort.Search(len(l.names), func(i int) bool { return l.place[l.names[i]].Offset > element })
	name = l.names[after-1]
	if p := l.place[name]; element < p.Offset+p.Size {
		return name, element - p.Offset
	}
	return "", 0
}
