package jinja

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"math/big"
	"unicode/utf8"
)

// A Value is a value of a template, as in Python: nil for None, bool, int, *big.Int for larger integers,
// float64, string, List, tuple, *Dict, and kinds that only templates make. Lists and dictionaries never change
// once a template can see them: the sandbox of the reference forbids it.
type Value = any

type (
	// A List is a Python list.
	List []Value
	// A tuple is a Python tuple.
	tuple []Value
	// markup is text made by the filters safe and escape.
	markup string
)

// An undefined stands for a name, key or attribute that does not exist. Most uses of it are errors with its message.
type undefined struct{ message string }

// A namespace has attributes that set can change.
type namespace struct{ attributes *Dict }

// A view is the result of range and of the methods keys, values and items of a dictionary.
type view struct {
	kind     string // range, dict_keys, dict_values or dict_items
	elements []Value
	text     string // text of a range
}

// An iterator is the result of filters such as map and select: it can be read once.
type iterator struct {
	name string
	next func() (Value, bool)
}

// A function can be called.
type function struct {
	name string
	call func(r *run, a arguments) Value
}

// A Dict is a Python dictionary, which keeps the order of its keys.
type Dict struct {
	keys, values []Value
	at           map[any]int
}

// NewDict returns a dictionary of pairs: a key, its value, and so on.
func NewDict(pairs ...Value) *Dict {
	d := &Dict{at: make(map[any]int, len(pairs)/2)}
	for i := 0; i+1 < len(pairs); i += 2 {
		d.Set(pairs[i], pairs[i+1])
	}
	return d
}

// Len returns the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

// Set sets the value of a key, which must be a string, number, bool or nil.
func (d *Dict) Set(key, value Value) {
	h, ok := hash(key)
	if !ok {
		panic(fmt.Sprintf("jinja: a %s cannot be a key", typeName(key)))
	}
	if i, ok := d.at[h]; ok {
		d.values[i] = value
		return
	}
	d.at[h] = len(d.keys)
	d.keys, d.values = append(d.keys, key), append(d.values, value)
}

// Get returns the value of a key; ok is false if there is none.
func (d *Dict) Get(key Value) (value Value, ok bool) {
	h, ok := hash(key)
	if !ok {
		return nil, false
	}
	i, ok := d.at[h]
	if !ok {
		return nil, false
	}
	return d.values[i], true
}

// All yields the keys and values in their order.
func (d *Dict) All() iter.Seq2[Value, Value] {
	return func(yield func(key, value Value) bool) {
		for i, key := range d.keys {
			if !yield(key, d.values[i]) {
				return
			}
		}
	}
}

// Clone returns a separate dictionary with the same keys and values.
func (d *Dict) Clone() *Dict {
	c := NewDict()
	for key, value := range d.All() {
		c.Set(key, value)
	}
	return c
}

// hash returns the key of a value in a Go map: equal values have equal keys, such as 1, 1.0 and true, and others do
// not: texts and large integers begin with another byte. ok is false for values that cannot be a key.
func hash(v Value) (h any, ok bool) {
	switch v := v.(type) {
	case nil:
		return struct{}{}, true
	case bool:
		return truthInt(v), true
	case int:
		return v, true
	case *big.Int:
		return "\x00" + v.String(), true
	case float64:
		if i := int(v); float64(i) == v && math.Abs(v) < 1<<62 {
			return i, true
		}
		return v, true
	case string:
		return "s" + v, true
	case markup:
		return "s" + string(v), true
	case List, tuple, *Dict: // Python takes tuples, which no chat template has for keys
		return nil, false
	}
	return v, true // the other kinds are pointers, each equal to itself alone
}

func truthInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// shrink returns n as an int where it fits.
func shrink(n *big.Int) Value {
	if n.IsInt64() {
		return int(n.Int64())
	}
	return n
}

// typeNames are Python's names of types by Go's.
var typeNames = map[string]string{
	"<nil>": "NoneType", "bool": "bool", "int": "int", "*big.Int": "int", "float64": "float", "string": "str", "jinja.markup": "Markup",
	"jinja.List": "list", "jinja.tuple": "tuple", "*jinja.Dict": "dict", "*jinja.undefined": "Undefined",
	"*jinja.namespace": "Namespace", "*jinja.loop": "LoopContext", "*jinja.macro": "Macro",
}

