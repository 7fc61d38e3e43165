package models

import "fmt"

// Weights is one arena of float32 that holds every tensor of a layout: the
// parameters, or their gradients, or one of AdamW's moments. Every graph binds
// slices of Data, so there is one copy of each weight in the process (decision
// "one ring of weights", design section 3).
//
// Data lies outside the Go heap where the platform allows: it does not move, the
// collector neither scans it nor counts it, so that gigabytes of weights do not
// stretch the collector's pacing. It starts as zeros; padding stays zero.
type Weights struct {
	Layout *Layout
	Data   []float32

	free func() error
}

// NewWeights allocates an arena of zeros. Close gives its memory back; a
// Weights that is dropped without it keeps the memory until the process ends,
// because slices of Data may outlive the Weights itself.
func NewWeights(l *Layout) (*Weights, error) {
	data, free, err := allocate(l.Size)
	if err != nil {
		return nil, fmt.Errorf("models: allocate %.2f GB for %d tensors: %w", float64(l.Size)*4e-9, len(l.names), err)
	}
	return &Weights{l, data, free}, nil
}

// View returns the tensor of a Hugging Face or fused name, as a slice of Data,
// and its shape.
func (w *Weights) View(name string) ([]float32, []int, bool) {
	p, ok := w.Layout.Find(name)
	if !ok {
		return nil, nil, false
	}
	return w.Data[p.Offset : p.Offset+p.Size : p.Offset+p.Size], p.Shape, true
}

// Tensors returns a view of every Hugging Face tensor, in the layout's order.
func (w *Weights) Tensors() []Tensor {
	tensors := make([]Tensor, len(w.Layout.names))
	for i, name := range w.Layout.names {
		data, shape, _ := w.View(name)
		tensors[i] = Tensor{name, shape, data}
	}
	return tensors
}

// Forget gives the pages of Data back to the system where it takes them: its
// elements are not known until they are written again, and take no memory.
func (w *Weights) Forget() {
	if len(w.Data) > 0 {
		forget(w.Data)
	}
}

// Close gives the memory back. No slice of Data may be used afterwards, nor may
// a session that has one bound run.
func (w *Weights) Close() error {
	free := w.free
	w.Data, w.free = nil, nil
	if free == nil {
		return nil
	}
	if err := free(); err != nil {
		return fmt.Errorf("models: free weights: %w", err)
	}
	return nil
}
