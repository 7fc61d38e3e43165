package jinja

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// textMethods are the methods of str.
var textMethods map[string]method

func init() {
	textMethods = map[string]method{
		"upper": onText(upper), "lower": onText(lower), "capitalize": onText(titleWord), "title": onText(titleCase),
		"strip": strip("strip", strings.TrimFunc), "lstrip": strip("lstrip", strings.TrimLeftFunc), "rstrip": strip("rstrip", strings.TrimRightFunc),
		"split": split, "replace": replaceMethod, "startswith": affix("startswith", strings.HasPrefix), "endswith": affix("endswith", strings.HasSuffix),
	}
	for _, name := range strings.Fields("casefold center encode expandtabs format_map isidentifier isprintable " +
		"istitle ljust maketrans rjust swapcase translate zfill") {
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

// titleWord writes the first character as a capital and the others small.
func titleWord(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	// The letter before a Greek sigma decides its form, so a letter stands here.
	return cases.Title(language.Und).String(s[:n]) + strings.TrimPrefix(lower("a"+s[n:]), "a")
}

// cased is a run of letters that have a case.
var cased = regexp.MustCompile(`[\p{Lu}\p{Ll}\p{Lt}]+`)

// titleCase writes the first letter of each run of letters as a capital.
func titleCase(s string) string { return cased.ReplaceAllStringFunc(s, titleWord) }

// strip is str.strip, lstrip or rstrip by what trim does: it removes white space, or the characters of its argument.
func strip(name string, trim func(string, func(rune) bool) string) method {
	return func(r *run, of Value, a arguments) Value {
		v := a.bind(r, name, 0, "chars")[0]
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

// split is str.split(sep, maxsplit); without sep it splits at runs of white space.
func split(r *run, of Value, a arguments) Value {
	v := a.bind(r, "split", 0, "sep", "maxsplit")
	limit, s := r.intOr(v[1], -1), r.str(of)
	if given(v[0]) {
		sep := r.textOr(v[0], "")
		r.failIf(sep == "", "empty separator")
		if limit >= 0 {
			limit++ // SplitN counts parts, Python cuts
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

// lineEnd matches the places where splitlines cuts.
var lineEnd = regexp.MustCompile(`\r\n|[\n-\r\x1c-\x1e\x{85}\x{2028}\x{2029}]`)

func splitLines(s string) []string {
	lines := lineEnd.Split(s, -1)
	if last := len(lines) - 1; lines[last] == "" {
		lines = lines[:last]
	}
	return lines
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

// affix makes startswith or endswith: as in Python, the prefix may be a tuple of choices.
func affix(name string, has func(s, part string) bool) method {
	return func(r *run, of Value, a arguments) Value {
		v := a.bind(r, name, 1, "prefix")
		s := r.str(of)
		choices, isTuple := v[0].(tuple)
		if !isTuple {
			choices = tuple{v[0]}
		}
		return slices.ContainsFunc(choices, func(c Value) bool { return has(s, r.textOr(c, "")) })
	}
}

// dictMethods are the methods of dict that do not change it.
var dictMethods = map[string]method{
	"keys":   viewOf("dict_keys", func(d *Dict) []Value { return d.keys }),
	"values": viewOf("dict_values", func(d *Dict) []Value { return d.values }),
	"items":  viewOf("dict_items", (*Dict).items),
	"copy": func(r *run, of Value, a arguments) Value {
		a.bind(r, "copy", 0)
		r.spend(2 * elementCost * of.(*Dict).Len())
		return of.(*Dict).Clone()
	},
	"get": func(r *run, of Value, a arguments) Value {
		v := a.bind(r, "get", 1, "key", "default")
		r.checkKey(v[0])
		if found, ok := of.(*Dict).Get(v[0]); ok {
			return found
		}
		return orDefaultValue(v[1], nil)
	},
}

// listMethods are the methods of list and tuple that do not change them.
var listMethods = map[string]method{
	"count": func(r *run, of Value, a arguments) Value {
		v, n := a.bind(r, "count", 1, "value")[0], 0
		for e := range r.elements(of) {
			n += truthInt(r.equal(e, v, 0))
		}
		return n
	},
	"index": func(r *run, of Value, a arguments) Value {
		v, at := a.bind(r, "index", 1, "value")[0], 0
		for e := range r.elements(of) {
			if r.equal(e, v, 0) {
				return at
			}
			at++
		}
		r.fail("the value is not in list")
		return nil
	},
}

func viewOf(kind string, elements func(*Dict) []Value) method {
	return func(r *run, of Value, a arguments) Value {
		a.bind(r, kind, 0)
		r.spend(elementCost * of.(*Dict).Len())
		return &view{kind: kind, elements: elements(of.(*Dict))}
	}
}

// orDefaultValue returns an argument, or its default.
func orDefaultValue(v, otherwise Value) Value {
	if _, ok := v.(absent); ok {
		return otherwise
	}
	return v
}
