package jinja

import (
	"fmt"
	"math"
	"math/big"
	"net/url"
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

func center(r *run, v Value, a arguments) Value {
	width := r.intOr(a.bind(r, "center", 0, "width")[0], 80)
	if _, ok := text(v); !ok {
		v = r.str(v)
	}
	return textMethods["center"](r, v, arguments{positional: []Value{width}})
}

// wordBegin is what ends the parts that title capitalizes.
var wordBegin = regexp.MustCompile(`[-\s({\[<]+`)

func titleFilter(r *run, v Value, a arguments) Value {
	a.bind(r, "title", 0)
	s := r.str(v)
	r.spend(4 * len(s))
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
	s := r.str(v)
	r.spend(5 * len(s))
	return markup(escapeHTML(s))
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
		r.spendTimes(len(s), 8)
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
	r.spend(2 * len(s))
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

func truncate(r *run, v Value, a arguments) Value {
	o := a.bind(r, "truncate", 0, "length", "killwords", "end", "leeway")
	length, end, leeway := r.intOr(o[0], 255), r.textOr(o[2], "..."), 5
	if given(o[3]) {
		leeway = r.intOr(o[3], 5)
	}
	s, ok := text(v)
	if !ok {
		r.use(v)
		r.fail("truncate wants a string, not '%s'", typeName(v))
	}
	ending := utf8.RuneCountInString(end)
	if length < ending || leeway < 0 {
		r.fail("truncate: expected length >= %d and leeway >= 0", ending)
	}
	r.spend(2 * len(s))
	if r.length(v)-length <= leeway {
		return v
	}
	s = s[:offset(s, length-ending)]
	if !truthOr(o[1], false) {
		if at := strings.LastIndexByte(s, ' '); at >= 0 {
			s = s[:at]
		}
	}
	return like(v, s+end)
}

// urlEncode quotes a text, or the pairs of a dictionary, for an address.
func urlEncode(r *run, v Value, a arguments) Value {
	a.bind(r, "urlencode", 0)
	_, isText := text(v)
	if _, ok := r.each(v); isText || !ok {
		s := r.str(v)
		r.spend(3 * len(s))
		return strings.ReplaceAll(quotePath(s), "%2F", "/")
	}
	if d, ok := v.(*Dict); ok {
		v = List(d.items())
	}
	var parts []string
	for pair := range r.elements(v) {
		both := r.list(pair)
		if len(both) != 2 {
			r.fail("urlencode wants pairs, not %d values", len(both))
		}
		part := strings.ReplaceAll(quotePath(r.str(both[0]))+"="+quotePath(r.str(both[1])), "%20", "+")
		r.spend(3 * len(part))
		parts = append(parts, part)
	}
	return strings.Join(parts, "&")
}

func quotePath(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

var (
	htmlComment = regexp.MustCompile(`(?s)<!--.*?-->`)
	htmlTag     = regexp.MustCompile(`(?s)<.*?>`)
)

func stripTags(r *run, v Value, a arguments) Value {
	a.bind(r, "striptags", 0)
	s := r.str(v)
	r.spendTimes(len(s), 8)
	s = htmlTag.ReplaceAllString(htmlComment.ReplaceAllString(s, ""), "")
	s = strings.Join(strings.FieldsFunc(s, IsSpace), " ")
	return strings.NewReplacer("&amp;", "&", "&lt;", "<", "&gt;", ">", "&#39;", "'", "&#34;", `"`, "&quot;", `"`).Replace(s)
}

func fileSize(r *run, v Value, a arguments) Value {
	binary := truthOr(a.bind(r, "filesizeformat", 0, "binary")[0], false)
	n, ok := parseFloat(v)
	if !ok {
		r.use(v)
		r.fail("filesizeformat wants a number, not '%s'", typeName(v))
	}
	base, units := 1000.0, strings.Fields("kB MB GB TB PB EB ZB YB")
	if binary {
		base, units = 1024, strings.Fields("KiB MiB GiB TiB PiB EiB ZiB YiB")
	}
	switch {
	case n == 1:
		return "1 Byte"
	case n < base:
		return fmt.Sprintf("%d Bytes", int(n))
	}
	unit := base
	for i, name := range units {
		unit *= base
		if n < unit || i == len(units)-1 {
			return fmt.Sprintf("%.1f %s", base*n/unit, name)
		}
	}
	return ""
}
