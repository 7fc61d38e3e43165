package tokenize

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// Chat templates are Jinja. gonja renders them; this file makes it Hugging
// Face's Jinja: blocks trimmed, raise_exception and strftime_now, tojson as
// Python writes it, Python's strip and split, negative indices. A template comes
// with a downloaded model, so it must not read files or call itself: include,
// import, extends, block, macro, call and recursive loops do not exist.

// statements are the ones that a template can use.
var statements = []string{"autoescape", "break", "continue", "do", "filter", "for", "if", "raw", "set", "with"}

// stringMethods are the methods of str that gonja has as Python has them.
var stringMethods = []string{"capitalize", "count", "endswith", "find", "format", "isalnum", "isalpha", "isascii",
	"isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join", "lower", "partition",
	"removeprefix", "removesuffix", "replace", "rfind", "rpartition", "splitlines", "startswith", "swapcase", "title", "upper"}

// filterNames are the filters that a template can use: those of gonja, except for the
// ones of web pages, whose time grows with the square of the text.
var filterNames = []string{"abs", "attr", "batch", "capitalize", "center", "count", "d", "default", "dictsort", "e",
	"escape", "filesizeformat", "first", "float", "forceescape", "format", "groupby", "indent", "int", "items", "join",
	"last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse", "round",
	"safe", "select", "selectattr", "slice", "sort", "string", "sum", "title", "tojson", "trim", "truncate", "unique",
	"upper", "urlencode", "wordcount"}

// gonja's parser is recursive, and a stack overflow ends a Go program, so these
// limits bound how deep a template can nest. Templates in use have up to 30 kB.
const (
	maxTemplate = 64 << 10 // bytes
	maxBrackets = 500      // that are open at the same place
)

// maxRange is the limit of Jinja's sandbox.
const maxRange = 100000

var recursiveLoop = regexp.MustCompile(`\brecursive\s*[-+]?%\}`)

func parseJinja(source string) (t *exec.Template, err error) {
	if len(source) > maxTemplate {
		return nil, fmt.Errorf("longer than %d bytes", maxTemplate)
	}
	if recursiveLoop.MatchString(source) {
		return nil, errors.New("recursive loops are not supported")
	}
	open := 0
	for i := range len(source) {
		switch source[i] {
		case '(', '[', '{':
			open++
		case ')', ']', '}':
			open = max(open-1, 0) // brackets in text need not match
		}
		if open > maxBrackets {
			return nil, fmt.Errorf("more than %d brackets open at once", maxBrackets)
		}
	}
	defer catch(&err)
	c := config.New()
	c.TrimBlocks, c.LeftStripBlocks = true, true
	if err := lexes(source, c); err != nil {
		return nil, err
	}
	const name = "/chat_template"
	loader, err := loaders.NewMemoryLoader(map[string]string{name: source})
	if err != nil {
		return nil, err
	}
	if t, err = exec.NewTemplate(name, c, loader, jinja()); err != nil {
		return nil, err
	}
	return t, guardTemplate(t.Root())
}

// lexes returns an error if gonja's lexer does not end. After a number, a point and
// a character outside of ASCII it steps back too far and makes empty tokens without
// end. lexes takes no more tokens than a text of that length can have; the lexer
// then waits and does no harm.
func lexes(source string, c *config.Config) error {
	l := tokens.NewLexer(source, c)
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		l.Run()
	}()
	line := 1
	for range 2*len(source) + 16 {
		select {
		case token, more := <-l.Tokens:
			if !more {
				return nil
			}
			line = token.Line
		case failed := <-done:
			if failed == nil {
				return nil
			}
			return fmt.Errorf("line %d cannot be read: %v", line, failed)
		}
	}
	return fmt.Errorf("line %d cannot be read: a number, a point and a character outside ASCII", line)
}

