package runtime

// #include "ort.h"
import "C"

import (
	"cmp"
	"fmt"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"onering/models"
)

// A Binding holds the Values that a Session reads and writes. Bind once and run often: Run checks sizes only after
// something else was bound. One goroutine at a time may use a Binding.
type Binding struct {
	s          *Session
	ptr        *C.OrtIoBinding
	bound      [2][]*Value // Values by port
	lastCopied [][]byte    // by input, the small value that ONNX Runtime last copied to a device
	sizes      []int64     // the sizes of Session.sizeNames at the last check, -1 where unknown
	checked    bool        // whether check has accepted the bound Values
	failed     error       // the first error since begin
}

// NewBinding returns a Binding with nothing bound.
func (s *Session) NewBinding() (*Binding, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ptr == nil {
		return nil, fmt.Errorf("runtime: program %q: the session is %w", s.name, errClosed)
	}
	b := &Binding{s: s, sizes: make([]int64, len(s.sizeNames))}
	if err := check(C.onering_binding(s.ptr, &b.ptr)); err != nil {
		return nil, fmt.Errorf("runtime: program %q: making a binding: %w", s.name, err)
	}
	for side := range b.bound {
		b.bound[side] = make([]*Value, len(s.ports[side]))
	}
	b.lastCopied = make([][]byte, len(s.ports[input]))
	s.bindings[b] = true
	return b, nil
}

// Input binds v to the input called name. It replaces an earlier Value.
func (b *Binding) Input(name string, v *Value) error { return b.bind(input, name, v) }

// Output binds v to the output called name; the next Run overwrites it. An output
// that is not bound is not returned. If the Program's Alias allows it, v may have
// the memory of an input's Value: the Run then updates the input in place.
func (b *Binding) Output(name string, v *Value) error { return b.bind(output, name, v) }

// bind binds v to the input or output (side) called name, after checking its type and shape.
func (b *Binding) bind(side int, name string, v *Value) error {
	if b.ptr == nil {
		return fmt.Errorf("runtime: program %q: %s %q: the binding is %w", b.s.name, sides[side], name, errClosed)
	}
	i, ok := b.s.index[side][name]
	if !ok {
		return fmt.Errorf("runtime: program %q has no %s %q, only %s", b.s.name, sides[side], name, b.names(side))
	}
	p := &b.s.ports[side][i]
	if v == nil || v.ptr == nil {
		return b.errorf(side, i, "the value is %w", errClosed)
	}
	if b.bound[side][i] == v {
		return nil
	}
	if v.dtype != p.DType {
		return b.errorf(side, i, "has type %s, the value %s", p.DType, v.dtype)
	}
	if !fits(v.shape, p.dims) {
		return b.errorf(side, i, "has shape %v, the value %v", p.Shape, v.shape)
	}
	if side == input && v.memory != b.s.env.memory {
		b.lastCopied[i] = nil // before a run, ready calls bindNow, which copies what the caller has filled in by then
	} else if err := b.bindNow(side, i, v); err != nil {
		return err
	}
	b.bound[side][i] = v
	b.checked = false
	return nil
}

// bindNow binds v in ONNX Runtime, which copies a host's Value to a device. It must use the
// thread of the runs, since the copy could otherwise overlap a run.
func (b *Binding) bindNow(side, i int, v *Value) (err error) {
	b.s.env.memory.do(func() {
		err = check(C.onering_bind(b.ptr, C.int(side), b.s.ports[side][i].cname, v.ptr))
	})
	if err != nil {
		return b.errorf(side, i, "binding it: %w", err)
	}
	return nil
}

// mostUnwaited is how many consecutive runs of a session on a GPU need not wait for the
// GPU. Only a run that waits releases the host memory that earlier runs borrowed.
const mostUnwaited = 100

// Run runs the Program. Every input must be bound. When it returns, outputs in the
// host's memory are complete; on a device later calls see them complete.
func (b *Binding) Run() error {
	if b.ptr == nil {
		return fmt.Errorf("runtime: program %q: the binding is %w", b.s.name, errClosed)
	}
	if !b.checked {
		if err := b.check(); err != nil {
			return err
		}
		b.checked = true
	}
	m := b.s.env.memory
	if err := m.Check(nil); err != nil { // the device was lost earlier
		return fmt.Errorf("runtime: program %q: %w", b.s.name, err)
	}
	wait, err := b.ready()
	if err != nil {
		return m.Check(err)
	}
	options := m.asyncOptions                        // nil makes the run wait for the device
	if wait || b.s.unwaited.Add(1) >= mostUnwaited { // only a run that waits frees the host memory of earlier ones
		options = nil
		b.s.unwaited.Store(0)
	}
	m.do(func() { err = check(C.onering_run(b.s.ptr, options, b.ptr)) })
	goruntime.KeepAlive(b) // also keep the bound Values alive, whose memory the run used
	if err != nil {
		return fmt.Errorf("runtime: program %q: run%s: %w", b.s.name, b.shapes(), m.Check(err))
	}
	return nil
}

