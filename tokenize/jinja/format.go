package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A spec says how a value is written, in both of Python's ways.
type spec struct {
	fill      string
	align     byte // <, >, ^ or =; 0 for the default
	sign      byte // + or space; 0 writes - only
	alternate bool // #
	group     byte // , or _
	width     int
	precision int // -1 if there is none
	verb      byte
}

// percent is s % args.
func (r *run) percent(of Value, s string, args Value) Value {
	named, _ := args.(*Dict)
	list, isTuple := args.(Tuple)
	if !isTuple {
		list = Tuple{args}
	}
	used := 0
	next := func() Value {
		if used >= len(list) {
			r.fail("not enough arguments for format string")
		}
		used++
		return list[used-1]
	}
	var out strings.Builder
	for i := 0; i < len(s); {
		at := strings.IndexByte(s[i:], '%')
		if at < 0 {
			at = len(s) - i
		}
		r.spend(at + stepCost)
		out.WriteString(s[i : i+at])
		if i += at; i == len(s) {
			break
		}
		f := &percentReader{r: r, s: s, at: i + 1}
		name, isNamed := f.name()
		sp := f.spec(next)
		i = f.at
		if sp.verb == '%' {
			out.WriteByte('%')
			continue
		}
		var v Value
		if !isNamed {
			v = next()
		} else {
			if named == nil {
				r.fail("format requires a mapping")
			}
			found, ok := named.Get(name)
			if !ok {
				r.fail("the format has no value for %s", quote(name))
			}
			v = found
		}
		out.WriteString(r.percentValue(sp, v))
	}
	if used < len(list) && (isTuple || named == nil) {
		r.fail("not all arguments converted during string formatting")
	}
	return like(of, out.String())
}

// A percentReader reads one conversion such as %-5.2f.
type percentReader struct {
	r  *run
	s  string
	at int
}

func (f *percentReader) peek() byte {
	if f.at >= len(f.s) {
		f.r.fail("incomplete format")
	}
	return f.s[f.at]
}

func (f *percentReader) name() (string, bool) {
	if f.peek() != '(' {
		return "", false
	}
	end := strings.IndexByte(f.s[f.at:], ')')
	if end < 0 {
		f.r.fail("incomplete format key")
	}
	name := f.s[f.at+1 : f.at+end]
	f.at += end + 1
	return name, true
}

func (f *percentReader) spec(next func() Value) spec {
	sp := spec{fill: " ", precision: -1}
	for ; strings.IndexByte("-+ #0", f.peek()) >= 0; f.at++ {
		switch c := f.peek(); c {
		case '-':
			sp.align = '<'
		case '+':
			sp.sign = '+'
		case ' ':
			if sp.sign == 0 {
				sp.sign = ' '
			}
		case '#':
			sp.alternate = true
		case '0':
			sp.fill = "0"
		}
	}
	if sp.width = f.number(next); sp.width < 0 {
		sp.width, sp.align = -sp.width, '<'
	}
	if f.peek() == '.' {
		f.at++
		sp.precision = max(0, f.number(next))
	}
	for strings.IndexByte("hlL", f.peek()) >= 0 {
		f.at++
	}
	sp.verb = f.peek()
	f.at++
	if sp.fill == "0" && (sp.align == '<' || strings.IndexByte("diouxXeEfFgG", sp.verb) < 0) {
		sp.fill = " "
	} else if sp.fill == "0" {
		sp.align = '='
	}
	return sp
}

func (f *percentReader) number(next func() Value) int {
	if f.peek() == '*' {
		f.at++
		return f.r.intOr(next(), 0)
	}
	n := 0
	for ; isDigit(f.peek()); f.at++ {
		n = min(n*10+int(f.peek()-'0'), math.MaxInt32)
	}
	return n
}

