package jinja

import "slices"

// arguments are the values of a call.
type arguments struct {
	positional []Value
	names      []string
	named      []Value
}

// callArgs are the arguments of a call as written.
type callArgs struct {
	positional []expr
	names      []string
	named      []expr
	list       expr // *list; nil if there is none
}

func (a callArgs) eval(r *run, s *scope) arguments {
	v := arguments{evalAll(r, s, a.positional), slices.Clone(a.names), evalAll(r, s, a.named)}
	if a.list != nil {
		v.positional = append(v.positional, r.list(a.list(r, s))...)
	}
	return v
}

// take removes a named argument and returns it.
func (a *arguments) take(name string) (Value, bool) {
	i := slices.Index(a.names, name)
	if i < 0 {
		return nil, false
	}
	v := a.named[i]
	a.names, a.named = slices.Delete(slices.Clone(a.names), i, i+1), slices.Delete(slices.Clone(a.named), i, i+1)
	return v, true
}

// An absent argument was not given.
type absent struct{}

// bind returns the arguments in the order of the parameters; absent{} stands for those
// that were not given. It fails if there are others, or fewer than required.
func (a arguments) bind(r *run, what string, required int, params ...string) []Value {
	values := make([]Value, len(params))
	if len(a.positional) > len(params) {
		r.fail("%s takes at most %d arguments (%d given)", what, len(params), len(a.positional))
	}
	for i := range values {
		values[i] = absent{}
	}
	copy(values, a.positional)
	for i, name := range a.names {
		at := slices.Index(params, name)
		if at < 0 {
			r.fail("%s got an unexpected keyword argument '%s'", what, name)
		}
		if values[at] != (Value)(absent{}) {
			r.fail("%s got multiple values for argument '%s'", what, name)
		}
		values[at] = a.named[i]
	}
	for i := range required {
		if _, ok := values[i].(absent); ok {
			r.fail("%s is missing the argument '%s'", what, params[i])
		}
	}
	return values
}

// valueOr returns an argument converted by as, or its default. If as cannot convert it,
// valueOr fails with a message that names the value's type.
func valueOr[T any](r *run, v Value, otherwise T, as func(Value) (T, bool), message string) T {
	if v == (Value)(absent{}) {
		return otherwise
	}
	x, ok := as(v)
	if !ok {
		r.failIfUndefined(v)
		r.fail(message, typeName(v))
	}
	return x
}

func (r *run) intOr(v Value, otherwise int) int {
	return valueOr(r, v, otherwise, integer, "'%s' object cannot be interpreted as an integer")
}

func (r *run) textOr(v Value, otherwise string) string {
	return valueOr(r, v, otherwise, text, "want a string, not '%s'")
}

// isTrue is the truth of an argument, which is false by default.
func isTrue(v Value) bool { return v != Value(absent{}) && truth(v) }

// given tells whether an argument was given and is not None.
func given(v Value) bool {
	_, ok := v.(absent)
	return !ok && v != nil
}

// failIfUndefined fails if v is undefined.
func (r *run) failIfUndefined(v Value) {
	if u, ok := v.(*undefined); ok {
		r.fail("%s", u.message)
	}
}

// call calls a function or macro.
func (r *run) call(f Value, a arguments) Value {
	switch f := f.(type) {
	case *function:
		return f.call(r, a)
	case *macro:
		return f.call(r, a)
	}
	r.failIfUndefined(f)
	r.fail("'%s' object is not callable", typeName(f))
	return nil
}

// A macro is the result of a macro statement; its scope is the statement's.
type macro struct {
	name     string
	params   []string
	defaults []expr // defaults of the last params
	body     []stmt
	around   *scope
}

// enter counts nested calls; the returned function undoes it.
func (r *run) enter() func() {
	r.calls++
	r.failIf(r.calls > maxCalls, "macros call each other deeper than %d", maxCalls)
	return func() { r.calls-- }
}

// call runs the macro's body with the arguments, and returns the text that it writes.
func (m *macro) call(r *run, a arguments) Value {
	defer r.enter()()             // bounds how deep calls nest
	line := r.line                // of the call, for errors behind it
	s := &scope{around: m.around} // the scope of the macro statement, not that of the call
	given := min(len(a.positional), len(m.params))
	var missing []int
	for i, param := range m.params {
		if i < given {
			s.set(param, a.positional[i])
		} else if v, ok := a.take(param); ok {
			s.set(param, v)
		} else {
			missing = append(missing, i)
		}
	}
	if len(a.names) > 0 {
		r.fail("macro %s takes no keyword argument %s", quote(m.name), quote(a.names[0]))
	}
	if len(a.positional) > len(m.params) {
		r.fail("macro %s takes not more than %d argument(s)", quote(m.name), len(m.params))
	}
	for _, i := range missing { // last, since a default may read other parameters
		param := m.params[i]
		if at := i - (len(m.params) - len(m.defaults)); at >= 0 {
			s.set(param, m.defaults[at](r, s))
		} else {
			s.set(param, &undefined{"parameter " + quote(param) + " was not provided"})
		}
	}
	out := r.capture(s, m.body)
	r.line = line
	return out
}
