package models

import (
	"errors"
	"fmt"
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
	// Source has the elements, of which Data then has unknown ones; nil if Data has them. The
	// writers of tensors fetch one at a time.
	Source Source

	free         func() error
	besideSource *modelSource // the open folder of the model if that also has tensors beside it; else nil
}

// A Source holds elements of weights outside of Data, such as in a device's memory.
type Source interface {
	// Fetch copies the elements from (included) to to (excluded) to Data.
	Fetch(from, to int) error
	// Drop gives the memory of these elements in Data back.
	Drop(from, to int)
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

// Allocate returns memory as that of Weights: so many bytes of zeros on a multiple of 64, and what frees it.
func Allocate(bytes int) (at unsafe.Pointer, free func() error, err error) {
	data, free, err := allocate((bytes + 3) / 4)
	return unsafe.Pointer(unsafe.SliceData(data)), free, err
}

// View returns the tensor of a Hugging Face or fused name, as a slice of Data, and its
// shape. It does not find tensors of Narrow.
func (w *Weights) View(name string) ([]float32, []int, bool) {
	p, ok := w.Layout.Find(name)
	if !ok || w.Narrow.Holds(p) {
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
		if w.Source != nil {
			tensors[i].lend = func(use func(data []float32) error) error { return w.Lend(name, use) }
		}
	}
	return tensors
}

// Lend calls use while Data has a tensor's elements, which it gives back afterwards. Without a
// Source Data has them anyway.
func (w *Weights) Lend(name string, use func(data []float32) error) error {
	data, _, _ := w.View(name)
	if w.Source == nil {
		return use(data)
	}
	p, _ := w.Layout.Find(name)
	if err := w.Source.Fetch(p.Offset, p.Offset+p.Size); err != nil {
		return err
	}
	defer w.Source.Drop(p.Offset, p.Offset+p.Size)
	return use(data)
}

// besideModel returns the tensors that the model's folder has beside the model.
func (w *Weights) besideModel() (list []Tensor) {
	if w.besideSource == nil {
		return nil
	}
	for _, name := range w.besideSource.besideModel {
		info, _ := w.besideSource.Folder.Info(name)
		list = append(list, Tensor{Name: name, Shape: info.Shape, stored: w.besideSource.fileOf[name]})
	}
	return list
}

// Parameters counts the elements of all tensors.
func (w *Weights) Parameters() (n int) {
	for _, name := range w.Layout.names {
		n += w.Layout.places[name].Size
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
		noHuge(w.Data[from:to]) // or the system may put a whole huge page in the place of the few that stay
		forget(w.Data[from:to])
	}
}

// Close frees the memory. Afterwards no slice of Data may be used, and no session that has one bound may run.
func (w *Weights) Close() error {
	free := w.free
	if w.besideSource != nil {
		w.besideSource.Close()
	}
	w.Data, w.Narrow, w.free, w.besideSource = nil, nil, nil, nil
	if free == nil {
		return nil
	}
	if err := free(); err != nil {
		return fmt.Errorf("models: free weights: %w", err)
	}
	return nil
}

// newNarrowWeights is NewWeights for weights whose matrices between two places of the arena are stored in the type d.
// View does not find those matrices, and their elements in Data take no memory.
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

// Narrowed returns a copy of weights in which the matrices that lie between the offsets from and to of Data are rounded
// to the type d. Narrow stores them; Data keeps its length, but their elements there take no memory.
func (w *Weights) Narrowed(d DType, from, to int) (*Weights, error) {
	out, err := newNarrowWeights(w.Layout, d, from, to)
	if err != nil {
		return nil, err
	}
	for _, name := range w.Layout.names {
		p := w.Layout.places[name]
		data := w.Data[p.Offset : p.Offset+p.Size]
		if out.Narrow.Holds(p) {
			out.Narrow.encode(p.Offset, data)
		} else {
			copy(out.Data[p.Offset:], data)
		}
	}
	return out, nil
}

// Each calls f with all elements in order, a portion at a time; first is the index of the portion's first element.
// Elements of Narrow are converted to float32. f must not keep or change the portion.
func (w *Weights) Each(f func(first int, part []float32)) {
	if w.Narrow == nil {
		f(0, w.Data)
		return
	}
	buffer := make([]float32, 1<<16)
	at := 0
	for _, fused := range w.Layout.fused {
		p := w.Layout.places[fused.Name]
		if !w.Narrow.Holds(p) {
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
	after := sort.Search(len(l.names), func(i int) bool { return l.places[l.names[i]].Offset > element })
	name = l.names[after-1]
	if p := l.places[name]; element < p.Offset+p.Size {
		return name, element - p.Offset
	}
	return "", 0
}