func (r *run) percentValue(sp spec, v Value) string {
	switch sp.verb {
	case 's', 'r', 'a':
		s := r.str(v)
		if sp.verb != 's' {
			var out strings.Builder
			r.repr(&out, v, 0)
			s = out.String()
		}
		return r.padded(sp, "", cutTo(s, sp.precision), '>')
	case 'c':
		if n, ok := v.(int); ok {
			return r.padded(sp, "", string(rune(n)), '>')
		}
		return r.padded(sp, "", r.textOr(v, ""), '>')
	case 'd', 'i', 'u', 'o', 'x', 'X', 'e', 'E', 'f', 'F', 'g', 'G':
	default:
		r.fail("unsupported format character %s", quote(string(rune(sp.verb))))
	}
	n, ok := number(v)
	if !ok {
		r.use(v)
		r.fail("%%%c format: a real number is required, not %s", sp.verb, typeName(v))
	}
	if strings.IndexByte("diu", sp.verb) >= 0 {
		if sp.verb = 'd'; n.i == nil {
			if math.IsNaN(n.f) || math.IsInf(n.f, 0) {
				r.fail("cannot convert %s to integer", floatText(n.f))
			}
			n.i, _ = big.NewFloat(math.Trunc(n.f)).Int(nil)
		}
	} else if strings.IndexByte("oxX", sp.verb) >= 0 && n.i == nil {
		r.fail("%%%c format: an integer is required, not float", sp.verb)
	}
	if n.i != nil && strings.IndexByte("doxX", sp.verb) >= 0 && sp.precision >= 0 {
		r.spend(sp.precision)
		sign, prefix, digits := r.digits(sp, n)
		return r.padded(sp, sign+prefix, strings.Repeat("0", max(0, sp.precision-len(digits)))+digits, '>')
	}
	sign, prefix, digits := r.digits(sp, n)
	return r.padded(sp, sign+prefix, digits, '>')
}

// cutTo returns the first n characters of s, all if n is negative.
func cutTo(s string, n int) string {
	if n < 0 {
		return s
	}
	return s[:offset(s, n)]
}

// padded fills s up to the width of sp; sign stands before zeros.
func (r *run) padded(sp spec, sign, s string, align byte) string {
	n := max(0, sp.width-utf8.RuneCountInString(sign)-utf8.RuneCountInString(s))
	r.spendTimes(n, len(sp.fill))
	r.spend(len(s))
	if sp.align != 0 {
		align = sp.align
	}
	fill := func(n int) string { return strings.Repeat(sp.fill, n) }
	switch align {
	case '<':
		return sign + s + fill(n)
	case '^':
		return fill(n/2) + sign + s + fill(n-n/2)
	case '=':
		return sign + fill(n) + s
	}
	return fill(n) + sign + s
}

// digits writes a number without padding.
func (r *run) digits(sp spec, n num) (sign, prefix, digits string) {
	if sp.sign != 0 {
		sign = string(rune(sp.sign))
	}
	if base := map[byte]int{'d': 10, 'b': 2, 'o': 8, 'x': 16, 'X': 16}[sp.verb]; base > 0 {
		digits = n.i.Text(base)
		r.spend(len(digits))
		if sp.alternate && base != 10 {
			prefix = "0" + string(rune(sp.verb))
		}
		if sp.verb == 'X' {
			digits = strings.ToUpper(digits)
		}
	} else {
		digits = r.floatDigits(sp, n.float())
	}
	if rest, ok := strings.CutPrefix(digits, "-"); ok {
		sign, digits = "-", rest
	}
	if sp.group != 0 {
		digits = grouping(digits, string(rune(sp.group)), map[bool]int{true: 4, false: 3}[strings.IndexByte("boxX", sp.verb) >= 0])
	}
	return sign, prefix, digits
}

