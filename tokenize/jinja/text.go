package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// str is str(v).
func (r *run) str(v Value) string {
	switch v := v.(type) {
	case string:
		return v
	case markup:
		return string(v)
	case *undefined:
		return ""
	}
	var out strings.Builder
	r.repr(&out, v, 0)
	return out.String()
}

// repr writes repr(v), where v is nested in depth other values.
func (r *run) repr(out *strings.Builder, v Value, depth int) {
	if depth > maxDepth {
		r.fail("values nested deeper than %d", maxDepth)
	}
	before := out.Len()
	switch v := v.(type) {
	case *Dict:
		r.reprDict(out, v, depth)
	case List:
		r.reprList(out, "[", v, "]", depth)
	case tuple:
		end := ")"
		if len(v) == 1 {
			end = ",)"
		}
		r.reprList(out, "(", v, end, depth)
	case *view:
		if v.kind == "range" {
			out.WriteString(v.text)
			break
		}
		r.reprList(out, v.kind+"([", v.elements, "])", depth)
	default:
		out.WriteString(r.scalar(v))
		r.spend(out.Len() - before)
	}
	r.spend(stepCost)
}

// scalar returns repr(v) for a value without elements.
func (r *run) scalar(v Value) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int:
		return strconv.Itoa(v)
	case *big.Int:
		return v.String()
	case float64:
		return floatText(v)
	case string:
		return quote(v)
	case markup:
		return "Markup(" + quote(string(v)) + ")"
	case *undefined:
		return "Undefined"
	case *iterator:
		r.fail("a %s cannot be written; make a list of it", v.name)
	}
	r.fail("a %s cannot be written", typeName(v))
	return ""
}

func (r *run) reprList(out *strings.Builder, open string, elements []Value, end string, depth int) {
	out.WriteString(open)
	for i, e := range elements {
		if i > 0 {
			out.WriteString(", ")
		}
		r.repr(out, e, depth+1)
	}
	out.WriteString(end)
}

// reprDict writes repr(d), where d is nested in depth other values.
func (r *run) reprDict(out *strings.Builder, d *Dict, depth int) {
	out.WriteByte('{')
	for i, key := range d.keys {
		if i > 0 {
			out.WriteString(", ")
		}
		r.repr(out, key, depth+1)
		out.WriteString(": ")
		r.repr(out, d.values[i], depth+1)
	}
	out.WriteByte('}')
}

// floatText is repr of a float.
func floatText(f float64) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(f, 'g', -1, 64), "+"))
	}
	scientific := strconv.FormatFloat(f, 'e', -1, 64)
	exponent, _ := strconv.Atoi(scientific[strings.IndexByte(scientific, 'e')+1:])
	if exponent < -4 || exponent >= 16 {
		return scientific
	}
	plain := strconv.FormatFloat(f, 'f', -1, 64)
	if strings.IndexByte(plain, '.') < 0 {
		plain += ".0"
	}
	return plain
}

// quote is repr of a string.
func quote(s string) string {
	mark := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		mark = '"'
	}
	var out strings.Builder
	out.WriteRune(mark)
	for _, c := range s {
		switch {
		case c == mark || c == '\\':
			out.WriteByte('\\')
			out.WriteRune(c)
		case c == '\n' || c == '\r' || c == '\t':
			out.WriteString(jsonEscapes[c])
		case unicode.IsPrint(c):
			out.WriteRune(c)
		case c < 0x100:
			fmt.Fprintf(&out, `\x%02x`, c)
		case c < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, c)
		default:
			fmt.Fprintf(&out, `\U%08x`, c)
		}
	}
	out.WriteRune(mark)
	return out.String()
}
