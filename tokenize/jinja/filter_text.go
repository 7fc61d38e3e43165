package jinja

import (
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Filters of texts and numbers.

// byMethod is a filter that is a method of text.
func byMethod(name string) filter {
	return func(r *run, v Value, a arguments) Value {
		if _, ok := text(v); !ok {
			v = r.str(v)
		}
		return textMethods[name](r, v, a)
	}
}

// wordBegin matches separators of the parts that title capitalizes.
var wordBegin = regexp.MustCompile(`[-\s({\[<]+`)

// titleFilter writes the first letter of each word as a capital and the rest small.
func titleFilter(r *run, v Value, a arguments) Value {
	a.bind(r, "title", 0)
	s := r.str(v)
	var out strings.Builder
	word := func(w string) {
		_, n := utf8.DecodeRuneInString(w)
		out.WriteString(upper(w[:n]) + lower(w[n:]))
	}
	at := 0
	for _, m := range wordBegin.FindAllStringIndex(s, -1) {
		word(s[at:m[0]])
		out.WriteString(s[m[0]:m[1]])
		at = m[1]
	}
	word(s[at:])
	return out.String()
}

func safe(r *run, v Value, a arguments) Value {
	a.bind(r, "safe", 0)
	return markup(r.str(v))
}

func stringFilter(r *run, v Value, a arguments) Value {
	a.bind(r, "string", 0)
	if _, ok := v.(markup); ok {
		return v
	}
	return r.str(v)
}

// intFilter is int(v), or the default if v is not a number.
func intFilter(r *run, v Value, a arguments) Value {
	o := a.bind(r, "int", 0, "default", "base")
	base := r.intOr(o[1], 10)
	r.failIf(base != 10, "int of base %d is not supported", base)
	if s, ok := text(v); ok && len(s) <= maxDigits {
		s = strings.TrimFunc(s, IsSpace)
		if strings.Trim(s, "_") == s && !strings.Contains(s, "__") { // as in 1_000
			s = strings.ReplaceAll(s, "_", "")
		}
		if n, ok := new(big.Int).SetString(s, 10); ok {
			return shrink(n)
		}
		if f, err := strconv.ParseFloat(s, 64); err == nil && !strings.ContainsAny(s, "xXpP_") {
			v = f
		}
	}
	n, ok := number(v)
	switch {
	case ok && n.i != nil:
		return shrink(n.i)
	case ok && !math.IsNaN(n.f) && !math.IsInf(n.f, 0):
		whole, _ := big.NewFloat(math.Trunc(n.f)).Int(nil)
		return shrink(whole)
	}
	r.failIfUndefined(v)
	return orDefaultValue(o[0], 0)
}

func replaceFilter(r *run, v Value, a arguments) Value {
	o := a.bind(r, "replace", 2, "old", "new", "count")
	limit := -1
	if given(o[2]) {
		limit = r.intOr(o[2], -1)
	}
	return r.replace(r.str(v), r.str(o[0]), r.str(o[1]), limit)
}

// indentation is an argument that is a text, or a number of blanks.
func (r *run) indentation(v Value, otherwise int) string {
	if s, ok := text(v); ok {
		return s
	}
	n := max(0, r.intOr(v, otherwise))
	r.spend(n)
	return strings.Repeat(" ", n)
}

// indent puts width blanks, or that text, before each line of v but the first; the first and blank lines on request.
func indent(r *run, v Value, a arguments) Value {
	o := a.bind(r, "indent", 0, "width", "first", "blank")
	s, ok := text(v)
	if !ok {
		r.failIfUndefined(v)
		r.fail("indent wants a string, not '%s'", typeName(v))
	}
	by := r.indentation(o[0], 4)
	lines := splitLines(s + "\n")
	r.spendTimes(len(lines), len(by)+1)
	blank := isTrue(o[2])
	for i := range lines {
		if i > 0 && (blank || lines[i] != "") {
			lines[i] = by + lines[i]
		}
	}
	if isTrue(o[1]) {
		lines[0] = by + lines[0]
	}
	return like(v, strings.Join(lines, "\n"))
}

// roundFilter rounds to precision decimal places, or to a power of ten for an integer and a negative precision;
// common rounds halves to even.
func roundFilter(r *run, v Value, a arguments) Value {
	o := a.bind(r, "round", 0, "precision", "method")
	n, ok := number(v)
	if !ok {
		r.failIfUndefined(v)
		r.fail("type %s doesn't define __round__ method", typeName(v))
	}
	precision := r.intOr(o[0], 0)
	r.failIf(precision > 300 || precision < -300, "round: precision %d is out of range", precision)
	scale := math.Pow(10, float64(precision))
	switch r.textOr(o[1], "common") {
	case "ceil":
		return math.Ceil(n.float()*scale) / scale
	case "floor":
		return math.Floor(n.float()*scale) / scale
	case "common":
	default:
		r.fail("method must be common, ceil or floor")
	}
	switch {
	case n.i == nil && precision >= 0:
		f, _ := strconv.ParseFloat(strconv.FormatFloat(n.f, 'f', precision, 64), 64)
		return f
	case n.i == nil:
		return math.RoundToEven(n.f*scale) / scale
	case precision >= 0:
		return shrink(n.i)
	}
	// An integer is rounded to a multiple of unit.
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-precision)), nil)
	whole, rest := new(big.Int).DivMod(n.i, unit, new(big.Int))
	if c := new(big.Int).Lsh(rest, 1).Cmp(unit); c > 0 || c == 0 && whole.Bit(0) == 1 {
		whole.Add(whole, big.NewInt(1))
	}
	return shrink(whole.Mul(whole, unit))
}

func formatFilter(r *run, v Value, a arguments) Value {
	r.failIf(len(a.names) > 0, "the filter format is not supported with names")
	return r.formatPercent(v, r.str(v), tuple(a.positional))
}
