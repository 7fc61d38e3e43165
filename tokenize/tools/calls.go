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

// Calling returns the forms of answers that call the function with a name, or any if it is empty, with arguments of its
// schema: only is calls and nothing else, or one call if once is set; free is any text and calls in it. left are
// keywords that are left to the model, each with its function.
func (f *Format) Calling(name string, once bool) (only, free grammar.Form, left []string, err error) {
	var calls []grammar.Form // each without the mark that begins it
	mark := f.openMark
	if f.bareBegin != 0 { // such as Llama 3's: calls are written without the mark
		mark = ""
	}
	for _, x := range slices.Sorted(maps.Keys(f.functions)) {
		if name != "" && x != name {
			continue
		}
		arguments, more, err := f.functions[x].argumentsForm(f)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("the tool %q: parameters%w", x, err)
		}
		for _, keyword := range more {
			left = append(left, keyword+" of "+x)
		}
		begins := strings.TrimPrefix(f.beforeName, mark) + strings.ReplaceAll(f.nameToArguments, "NAME", x) // up to the arguments
		calls = append(calls, grammar.Join(grammar.Text(begins), arguments, grammar.Text(f.behindArguments)))
	}
	if len(calls) == 0 {
		return nil, nil, nil, fmt.Errorf("there is no tool %q", name)
	}
	one := grammar.OneOf(calls...)
	most := -1 // any number
	if once || f.betweenCalls == "" {
		most = 1
	}
	only = grammar.Join(grammar.Text(mark), one).Repeat(1, most, grammar.Text(f.betweenCalls))
	if mark != "" {
		return only, grammar.Free(mark, one), left, nil
	}
	// Without a mark an answer is calls alone, or a text that does not begin with their first character.
	other, err := grammar.Regexp(`(?s)([^` + regexp.QuoteMeta(string(f.bareBegin)) + `\s].*)?`)
	return only, grammar.OneOf(only, other), left, err
}

// argumentsForm is the form of a function's arguments as models of the format f write them, and what is left to the model.
func (x function) argumentsForm(f *Format) (grammar.Form, []string, error) {
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
		return grammar.Until(f.closeMark), nil, nil // any text up to the mark: there is no grammar for its values
	}
	var of map[string]json.RawMessage
	if json.Unmarshal(schema, &of) == nil && isNull(of["type"]) && of["$ref"] == nil { // arguments are an object, also where the schema does not say so
		of["type"] = json.RawMessage(`"object"`)
		schema, _ = json.Marshal(of)
	}
	return grammar.Schema(schema, x.Strict)
}
