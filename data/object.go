package data

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"onering/tokenize"
)

// An Object is a row, or a structure inside one, with its members in the order
// of the file. A value is nil, bool, int64, uint64, float64, string, []byte,
// json.Number (a number of a JSON file, as written), []any or Object.
type Object []Member

// A Member is a named value of an Object.
type Member struct {
	Name  string
	Value any
}

// Get returns the value of that name, and whether there is one.
func (o Object) Get(name string) (any, bool) {
	for i := range o {
		if o[i].Name == name {
			return o[i].Value, true
		}
	}
	return nil, false
}

// Lookup returns the value of a column, or of one inside a structure by a path
// with dots such as reward_model.ground_truth, and whether there is one.
func (o Object) Lookup(path string) (any, bool) { return lookup(o, path) }

// Texts returns what a column holds: a text, a number as it is written, or a list of them; nil for
// null and without the column.
func (o Object) Texts(name string) ([]string, error) {
	value, _ := o.Get(name)
	if value == nil {
		return nil, nil
	}
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	texts := make([]string, len(list))
	for i, x := range list {
		switch x := x.(type) {
		case string:
			texts[i] = x
		case json.Number:
			texts[i] = string(x)
		default:
			return nil, fmt.Errorf("%s: must be a text, a number or a list of them", name)
		}
	}
	return texts, nil
}

// Golds returns the right answers of a row: the first column that has one of the names by which
// files of problems have them. In a line of a run's rollouts, answer is what the response states.
func (o Object) Golds() ([]string, error) {
	for _, name := range append([]string{"answers"}, AnswerNames...) {
		if list, err := o.Texts(name); list != nil || err != nil {
			return list, err
		}
	}
	return nil, nil
}

// MarshalJSON writes the members in order. A float has a decimal point (142.0), so that
// readers see the type of the column. NaN and the infinities, which JSON does not have,
// are the strings "NaN", "Infinity" and "-Infinity". Bytes that are not UTF-8 are base64.
func (o Object) MarshalJSON() ([]byte, error) { return appendJSON(nil, o), nil }

// UnmarshalJSON reads an object with its members in order. A name that is there twice
// is an error. Numbers are kept as they are written.
func (o *Object) UnmarshalJSON(text []byte) (err error) {
	*o, err = parseObject(text)
	return err
}

// appendJSON appends a value of an Object to b as MarshalJSON writes it.
func appendJSON(b []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case uint64:
		return strconv.AppendUint(b, v, 10)
	case float64:
		return appendFloat(b, v)
	case json.Number:
		return append(b, v...)
	case string:
		return appendString(b, v)
	case []byte:
		if utf8.Valid(v) {
			return appendString(b, string(v))
		}
		return appendString(b, base64.StdEncoding.EncodeToString(v))
	case []any:
		b = append(b, '[')
		for i, x := range v {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = appendJSON(b, x)
		}
		return append(b, ']')
	case Object:
		b = append(b, '{')
		for i, m := range v {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = append(appendString(b, m.Name), ": "...)
			b = appendJSON(b, m.Value)
		}
		return append(b, '}')
	}
	panic("data: a value of a type that no reader makes")
}

// appendFloat appends x with a decimal point or an exponent, as MarshalJSON says.
func appendFloat(b []byte, x float64) []byte {
	switch {
	case math.IsNaN(x):
		return append(b, `"NaN"`...)
	case math.IsInf(x, 1):
		return append(b, `"Infinity"`...)
	case math.IsInf(x, -1):
		return append(b, `"-Infinity"`...)
	case x != 0 && (math.Abs(x) < 1e-4 || math.Abs(x) >= 1e16):
		return strconv.AppendFloat(b, x, 'e', -1, 64)
	case x == math.Trunc(x):
		return strconv.AppendFloat(b, x, 'f', 1, 64)
	}
	return strconv.AppendFloat(b, x, 'f', -1, 64)
}

// appendString quotes s and escapes only what JSON requires: encoding/json also
// escapes < and &, which are frequent in LaTeX.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			i++
			switch {
			case c == '"' || c == '\\':
				b = append(b, '\\', c)
			case c == '\n':
				b = append(b, '\\', 'n')
			case c == '\r':
				b = append(b, '\\', 'r')
			case c == '\t':
				b = append(b, '\\', 't')
			case c < ' ' || c == 0x7f:
				b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			default:
				b = append(b, c)
			}
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		b = utf8.AppendRune(b, r) // U+FFFD for a byte that is not UTF-8
		i += n
	}
	return append(b, '"')
}

// fromText returns the value that a text is in JSON or as Python writes lists and
// dictionaries; nil if it is neither.
func fromText(text string) any {
	for _, text := range []string{text, tokenize.PythonJSON(text)} {
		if row, err := parseObject([]byte(`{"value": ` + text + `}`)); err == nil && len(row) == 1 {
			return row[0].Value
		}
	}
	return nil
}
