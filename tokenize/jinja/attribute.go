package jinja

import (
	"fmt"
	"strings"
)

// attribute is of.name: an attribute or method, else the value stored under the name.
func (r *run) attribute(of Value, name string) Value {
	if v, ok := r.attributeOrMethod(of, name); ok {
		return v
	}
	if d, ok := of.(*Dict); ok {
		if v, ok := d.Get(name); ok {
			return v
		}
	}
	return missing(of, name)
}

// item is of[key]: the value stored under the key, else an attribute or method.
func (r *run) item(of, key Value) Value {
	r.failIfUndefined(of)
	r.pay("operator", "[]", of, key)
	if v, ok := r.lookUp(of, key); ok {
		return v
	}
	if name, ok := text(key); ok {
		if v, ok := r.attributeOrMethod(of, name); ok {
			return v
		}
	}
	return missing(of, key)
}

// missing returns the value of something that does not exist.
func missing(of, key Value) Value {
	what := typeName(of) + " object"
	if of == nil {
		what = "None"
	}
	if name, ok := text(key); ok {
		return &undefined{quote(what) + " has no attribute " + quote(name)}
	}
	if i, ok := key.(int); ok {
		return &undefined{fmt.Sprintf("%s has no element %d", what, i)}
	}
	return &undefined{what + " has no such element"}
}

// lookUp returns the result of Python's of[key]; ok is false if Python refuses.
func (r *run) lookUp(of, key Value) (Value, bool) {
	if d, ok := of.(*Dict); ok {
		r.payKey(key)
		return d.Get(key)
	}
	i, ok := integer(key)
	if !ok {
		return nil, false
	}
	if s, ok := text(of); ok {
		r.payScan(len(s))
		characters := []rune(s)
		if i < 0 {
			i += len(characters)
		}
		if i < 0 || i >= len(characters) {
			return nil, false
		}
		return string(characters[i]), true
	}
	l, ok := sequence(of)
	if v, isView := of.(*view); isView && v.kind == "range" {
		l, ok = v.elements, true
	}
	if i < 0 {
		i += len(l)
	}
	if !ok || i < 0 || i >= len(l) {
		return nil, false
	}
	return l[i], true
}

// attributeOrMethod returns an attribute or a method of a value. What the sandbox of jinja2 refuses is an
// undefined value (unsafe), whose message says so.
func (r *run) attributeOrMethod(of Value, name string) (Value, bool) {
	r.failIfUndefined(of)
	if strings.HasPrefix(name, "__") {
		if _, ok := of.(*Dict); !ok || name == "__class__" {
			return unsafe(of, name), true
		}
		return nil, false // a key of the dictionary may have this name
	}
	switch of := of.(type) {
	case string, markup:
		if m, ok := textMethods[name]; ok {
			return bound(of, name, m), true
		}
	case *Dict:
		if m, ok := dictMethods[name]; ok {
			return bound(of, name, m), true
		}
		switch name {
		case "clear", "pop", "popitem", "setdefault", "update":
			return unsafe(of, name), true
		}
	case List:
		switch name {
		case "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove":
			return unsafe(of, name), true
		}
		if name == "copy" {
			return unsupported(name), true
		}
		if m, ok := listMethods[name]; ok {
			return bound(of, name, m), true
		}
	case tuple:
		r.failIf(name == "grouper" || name == "list", "the attribute %s of a group is not supported; write for KEY, LIST in", quote(name))
		if m, ok := listMethods[name]; ok {
			return bound(of, name, m), true
		}
	case *namespace:
		return of.attributes.Get(name)
	case *loop:
		return of.attribute(r, name)
	case *macro:
		return of.name, name == "name"
	}
	return nil, false
}

// unsafe returns the value of an attribute that the sandbox refuses.
func unsafe(of Value, name string) Value {
	return &undefined{"access to attribute " + quote(name) + " of " + quote(typeName(of)) + " object is unsafe."}
}

// A method is a function of a value.
type method func(r *run, of Value, a arguments) Value

func bound(of Value, name string, m method) *function {
	return &function{name, func(r *run, a arguments) Value {
		r.payCall("method", name, of, a)
		return m(r, of, a)
	}}
}

// slice is of[start:stop:step]; bounds that are left out are nil.
func (r *run) slice(of Value, bounds []Value) Value {
	r.failIfUndefined(of)
	r.pay("operator", "[:]", of)
	s, isText := text(of)
	l, isList := sequence(of)
	var runes []rune
	if v, ok := of.(*view); ok && v.kind == "range" {
		l, isList, of = v.elements, true, List(v.elements)
	}
	n := len(l)
	if isText {
		runes = []rune(s)
		n = len(runes)
	} else if !isList {
		return missing(of, nil)
	}
	start, step, count := r.bounds(bounds, n)
	r.spend(4 * count)
	if isText {
		out := make([]rune, count)
		for i := range out {
			out[i] = runes[start+i*step]
		}
		return like(of, string(out))
	}
	out := make([]Value, count)
	for i := range out {
		out[i] = l[start+i*step]
	}
	return sequenceLike(of, out)
}

// bounds returns the first place, the step and the number of places that the bounds start, stop and step take of n
// places; bounds that are left out are nil.
func (r *run) bounds(bounds []Value, n int) (start, step, count int) {
	step = 1
	if bounds[2] != nil {
		step = r.intOr(bounds[2], 1)
		r.failIf(step == 0, "slice step cannot be zero")
		step = max(min(step, n+1), -n-1) // beyond any sequence
	}
	low, high := 0, n
	if step < 0 {
		low, high = -1, n-1
	}
	place := func(v Value, otherwise int) int {
		if v == nil {
			return otherwise
		}
		i := r.intOr(v, 0)
		if i < 0 {
			i += n
		}
		return max(low, min(i, high))
	}
	if step > 0 {
		start = place(bounds[0], low)
		return start, step, max(0, (place(bounds[1], high)-start+step-1)/step)
	}
	start = place(bounds[0], high)
	return start, step, max(0, (start-place(bounds[1], low)-step-1)/-step)
}