// typeName is the name of a value's type in Python.
func typeName(v Value) string {
	switch v := v.(type) {
	case *view:
		return v.kind
	case *iterator:
		return v.name
	}
	return cmp.Or(typeNames[fmt.Sprintf("%T", v)], "function")
}

// text returns the characters of a string.
func text(v Value) (s string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case markup:
		return string(v), true
	}
	return "", false
}

// sequence returns the elements of a list or tuple.
func sequence(v Value) (elements []Value, ok bool) {
	switch v := v.(type) {
	case List:
		return v, true
	case tuple:
		return v, true
	}
	return nil, false
}

// sameSequence says whether two sequences are both lists, or both tuples.
func sameSequence(a, b Value) bool {
	_, listA := a.(List)
	_, listB := b.(List)
	return listA == listB
}

// sequenceLike returns elements as a sequence of the same kind as v.
func sequenceLike(v Value, elements []Value) Value {
	if _, ok := v.(List); ok {
		return List(elements)
	}
	return tuple(elements)
}

// integer returns a bool or int as an int.
func integer(v Value) (n int, ok bool) {
	switch v := v.(type) {
	case bool:
		return truthInt(v), true
	case int:
		return v, true
	}
	return 0, false
}

// truth is bool(v).
func truth(v Value) bool {
	switch v := v.(type) {
	case nil, *undefined:
		return false
	case bool:
		return v
	case int:
		return v != 0
	case float64:
		return v != 0
	case *Dict:
		return v.Len() > 0
	case *view:
		return len(v.elements) > 0
	}
	if s, ok := text(v); ok {
		return s != ""
	}
	if l, ok := sequence(v); ok {
		return len(l) > 0
	}
	return true
}

// length is len(v).
func (r *run) length(v Value) int {
	switch v := v.(type) {
	case *undefined:
		return 0
	case *Dict:
		return v.Len()
	case *view:
		return len(v.elements)
	}
	if s, ok := text(v); ok {
		r.payScan(len(s))
		return utf8.RuneCountInString(s)
	}
	if l, ok := sequence(v); ok {
		return len(l)
	}
	r.fail("object of type '%s' has no len()", typeName(v))
	return 0
}

// items returns the pairs of a dictionary.
func (d *Dict) items() []Value {
	pairs := make([]Value, len(d.keys))
	for i, key := range d.keys {
		pairs[i] = tuple{key, d.values[i]}
	}
	return pairs
}

// each returns a function that returns the elements of v one after the other, as
// iter(v) does; ok is false if v has no elements.
func (r *run) each(v Value) (next func() (Value, bool), ok bool) {
	switch v := v.(type) {
	case *undefined:
		return fromSlice(nil), true
	case *Dict:
		return fromSlice(v.keys), true
	case *view:
		return fromSlice(v.elements), true
	case *iterator:
		return v.next, true
	}
	if s, ok := text(v); ok {
		r.payScan(len(s))
		return func() (Value, bool) {
			if s == "" {
				return nil, false
			}
			_, n := utf8.DecodeRuneInString(s)
			first := s[:n]
			s = s[n:]
			return first, true
		}, true
	}
	l, ok := sequence(v)
	return fromSlice(l), ok
}

func fromSlice(elements []Value) func() (Value, bool) {
	i := 0
	return func() (Value, bool) {
		if i >= len(elements) {
			return nil, false
		}
		i++
		return elements[i-1], true
	}
}

// iter is each, but it fails if v has no elements.
func (r *run) iter(v Value) (next func() (Value, bool)) {
	next, ok := r.each(v)
	if !ok {
		r.fail("'%s' object is not iterable", typeName(v))
	}
	return next
}

// elements yields the elements that iter returns.
func (r *run) elements(v Value) iter.Seq[Value] {
	next := r.iter(v)
	return func(yield func(Value) bool) {
		for {
			e, ok := next()
			if !ok {
				return
			}
			r.spend(elementCost)
			if !yield(e) {
				return
			}
		}
	}
}

// list is list(v).
func (r *run) list(v Value) List {
	if l, ok := sequence(v); ok {
		return l
	}
	list := List{}
	for e := range r.elements(v) {
		list = append(list, e)
	}
	return list
}
