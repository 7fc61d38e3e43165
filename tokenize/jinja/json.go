package jinja

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"onering/internal/ordered"
	"onering/internal/strict"
)

// FromJSON reads a JSON value as json.loads of Python does: objects keep the order of
// their keys, and integers stay integers.
func FromJSON(data []byte) (Value, error) {
	if !json.Valid(data) {
		return nil, strict.JSON(data, new(json.RawMessage))
	}
	return readJSON(&ordered.Scanner{Data: data}, 0)
}

// readJSON reads the next value, which is nested in depth others.
func readJSON(s *ordered.Scanner, depth int) (v Value, err error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("JSON nested deeper than %d", maxDepth)
	}
	switch s.Peek() {
	case '[':
		l := List{}
		err := s.Elements(func() error {
			v, err := readJSON(s, depth+1)
			l = append(l, v)
			return err
		})
		return l, err
	case '{':
		o := NewDict()
		err := s.Members(func(key []byte) error {
			name := plain(key)
			v, err := readJSON(s, depth+1)
			if err == nil {
				o.Set(name, v)
			}
			return err
		})
		return o, err
	case '"':
		text, err := s.Text()
		return plain(text), err
	}
	raw, err := s.Raw()
	switch text := string(raw); {
	case err != nil || text == "null":
		return nil, err
	case text == "true" || text == "false":
		return text == "true", nil
	case strings.ContainsAny(text, ".eE"):
		f, err := strconv.ParseFloat(text, 64)
		if err != nil && math.IsInf(f, 0) {
			err = nil // as in Python
		}
		return f, err
	default:
		n, ok := new(big.Int).SetString(text, 10)
		if !ok || len(text) > maxDigits {
			return nil, fmt.Errorf("the integer %.20s... is too long", text)
		}
		return shrink(n), nil
	}
}

// plain returns a text in which U+FFFD stands for each byte that is not UTF-8.
func plain(text []byte) string { return string([]rune(string(text))) }

// A jsonWriter is json.dumps.
type jsonWriter struct {
	r            *run
	out          strings.Builder
	ascii        bool
	indent       string
	lines        bool // an element on each line
	comma, colon string
}

// toJSON is the filter tojson as transformers defines it: json.dumps without escapes for HTML.
func toJSON(r *run, v Value, a arguments) Value {
	o := a.bind(r, "tojson", 0, "ensure_ascii", "indent", "separators", "sort_keys")
	r.failIf(isTrue(o[3]), "tojson with sort_keys is not supported")
	w := &jsonWriter{r: r, ascii: isTrue(o[0]), comma: ", ", colon: ": "}
	if given(o[1]) {
		w.lines, w.comma, w.indent = true, ",", r.indentation(o[1], 0)
	}
	if given(o[2]) {
		both := r.list(o[2])
		r.failIf(len(both) != 2, "separators wants two strings")
		w.comma, w.colon = r.textOr(both[0], ""), r.textOr(both[1], "")
	}
	w.value(v, 0)
	return w.out.String()
}

func (w *jsonWriter) write(s string) {
	w.r.spend(len(s))
	w.out.WriteString(s)
}

// value writes v, which is nested in depth others.
func (w *jsonWriter) value(v Value, depth int) {
	w.r.spend(stepCost)
	if depth > maxDepth {
		w.r.fail("tojson: values nested deeper than %d", maxDepth)
	}
	if s, ok := text(v); ok {
		w.string(s)
		return
	}
	if l, ok := sequence(v); ok {
		w.between("[", "]", len(l), depth, func(i int) { w.value(l[i], depth+1) })
		return
	}
	if d, ok := v.(*Dict); ok {
		w.between("{", "}", d.Len(), depth, func(i int) {
			w.string(w.key(d.keys[i]))
			w.write(w.colon)
			w.value(d.values[i], depth+1)
		})
		return
	}
	w.write(w.scalar(v))
}

// scalar returns the JSON of null, a bool or a number.
func (w *jsonWriter) scalar(v Value) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case int, *big.Int:
		return w.r.scalar(v)
	case float64:
		switch {
		case math.IsNaN(v):
			return "NaN"
		case math.IsInf(v, 0):
			return strings.Replace(floatText(v), "inf", "Infinity", 1)
		}
		return floatText(v)
	}
	w.r.fail("Object of type %s is not JSON serializable", typeName(v))
	return ""
}

// key returns a key of a dictionary as text.
func (w *jsonWriter) key(v Value) string {
	if s, ok := text(v); ok {
		return s
	}
	if _, ok := v.(tuple); ok {
		w.r.fail("keys must be str, int, float, bool or None, not tuple")
	}
	return w.scalar(v)
}

// between writes n elements in brackets, with commas between and, if w.lines, each on its own line at its depth.
func (w *jsonWriter) between(open, end string, n, depth int, element func(i int)) {
	newline := func(depth int) {
		if w.lines {
			w.r.spendTimes(depth, len(w.indent))
			w.write("\n" + strings.Repeat(w.indent, depth))
		}
	}
	w.write(open)
	for i := range n {
		if i > 0 {
			w.write(w.comma)
		}
		newline(depth + 1)
		element(i)
	}
	if n > 0 {
		newline(depth)
	}
	w.write(end)
}

// sort sorts in place by the result of key; equal elements keep their order.
func (r *run) sort(values []Value, key func(Value) Value, reverse bool) {
	type pair struct{ key, value Value }
	pairs := make([]pair, len(values))
	for i, v := range values {
		r.spend(elementCost)
		pairs[i] = pair{key(v), v}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int {
		c, ok := r.order(a.key, b.key)
		if !ok {
			r.failIfUndefined(a.key)
			r.failIfUndefined(b.key)
			r.fail("'<' not supported between instances of '%s' and '%s'", typeName(b.key), typeName(a.key))
		}
		if reverse {
			return -c
		}
		return c
	})
	for i := range values {
		values[i] = pairs[i].value
	}
}

var jsonEscapes = map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}

// string writes a text in quotes with JSON's escapes, and with ascii \u for every character beyond ASCII.
func (w *jsonWriter) string(s string) {
	w.r.spend(len(s))
	w.out.WriteByte('"')
	for _, c := range s {
		escaped, ok := jsonEscapes[c]
		switch {
		case ok:
			w.out.WriteString(escaped)
		case c < ' ' || w.ascii && c > '~' && c < 0x10000:
			fmt.Fprintf(&w.out, `\u%04x`, c)
		case w.ascii && c >= 0x10000:
			high, low := utf16.EncodeRune(c)
			fmt.Fprintf(&w.out, `\u%04x\u%04x`, high, low)
		default:
			w.out.WriteRune(c)
		}
	}
	w.out.WriteByte('"')
}
