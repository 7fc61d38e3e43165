package jinja

import (
	"regexp"
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
		"selectattr": choose(true, true), "rejectattr": choose(true, false), // choose(attribute, want)

		"capitalize": byMethod("capitalize"), "lower": byMethod("lower"), "upper": byMethod("upper"),
		"trim": byMethod("strip"), "title": titleFilter,
		"safe": safe, "string": stringFilter, "int": intFilter, "round": roundFilter, "format": formatFilter,
		"indent": indent, "replace": replaceFilter, "float": floatFilter, "abs": absFilter,
		"min": extreme(-1), "max": extreme(1), "sum": sumFilter, "reverse": reverseFilter, "groupby": groupBy, "batch": batch,
		"wordcount": wordCount,
	}
	for _, name := range strings.Fields("attr center e escape filesizeformat forceescape pprint random slice " +
		"striptags truncate urlencode urlize wordwrap xmlattr") {
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
		return orDefaultValue(o[0], "")
	}
	return v
}

func listFilter(r *run, v Value, a arguments) Value {
	a.bind(r, "list", 0)
	l := r.list(v)
	r.spend(elementCost * len(l))
	return slices.Clone(l)
}

// itemsFilter yields the pairs of a dictionary, and none of an undefined value.
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

// getter returns a function that reads an attribute such as "function.name" of a value; nil reads the value itself.
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

// caseless wraps a getter so that its texts are small letters, unless sensitive says that case counts.
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

// mapFilter yields map(NAME, ...), the results of a filter for the elements of v, or map(attribute=PATH).
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

// generator returns the results of made for the elements of v, without those that made drops; none if v is false.
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

// choose is select, or without want reject. With attribute the first argument names what is tested of each element.
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

// joinFilter returns the texts of the elements of v, or of an attribute of each, with d between them.
func joinFilter(r *run, v Value, a arguments) Value {
	o := a.bind(r, "join", 0, "d", "attribute")
	sep := r.str(orDefaultValue(o[0], ""))
	get := r.getter(orDefaultValue(o[1], nil))
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
	r.sort(l, r.caseless(r.getter(orDefaultValue(o[2], nil)), o[1]), isTrue(o[0]))
	return l
}

// dictSort returns the pairs of a dictionary in the order of its keys.
func dictSort(r *run, v Value, a arguments) Value {
	o := a.bind(r, "dictsort", 0, "case_sensitive", "by", "reverse")
	d, ok := v.(*Dict)
	if !ok {
		r.failIfUndefined(v)
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
	get := r.caseless(r.getter(orDefaultValue(o[1], nil)), o[0])
	seen := map[any]bool{}
	return r.generator(v, func(e Value) (Value, bool) {
		h := r.checkKey(get(e))
		again := seen[h]
		seen[h] = true
		return e, !again
	})
}

// extreme is the filter min (sign -1) or max (sign 1): the least or greatest element by an attribute, or by itself.
func extreme(sign int) filter {
	return func(r *run, v Value, a arguments) Value {
		o := a.bind(r, "the filter", 0, "case_sensitive", "attribute")
		key := r.caseless(r.getter(orDefaultValue(o[1], nil)), o[0])
		var best Value = &undefined{"No aggregated item, sequence was empty."}
		first := true
		for e := range r.elements(v) {
			if first || r.compare(map[int]string{-1: "<", 1: ">"}[sign], key(e), key(best)) {
				best, first = e, false
			}
		}
		return best
	}
}

func sumFilter(r *run, v Value, a arguments) Value {
	o := a.bind(r, "sum", 0, "attribute", "start")
	get, total := r.getter(orDefaultValue(o[0], nil)), orDefaultValue(o[1], 0)
	_, isText := text(total)
	r.failIf(isText, "sum() can't sum strings [use ''.join(seq) instead]")
	for e := range r.elements(v) {
		total = r.arithmetic("+", total, get(e))
	}
	return total
}

func reverseFilter(r *run, v Value, a arguments) Value {
	a.bind(r, "reverse", 0)
	l := r.reversed(v)
	if _, ok := text(v); ok {
		return joinFilter(r, l, arguments{})
	}
	return &iterator{"reversed", fromSlice(l)}
}

// groupBy returns the pairs of a value and the elements that have it, in the order of the values.
func groupBy(r *run, v Value, a arguments) Value {
	o := a.bind(r, "groupby", 1, "attribute", "default", "case_sensitive")
	get := func(e Value) Value { return orDefault(r, r.getter(o[0])(e), arguments{positional: o[1:2]}) }
	if o[1] == (Value)(absent{}) {
		get = r.getter(o[0])
	}
	key, l, groups := r.caseless(get, o[2]), slices.Clone(r.list(v)), List{}
	r.sort(l, key, false)
	for from, i := 0, 1; i <= len(l); i++ {
		if i == len(l) || !r.equal(key(l[from]), key(l[i]), 0) {
			groups, from = append(groups, tuple{get(l[from]), l[from:i:i]}), i
		}
	}
	return groups
}

// batch cuts v into rows of linecount elements, and fills the last row with fill_with if that is given.
func batch(r *run, v Value, a arguments) Value {
	o := a.bind(r, "batch", 1, "linecount", "fill_with")
	n := r.intOr(o[0], 0)
	r.failIf(n < 1, "batch wants a linecount of at least 1")
	var rows []Value
	for part := range slices.Chunk(r.list(v), n) {
		row := slices.Clone(List(part))
		if given(o[1]) && len(row) < n {
			r.spendTimes(n, elementCost)
			row = append(row, slices.Repeat(List{o[1]}, n-len(row))...)
		}
		rows = append(rows, row)
	}
	return &iterator{"generator", fromSlice(rows)}
}

// word matches a word for wordcount.
var word = regexp.MustCompile(`[\pL\pN\pM_]+`)

func wordCount(r *run, v Value, a arguments) Value {
	a.bind(r, "wordcount", 0)
	return len(word.FindAllStringIndex(r.str(v), -1))
}
