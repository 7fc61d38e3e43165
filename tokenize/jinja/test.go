package jinja

import "unicode"

// A test decides a question about a value.
type test struct {
	name   string
	params int // how many arguments it takes
	is     func(r *run, v Value, a []Value) bool
}

var tests map[string]test

// init fills tests, each by all of its names, with the functions that say whether a value passes.
func init() {
	tests = map[string]test{}
	add := func(params int, is func(r *run, v Value, a []Value) bool, names ...string) {
		for _, name := range names {
			tests[name] = test{name, params, is}
		}
	}
	// Plain tests look only at the value.
	plain := func(is func(v Value) bool, names ...string) {
		add(0, func(_ *run, v Value, _ []Value) bool { return is(v) }, names...)
	}
	comparison := func(op string, names ...string) {
		add(1, func(r *run, v Value, a []Value) bool { return r.compare(op, v, a[0]) }, names...)
	}
	plain(func(v Value) bool { return typeName(v) != "Undefined" }, "defined")
	plain(func(v Value) bool { return typeName(v) == "Undefined" }, "undefined")
	plain(func(v Value) bool { return v == nil }, "none")
	plain(func(v Value) bool { _, ok := v.(bool); return ok }, "boolean")
	plain(func(v Value) bool { return v == false }, "false")
	plain(func(v Value) bool { return v == true }, "true")
	plain(func(v Value) bool { return typeName(v) == "int" }, "integer")
	plain(func(v Value) bool { return typeName(v) == "float" }, "float")
	plain(func(v Value) bool { _, ok := number(v); return ok }, "number")
	plain(func(v Value) bool { _, ok := text(v); return ok }, "string")
	plain(func(v Value) bool { return typeName(v) == "dict" }, "mapping")
	plain(isSequence, "sequence")
	add(0, func(r *run, v Value, _ []Value) bool { _, ok := r.each(v); return ok || typeName(v) == "LoopContext" }, "iterable")
	add(0, func(r *run, v Value, _ []Value) bool { return r.equal(r.arithmetic("%", v, 2), 1, 0) }, "odd")
	add(0, func(r *run, v Value, _ []Value) bool { return r.equal(r.arithmetic("%", v, 2), 0, 0) }, "even")
	add(1, func(r *run, v Value, a []Value) bool { return r.equal(r.arithmetic("%", v, a[0]), 0, 0) }, "divisibleby")
	add(1, func(r *run, v Value, a []Value) bool { return r.compare("in", v, a[0]) }, "in")
	comparison("==", "==", "eq", "equalto")
	comparison("!=", "!=", "ne")
	comparison(">", ">", "gt", "greaterthan")
	comparison(">=", ">=", "ge")
	comparison("<", "<", "lt", "lessthan")
	comparison("<=", "<=", "le")
	plain(func(v Value) bool { n := typeName(v); return n == "function" || n == "Macro" }, "callable")
	plain(func(v Value) bool { _, ok := v.(markup); return ok }, "escaped")
	plain(func(v Value) bool { s, ok := v.(string); _, known := filters[s]; return ok && known }, "filter")
	plain(func(v Value) bool { s, ok := v.(string); _, known := tests[s]; return ok && known }, "test")
	add(0, func(r *run, v Value, _ []Value) bool { return hasCase(r.str(v), unicode.IsLower) }, "lower")
	add(0, func(r *run, v Value, _ []Value) bool { return hasCase(r.str(v), unicode.IsUpper) }, "upper")
	add(1, func(r *run, v Value, a []Value) bool {
		_, isBool := a[0].(bool)
		r.failIf(a[0] != nil && !isBool, "the test sameas is supported with none, true and false")
		return v == a[0]
	}, "sameas")
}

func isSequence(v Value) bool {
	switch v := v.(type) {
	case *undefined, *Dict:
		return true
	case *view:
		return v.kind == "range"
	}
	_, isText := text(v)
	_, ok := sequence(v)
	return ok || isText
}

// test applies the test of that name.
func (r *run) test(name string, v Value, a arguments) bool {
	t, ok := tests[name]
	if !ok {
		r.fail("No test named %s.", quote(name))
	}
	r.payCall("test", name, v, a)
	if len(a.positional) != t.params || len(a.names) > 0 {
		r.fail("the test %s takes %d arguments", quote(name), t.params)
	}
	return t.is(r, v, a.positional)
}
