// Package jinja renders chat templates as transformers does: Jinja with blocks trimmed, in a sandbox, with
// tojson, raise_exception, strftime_now and generation blocks. Text is equal byte for byte: testdata/golden.py
// compares constructs, and all of some hundred published templates were compared in the same way.
//
//	lex.go, parse.go, parse_expr.go            text -> a function for each part
//	exec.go, eval.go, loop.go, call.go         what these functions share
//	value.go, text.go, json.go                 Python's values, str, repr and JSON
//	operator.go, compare.go, attribute.go      Python's operations
//	method.go, method_text.go                  methods of str, list and dict
//	filter.go, filter_text.go, test.go         filters and tests
//	globals.go                                 functions
//	limits.go                                  bounds of time, memory and depth
//
// It is our own because a template's text must be exact and because a template comes with a downloaded model.
// The Go ports of Jinja compute with Go's values: their dictionaries lose the order of keys, which tools show,
// attributes of what is undefined are not errors, and numbers, booleans and None are written in other ways.
// They also have no limits of time, memory or recursion, so macros would have to be refused, which the
// templates of Llama 3.2 and Qwen3 Coder need. Here each value is paid for before it is made (see limits.go).
//
// Not supported, with an error that names it: other files (include, import, extends), methods that change a list or a
// dictionary, which the sandbox forbids, and what none of 126 published chat templates uses: the tags call, print,
// block, autoescape and raw, loops that call themselves, the names caller, kwargs and varargs of macros, mappings and
// widths in %, powers, numbers that are not decimal, lists that are ordered or multiplied, tuples as keys, arguments
// out of dicts, filters for pages (escape, urlize and the like), and rare methods of str.
package jinja
