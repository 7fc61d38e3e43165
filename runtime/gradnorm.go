package runtime

import (
	"errors"
	"fmt"
	"math"

	"onering/models"
	"onering/models/ports"
	"onering/runtime/kernels"
)

// A norm sums the squares of the gradients that an Optimizer owns, slice by slice. The sum of a slice takes one
// thread, so on the CPU several runs go in parallel, each with its own binding.
type norm struct {
	bindings              []*Binding // bindings of one session; none if the device has kernels
	unscales              bool       // whether the Program divides gradients by the LossScale, as in float16
	unscale               buffer     // [1], 1/LossScale
	sliceNumbers          []int      // by slice, its number among those of all ranks
	gradients, squareSums []*Value   // by slice, its gradients and the sum of their squares
	sumsBuffer            buffer     // what squareSums view
}

// ErrOverflow says that gradients were too large for float16 with the Ring's LossScale. No weight was updated.
var ErrOverflow = errors.New("runtime: gradients overflow float16")

// openNorm cuts the gradients that this Optimizer owns into slices and allocates the sums. Unless the device has a
// kernel, it loads the Program, on the CPU with a binding for each thread.
func (o *Optimizer) openNorm() error {
	n, e := &o.norm, o.env
	n.sumsBuffer, n.unscale = e.buffer(models.F32), hostBuffer(models.F32)
	p, err := o.ring.Arch.GradNorm()
	if err != nil {
		return err
	}
	n.unscales = len(p.Outputs) > 1 // the Program of float16 has the output NotFinite, too
	bounds := o.ring.division.bounds
	for i, first := range bounds[:len(bounds)-1] { // slice i of all ranks begins at first
		if !o.ring.division.owns(i) {
			continue
		}
		g, err := e.arenaOf(o.gradients).view(first, int64(bounds[i+1]-first))
		if err != nil {
			return err
		}
		n.sliceNumbers, n.gradients = append(n.sliceNumbers, i), append(n.gradients, g)
	}
	if _, err := n.sumsBuffer.resize(int64(len(n.gradients))); err != nil {
		return err
	}
	for i := range n.gradients {
		sum, err := n.sumsBuffer.view(i)
		if err != nil {
			return err
		}
		n.squareSums = append(n.squareSums, sum)
	}
	if e.memory.Kernels.Squaring() {
		return nil
	}
	b, err := loadBinding(e, withScalars(p)) // with 1/LossScale, where it has that, in the array that runSessions fills
	for err == nil {
		n.bindings = append(n.bindings, b)
		if !e.memory.IsHost() || len(n.bindings) >= min(e.Threads(), len(n.gradients)) {
			break
		}
		b, err = n.bindings[0].s.NewBinding()
	}
	return err
}

// squares sets sums[i] to the sum of the squares of slice i of the gradients, for each i that this rank owns among the
// slices of all ranks. In float16 gradients are first divided by scale, the LossScale; else Optimizer.total does that.
func (n *norm) squares(k *kernels.Device, sums []float64, scale float64) error {
	if !n.unscales { // not float16
		scale = 1
	}
	run := func() error { return n.runSessions(scale) }
	if k.Squaring() {
		run = func() error { return n.runKernels(k, scale) }
	}
	if err := run(); err != nil {
		return err
	}
	singles, err := pulled[float32](&n.sumsBuffer) // of this length after an error, too
	for i, slice := range n.sliceNumbers {
		sums[slice] = float64(singles[i])
	}
	return err
}

// runSessions computes the sums by the Program, on several threads that take idle bindings in turn.
func (n *norm) runSessions(scale float64) error {
	idle := make(chan *Binding, len(n.bindings))
	for _, binding := range n.bindings {
		b := binding.begin()
		if n.unscales {
			if inverse := fill[float32](b, portScalars, &n.unscale, 1); inverse != nil {
				inverse[0] = float32(1 / scale)
			}
		}
		idle <- b
	}
	models.AtOnce(len(n.bindings), len(n.gradients), func(i int) {
		b := <-idle
		b.in(ports.Grad, n.gradients[i], nil)
		b.out(ports.SquareSum, n.squareSums[i], nil)
		b.failed = b.run()
		idle <- b
	})
	for range n.bindings {
		if b := <-idle; b.failed != nil {
			return b.failed
		}
	}
	return nil
}

// runKernels computes the sums by the device's kernel.
func (n *norm) runKernels(k *kernels.Device, scale float64) error {
	for i, g := range n.gradients {
		if err := k.Squares(g.data, g.bytes/models.F32.Size(), 1/scale, n.squareSums[i].data); err != nil {
			return err
		}
	}
	return nil
}

func (n *norm) close() {
	closeSessions(n.bindings...)
	closeValues(append(n.gradients, n.squareSums...)...)
	closeBuffers(&n.sumsBuffer, &n.unscale)
}

// total adds the sums of all slices, and unless squares has done so divides by the square of scale. If gradients in
// float16 are not finite, or their squares are too large, the error is ErrOverflow.
func (o *Optimizer) total(sums []float64, scale float64) (total float64, err error) {
	for _, x := range sums {
		total += x
	}
	if o.ring.Arch.Geometry().Compute != models.F16 {
		return total / (scale * scale), nil
	}
	if total-total != 0 {
		return 0, ErrOverflow
	}
	return total, nil
}

// GradNorm returns the 2-norm of all gradients divided by the LossScale. If some are
// NaN or infinite, the error names the tensor, or is ErrOverflow for float16.
func (o *Optimizer) GradNorm() (float64, error) {
	return o.GradNormWith(func([]float64, []int) error { return nil })
}

// GradNormWith is GradNorm of several Optimizers that each own a part of the elements: share sets each sums[i] to the
// value of the Optimizer that owns it, owner[i]. The norm has the same bits as with one Optimizer.
func (o *Optimizer) GradNormWith(share func(sums []float64, owner []int) error) (float64, error) {
	sums := make([]float64, len(o.ring.division.owner))
	if err := o.norm.squares(o.env.memory.Kernels, sums, o.ring.lossScale()); err != nil {
		return 0, err
	}
	if err := share(sums, o.ring.division.owner); err != nil {
		return 0, err
	}
	total, err := o.total(sums, o.ring.lossScale())
	if err != nil {
		return 0, err
	}
	if math.IsNaN(total) || math.IsInf(total, 0) {
		if err := o.env.Download(o.gradients); err != nil {
			return 0, err
		}
		return 0, NotFinite("gradient", o.gradients)
	}
	return math.Sqrt(total), nil
}

// A NotFiniteError names a tensor that has a NaN or an infinity. Tensor is empty if only
// the sum of the squares is not finite.
type NotFiniteError struct {
	What, Tensor string
	Index        int
	Value        float32
}

func (e *NotFiniteError) Error() string {
	if e.Tensor == "" {
		return fmt.Sprintf("runtime: the squares of the %ss overflow float32; nothing was updated", e.What)
	}
	return fmt.Sprintf("runtime: the %s of %s is %v at element %d; nothing was updated", e.What, e.Tensor, e.Value, e.Index)
}

// NotFinite returns a *NotFiniteError for the first element of w that is NaN or
// infinite. If all are finite, the sum of their squares is what overflowed.
func NotFinite(what string, w *models.Weights) error {
	var found *NotFiniteError
	w.Each(func(first int, part []float32) {
		for i, x := range part {
			if x-x != 0 && found == nil {
				name, index := w.Layout.NameOf(first + i)
				found = &NotFiniteError{what, name, index, x}
			}
		}
	})
	if found == nil {
		found = &NotFiniteError{What: what}
	}
	return found
}