// renderJinja renders a template with the given data, of which size bytes come from
// the messages.
func renderJinja(t *exec.Template, data map[string]any, size int) (text string, err error) {
	defer catch(&err)
	b := &budget{left: renderBudget + budgetPerByte*size, factor: map[int]int{}}
	env := jinja()
	strs := map[string]exec.Method[string]{}
	for _, name := range append([]string{"strip", "lstrip", "rstrip", "split"}, stringMethods...) {
		if m, ok := env.Methods.Str.Get(name); ok {
			strs[name] = b.method(name, m)
		}
	}
	methods := env.Methods
	methods.Str = exec.NewMethodSet(strs)
	c := config.New()
	var out strings.Builder
	r := exec.NewRenderer(&exec.Environment{
		Filters: b.filters(), Methods: methods, Tests: env.Tests, ControlStructures: env.ControlStructures,
		Context: env.Context.Inherit().Update(exec.NewContext(data)),
	}, &out, c, nil, t)
	if err := r.Execute(); err != nil {
		return "", plainError(err)
	}
	return out.String(), nil
}

// catch turns a panic into an error: gonja panics on a division by zero, for example.
func catch(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%v", r)
	}
}

// jinja is the environment of all chat templates.
var jinja = sync.OnceValue(func() *exec.Environment {
	allowed := map[string]parser.ControlStructureParser{}
	for _, name := range statements {
		if p, ok := builtins.ControlStructures.Get(name); ok {
			allowed[name] = p
		}
	}
	dict, _ := builtins.GlobalFunctions.Get("dict")
	strs := map[string]exec.Method[string]{}
	for _, name := range stringMethods {
		if m, ok := builtins.Methods.Str.Get(name); ok {
			strs[name] = m
		}
	}
	strs["strip"], strs["lstrip"], strs["rstrip"] = strip(strings.TrimFunc), strip(strings.TrimLeftFunc), strip(strings.TrimRightFunc)
	strs["split"] = split
	methods := builtins.Methods
	methods.Str = exec.NewMethodSet(strs)
	return &exec.Environment{
		ControlStructures: exec.NewControlStructureSet(allowed),
		Tests:             builtins.Tests,
		Methods:           methods,
		Context: exec.NewContext(map[string]any{
			"dict":            dict,
			"namespace":       newNamespace,
			"raise_exception": func(message string) (string, error) { return "", errors.New(message) },
			"strftime_now":    strftimeNow,
			"range":           boundedRange,
		}),
	}
})

// A list is a Python list: with those of gonja, x[-len(x)] is not the first element.
type list []any

// GetItem implements gonja's ItemGetter.
func (l list) GetItem(key any) (*exec.Value, bool) {
	i, ok := key.(int)
	if ok && i < 0 {
		i += len(l)
	}
	if !ok || i < 0 || i >= len(l) {
		return exec.AsValue(nil), false
	}
	return exec.AsValue(l[i]), true
}

func strip(trim func(string, func(rune) bool) string) exec.Method[string] {
	return func(self string, _ *exec.Value, args *exec.VarArgs) (any, error) {
		switch {
		case len(args.Args) == 0 || args.Args[0].IsNil():
			return trim(self, unicode.IsSpace), nil
		case args.Args[0].IsString():
			cut := args.Args[0].String()
			return trim(self, func(r rune) bool { return strings.ContainsRune(cut, r) }), nil
		}
		return nil, exec.ErrInvalidCall(errors.New("want a string"))
	}
}

// split is str.split(sep, maxsplit).
func split(self string, _ *exec.Value, args *exec.VarArgs) (any, error) {
	sep := args.GetKeywordArgument("sep", nil)
	limit := args.GetKeywordArgument("maxsplit", -1)
	if len(args.Args) > 0 {
		sep = args.Args[0]
	}
	if len(args.Args) > 1 {
		limit = args.Args[1]
	}
	var parts []string
	switch {
	case sep.IsNil() && limit.Integer() < 0:
		parts = strings.Fields(self)
	case sep.IsString() && sep.String() != "":
		n := limit.Integer()
		if n >= 0 {
			n++
		}
		parts = strings.SplitN(self, sep.String(), n)
	default:
		return nil, exec.ErrInvalidCall(errors.New("want a separator that is not empty"))
	}
	l := make(list, len(parts))
	for i, p := range parts {
		l[i] = p
	}
	return l, nil
}

