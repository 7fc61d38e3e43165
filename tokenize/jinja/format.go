package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Texts are formatted in the ways that chat templates use: % with s, d and f, and braces
// with a name or a place. Widths, signs and other conversions are refused by name.

// percent is s % args.
func (r *run) percent(of Value, s string, args Value) Value {
	named, _ := args.(*Dict)
	list, isTuple := args.(Tuple)
	if !isTuple {
		list = Tuple{args}
	}
	used := 0
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(s, "%")
		r.spend(len(before) + stepCost)
		out.WriteString(before)
		if !found {
			break
		}
		if after, ok := strings.CutPrefix(rest, "%"); ok {
			out.WriteByte('%')
			s = after
			continue
		}
		var v Value
		if name, after, ok := strings.Cut(strings.TrimPrefix(rest, "("), ")"); ok && rest[0] == '(' {
			if named == nil {
				r.fail("format requires a mapping")
			}
			if v, ok = named.Get(name); !ok {
				r.fail("the format has no value for %s", quote(name))
			}
			rest = after
		} else {
			if used >= len(list) {
				r.fail("not enough arguments for format string")
			}
			v = list[used]
			used++
		}
		end := strings.IndexFunc(rest, func(c rune) bool { return c != '.' && !isDigit(byte(min(c, 0x7f))) })
		if end < 0 {
			r.fail("incomplete format")
		}
		out.WriteString(r.converted(v, rest[:end], rest[end]))
		s = rest[end+1:]
	}
	if used < len(list) && (isTuple || named == nil) {
		r.fail("not all arguments converted during string formatting")
	}
	return like(of, out.String())
}

// converted writes a value with a precision such as .2, or none, and the verb s, d or f.
func (r *run) converted(v Value, precision string, verb byte) string {
	digits, dotted := strings.CutPrefix(precision, ".")
	n, err := strconv.Atoi(digits)
	if precision == "" {
		n, err = 6, nil
	}
	if err != nil || precision != "" && (!dotted || verb != 'f') || strings.IndexByte("sdif", verb) < 0 || n > 1000 {
		r.fail("the format %s is not supported: s, d, f and .2f are", quote(precision+string(rune(verb))))
	}
	if verb == 's' {
		s := r.str(v)
		r.spend(len(s))
		return s
	}
	x, ok := number(v)
	if !ok {
		r.use(v)
		r.fail("%%%c format: a real number is required, not %s", verb, typeName(v))
	}
	r.spend(n)
	if verb == 'f' {
		if f := x.float(); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return strconv.FormatFloat(f, 'f', n, 64)
		}
		return floatText(x.float())
	}
	if x.i == nil {
		if math.IsNaN(x.f) || math.IsInf(x.f, 0) {
			r.fail("cannot convert %s to integer", floatText(x.f))
		}
		x.i, _ = big.NewFloat(math.Trunc(x.f)).Int(nil)
	}
	return x.i.String()
}

// formatMethod is str.format.
func formatMethod(r *run, of Value, a arguments) Value {
	s := r.str(of)
	var out strings.Builder
	auto := 0 // the next argument of {}
	for i := 0; i < len(s); i++ {
		c := s[i]
		r.spend(1)
		switch {
		case c != '{' && c != '}':
			out.WriteByte(c)
		case i+1 < len(s) && s[i+1] == c:
			out.WriteByte(c)
			i++
		case c == '}':
			r.fail("Single '}' encountered in format string")
		default:
			field, _, ok := strings.Cut(s[i+1:], "}")
			if !ok {
				r.fail("expected '}' before end of string")
			}
			i += len(field) + 1
			name, precision, _ := strings.Cut(field, ":")
			if strings.ContainsAny(name, ".[!{") || strings.Contains(precision, "{") {
				r.fail("the format %s is not supported: {}, {0}, {name} and {:.2f} are", quote("{"+field+"}"))
			}
			n, err := strconv.Atoi(name)
			if name == "" {
				n, err = auto, nil
				auto++
			}
			var v Value
			switch {
			case err != nil:
				left := a
				if v, ok = left.take(name); !ok {
					r.fail("format has no argument %s", quote(name))
				}
			case n < 0 || n >= len(a.positional):
				r.fail("Replacement index %d out of range for positional args tuple", n)
			default:
				v = a.positional[n]
			}
			if precision == "" {
				precision = "s"
			}
			out.WriteString(r.converted(v, precision[:len(precision)-1], precision[len(precision)-1]))
		}
	}
	return like(of, out.String())
}
