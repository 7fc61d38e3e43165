package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// textMethods are the methods of str.
var textMethods map[string]method

func init() { // not a literal: format reads attributes, which reads this table
	textMethods = map[string]method{
		"upper": onText(upper), "lower": onText(lower), "capitalize": onText(capitalize), "title": onText(titleCase),
		"strip": strip(strings.TrimFunc), "lstrip": strip(strings.TrimLeftFunc), "rstrip": strip(strings.TrimRightFunc),
		"split": split, "rsplit": rsplit, "splitlines": splitLinesMethod,
		"join": joinMethod, "replace": replaceMethod, "format": formatMethod,
		"startswith": affix(strings.HasPrefix), "endswith": affix(strings.HasSuffix),
		"removeprefix": without(strings.TrimPrefix), "removesuffix": without(strings.TrimSuffix),
		"find": find(strings.Index), "rfind": find(strings.LastIndex), "count": countMethod,
		"isalpha": every(unicode.IsLetter), "isspace": every(IsSpace), "isdigit": every(isDigitRune),
		"isalnum": every(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }),
		"islower": cased(unicode.IsLower, func(c rune) bool { return unicode.IsUpper(c) || unicode.IsTitle(c) }),
		"isupper": cased(unicode.IsUpper, func(c rune) bool { return unicode.IsLower(c) || unicode.IsTitle(c) }),
	}
	for _, name := range strings.Fields("casefold center encode expandtabs format_map index isascii isdecimal isidentifier isnumeric isprintable istitle ljust maketrans partition rindex rjust rpartition swapcase translate zfill") {
		textMethods[name] = func(r *run, _ Value, _ arguments) Value {
			r.fail("the method %s of str is not supported", quote(name))
			return nil
		}
	}
}

// like returns s as text of the same kind as v.
func like(v Value, s string) Value {
	if _, ok := v.(markup); ok {
		return markup(s)
	}
	return s
}

// onText is a method without arguments that returns a text.
func onText(change func(string) string) method {
	return func(r *run, of Value, a arguments) Value {
		a.bind(r, "the method", 0)
		return like(of, change(r.str(of)))
	}
}

func upper(s string) string { return cases.Upper(language.Und).String(s) }

func lower(s string) string { return cases.Lower(language.Und, cases.HandleFinalSigma(true)).String(s) }

func capitalize(s string) string { return titleWord(s) }

// titleWord writes the first character as a capital and the others small.
func titleWord(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	// What stands before a Greek sigma decides on its form, so a letter does here.
	return cases.Title(language.Und).String(s[:n]) + strings.TrimPrefix(lower("a"+s[n:]), "a")
}

// titleCase writes the first letter of each run of letters as a capital.
func titleCase(s string) string {
	var out strings.Builder
	for s != "" {
		at := strings.IndexFunc(s, isCased)
		if at < 0 {
			at = len(s)
		}
		out.WriteString(s[:at])
		s = s[at:]
		end := strings.IndexFunc(s, func(c rune) bool { return !isCased(c) })
		if end < 0 {
			end = len(s)
		}
		if end > 0 {
			out.WriteString(titleWord(s[:end]))
		}
		s = s[end:]
	}
	return out.String()
}

func isCased(c rune) bool { return unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c) }

func isDigitRune(c rune) bool {
	return unicode.IsDigit(c) || strings.ContainsRune("²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉", c) || 0x2460 <= c && c <= 0x2468
}

// strip is strip(chars) and its variants.
func strip(trim func(string, func(rune) bool) string) method {
	return func(r *run, of Value, a arguments) Value {
		v := a.bind(r, "strip", 0, "chars")[0]
		s := r.str(of)
		if !given(v) {
			return like(of, trim(s, IsSpace))
		}
		chars := r.textOr(v, "")
		set := map[rune]bool{}
		for _, c := range chars {
			set[c] = true
		}
		return like(of, trim(s, func(c rune) bool { return set[c] }))
	}
}

// texts makes a list of texts.
func (r *run) texts(of Value, parts []string) List {
	l := make(List, len(parts))
	for i, p := range parts {
		r.spend(elementCost)
		l[i] = like(of, p)
	}
	return l
}