func (r *run) floatDigits(sp spec, f float64) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		s := floatText(f)
		if sp.verb < 'a' && sp.verb != '%' && sp.verb != 0 {
			s = strings.ToUpper(s)
		}
		return s
	}
	precision := sp.precision
	if precision < 0 {
		precision = 6
	}
	if precision > 1000 {
		r.fail("precision too big")
	}
	switch sp.verb {
	case 'e', 'E':
		return strconv.FormatFloat(f, sp.verb, precision, 64)
	case 'f', 'F':
		return strconv.FormatFloat(f, 'f', precision, 64)
	case '%':
		return strconv.FormatFloat(f*100, 'f', precision, 64) + "%"
	case 'g', 'G', 'n':
		return general(f, max(precision, 1), sp.verb == 'G')
	}
	// No type: as str, or as g with a point.
	if sp.precision < 0 {
		return floatText(f)
	}
	s := general(f, max(precision, 1), false)
	if strings.IndexAny(s, ".e") < 0 {
		if len(strings.TrimPrefix(s, "-")) >= max(precision, 1) {
			return strconv.FormatFloat(f, 'e', max(precision, 1)-1, 64)
		}
		s += ".0"
	}
	return s
}

// general is the format g: the shorter of f and e, without zeros at the end.
func general(f float64, precision int, capital bool) string {
	e := strconv.FormatFloat(f, 'e', precision-1, 64)
	at := strings.IndexByte(e, 'e')
	exponent, _ := strconv.Atoi(e[at+1:])
	trim := func(s string) string {
		if strings.IndexByte(s, '.') >= 0 {
			s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
		}
		return s
	}
	s := ""
	if exponent < -4 || exponent >= precision {
		s = trim(e[:at]) + e[at:]
	} else {
		s = trim(strconv.FormatFloat(f, 'f', precision-1-exponent, 64))
	}
	if capital {
		s = strings.ToUpper(s)
	}
	return s
}

// grouping puts separators between groups of n digits of the integer part.
func grouping(digits, separator string, n int) string {
	end := strings.IndexFunc(digits, func(c rune) bool { return !(c >= '0' && c <= '9' || n == 4 && c >= 'A') })
	if end < 0 {
		end = len(digits)
	}
	whole := digits[:end]
	var groups []string
	for len(whole) > n {
		groups = append([]string{whole[len(whole)-n:]}, groups...)
		whole = whole[:len(whole)-n]
	}
	return strings.Join(append([]string{whole}, groups...), separator) + digits[end:]
}

// formatMethod is str.format.
func formatMethod(r *run, of Value, a arguments) Value {
	f := &formatter{r: r, args: a}
	return like(of, f.format(r.str(of), 0))
}

// A formatter fills the braces of a text.
type formatter struct {
	r    *run
	args arguments
	auto int // the next argument of {}
}

func (f *formatter) format(s string, depth int) string {
	if depth > 2 {
		f.r.fail("Max string recursion exceeded")
	}
	var out strings.Builder
	for i := 0; i < len(s); {
		c := s[i]
		if c != '{' && c != '}' {
			f.r.spend(1)
			out.WriteByte(c)
			i++
			continue
		}
		if i+1 < len(s) && s[i+1] == c {
			out.WriteByte(c)
			i += 2
			continue
		}
		if c == '}' {
			f.r.fail("Single '}' encountered in format string")
		}
		end, open := i+1, 1
		for ; end < len(s); end++ {
			if s[end] == '{' {
				open++
			} else if s[end] == '}' {
				if open--; open == 0 {
					break
				}
			}
		}
		if end == len(s) {
			f.r.fail("expected '}' before end of string")
		}
		f.r.spend(end - i + stepCost)
		out.WriteString(f.field(s[i+1:end], depth))
		i = end + 1
	}
	return out.String()
}

// field writes NAME!CONVERSION:SPEC.
func (f *formatter) field(s string, depth int) string {
	s, format, _ := strings.Cut(s, ":")
	s, conversion, converted := strings.Cut(s, "!")
	v := f.value(s)
	if converted {
		switch conversion {
		case "s":
			v = f.r.str(v)
		case "r", "a":
			var out strings.Builder
			f.r.repr(&out, v, 0)
			v = out.String()
		default:
			f.r.fail("Unknown conversion specifier %s", quote(conversion))
		}
	}
	return f.r.formatted(v, f.format(format, depth+1))
}

