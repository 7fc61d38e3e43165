package models

import "fmt"

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
