package models

import (
	"fmt"
	"os"
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
	// Narrow has what is not in Data; nil where all is.
	Narrow *Narrow

	free func() error
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

// View returns the tensor of a Hugging Face or fused name, as a slice of Data,
// and its shape. Tensors of Narrow are not there.
func (w *Weights) View(name string) ([]float32, []int, bool) {
	p, ok := w.Layout.Find(name)
	if !ok || w.Narrow.holds(p) {
		return nil, nil, false
	}
	return w.Data[p.Offset : p.Offset+p.Size : p.Offset+p.Size], p.Shape, true
}

// Tensors returns a view of every Hugging Face tensor, in the layout's order; those
// of Narrow have no Data.
func (w *Weights) Tensors() []Tensor {
	tensors := make([]Tensor, len(w.Layout.names))
	for i, name := range w.Layout.names {
		data, shape, _ := w.View(name)
		tensors[i] = Tensor{name, shape, data}
	}
	return tensors
}

// Parameters counts the elements of all tensors.
func (w *Weights) Parameters() (n int) {
	for _, name := range w.Layout.names {
		n += w.Layout.place[name].Size
	}
	return n
}

// Forget returns the memory of Data to the system where the platform allows it.
// The elements are undefined until they are written again.
func (w *Weights) Forget() {
	if len(w.Data) > 0 {
		forget(w.Data)
	}
}

// ForgetOutside is Forget for all but the elements from (included) to to (excluded).
func (w *Weights) ForgetOutside(from, to int) {
	// The system takes whole pages, and those at the two ends stay.
	page := os.Getpagesize() / 4
	if from = from / page * page; from > 0 {
		forget(w.Data[:from])
	}
	if to = (to + page - 1) / page * page; to < len(w.Data) {
		forget(w.Data[to:])
	}
}

// Close frees the memory. Afterwards no slice of Data may be used, and no session
// may run that has one bound.
func (w *Weights) Close() error {
	free := w.free
	w.Data, w.Narrow, w.free = nil, nil, nil
	if free == nil {
		return nil
	}
	if err := free(); err != nil {
		return fmt.Errorf("models: free weights: %w", err)
	}
	return nil
}

// Narrow are the matrices of Weights that are held in 16 bits in place of float32:
// those of whole matrices between two elements of the arena. They cannot be trained.
// Element i of the arena lies at 2*(i-From) of Data.
type Narrow struct {
	DType    DType // BF16 or F16
	From, To int
	Data     []byte
}

// NewNarrowWeights is NewWeights for weights whose matrices between two elements of
// the arena are held in 16 bits. View does not find those, and their elements of Data
// take no memory.
func NewNarrowWeights(l *Layout, d DType, from, to int) (*Weights, error) {
	w, err := NewWeights(l)
	if err != nil {
		return nil, err
	}
	noHuge(w.Data[from:to]) // else a norm would have 2 MB for itself
	half, free, err := allocate((to - from + 1) / 2)
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("models: allocate %.2f GB: %w", float64(to-from)*2e-9, err)
	}
	w.Narrow = &Narrow{d, from, to, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(half))), 2*(to-from))}
	wide := w.free
	w.free = func() error {
		err := free()
		if wide == nil {
			return err
		}
		return wide()
	}
	return w, nil
}

// Narrowed returns a copy of weights of which the matrices between two elements are
// rounded to 16 bits.
func (w *Weights) Narrowed(d DType, from, to int) (*Weights, error) {
	out, err := NewNarrowWeights(w.Layout, d, from, to)
	if err != nil {
		return nil, err
	}
	for _, name := range w.Layout.names {
		p := w.Layout.place[name]
		data := w.Data[p.Offset : p.Offset+p.Size]
		if out.Narrow.holds(p) {
			Encode(out.Narrow.at(p.Offset, p.Size), data, d)
		} else {
			copy(out.Data[p.Offset:], data)
		}
	}
	return out, nil
}

// holds reports whether a tensor is one of n.
func (n *Narrow) holds(p Place) bool {
	return n != nil && len(p.Shape) > 1 && n.From <= p.Offset && p.Offset+p.Size <= n.To
}

// at are the bytes of count elements from element first on.
func (n *Narrow) at(first, count int) []byte {
	return n.Data[2*(first-n.From):][: 2*count : 2*count]
}

// Each calls f with all elements in order, a portion at a time; first is the index of
// the portion's first element. Elements of 16 bits are widened. f must not keep or
// change the portion.
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
			decode(part, w.Narrow.at(at, len(part)), w.Narrow.DType)
			f(at, part)
			at += len(part)
		}
	}
	f(at, w.Data[at:])
}

// NameOf is the Hugging Face tensor that has an element of the arena, and where in it
// the element is; "" for padding.
func (l *Layout) NameOf(element int) (name string, index int) {
	for _, name := range l.names {
		if p := l.place[name]; p.Offset <= element && element < p.Offset+p.Size {
			return name, element - p.Offset
		}
	}
	return "", 0
}
