package jinja

import (
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Methods of str that look at a text or cut it, and str.format.

// init adds to textMethods, which the init of method.go has made: the files of a package are initialized in the order of
// their names.
func init() {
	for name, m := range map[string]method{
		"find": search(strings.Index, true), "rfind": search(strings.LastIndex, true), // true: -1 for a text that is not there
		"index": search(strings.Index, false), "rindex": search(strings.LastIndex, false), "count": countMethod, "rsplit": rsplit,
		"partition": partition(strings.Index, false), "rpartition": partition(strings.LastIndex, true), // true: all is on the right if there is no separator
		"removeprefix": remove(strings.TrimPrefix), "removesuffix": remove(strings.TrimSuffix), "splitlines": splitLinesMethod,
		"isalpha": all(unicode.IsLetter), "isspace": all(IsSpace), "isnumeric": all(unicode.IsNumber), "isdecimal": all(unicode.IsDigit),
		"isdigit": all(func(c rune) bool {
			return unicode.IsDigit(c) || strings.ContainsRune("¹²³⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉", c)
		}),
		"isalnum": all(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }),
		"islower": asked(func(s string) bool { return hasCase(s, unicode.IsLower) }),
		"isupper": asked(func(s string) bool { return hasCase(s, unicode.IsUpper) }),
		"isascii": asked(func(s string) bool {
			return strings.IndexFunc(s, func(c rune) bool { return c > unicode.MaxASCII }) < 0
		}),
		"format": formatMethod, "join": joinMethod,
	} {
		textMethods[name] = m
	}
}

// asked is a method without arguments that says whether a text is so.
func asked(is func(string) bool) method {
	return func(r *run, v Value, a arguments) Value {
		a.bind(r, "the method", 0)
		return is(r.str(v))
	}
}

// all says whether there are characters, and all are of a kind.
func all(is func(rune) bool) method {
	return asked(func(s string) bool { return s != "" && strings.IndexFunc(s, func(c rune) bool { return !is(c) }) < 0 })
}

// hasCase says whether there are letters with a case, and all are of the wanted one.
func hasCase(s string, is func(rune) bool) bool {
	s = strings.Join(cased.FindAllString(s, -1), "")
	return s != "" && strings.IndexFunc(s, func(c rune) bool { return !is(c) }) < 0
}

// search is find and index, from either side. Only find has a value for a text that is not there.
func search(index func(s, part string) int, find bool) method {
	return func(r *run, of Value, a arguments) Value {
		s := r.str(of)
		at := index(s, r.textOr(a.bind(r, "the method without a start and an end", 1, "sub")[0], ""))
		r.failIf(at < 0 && !find, "substring not found")
		if at < 0 {
			return -1
		}
		return utf8.RuneCountInString(s[:at])
	}
}

// flipped is a text backwards.
func flipped(s string) string {
	runes := []rune(s)
	slices.Reverse(runes)
	return string(runes)
}

// rsplit is split that cuts from the right.
func rsplit(r *run, of Value, a arguments) Value {
	v := a.bind(r, "rsplit", 0, "sep", "maxsplit")
	if sep, ok := text(v[0]); ok {
		v[0] = flipped(sep)
	}
	parts := r.reversed(split(r, flipped(r.str(of)), arguments{positional: v}))
	for i := range parts {
		parts[i] = like(of, flipped(parts[i].(string)))
	}
	return parts
}

// partition is str.partition or rpartition: it cuts a text in three at the separator that index finds. right
// says on which side the whole text stands if there is none.
func partition(index func(s, part string) int, right bool) method {
	return func(r *run, of Value, a arguments) Value {
		s, sep := r.str(of), r.textOr(a.bind(r, "partition", 1, "sep")[0], "")
		r.failIf(sep == "", "empty separator")
		parts := []string{s, "", ""}
		if at := index(s, sep); at >= 0 {
			parts = []string{s[:at], sep, s[at+len(sep):]}
		} else if right {
			parts = []string{"", "", s}
		}
		return tuple(r.texts(of, parts))
	}
}

func countMethod(r *run, of Value, a arguments) Value {
	return strings.Count(r.str(of), r.textOr(a.bind(r, "count", 1, "sub")[0], ""))
}

// joinMethod is of.join(texts).
func joinMethod(r *run, of Value, a arguments) Value {
	l := r.list(a.bind(r, "join", 1, "iterable")[0])
	for _, e := range l {
		_, ok := text(e)
		r.failIf(!ok, "join wants texts, not '%s'", typeName(e))
	}
	return like(of, r.str(joinFilter(r, l, arguments{positional: []Value{of}})))
}

func remove(trim func(s, part string) string) method {
	return func(r *run, of Value, a arguments) Value {
		return like(of, trim(r.str(of), r.textOr(a.bind(r, "the method", 1, "part")[0], "")))
	}
}

func splitLinesMethod(r *run, of Value, a arguments) Value {
	v := a.bind(r, "splitlines", 0, "keepends")
	r.failIf(isTrue(v[0]), "splitlines with keepends is not supported")
	return r.texts(of, splitLines(r.str(of)))
}

// formatField matches a field of str.format, or a brace.
var formatField = regexp.MustCompile(`\{\{|\}\}|\{(\w*)(![rs])?(?::(\.?[0-9]*)([sdf]))?\}|[{}]`)

// formatMethod is str.format with fields such as {}, {0}, {name!r} and {:.2f}.
func formatMethod(r *run, of Value, a arguments) Value {
	next := 0
	return like(of, formatField.ReplaceAllStringFunc(r.str(of), func(field string) string {
		r.spend(stepCost)
		m := formatField.FindStringSubmatch(field) // name, !r or !s, precision, verb
		if len(field) < 2 || field == "{{" || field == "}}" {
			r.failIf(len(field) < 2, "the format has a single %s, or a field that is not supported", quote(field))
			return field[:1]
		}
		name := m[1]
		if name == "" { // {} takes the next positional argument
			name = strconv.Itoa(next)
			next++
		}
		v, ok := a.take(name)
		if i, err := strconv.Atoi(name); err == nil {
			if ok = i < len(a.positional); ok {
				v = a.positional[i]
			}
		}
		r.failIf(!ok, "the format has no argument for %s", quote(field))
		if m[2] == "!r" {
			var out strings.Builder
			r.repr(&out, v, 0)
			v = out.String()
		}
		s := r.str(v)
		if m[4] != "" && m[2] == "" {
			s = r.converted(v, m[3], m[4][0])
		}
		r.spend(len(s))
		return s
	}))
}

// floatFilter is float(v), or the default if v is not a number.
func floatFilter(r *run, v Value, a arguments) Value {
	o := a.bind(r, "float", 0, "default")
	if s, ok := text(v); ok && !strings.ContainsAny(s, "xXpP_") && len(s) <= maxDigits {
		if f, err := strconv.ParseFloat(strings.TrimFunc(s, IsSpace), 64); err == nil || math.IsInf(f, 0) {
			return f
		}
	}
	if n, ok := number(v); ok {
		return n.float()
	}
	r.failIfUndefined(v)
	return orDefaultValue(o[0], 0.0)
}

// absFilter returns the absolute value of a number.
func absFilter(r *run, v Value, a arguments) Value {
	a.bind(r, "abs", 0)
	n, ok := number(v)
	switch {
	case !ok:
		r.failIfUndefined(v)
		r.fail("bad operand type for abs(): '%s'", typeName(v))
	case n.i == nil:
		return math.Abs(n.f)
	}
	return shrink(new(big.Int).Abs(n.i))
}
