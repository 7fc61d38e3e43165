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

// wordBegin is what ends the parts that title capitalizes.
var wordBegin = regexp.MustCompile(`[-\s({\[<]+`)

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

func escapeHTML(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;").Replace(s)
}

func escapeFilter(r *run, v Value, a arguments) Value {
	a.bind(r, "escape", 0)
	if m, ok := v.(markup); ok {
		return m
	}
	return markup(escapeHTML(r.str(v)))
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

// parseInt is int(s, base) of Python.
func parseInt(s string, base int) (Value, bool) {
	s = strings.TrimFunc(s, IsSpace)
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 || digits == "" || digits[0] == '_' || digits[len(digits)-1] == '_' || strings.Contains(digits, "__") || len(digits) > maxDigits {
		return nil, false
	}
	digits = strings.ToLower(strings.ReplaceAll(digits, "_", ""))
	for prefix, of := range map[string]int{"0x": 16, "0o": 8, "0b": 2} {
		if base == of || base == 0 {
			if rest, ok := strings.CutPrefix(digits, prefix); ok {
				digits, base = rest, of
			}
		}
	}
	if base == 0 {
		if base = 10; len(digits) > 1 && digits[0] == '0' && strings.Trim(digits, "0") != "" {
			return nil, false
		}
	}
	if base < 2 || base > 36 || digits == "" || digits[0] == '+' || digits[0] == '-' {
		return nil, false
	}
	n, ok := new(big.Int).SetString(digits, base)
	if !ok {
		return nil, false
	}
	if s[0] == '-' {
		n.Neg(n)
	}
	return shrink(n), true
}

// parseFloat is float(v) of Python.
func parseFloat(v Value) (float64, bool) {
	if n, ok := number(v); ok {
		return n.float(), true
	}
	s, ok := text(v)
	s = strings.TrimFunc(s, IsSpace)
	if !ok || strings.ContainsAny(s, "xXpP") {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	return f, err == nil || math.IsInf(f, 0)
}

func intFilter(r *run, v Value, a arguments) Value {
	o := a.bind(r, "int", 0, "default", "base")
	if s, ok := text(v); ok {
		if n, ok := parseInt(s, r.intOr(o[1], 10)); ok {
			return n
		}
	}
	if n, ok := number(v); ok && n.i != nil {
		return shrink(n.i)
	}
	if f, ok := parseFloat(v); ok && !math.IsNaN(f) && !math.IsInf(f, 0) {
		n, _ := big.NewFloat(math.Trunc(f)).Int(nil)
		return shrink(n)
	}
	r.use(v)
	if _, ok := o[0].(absent); ok {
		return 0
	}
	return o[0]
}

func floatFilter(r *run, v Value, a arguments) Value {
	o := a.bind(r, "float", 0, "default")
	if f, ok := parseFloat(v); ok {
		return f
	}
	r.use(v)
	if _, ok := o[0].(absent); ok {
		return 0.0
	}
	return o[0]
}

func roundFilter(r *run, v Value, a arguments) Value {
	o := a.bind(r, "round", 0, "precision", "method")
	n, ok := number(v)
	if !ok {
		r.use(v)
		r.fail("type %s doesn't define __round__ method", typeName(v))
	}
	precision := r.intOr(o[0], 0)
	if precision > 300 || precision < -300 {
		r.fail("round: precision %d is out of range", precision)
	}
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
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-precision)), nil)
	whole, rest := new(big.Int).DivMod(n.i, unit, new(big.Int))
	if c := new(big.Int).Lsh(rest, 1).Cmp(unit); c > 0 || c == 0 && whole.Bit(0) == 1 {
		whole.Add(whole, big.NewInt(1))
	}
	return shrink(whole.Mul(whole, unit))
}

func formatFilter(r *run, v Value, a arguments) Value {
	s := r.str(v)
	if len(a.names) == 0 {
		return r.percent(v, s, Tuple(a.positional))
	}
	if len(a.positional) > 0 {
		r.fail("can't handle positional and keyword arguments at the same time")
	}
	return r.percent(v, s, r.makeDict(a))
}

func replaceFilter(r *run, v Value, a arguments) Value {
	o := a.bind(r, "replace", 2, "old", "new", "count")
	limit := -1
	if given(o[2]) {
		limit = r.intOr(o[2], -1)
	}
	return r.replace(r.str(v), r.str(o[0]), r.str(o[1]), limit)
}

func indent(r *run, v Value, a arguments) Value {
	o := a.bind(r, "indent", 0, "width", "first", "blank")
	s, ok := text(v)
	if !ok {
		r.use(v)
		r.fail("indent wants a string, not '%s'", typeName(v))
	}
	by, ok := text(o[0])
	if !ok {
		n := max(0, r.intOr(o[0], 4))
		r.spend(n)
		by = strings.Repeat(" ", n)
	}
	lines := splitLines(s+"\n", false)
	r.spendTimes(len(lines), len(by)+1)
	blank := truthOr(o[2], false)
	for i := range lines {
		if i > 0 && (blank || lines[i] != "") {
			lines[i] = by + lines[i]
		}
	}
	if truthOr(o[1], false) {
		lines[0] = by + lines[0]
	}
	return like(v, strings.Join(lines, "\n"))
}
