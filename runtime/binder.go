package runtime

import "onering/models"

// A binder binds Values one after the other and keeps the first error, so that the
// caller checks errors once.
type binder struct {
	b   *Binding
	err error
}

// in binds an input. err is the error of making v, if there was one.
func (b *binder) in(name string, v *Value, err error) {
	if b.err == nil {
		b.err = err
	}
	if b.err == nil {
		b.err = b.b.Input(name, v)
	}
}

// out binds an output. err is the error of making v, if there was one.
func (b *binder) out(name string, v *Value, err error) {
	if b.err == nil {
		b.err = err
	}
	if b.err == nil {
		b.err = b.b.Output(name, v)
	}
}

// run runs the Program, or returns the first error of binding.
func (b *binder) run() error {
	if b.err != nil {
		return b.err
	}
	return b.b.Run()
}

// fill binds an input of the given shape and returns its elements, for the caller
// to fill before the run. After an error it returns nil.
func fill[T Element](b *binder, name string, x *buffer, shape ...int64) []T {
	if b.err != nil {
		return nil
	}
	v, err := x.of(shape...)
	if b.in(name, v, err); b.err != nil {
		return nil
	}
	return elements[T](x)
}

// take binds an output of the given shape in the host's memory and returns its
// elements, which the run writes. After an error it returns nil.
func take[T Element](b *binder, name string, x *buffer, shape ...int64) []T {
	if b.err != nil {
		return nil
	}
	v, err := x.of(shape...)
	if b.out(name, v, err); b.err != nil {
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

// has reports whether the Program has an input. The kinds of attention differ in
// the inputs that they need.
func (b *binder) has(name string) bool {
	_, ok := b.b.s.index[input][name]
	return ok
}

// fillIf is fill if the Program has the input. Else it returns nil.
func fillIf[T Element](b *binder, name string, x *buffer, shape ...int64) []T {
	if !b.has(name) {
		return nil
	}
	return fill[T](b, name, x, shape...)
}

// loadBinding makes a session with one binding.
func (e *Env) loadBinding(p models.Program) (*Binding, error) {
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
