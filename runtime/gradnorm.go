package runtime

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"onering/models"
	"onering/models/ports"
)

// ErrOverflow says that gradients were too large for float16 with the Ring's
// LossScale. Nothing was updated.
var ErrOverflow = errors.New("runtime: gradients overflow float16")

// A normProgram sums the squares of gradients by slice. The sum of a slice takes one
// thread, so on the CPU several slices are summed at once, each by a binding of its own.
type normProgram struct {
	session  *Session
	bindings []*Binding
	slices   []normSlice
	sums     buffer // [slices], the sum of the squares of each slice
	found    buffer // [slices], in float16 how many elements are not finite
	unscale  buffer // 1/LossScale
}

// A normSlice is a slice of the gradients, and the elements of sums and found for
// it.
type normSlice struct{ g, sum, found *Value }

// openNorm loads the Program and cuts the gradients into slices.
func (o *Optimizer) openNorm() error {
	p, err := o.ring.Arch.GradNorm()
	if err != nil {
		return err
	}
	n := &normProgram{sums: o.env.buffer(models.F32), found: o.env.buffer(models.F32), unscale: hostBuffer(models.F32)}
	o.norm = n
	if n.session, err = o.env.Load(p); err != nil {
		return err
	}
	bounds := o.bounds()
	n.slices = make([]normSlice, len(bounds)-1)
	n.bindings = make([]*Binding, 1)
	if o.env.memory.Aliases() {
		n.bindings = make([]*Binding, min(o.env.Threads(), len(n.slices)))
	}
	for i := range n.bindings {
		if n.bindings[i], err = n.session.NewBinding(); err != nil {
			return err
		}
	}
	for _, b := range []*buffer{&n.sums, &n.found} {
		if err := b.pieces(len(n.slices)); err != nil {
			return err
		}
	}
	for i := range n.slices {
		s := &n.slices[i]
		if s.g, err = arenaOf(o.env, o.gradients).view(bounds[i], int64(o.span(bounds, i))); err != nil {
			return err
		}
		if s.sum, err = n.sums.view(i); err != nil {
			return err
		}
		if s.found, err = n.found.view(i, 1); err != nil {
			return err
		}
	}
	return nil
}

// squares returns the sums of the squares of the gradients divided by scale, by slice, of
// this part's slices; the others are 0. A sum is NaN where a gradient overflows float16.
func (n *normProgram) squares(scale float64, own func(slice int) bool) (sums []float64, err error) {
	free := make(chan *binder, len(n.bindings))
	for _, binding := range n.bindings {
		b := &binder{b: binding}
		if inverse := fillIf[float32](b, ports.Unscale, &n.unscale); inverse != nil {
			inverse[0] = float32(1 / scale)
		}
		free <- b
	}
	atOnce(len(n.bindings), len(n.slices), func(i int) {
		b := <-free
		if s := n.slices[i]; own(i) && b.err == nil {
			b.in(ports.Grad, s.g, nil)
			b.out(ports.SquareSum, s.sum, nil)
			if n.unscales() {
				b.out(ports.NotFinite, s.found, nil)
			}
			b.err = b.run()
		}
		free <- b
	})
	for range n.bindings {
		if b := <-free; b.err != nil {
			return nil, b.err
		}
	}
	var found []float32
	if n.unscales() {
		if found, err = pulled[float32](&n.found); err != nil {
			return nil, err
		}
	}
	singles, err := pulled[float32](&n.sums)
	if err != nil {
		return nil, err
	}
	sums = make([]float64, len(singles))
	for i, x := range singles {
		switch {
		case !own(i):
		case n.unscales() && found[i] != 0:
			sums[i] = math.NaN()
		default:
			sums[i] = float64(x)
		}
	}
	return sums, nil
}

// unscales says whether the gradients are in float16, with the Ring's LossScale.
func (n *normProgram) unscales() bool {
	_, found := n.session.index[output][ports.NotFinite]
	return found
}

// total adds the sums of all slices. With gradients in float16 it is ErrOverflow that
// one of them is NaN.
func (n *normProgram) total(sums []float64, scale float64) (total float64, err error) {
	for _, x := range sums {
		total += x
	}
	if !n.unscales() {
		return total / (scale * scale), nil
	}
	if slices.ContainsFunc(sums, math.IsNaN) {
		return 0, ErrOverflow
	}
	return total, nil
}

func (n *normProgram) close() {
	if n == nil {
		return
	}
	if n.session != nil {
		n.session.Close()
	}
	for _, s := range n.slices {
		closeValues(s.g, s.sum, s.found)
	}
	closeBuffers(&n.sums, &n.found, &n.unscale)
}

// GradNorm returns the 2-norm of all gradients divided by the LossScale. If some are
// NaN or infinite, the error names the tensor, or is ErrOverflow for float16.
func (o *Optimizer) GradNorm() (float64, error) {
	return o.GradNormWith(func([]float64, []int) error { return nil })
}

// GradNormWith is GradNorm of several Optimizers that each have a part of the elements:
// share sets sums[i], which is part owner[i]'s, to what the Optimizer of that part has
// there. The norm is the same, to the bit, as that of one Optimizer.
func (o *Optimizer) GradNormWith(share func(sums []float64, owner []int) error) (float64, error) {
	sums, err := o.norm.squares(o.ring.lossScale(), o.owns)
	if err != nil {
		return 0, err
	}
	if err := share(sums, o.shares.owner); err != nil {
		return 0, err
	}
	total, err := o.norm.total(sums, o.ring.lossScale())
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

// A NotFiniteError names a tensor that has a NaN or an infinity.
type NotFiniteError struct {
	What, Tensor string
	Index        int
	Value        float32
}

func (e *NotFiniteError) Error() string {
	return fmt.Sprintf("runtime: the %s of %s is %v at element %d; nothing was updated", e.What, e.Tensor, e.Value, e.Index)
}

// NotFinite returns an error that names the first element of w that is NaN or
// infinite. If all are finite, the error says that the sum of squares overflowed.
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
	if found != nil {
		return found
	}
	return fmt.Errorf("runtime: the squares of the %s overflow float32; nothing was updated", what)
}
