package runtime

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"onering/models"
	"onering/models/onnx"
	"onering/models/ports"
)

// ErrOverflow says that gradients were too large for float16 with the Ring's LossScale.
// No weight was updated.
var ErrOverflow = errors.New("runtime: gradients overflow float16")

// A normProgram sums the squares of gradients by slice. The sum of a slice takes one
// thread, so on the CPU several runs go in parallel, each with its own binding.
type normProgram struct {
	kernels  Kernels    // the device's kernels; if it has some, there are no bindings
	bindings []*Binding // bindings of one session; none if the Optimizer owns no slice
	slices   []normSlice
	dtype    models.DType // the type that holds the gradients
	sums     buffer       // [slices that it owns], the sum of the squares of each
	found    buffer       // [slices that it owns], in float16 how many elements are not finite
	unscale  buffer       // [1], 1/LossScale
	unscales bool         // whether the Program has unscale and found
}

// A normSlice is a slice of the gradients that the Optimizer owns.
type normSlice struct {
	number     int
	g          *Value
	sum, found *Value
}

// openNorm loads the Program for each type that holds gradients, and cuts the gradients
// into slices.
func (o *Optimizer) openNorm() error {
	p, err := o.ring.Arch.GradNorm()
	if err != nil {
		return err
	}
	bounds := o.ring.shares.bounds
	for i := range bounds[:len(bounds)-1] {
		if !o.ring.shares.owns(i) {
			continue
		}
		g, err := o.env.arenaOf(o.gradients).view(bounds[i], int64(bounds[i+1]-bounds[i]))
		if err != nil {
			return err
		}
		k := slices.IndexFunc(o.norms, func(n *normProgram) bool { return n.dtype == g.dtype })
		if k < 0 {
			k = len(o.norms)
			o.norms = append(o.norms, &normProgram{
				dtype: g.dtype, unscales: len(p.Outputs) > 1,
				sums: o.env.buffer(models.F32), found: o.env.buffer(models.F32), unscale: hostBuffer(models.F32),
			})
			if g.dtype == models.F32 { // kernels read them
				o.norms[k].kernels = o.env.memory.Kernels
			}
		}
		o.norms[k].slices = append(o.norms[k].slices, normSlice{number: i, g: g})
	}
	for _, n := range o.norms {
		if err := n.open(o.env, held(p, n.dtype, isGrad)); err != nil {
			return err
		}
	}
	return nil
}

// open loads the Program and allocates the sums.
func (n *normProgram) open(e *Env, p models.Program) error {
	if n.kernels == nil {
		first, err := loadBinding(e, withScalars(p))
		if err != nil {
			return err
		}
		n.bindings = append(n.bindings, first)
	}
	for e.memory.Aliases() && len(n.bindings) < min(e.Threads(), len(n.slices)) {
		b, err := n.bindings[0].s.NewBinding()
		if err != nil {
			return err
		}
		n.bindings = append(n.bindings, b)
	}
	for _, b := range []*buffer{&n.sums, &n.found} {
		if _, err := b.of(int64(len(n.slices))); err != nil {
			return err
		}
	}
	for i := range n.slices {
		var sumErr, foundErr error
		n.slices[i].sum, sumErr = n.sums.view(i)
		n.slices[i].found, foundErr = n.found.view(i, 1)
		if err := cmp.Or(sumErr, foundErr); err != nil {
			return err
		}
	}
	return nil
}

// squares sets the sums of its slices: the squares of the gradients divided by scale. A
// sum is NaN if a gradient overflows float16.
func (n *normProgram) squares(sums []float64, scale float64) error {
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
		if found, err = pulled[float32](&n.found); err != nil {
			return err
		}
	}
	for i, s := range n.slices {
		sums[s.number] = float64(singles[i])
		if found != nil && found[i] != 0 || found == nil && n.unscales && math.IsNaN(sums[s.number]-sums[s.number]) {
			sums[s.number] = math.NaN()
		}
	}
	return nil
}

// runSessions computes the sums by the Program.
func (n *normProgram) runSessions(scale float64) error {
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
	models.AtOnce(len(n.bindings), len(n.slices), func(i int) {
		b, s := <-free, n.slices[i]
		b.in(ports.Grad, s.g, nil)
		b.out(ports.SquareSum, s.sum, nil)
		if n.unscales {
			b.out(ports.NotFinite, s.found, nil)
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
func (n *normProgram) runKernels(scale float64) error {
	if !n.unscales {
		scale = 1
	}
	for _, s := range n.slices {
		if err := n.kernels.Squares(s.g.data, s.g.bytes/models.F32.Size(), 1/scale, s.sum.data); err != nil {
			return err
		}
	}
	return nil
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

// isGrad says whether a port is the gradient of an update or a norm.
func isGrad(p models.Port) bool { return p.Name == ports.Grad }

// held returns a Program whose gradients lie in memory in the type d: their ports are
// converted to float32 before use, and their results are rounded once.
func held(p models.Program, d models.DType, isGradient func(models.Port) bool) models.Program {
	if d == models.F32 {
		return p
	}
	var before, behind []onnx.Node
	wide := map[string]string{}
	p.Name += ".held"
	for side, all := range []*[]models.Port{&p.Inputs, &p.Outputs} {
		*all = slices.Clone(*all)
		for i, port := range *all {
			if !isGradient(port) {
				continue
			}
			(*all)[i].DType, wide[port.Name] = d, port.Name+".wide"
			if side == input {
				before = append(before, cast(port.Name, port.Name+".wide", models.F32))
			} else {
				behind = append(behind, cast(port.Name+".wide", port.Name, d))
			}
		}
	}
	names := func(of []string) (names []string) {
		for _, name := range of {
			names = append(names, cmp.Or(wide[name], name))
		}
		return names
	}
	for _, node := range p.Nodes {
		node.Inputs, node.Outputs = names(node.Inputs), names(node.Outputs)
		before = append(before, node)
	}
	p.Nodes = append(before, behind...)
	return p
}

func (n *normProgram) close() {
	closeSessions(n.bindings...)
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

// GradNormWith is GradNorm of several Optimizers that each own a part of the elements:
// share sets each sums[i] to the value of the Optimizer that owns it, owner[i]. The norm
// has the same bits as with one Optimizer.
func (o *Optimizer) GradNormWith(share func(sums []float64, owner []int) error) (float64, error) {
	sums := make([]float64, len(o.ring.shares.owner))
	for _, n := range o.norms {
		if err := n.squares(sums, o.ring.lossScale()); err != nil {
			return 0, err
		}
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
