package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// A filter computes a value from another.
type filter func(r *run, v Value, a arguments) Value

var filters map[string]filter

func init() { // set in init, since map and select read the tables
	filters = map[string]filter{
		"count": lengthFilter, "length": lengthFilter,
		"d": orDefault, "default": orDefault, "dictsort": dictSort, "first": first, "last": last,
		"items": itemsFilter, "join": joinFilter, "list": listFilter, "map": mapFilter,
		"sort": sortFilter, "unique": unique, "tojson": toJSON,
		"select": choose(false, true), "reject": choose(false, false),
		"selectattr": choose(true, true), "rejectattr": choose(true, false),

		"capitalize": byMethod("capitalize"), "lower": byMethod("lower"), "upper": byMethod("upper"),
		"trim": byMethod("strip"), "title": titleFilter,
		"safe": safe, "string": stringFilter, "int": intFilter, "round": roundFilter, "format": formatFilter,
		"indent": indent, "replace": replaceFilter,
	}
	for _, name := range strings.Fields("abs attr batch center e escape filesizeformat float forceescape groupby max min pprint random reverse slice striptags sum truncate urlencode urlize wordcount wordwrap xmlattr") {
		filters[name] = func(r *run, _ Value, _ arguments) Value {
			r.fail("the filter %s is not supported", quote(name))
			return nil
		}
	}
}

// filter applies the filter of that name.
func (r *run) filter(name string, v Value, a arguments) Value {
	f, ok := filters[name]
	if !ok {
		r.fail("No filter named %s.", quote(name))
	}
	r.payCall("filter", name, v, a)
	return f(r, v, a)
}

func lengthFilter(r *run, v Value, a arguments) Value {
	a.bind(r, "length", 0)
	return r.length(v)
}

func orDefault(r *run, v Value, a arguments) Value {
	o := a.bind(r, "default", 0, "default_value", "boolean")
	if _, ok := v.(*undefined); ok || isTrue(o[1]) && !truth(v) {
		return or(o[0], "")
	}
	return v
}

func listFilter(r *run, v Value, a arguments) Value {
	a.bind(r, "list", 0)
	l := r.list(v)
	r.spend(elementCost * len(l))
	return slices.Clone(l)
}

func itemsFilter(r *run, v Value, a arguments) Value {
	a.bind(r, "items", 0)
	switch v := v.(type) {
	case *undefined:
		return &iterator{"generator", fromSlice(nil)}
	case *Dict:
		r.spend(2 * elementCost * v.Len())
		return &iterator{"generator", fromSlice(v.items())}
	}
	r.fail("Can only get item pairs from a mapping.")
	return nil
}

func first(r *run, v Value, a arguments) Value {
	a.bind(r, "first", 0)
	for e := range r.elements(v) {
		return e
	}
	return &undefined{"No first item, sequence was empty."}
}

func last(r *run, v Value, a arguments) Value {
	a.bind(r, "last", 0)
	l := r.list(r.reversed(v))
	if len(l) == 0 {
		return &undefined{"No last item, sequence was empty."}
	}
	return l[0]
}

// reversed returns the elements of Python's reversed, as a list.
func (r *run) reversed(v Value) List {
	if _, ok := v.(*iterator); ok {
		r.fail("'%s' object is not reversible", typeName(v))
	}
	l := slices.Clone(r.list(v))
	r.spend(4 * len(l))
	slices.Reverse(l)
	return l
}

// getter returns a function that reads an attribute such as "function.name" of a value;
// nil reads the value itself.
func (r *run) getter(path Value) func(Value) Value {
	var keys []Value
	if s, ok := text(path); ok {
		for _, part := range strings.Split(s, ".") {
			if n, err := strconv.Atoi(part); err == nil && n >= 0 && part[0] != '+' {
				keys = append(keys, n)
			} else {
				keys = append(keys, part)
			}
		}
	} else if given(path) {
		keys = []Value{path}
	}
	return func(v Value) Value {
		for _, key := range keys {
			v = r.item(v, key)
		}
		return v
	}
}

