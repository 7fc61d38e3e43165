package models

import (
	"fmt"
	"unsafe"
)

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