// littleBytes is the largest size of an input that is compared with the value copied last.
const littleBytes = 1 << 16

// ready prepares a run on Values, of which some may lie in the host's memory while the session's is a device's. ONNX
// Runtime copies such an input when it is bound, so ready binds it again, unless it is small and unchanged: a copy
// can cost a millisecond. Such an output is copied during the run; wait reports that there is one, so the caller must
// wait for the run. Both copies are counted for Env.Crossed. A Value that was closed meanwhile is an error.
func (b *Binding) ready() (wait bool, err error) {
	m := b.s.env.memory
	for side := range b.bound {
		for i, v := range b.bound[side] {
			switch {
			case v == nil:
			case v.ptr == nil:
				return false, b.errorf(side, i, "its value was closed: bind another")
			case v.memory == m:
			case side == output:
				wait = true
				m.Count(0, v.bytes)
			default:
				bytes := unsafe.Slice((*byte)(v.data), v.bytes)
				if last := b.lastCopied[i]; last != nil && slices.Equal(last, bytes) {
					continue
				}
				if err := b.bindNow(side, i, v); err != nil {
					return false, err
				}
				m.Count(v.bytes, 0)
				b.lastCopied[i] = nil
				if v.bytes <= littleBytes {
					b.lastCopied[i] = slices.Clone(bytes)
				}
			}
		}
	}
	return wait, nil
}

// check returns an error unless all inputs and at least one output are bound, their varying dimensions agree, and no
// two share memory that must not. It sets sizes.
func (b *Binding) check() error {
	for i := range b.sizes {
		b.sizes[i] = -1
	}
	outputs := 0
	for side := range b.bound {
		for i, v := range b.bound[side] {
			if v == nil {
				if side == input {
					return b.errorf(side, i, "nothing is bound to it")
				}
				continue
			}
			outputs += side // which is 1 for outputs, 0 for inputs
			for d, dim := range b.s.ports[side][i].dims {
				if dim.fixed >= 0 {
					continue
				}
				if b.sizes[dim.size] < 0 {
					b.sizes[dim.size] = v.shape[d]
				} else if n := b.sizes[dim.size]; n != v.shape[d] {
					return b.errorf(side, i, "dimension %s is %d, but %d in %s", b.s.sizeNames[dim.size], v.shape[d], n, b.s.portWith(dim.size, b.bound))
				}
			}
		}
	}
	if outputs == 0 {
		return fmt.Errorf("runtime: program %q: no output is bound", b.s.name)
	}
	return b.checkOverlaps()
}

// portWith names the first port with a Value that has one of the sizes that vary.
func (s *Session) portWith(size int, bound [2][]*Value) string {
	for side := range bound {
		for i, p := range s.ports[side] {
			if bound[side][i] != nil && slices.ContainsFunc(p.dims, func(d dim) bool { return d.fixed < 0 && d.size == size }) {
				return fmt.Sprintf("%s %q", sides[side], p.Name)
			}
		}
	}
	return ""
}

// checkOverlaps returns an error if an output shares memory with an input that the Program does not update in place by
// that output (its Alias) or of which it is only a part, or with another output.
func (b *Binding) checkOverlaps() error {
	for o, v := range b.bound[output] {
		if v == nil {
			continue
		}
		name := b.s.ports[output][o].Name
		for i, in := range b.bound[input] {
			if !overlap(v, in) {
				continue
			}
			if of := b.s.ports[input][i].Name; b.s.alias[name] != of {
				return b.errorf(output, o, "shares memory with input %q, which this program does not update in place", of)
			} else if v.data != in.data || v.bytes != in.bytes {
				return b.errorf(output, o, "overlaps input %q but is not the same memory", of)
			}
		}
		for i, other := range b.bound[output][:o] {
			if other != nil && overlap(v, other) {
				return b.errorf(output, o, "shares memory with output %q", b.s.ports[output][i].Name)
			}
		}
	}
	return nil
}

// overlap reports whether two Values have memory in common.
func overlap(v, w *Value) bool {
	if v.bytes == 0 || w.bytes == 0 {
		return false
	}
	a, b := uintptr(v.data), uintptr(w.data)
	return a < b+uintptr(w.bytes) && b < a+uintptr(v.bytes)
}