// separator returns the arguments of split and rsplit.
func (r *run) separator(a arguments) (sep string, isSpaces bool, limit int) {
	v := a.bind(r, "split", 0, "sep", "maxsplit")
	if !given(v[0]) {
		return "", true, r.intOr(v[1], -1)
	}
	if sep = r.textOr(v[0], ""); sep == "" {
		r.fail("empty separator")
	}
	return sep, false, r.intOr(v[1], -1)
}

func split(r *run, of Value, a arguments) Value {
	sep, isSpaces, limit := r.separator(a)
	s := r.str(of)
	if !isSpaces {
		if limit >= 0 {
			limit++
		}
		return r.texts(of, strings.SplitN(s, sep, limit))
	}
	var parts []string
	for s = strings.TrimLeftFunc(s, IsSpace); s != ""; s = strings.TrimLeftFunc(s, IsSpace) {
		end := strings.IndexFunc(s, IsSpace)
		if end < 0 || limit >= 0 && len(parts) >= limit {
			end = len(s)
		}
		parts = append(parts, s[:end])
		s = s[end:]
	}
	return r.texts(of, parts)
}

// rsplit takes parts from the end.
func rsplit(r *run, of Value, a arguments) Value {
	sep, isSpaces, limit := r.separator(a)
	s := r.str(of)
	var parts []string // the last one first
	if isSpaces {
		for s = strings.TrimRightFunc(s, IsSpace); s != ""; s = strings.TrimRightFunc(s, IsSpace) {
			begin := len(strings.TrimRightFunc(s, func(c rune) bool { return !IsSpace(c) }))
			if limit >= 0 && len(parts) >= limit {
				begin = 0
			}
			parts = append(parts, s[begin:])
			s = s[:begin]
		}
	} else {
		for limit < 0 || len(parts) < limit {
			at := strings.LastIndex(s, sep)
			if at < 0 {
				break
			}
			parts = append(parts, s[at+len(sep):])
			s = s[:at]
		}
		parts = append(parts, s)
	}
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return r.texts(of, parts)
}

// isLineEnd tells where splitlines cuts.
func isLineEnd(c rune) bool {
	return '\n' <= c && c <= '\r' || 0x1c <= c && c <= 0x1e || c == 0x85 || c == 0x2028 || c == 0x2029
}

func splitLines(s string, keep bool) []string {
	var lines []string
	for s != "" {
		at := strings.IndexFunc(s, isLineEnd)
		if at < 0 {
			return append(lines, s)
		}
		_, n := utf8.DecodeRuneInString(s[at:])
		if strings.HasPrefix(s[at:], "\r\n") {
			n = 2
		}
		end := at
		if keep {
			end += n
		}
		lines = append(lines, s[:end])
		s = s[at+n:]
	}
	return lines
}

func splitLinesMethod(r *run, of Value, a arguments) Value {
	keep := truthOr(a.bind(r, "splitlines", 0, "keepends")[0], false)
	s := r.str(of)
	return r.texts(of, splitLines(s, keep))
}

func joinMethod(r *run, of Value, a arguments) Value {
	sep := r.str(of)
	var out strings.Builder
	first := true
	for v := range r.elements(a.bind(r, "join", 1, "iterable")[0]) {
		part, ok := text(v)
		if !ok {
			r.fail("join wants strings, not '%s'", typeName(v))
		}
		if !first {
			r.spend(len(sep))
			out.WriteString(sep)
		}
		first = false
		r.spend(len(part))
		out.WriteString(part)
	}
	return like(of, out.String())
}

// replace is s.replace(old, by, limit).
func (r *run) replace(s, old, by string, limit int) string {
	n := strings.Count(s, old)
	if limit >= 0 {
		n = min(n, limit)
	}
	r.spendTimes(n, len(by))
	return strings.Replace(s, old, by, n)
}

func replaceMethod(r *run, of Value, a arguments) Value {
	v := a.bind(r, "replace", 2, "old", "new", "count")
	return like(of, r.replace(r.str(of), r.textOr(v[0], ""), r.textOr(v[1], ""), r.intOr(v[2], -1)))
}

// part returns what of s start and end limit, and where it begins in
// characters. ok is false if start is past the end.
func (r *run) part(s string, start, end Value) (part string, first int, ok bool) {
	if !given(start) && !given(end) {
		return s, 0, true
	}
	n := utf8.RuneCountInString(s)
	place := func(v Value, otherwise int) int {
		if !given(v) {
			return otherwise
		}
		i := r.intOr(v, 0)
		if i < 0 {
			i += n
		}
		return max(0, i)
	}
	first = place(start, 0)
	last := min(place(end, n), n)
	if first > last {
		return "", first, false
	}
	at := offset(s, first)
	return s[at : at+offset(s[at:], last-first)], first, true
}

