package runtime

// #include "ort.h"
import "C"

import (
	"fmt"
	goruntime "runtime"
	"strconv"
	"strings"
)

// A Binding is the Values that a Session runs on. Bind once and run often: a
// Run looks only at what was bound anew. One goroutine at a time may use it.
type Binding struct {
	s       *Session
	ptr     *C.OrtIoBinding
	bound   [2][]*Value // by port
	sizes   []seenSize  // by Session.sizes, as of the last check
	checked bool        // that what is bound fits together
}

// seenSize is how large a dimension that varies is, and the port where it was seen.
type seenSize struct {
	n          int64 // -1 if not seen
	side, port int
}

// NewBinding returns a Binding with nothing bound.
func (s *Session) NewBinding() (*Binding, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ptr == nil {
		return nil, fmt.Errorf("runtime: program %q: the session is %w", s.name, ErrClosed)
	}
	b := &Binding{s: s, sizes: make([]seenSize, len(s.sizes))}
	if err := check(C.onering_binding(s.ptr, &b.ptr)); err != nil {
		return nil, fmt.Errorf("runtime: program %q: making a binding: %w", s.name, err)
	}
	for side := range b.bound {
		b.bound[side] = make([]*Value, len(s.ports[side]))
	}
	s.bindings[b] = true
	return b, nil
}

// Input binds v to the input called name, in place of what was bound before.
func (b *Binding) Input(name string, v *Value) error { return b.bind(input, name, v) }

// Output binds v, which the next Run overwrites, to the output called name. An
// output that is not bound is not returned. Where the Program's Alias allows,
// v may have the very memory of that input's Value: the input is then updated
// in place.
func (b *Binding) Output(name string, v *Value) error { return b.bind(output, name, v) }

func (b *Binding) bind(side int, name string, v *Value) error {
	if b.ptr == nil {
		return fmt.Errorf("runtime: program %q: %s %q: the binding is %w", b.s.name, sides[side], name, ErrClosed)
	}
	i, ok := b.s.index[side][name]
	if !ok {
		return fmt.Errorf("runtime: program %q has no %s %q, only %s", b.s.name, sides[side], name, b.names(side))
	}
	p := &b.s.ports[side][i]
	if v == nil || v.ptr == nil {
		return b.errorf(side, i, "the value is %w", ErrClosed)
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
	if err := check(C.onering_bind(b.ptr, C.int(side), p.cname, v.ptr)); err != nil {
		return b.errorf(side, i, "binding it: %w", err)
	}
	b.bound[side][i] = v
	b.checked = false
	return nil
}

// Run runs the Program on what is bound; every input must be. The outputs are
// complete when it returns.
func (b *Binding) Run() error {
	if b.ptr == nil {
		return fmt.Errorf("runtime: program %q: the binding is %w", b.s.name, ErrClosed)
	}
	if !b.checked {
		if err := b.check(); err != nil {
			return err
		}
		b.checked = true
	}
	wait, err := b.ready()
	if err != nil {
		return err
	}
	m := b.s.env.memory
	err = check(C.onering_run(b.s.ptr, m.runOptions(), b.ptr))
	if err == nil && wait {
		err = m.wait()
	}
	goruntime.KeepAlive(b) // and with it the Values, whose memory was in use
	if err != nil {
		return fmt.Errorf("runtime: program %q: run on %s: %w", b.s.name, b.shapes(), err)
	}
	return nil
}

// ready readies the Values for a run. ONNX Runtime copies those of another memory
// than the session's: inputs when they are bound, so they are bound again, and
// outputs as part of the run, which wait then says to wait for. Both are counted.
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
				m.count(0, v.bytes)
			default:
				if err := check(C.onering_bind(b.ptr, C.int(side), b.s.ports[side][i].cname, v.ptr)); err != nil {
					return false, b.errorf(side, i, "binding it: %w", err)
				}
				m.count(v.bytes, 0)
			}
		}
	}
	return wait, nil
}

// check tells whether all that is bound fits together.
func (b *Binding) check() error {
	for i := range b.sizes {
		b.sizes[i].n = -1
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
			outputs += side
			for d, dim := range b.s.ports[side][i].dims {
				if dim.fixed >= 0 {
					continue
				}
				seen := &b.sizes[dim.size]
				if seen.n < 0 {
					*seen = seenSize{v.shape[d], side, i}
				} else if seen.n != v.shape[d] {
					return b.errorf(side, i, "dimension %s is %d, but %d in %s %q", b.s.sizes[dim.size], v.shape[d],
						seen.n, sides[seen.side], b.s.ports[seen.side][seen.port].Name)
				}
			}
		}
	}
	if outputs == 0 {
		return fmt.Errorf("runtime: program %q: no output is bound", b.s.name)
	}
	return b.checkAliases()
}

// checkAliases refuses an output over memory that the graph may still read or
// that another output writes.
func (b *Binding) checkAliases() error {
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

func overlap(v, w *Value) bool {
	if v.bytes == 0 || w.bytes == 0 {
		return false
	}
	a, b := uintptr(v.data), uintptr(w.data)
	return a < b+uintptr(w.bytes) && b < a+uintptr(v.bytes)
}

// Close lets go of what is bound; the Values themselves stay open. Closing
// twice is fine.
func (b *Binding) Close() {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.free()
}

// free is Close under s.mu.
func (b *Binding) free() {
	if b.ptr == nil {
		return
	}
	C.onering_release_binding(b.ptr)
	b.ptr = nil
	b.bound = [2][]*Value{}
	delete(b.s.bindings, b)
}

func (b *Binding) errorf(side, i int, format string, args ...any) error {
	args = append([]any{b.s.name, sides[side], b.s.ports[side][i].Name}, args...)
	return fmt.Errorf("runtime: program %q: %s %q: "+format, args...)
}

func (b *Binding) names(side int) string {
	var out []string
	for _, p := range b.s.ports[side] {
		out = append(out, strconv.Quote(p.Name))
	}
	return strings.Join(out, ", ")
}

// shapes lists the sizes that vary, for messages, such as "B=2 T=5".
func (b *Binding) shapes() string {
	var out []string
	for i, size := range b.sizes {
		out = append(out, fmt.Sprintf("%s=%d", b.s.sizes[i], size.n))
	}
	return strings.Join(out, " ")
}

// fits tells whether a shape has the dimensions that are fixed.
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
