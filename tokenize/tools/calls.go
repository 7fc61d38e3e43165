package tools

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"onering/internal/grammar"
)

// Calling returns the forms of answers that call the function with a name, or any if it is
// empty, with arguments of its schema: only is calls and nothing else, where once asks for one,
// free any text and calls in it. left are keywords that are left to the model, each with its function.
func (f *Format) Calling(name string, once bool) (only, free grammar.Form, left []string, err error) {
	var calls []grammar.Form // behind the mark with which they begin
	mark := f.open
	if f.bare != 0 {
		mark = ""
	}
	for _, x := range slices.Sorted(maps.Keys(f.functions)) {
		if name != "" && x != name {
			continue
		}
		arguments, more, err := f.functions[x].written(f)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("the tool %q: parameters%w", x, err)
		}
		for _, keyword := range more {
			left = append(left, keyword+" of "+x)
		}
		begins := strings.TrimPrefix(f.begins, mark) + strings.ReplaceAll(f.named, "NAME", x)
		calls = append(calls, grammar.Join(grammar.Text(begins), arguments, grammar.Text(f.ends)))
	}
	if len(calls) == 0 {
		return nil, nil, nil, fmt.Errorf("there is no tool %q", name)
	}
	one := grammar.OneOf(calls...)
	most := -1
	if once || f.between == "" {
		most = 1
	}
	only = grammar.Join(grammar.Text(mark), one).Repeat(1, most, grammar.Text(f.between))
	if mark != "" {
		return only, grammar.Free(mark, one), left, nil
	}
	other, err := grammar.Regexp(`(?s)([^` + regexp.QuoteMeta(string(f.bare)) + `\s].*)?`)
	return only, grammar.OneOf(only, other), left, err
}

// written is the form of a function's arguments as a model writes them.
func (x function) written(f *Format) (grammar.Form, []string, error) {
	schema := x.Parameters
	if isNull(schema) {
		schema = []byte(`{"type": "object", "properties": {}}`)
	}
	switch f.name {
	case "xml":
		begins := func(name string) string { return parameterBegin + name + ">\n" }
		return grammar.Arguments(schema, x.Strict, grammar.Writing{Before: begins, Behind: "\n" + parameterEnd + "\n", Raw: true})
	case "lfm2", "pythonic":
		return grammar.Arguments(schema, x.Strict, grammar.Writing{Before: func(name string) string { return name + "=" }, Between: ", "})
	case "gemma":
		return grammar.Until(f.close), nil, nil // its values are not held
	}
	var of map[string]json.RawMessage
	if json.Unmarshal(schema, &of) == nil && isNull(of["type"]) && of["$ref"] == nil { // arguments are an object, also where the schema does not say so
		of["type"] = json.RawMessage(`"object"`)
		schema, _ = json.Marshal(of)
	}
	return grammar.Schema(schema, x.Strict)
}