// caseless wraps a getter so that case is ignored, unless case should count.
func (r *run) caseless(get func(Value) Value, sensitive Value) func(Value) Value {
	if isTrue(sensitive) {
		return get
	}
	return func(v Value) Value {
		v = get(v)
		if s, ok := text(v); ok {
			r.spend(len(s))
			return lower(s)
		}
		return v
	}
}

func mapFilter(r *run, v Value, a arguments) Value {
	var apply func(Value) Value
	if len(a.positional) == 0 {
		path, ok := a.take("attribute")
		r.failIf(!ok, "map requires a filter argument")
		if len(a.names) > 0 {
			r.fail("Unexpected keyword argument %s", quote(a.names[0]))
		}
		apply = r.getter(path)
	} else {
		name := r.textOr(a.positional[0], "")
		rest := arguments{a.positional[1:], a.names, a.named}
		apply = func(v Value) Value { return r.filter(name, v, rest) }
	}
	return r.generator(v, func(e Value) (Value, bool) { return apply(e), true })
}

// generator returns the results of made for the elements of v, without those that made
// drops; none if v is false.
func (r *run) generator(v Value, made func(Value) (made Value, kept bool)) *iterator {
	next := fromSlice(nil)
	if truth(v) {
		next = r.iter(v)
	}
	return &iterator{"generator", func() (Value, bool) {
		for {
			e, ok := next()
			if !ok {
				return nil, false
			}
			r.spend(elementCost)
			if m, kept := made(e); kept {
				return m, true
			}
		}
	}}
}

// choose is select, reject and their variants for attributes.
func choose(attribute, want bool) filter {
	return func(r *run, v Value, a arguments) Value {
		get := func(v Value) Value { return v }
		if attribute {
			r.failIf(len(a.positional) == 0, "Missing parameter for attribute name")
			get = r.getter(a.positional[0])
			a.positional = a.positional[1:]
		}
		is := truth
		if len(a.positional) > 0 {
			name := r.textOr(a.positional[0], "")
			rest := arguments{a.positional[1:], a.names, a.named}
			is = func(v Value) bool { return r.test(name, v, rest) }
		}
		return r.generator(v, func(e Value) (Value, bool) { return e, is(get(e)) == want })
	}
}

func joinFilter(r *run, v Value, a arguments) Value {
	o := a.bind(r, "join", 0, "d", "attribute")
	sep := r.str(or(o[0], ""))
	get := r.getter(or(o[1], nil))
	var out strings.Builder
	first := true
	for e := range r.elements(v) {
		if !first {
			r.spend(len(sep))
			out.WriteString(sep)
		}
		first = false
		s := r.str(get(e))
		r.spend(len(s))
		out.WriteString(s)
	}
	return out.String()
}

func sortFilter(r *run, v Value, a arguments) Value {
	o := a.bind(r, "sort", 0, "reverse", "case_sensitive", "attribute")
	path, ok := text(o[2])
	r.failIf(ok && strings.Contains(path, ","), "sort by several attributes is not supported")
	l := slices.Clone(r.list(v))
	r.sort(l, r.caseless(r.getter(or(o[2], nil)), o[1]), isTrue(o[0]))
	return l
}

func dictSort(r *run, v Value, a arguments) Value {
	o := a.bind(r, "dictsort", 0, "case_sensitive", "by", "reverse")
	d, ok := v.(*Dict)
	if !ok {
		r.use(v)
		r.fail("dictsort wants a dict, not '%s'", typeName(v))
	}
	by := r.textOr(o[1], "key")
	r.failIf(by != "key", "dictsort by %s is not supported", quote(by))
	pairs := d.items()
	r.sort(pairs, r.caseless(func(v Value) Value { return v.(tuple)[0] }, o[0]), isTrue(o[2]))
	return List(pairs)
}

func unique(r *run, v Value, a arguments) Value {
	o := a.bind(r, "unique", 0, "case_sensitive", "attribute")
	get := r.caseless(r.getter(or(o[1], nil)), o[0])
	seen := map[any]bool{}
	return r.generator(v, func(e Value) (Value, bool) {
		h := r.key(get(e))
		again := seen[h]
		seen[h] = true
		return e, !again
	})
}
