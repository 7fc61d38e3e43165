package runtime

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"onering/models"
	"onering/models/ports"
)

// ErrOverflow says that gradients were too large for float16 with the Ring's LossScale.
// No weight was updated.
var ErrOverflow = errors.New("runtime: gradients overflow float16")

// A norm sums the squares of the gradients that an Optimizer owns, slice by slice. The sum
// of a slice takes one thread, so on the CPU several runs go in parallel, each with its own
// binding.
type norm struct {
	kernels  Kernels    // the device's kernels; if it has some, there are no bindings
	bindings []*Binding // bindings of one session
	unscales bool       // whether the layers compute in float16: gradients are scaled and may overflow
	unscale  buffer     // [1], 1/LossScale

	numbers    []int    // of the slices, among those of all ranks
	g          []*Value // the gradients of each slice
	sum, found []*Value // by slice, the sum of the squares and, if unscales, how many elements are not finite
	sums       buffer   // holds sum
	founds     buffer   // holds found
}

// openNorm cuts the gradients into slices and loads the Program.
func (o *Optimizer) openNorm() error {
	n := &norm{kernels: o.env.memory.Kernels, sums: o.env.buffer(models.F32), founds: o.env.buffer(models.F32), unscale: hostBuffer(models.F32)}
	o.norm = n
	bounds := o.ring.shares.bounds
	for i := range bounds[:len(bounds)-1] {
		if !o.ring.shares.owns(i) {
			continue
		}
		g, err := o.env.arenaOf(o.gradients).view(bounds[i], int64(bounds[i+1]-bounds[i]))
		if err != nil {
			return err
		}
		n.numbers, n.g = append(n.numbers, i), append(n.g, g)
	}
	p, err := o.ring.Arch.GradNorm()
	if err != nil || n.g == nil {
		return err
	}
	n.unscales = len(p.Outputs) > 1
	return n.open(o.env, p)
}

// open loads the Program and allocates the sums.
func (n *norm) open(e *Env, p models.Program) error {
	if n.kernels == nil {
		first, err := loadBinding(e, withScalars(p))
		if err != nil {
			return err
		}
		n.bindings = append(n.bindings, first)
	}
	for e.memory.Aliases() && len(n.bindings) < min(e.Threads(), len(n.g)) {
		b, err := n.bindings[0].s.NewBinding()
		if err != nil {
			return err
		}
		n.bindings = append(n.bindings, b)
	}
	_, sumsErr := n.sums.of(int64(len(n.g)))
	_, foundsErr := n.founds.of(int64(len(n.g)))
	if err := cmp.Or(sumsErr, foundsErr); err != nil {
		return err
	}
	for i := range n.g {
		sum, sumErr := n.sums.view(i)
		found, foundErr := n.founds.view(i, 1)
		n.sum, n.found = append(n.sum, sum), append(n.found, found)
		if err := cmp.Or(sumErr, foundErr); err != nil {
			return err
		}
	}
	return nil
}

// squares sets the sums of its slices: the squares of the gradients divided by scale. A
// sum is NaN if a gradient overflows float16.
func (n *norm) squares(sums []float64, scale float64) error {
	if len(n.g) == 0 {
		return nil
	}
	run := n.runSessions
	if n.kernels != nil {
		run = n.runKernels
	}
	if err := run(scale); err != nil {
		return err
	}
	singles, err := pulled[float32](&n.sums)
	if err != nil {
		return err
	}
	var found []float32 // kernels do not count overflows: their sums are not finite then
	if n.unscales && n.kernels == nil {
		if found, err = pulled[float32](&n.founds); err != nil {
			return err
		}
	}
	for i, number := range n.numbers {
		sums[number] = float64(singles[i])
		if found != nil && found[i] != 0 || found == nil && n.unscales && math.IsNaN(sums[number]-sums[number]) {
			sums[number] = math.NaN()
		}
	}
	return nil
}

// runSessions computes the sums by the Program.
func (n *norm) runSessions(scale float64) error {
	free := make(chan *binder, len(n.bindings))
	for _, binding := range n.bindings {
		b := &binder{b: binding}
		if n.unscales {
			if inverse := fill[float32](b, portScalars, &n.unscale, 1); inverse != nil {
				inverse[0] = float32(1 / scale)
			}
		}
		free <- b
	}
	models.AtOnce(len(n.bindings), len(n.g), func(i int) {
		b := <-free
		b.in(ports.Grad, n.g[i], nil)
		b.out(ports.SquareSum, n.sum[i], nil)
		if n.unscales {
			b.out(ports.NotFinite, n.found[i], nil)
		}
		b.err = b.run()
		free <- b
	})
	for range n.bindings {
		if b := <-free; b.err != nil {
			return b.err
		}
	}
	return nil
}

// runKernels computes the sums by the device's kernel.
func (n *norm) runKernels(scale float64) error {
	if !n.unscales {
		scale = 1
	}
	for i, g := range n.g {
		if err := n.kernels.Squares(g.data, g.bytes/models.F32.Size(), 1/scale, n.sum[i].data); err != nil {
			return err
		}
	}
	return nil
}

func (n *norm) close() {
	closeSessions(n.bindings...)
	closeValues(slices.Concat(n.g, n.sum, n.found)...)
	closeBuffers(&n.sums, &n.founds, &n.unscale)
}

// total adds the sums of all slices. If one is NaN and gradients are in float16, the
// error is ErrOverflow.
func (o *Optimizer) total(sums []float64, scale float64) (total float64, err error) {
	for _, x := range sums {
		total += x
	}
	if o.ring.Arch.Geometry().Compute != models.F16 {
		return total / (scale * scale), nil
	}
	if slices.ContainsFunc(sums, math.IsNaN) {
		return 0, ErrOverflow
	}
	return total, nil
}

// GradNorm returns the 2-norm of all gradients divided by the LossScale. If some are
// NaN or infinite, the error names the tensor, or is ErrOverflow for float16.
func (o *Optimizer) GradNorm() (float64, error) {
	return o.GradNormWith(func([]float64, []int) error { return nil })
}

// GradNormWith is GradNorm of several Optimizers that each own a part of the elements:
// share sets each sums[i] to the value of the Optimizer that owns it, owner[i]. The norm
// has the same bits as with one Optimizer.
func (o *Optimizer) GradNormWith(share func(sums []float64, owner []int) error) (float64, error) {
	sums := make([]float64, len(o.ring.shares.owner))
	if err := o.norm.squares(sums, o.ring.lossScale()); err != nil {
		return 0, err
	}
	if err := share(sums, o.ring.shares.owner); err != nil {
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