// value reads a name such as 0.role[key].
func (f *formatter) value(path string) Value {
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		end = len(path)
	}
	first, rest := path[:end], path[end:]
	var v Value
	n, err := strconv.Atoi(first)
	if first == "" {
		n, err = f.auto, nil
		f.auto++
	}
	if err == nil {
		if n < 0 || n >= len(f.args.positional) {
			f.r.fail("Replacement index %d out of range for positional args tuple", n)
		}
		v = f.args.positional[n]
	} else {
		args := f.args
		found, ok := args.take(first)
		if !ok {
			f.r.fail("format has no argument %s", quote(first))
		}
		v = found
	}
	for rest != "" {
		if rest[0] == '.' {
			end := strings.IndexAny(rest[1:], ".[") + 1
			if end == 0 {
				end = len(rest)
			}
			v, rest = f.r.attribute(v, rest[1:end]), rest[end:]
			continue
		}
		end := strings.IndexByte(rest, ']')
		if end < 0 {
			f.r.fail("Missing ']' in format string")
		}
		var key Value = rest[1:end]
		if n, err := strconv.Atoi(rest[1:end]); err == nil {
			key = n
		}
		v, rest = f.r.item(v, key), rest[end+1:]
	}
	return v
}

// formatted is format(v, spec).
func (r *run) formatted(v Value, text string) string {
	if text == "" {
		return r.str(v)
	}
	sp := r.parseSpec(text)
	switch v := v.(type) {
	case string, markup:
		if sp.verb != 0 && sp.verb != 's' || sp.sign != 0 || sp.group != 0 {
			r.fail("the format %s does not fit a string", quote(text))
		}
		if sp.align == '=' {
			sp.align = '<'
		}
		return r.padded(sp, "", cutTo(r.str(v), sp.precision), '<')
	}
	n, ok := number(v)
	_, isBool := v.(bool)
	switch {
	case !ok:
		r.fail("unsupported format string passed to %s.__format__", typeName(v))
	case n.i != nil && sp.verb == 0 && isBool, n.i != nil && sp.verb == 'n', n.i != nil && sp.verb == 0:
		sp.verb = 'd'
	case n.i != nil && sp.verb == 'c':
		return r.padded(sp, "", string(rune(n.i.Int64())), '<')
	}
	if strings.IndexByte("dboxX", sp.verb) >= 0 && n.i == nil || sp.verb != 0 && strings.IndexByte("dboxXeEfFgGn%", sp.verb) < 0 {
		r.fail("Unknown format code %s for object of type '%s'", quote(string(rune(sp.verb))), typeName(v))
	}
	sign, prefix, digits := r.digits(sp, n)
	return r.padded(sp, sign+prefix, digits, '>')
}

// parseSpec reads [[fill]align][sign][#][0][width][group][.precision][type].
func (r *run) parseSpec(s string) spec {
	sp := spec{fill: " ", precision: -1}
	whole := s
	_, n := utf8.DecodeRuneInString(s)
	if len(s) > n && strings.IndexByte("<>^=", s[n]) >= 0 {
		sp.fill, sp.align, s = s[:n], s[n], s[n+1:]
	} else if strings.IndexByte("<>^=", s[0]) >= 0 {
		sp.align, s = s[0], s[1:]
	}
	accept := func(chars string) byte {
		if s != "" && strings.IndexByte(chars, s[0]) >= 0 {
			c := s[0]
			s = s[1:]
			return c
		}
		return 0
	}
	number := func() (n int, ok bool) {
		for s != "" && isDigit(s[0]) {
			n, ok = min(n*10+int(s[0]-'0'), math.MaxInt32), true
			s = s[1:]
		}
		return n, ok
	}
	if c := accept("+- "); c != '-' {
		sp.sign = c
	}
	sp.alternate = accept("#") != 0
	if accept("0") != 0 && sp.align == 0 {
		sp.fill, sp.align = "0", '='
	}
	sp.width, _ = number()
	sp.group = accept(",_")
	if accept(".") != 0 {
		precision, ok := number()
		if !ok {
			r.fail("Format specifier missing precision")
		}
		sp.precision = precision
	}
	sp.verb = accept("bcdeEfFgGnosxX%")
	if s != "" {
		r.fail("Invalid format specifier %s", quote(fmt.Sprint(whole)))
	}
	return sp
}