// Close releases the Binding. The Values stay open. Closing twice is fine.
func (b *Binding) Close() {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.free()
}

// free is Close for callers that hold s.mu.
func (b *Binding) free() {
	if b.ptr == nil {
		return
	}
	C.onering_release_binding(b.ptr)
	b.ptr = nil
	b.bound = [2][]*Value{}
	delete(b.s.bindings, b)
}

// errorf returns an error about one port.
func (b *Binding) errorf(side, i int, format string, args ...any) error {
	args = append([]any{b.s.name, sides[side], b.s.ports[side][i].Name}, args...)
	return fmt.Errorf("runtime: program %q: %s %q: "+format, args...)
}

// names lists the ports of one side, for messages.
func (b *Binding) names(side int) string {
	var out []string
	for _, p := range b.s.ports[side] {
		out = append(out, strconv.Quote(p.Name))
	}
	return strings.Join(out, ", ")
}

// shapes lists the sizes that vary, for messages, such as " on B=2 T=5"; "" where none do.
func (b *Binding) shapes() string {
	if len(b.sizes) == 0 {
		return ""
	}
	out := []string{" on"}
	for i, size := range b.sizes {
		out = append(out, fmt.Sprintf("%s=%d", b.s.sizeNames[i], size))
	}
	return strings.Join(out, " ")
}

// fits reports whether a shape has the right number of dimensions and the right fixed sizes.
func fits(shape []int64, dims []dim) bool {
	if len(shape) != len(dims) {
		return false
	}
	for i, d := range dims {
		if d.fixed >= 0 && d.fixed != shape[i] {
			return false
		}
	}
	return true
}

// begin returns b for binding Values one after the other: in, out, fill and takeOutput keep the
// first error, which run returns, so that the caller checks errors once.
func (b *Binding) begin() *Binding {
	b.failed = nil
	return b
}

// in binds an input. err is the error of making v, if there was one.
func (b *Binding) in(name string, v *Value, err error) { b.put(input, name, v, err) }

// out binds an output. err is the error of making v, if there was one.
func (b *Binding) out(name string, v *Value, err error) { b.put(output, name, v, err) }

func (b *Binding) put(side int, name string, v *Value, err error) {
	if b.failed = cmp.Or(b.failed, err); b.failed == nil {
		b.failed = b.bind(side, name, v)
	}
}

// run runs the Program, or returns the first error of binding.
func (b *Binding) run() error {
	if b.failed != nil {
		return b.failed
	}
	return b.Run()
}

// fill binds an input of the given shape and returns its elements, which the caller fills
// before the run. After an error it returns nil.
func fill[T Element](b *Binding, name string, x *buffer, shape ...int64) []T {
	return bindBuffer[T](b, input, name, x, shape)
}

// takeOutput binds an output of the given shape in the host's memory and returns its
// elements, which the run writes. After an error it returns nil.
func takeOutput[T Element](b *Binding, name string, x *buffer, shape ...int64) []T {
	return bindBuffer[T](b, output, name, x, shape)
}

func bindBuffer[T Element](b *Binding, side int, name string, x *buffer, shape []int64) []T {
	if b.failed != nil {
		return nil
	}
	v, err := x.resize(shape...)
	b.put(side, name, v, err)
	if b.failed != nil {
		return nil
	}
	return elements[T](x)
}

// bindAll binds every input and output of a role to the Value that value returns.
func (b *Binding) bindAll(role models.Role, value func(models.Port) (*Value, error)) error {
	for side := range b.s.ports {
		for _, p := range b.s.ports[side] {
			if p.Role != role {
				continue
			}
			v, err := value(p.Port)
			if err == nil {
				err = b.bind(side, p.Name, v)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// has reports whether the Program has an input. Forms of attention need different inputs.
func (b *Binding) has(name string) bool {
	_, ok := b.s.index[input][name]
	return ok
}

// fillIf is fill if the Program has the input, else it returns nil.
func fillIf[T Element](b *Binding, name string, x *buffer, shape ...int64) []T {
	if !b.has(name) {
		return nil
	}
	return fill[T](b, name, x, shape...)
}

// loadBinding makes a session with one binding.
func loadBinding(e *Env, p models.Program) (*Binding, error) {
	s, err := e.Load(p)
	if err != nil {
		return nil, err
	}
	b, err := s.NewBinding()
	if err != nil {
		s.Close()
	}
	return b, err
}

// closeSessions closes the sessions of those bindings that are not nil.
func closeSessions(bindings ...*Binding) {
	for _, b := range bindings {
		if b != nil {
			b.s.Close()
		}
	}
}
