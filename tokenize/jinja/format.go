package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Texts are formatted by % with s, d and f. Widths, signs and other conversions are refused by name.

// formatPercent is s % args; the result is markup if of, the value of s, is.
func (r *run) formatPercent(of Value, s string, args Value) Value {
	list, isTuple := args.(tuple)
	if !isTuple {
		list = tuple{args}
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
		r.failIf(used >= len(list), "not enough arguments for format string")
		v := list[used]
		used++
		end := strings.IndexFunc(rest, func(c rune) bool { return c != '.' && !isDigit(byte(min(c, 0x7f))) })
		r.failIf(end < 0, "incomplete format")
		out.WriteString(r.converted(v, rest[:end], rest[end]))
		s = rest[end+1:]
	}
	r.failIf(used < len(list), "not all arguments converted during string formatting")
	return like(of, out.String())
}

// converted writes a value with a precision such as .2, or none, and the verb s, d (or i, which is the same) or f.
func (r *run) converted(v Value, precision string, verb byte) string {
	digits, dotted := strings.CutPrefix(precision, ".")
	n, err := strconv.Atoi(digits)
	if precision == "" {
		n, err = 6, nil // Python's default for f
	}
	fits := precision == "" || dotted && verb == 'f'
	if err != nil || !fits || strings.IndexByte("sdif", verb) < 0 || n > 1000 {
		r.fail("the format %s is not supported: s, d, f and .2f are", quote(precision+string(rune(verb))))
	}
	if verb == 's' {
		s := r.str(v)
		r.spend(len(s))
		return s
	}
	x, ok := number(v)
	if !ok {
		r.failIfUndefined(v)
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