// boundedRange is range(stop), range(start, stop) and range(start, stop, step).
func boundedRange(args *exec.VarArgs) (list, error) {
	bounds := []int{0, 0, 1}
	switch len(args.Args) {
	case 1:
		bounds[1] = args.Args[0].Integer()
	case 2, 3:
		for i, a := range args.Args {
			bounds[i] = a.Integer()
		}
	default:
		return nil, exec.ErrInvalidCall(errors.New("want range(start, stop, step)"))
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	if step == 0 {
		return nil, exec.ErrInvalidCall(errors.New("step is zero"))
	}
	var l list
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(l) == maxRange {
			return nil, exec.ErrInvalidCall(fmt.Errorf("more than %d elements", maxRange))
		}
		l = append(l, i)
	}
	return l, nil
}

// strftimeNow formats the current time with the directives that chat templates use.
func strftimeNow(format string) (string, error) {
	now := time.Now()
	var out strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			out.WriteByte(format[i])
			continue
		}
		i++
		layout, ok := map[byte]string{'Y': "2006", 'm': "01", 'd': "02", 'B': "January", 'b': "Jan", 'A': "Monday",
			'a': "Mon", 'H': "15", 'M': "04", 'S': "05", 'y': "06", 'j': "002", 'p': "PM", 'I': "03"}[format[i]]
		if !ok {
			return "", fmt.Errorf("strftime_now: %%%c is not supported", format[i])
		}
		out.WriteString(now.Format(layout))
	}
	return out.String(), nil
}

// toJSON is json.dumps(value, ensure_ascii=False, indent=indent), but with sorted
// keys: gonja's dictionaries have no order.
func toJSON(_ *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	indent := -1
	if v := args.GetKeywordArgument("indent", nil); v.IsInteger() {
		indent = v.Integer()
	}
	text, err := appendJSON(nil, in.ToGoSimpleType(false), min(indent, 16), 0)
	if err != nil {
		return exec.AsValue(err)
	}
	return exec.AsSafeValue(string(text))
}

func appendJSON(dst []byte, v any, indent, depth int) ([]byte, error) {
	if depth > maxNesting {
		return nil, errors.New("tojson: nested too deep")
	}
	// between writes the line break and blanks before an element or closing bracket.
	between := func(comma string, depth int) {
		dst = append(dst, comma...)
		if indent >= 0 {
			dst = append(dst, "\n"+strings.Repeat(" ", indent*depth)...)
		} else if comma != "" {
			dst = append(dst, ' ')
		}
	}
	comma, err := "", error(nil)
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			return append(dst, "{}"...), nil
		}
		dst = append(dst, '{')
		for _, key := range slices.Sorted(maps.Keys(v)) {
			between(comma, depth+1)
			if dst, err = appendJSON(dst, key, indent, depth+1); err != nil {
				return nil, err
			}
			dst = append(dst, ": "...)
			if dst, err = appendJSON(dst, v[key], indent, depth+1); err != nil {
				return nil, err
			}
			comma = ","
		}
		between("", depth)
		return append(dst, '}'), nil
	case []any:
		if len(v) == 0 {
			return append(dst, "[]"...), nil
		}
		dst = append(dst, '[')
		for _, element := range v {
			between(comma, depth+1)
			if dst, err = appendJSON(dst, element, indent, depth+1); err != nil {
				return nil, err
			}
			comma = ","
		}
		between("", depth)
		return append(dst, ']'), nil
	case error:
		return nil, v
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return append(dst, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...), nil
}