func affix(has func(s, part string) bool) method {
	return func(r *run, of Value, a arguments) Value {
		v := a.bind(r, "startswith", 1, "prefix", "start", "end")
		s := r.str(of)
		part, _, ok := r.part(s, v[1], v[2])
		choices, isTuple := v[0].(Tuple)
		if !isTuple {
			choices = Tuple{v[0]}
		}
		for _, c := range choices {
			if has(part, r.textOr(c, "")) && ok {
				return true
			}
		}
		return false
	}
}

func without(trim func(s, part string) string) method {
	return func(r *run, of Value, a arguments) Value {
		part := r.textOr(a.bind(r, "removeprefix", 1, "prefix")[0], "")
		return like(of, trim(r.str(of), part))
	}
}

func find(index func(s, part string) int) method {
	return func(r *run, of Value, a arguments) Value {
		v := a.bind(r, "find", 1, "sub", "start", "end")
		s := r.str(of)
		part, first, ok := r.part(s, v[1], v[2])
		at := index(part, r.textOr(v[0], ""))
		if at < 0 || !ok {
			return -1
		}
		return first + utf8.RuneCountInString(part[:at])
	}
}

func countMethod(r *run, of Value, a arguments) Value {
	v := a.bind(r, "count", 1, "sub", "start", "end")
	s := r.str(of)
	part, _, ok := r.part(s, v[1], v[2])
	if !ok {
		return 0
	}
	return strings.Count(part, r.textOr(v[0], ""))
}

// every is a method that asks whether all characters are of a kind, and there is one.
func every(is func(rune) bool) method {
	return func(r *run, of Value, _ arguments) Value {
		s := r.str(of)
		return s != "" && strings.IndexFunc(s, func(c rune) bool { return !is(c) }) < 0
	}
}

// cased is islower and isupper: there is a letter of the case and none of another.
func cased(is, other func(rune) bool) method {
	return func(r *run, of Value, _ arguments) Value {
		s := r.str(of)
		return strings.IndexFunc(s, is) >= 0 && strings.IndexFunc(s, other) < 0
	}
}

// dictMethods are the methods of dict that change nothing.
var dictMethods = map[string]method{
	"keys":   viewOf("dict_keys"),
	"values": viewOf("dict_values"),
	"items":  viewOf("dict_items"),
	"copy": func(r *run, of Value, a arguments) Value {
		a.bind(r, "copy", 0)
		return of
	},
	"get": func(r *run, of Value, a arguments) Value {
		v := a.bind(r, "get", 1, "key", "default")
		r.payKey(v[0], 0)
		if _, ok := hash(v[0]); !ok {
			r.fail("unhashable type: '%s'", typeName(v[0]))
		}
		if found, ok := of.(*Dict).Get(v[0]); ok {
			return found
		}
		if _, ok := v[1].(absent); ok {
			return nil
		}
		return v[1]
	},
}

func viewOf(kind string) method {
	return func(r *run, of Value, a arguments) Value {
		a.bind(r, kind, 0)
		return view{kind, of.(*Dict)}
	}
}

// listMethods are the methods of list and tuple that change nothing.
var listMethods = map[string]method{
	"copy": func(_ *run, of Value, _ arguments) Value { return of },
	"count": func(r *run, of Value, a arguments) Value {
		v := a.bind(r, "count", 1, "value")[0]
		n := 0
		for e := range r.elements(of) {
			if r.equal(e, v, 0) {
				n++
			}
		}
		return n
	},
	"index": func(r *run, of Value, a arguments) Value {
		v := a.bind(r, "index", 1, "value", "start", "stop")
		l := r.list(of)
		start, _, n := r.bounds([]Value{orNil(v[1]), orNil(v[2]), nil}, len(l))
		for i := range n {
			if r.equal(l[start+i], v[0], 0) {
				return start + i
			}
		}
		r.fail("the value is not in the list")
		return nil
	},
}

func orNil(v Value) Value {
	if _, ok := v.(absent); ok {
		return nil
	}
	return v
}
