package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"onering/tokenize"
)

// Marks within calls of Mistral and of Gemma.
const (
	mistralID        = "[CALL_ID]"
	mistralArguments = "[ARGS]"
	gemmaText        = "<escape>" // before and behind a text
)

// readMistral reads [{"name": NAME, "arguments": OBJECT, "id": ID}, ...], or, as newer models
// write it, NAME[CALL_ID]ID[ARGS]OBJECT, of which several begin with a mark of their own.
func readMistral(f *Format, block string) (calls []Call, err error) {
	rest := strings.TrimSpace(block)
	if strings.HasPrefix(rest, "[") {
		return readList(f, rest)
	}
	for rest != "" {
		head, _, _ := strings.Cut(rest, "{")
		name, _, _ := strings.Cut(strings.TrimSuffix(strings.TrimSpace(head), mistralArguments), mistralID)
		name = strings.TrimSpace(name)
		decoder := json.NewDecoder(strings.NewReader(rest[len(head):]))
		w := writtenCall{Name: &name} // its arguments are the JSON behind the head
		if err := decoder.Decode(&w.Arguments); err != nil {
			return nil, notCall(rest[len(head):], err)
		}
		c, err := f.call(w)
		if err != nil {
			return nil, err
		}
		calls = append(calls, c)
		rest = strings.TrimSpace(rest[len(head)+int(decoder.InputOffset()):])
		after, more := strings.CutPrefix(rest, f.openMark)
		if rest != "" && !more {
			return nil, errors.New("text stands behind the arguments of a call")
		}
		rest = strings.TrimSpace(after)
	}
	return calls, checkCount(calls)
}

// readList reads [{"name": NAME, "arguments": OBJECT}, ...].
func readList(f *Format, block string) (calls []Call, err error) {
	var list []writtenCall
	if err := json.Unmarshal([]byte(block), &list); err != nil {
		return nil, fmt.Errorf("the calls are not a list of JSON objects: %w", err)
	}
	for _, w := range list {
		c, err := f.call(w)
		if err != nil {
			return nil, err
		}
		calls = append(calls, c)
	}
	return calls, checkCount(calls)
}

func checkCount(calls []Call) error {
	if len(calls) > maxCalls {
		return errManyCalls
	}
	return nil
}

var errManyCalls = fmt.Errorf("there are more than %d calls", maxCalls)

// readPython reads [NAME(KEY=VALUE, ...), ...] with values as Python or JSON writes them, or a list of JSON objects. In
// a family whose calls may stand without a mark (bare), a list counts if it calls a known function, else it is text.
func readPython(f *Format, block string) (calls []Call, err error) {
	text, bare := strings.TrimSpace(block), f.bareBegin != 0
	if strings.HasPrefix(text, "[") && strings.HasPrefix(strings.TrimLeft(text[1:], blanks), "{") {
		if bare {
			return nil, nil // the answer is plain JSON
		}
		return readList(f, text)
	}
	inside, ok := strings.CutPrefix(text, "[")
	if ok {
		inside, ok = strings.CutSuffix(inside, "]")
	} else {
		inside, ok = text, !bare // the marks alone may stand for the brackets
	}
	if name, _, _ := strings.Cut(inside, "("); bare && f.functions[strings.TrimSpace(name)].Name == "" {
		return nil, nil // the answer is another list
	}
	parts, balanced := split(inside)
	if !ok || !balanced {
		return nil, errors.New("the calls are not a list [NAME(KEY=VALUE, ...), ...]")
	}
	for _, part := range parts {
		name, rest, opened := strings.Cut(part, "(")
		inside, closed := strings.CutSuffix(rest, ")")
		given, balanced := split(inside)
		if !opened || !closed || !balanced || !toolName.MatchString(name) {
			return nil, fmt.Errorf("%.60q is not a call NAME(KEY=VALUE, ...)", part)
		}
		var o object
		for _, g := range given {
			key, value, found := strings.Cut(g, "=")
			value = tokenize.PythonJSON(strings.TrimSpace(value))
			if key = strings.TrimSpace(key); !found || key == "" || !isJSON(value) {
				return nil, fmt.Errorf("the call of %.60q has arguments that are not KEY=VALUE, with values as Python writes them", name)
			}
			o.add(key, json.RawMessage(value))
		}
		calls = append(calls, Call{name, o.all()})
	}
	return calls, checkCount(calls)
}

// split cuts a text at the commas outside of its quotes and brackets, and reports whether
// all of these are closed. A comma at the end is allowed.
func split(text string) (parts []string, balanced bool) {
	depth, from, quote := 0, 0, byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case strings.IndexByte("([{", c) >= 0:
			depth++
		case strings.IndexByte(")]}", c) >= 0:
			if depth--; depth < 0 {
				return nil, false
			}
		case c == ',' && depth == 0:
			parts, from = append(parts, strings.TrimSpace(text[from:i])), i+1
		}
	}
	if rest := strings.TrimSpace(text[from:]); rest != "" {
		parts = append(parts, rest)
	}
	return parts, depth == 0 && quote == 0
}

// writePython writes calls as readPython reads them. The values stay JSON, which readPython
// takes beside the True, False and None of Python.
func writePython(calls []Call) string {
	var texts []string
	for _, c := range calls {
		var given []string
		d := json.NewDecoder(bytes.NewReader(c.Arguments))
		begin, err := d.Token()
		isObject := begin == json.Delim('{') // other arguments are written as none
		for isObject && err == nil && d.More() {
			var key json.Token
			var value json.RawMessage
			if key, err = d.Token(); err == nil {
				err = d.Decode(&value)
			}
			given = append(given, fmt.Sprintf("%v=%s", key, value))
		}
		texts = append(texts, c.Name+"("+strings.Join(given, ", ")+")")
	}
	return "<|tool_call_start|>[" + strings.Join(texts, ", ") + "]<|tool_call_end|>"
}

// readGemma reads call:NAME{KEY:VALUE,...}. A text stands between two marks; an object is
// {KEY:VALUE,...}, a list [VALUE,...].
func readGemma(f *Format, block string) ([]Call, error) {
	name, rest, ok := strings.Cut(strings.TrimSpace(block), "{")
	name, called := strings.CutPrefix(name, "call:")
	if name = strings.TrimSpace(name); !ok || !called || !toolName.MatchString(name) {
		return nil, errors.New("a call is not call:NAME{KEY:VALUE,...}")
	}
	r := gemmaReader{rest: "{" + rest, schemas: f.arguments(name)}
	arguments, err := r.value(0)
	if err == nil && strings.TrimSpace(r.rest) != "" {
		err = errors.New("text stands behind the arguments")
	}
	if err != nil {
		return nil, fmt.Errorf("the call of %.60q: %w", name, err)
	}
	return []Call{{name, arguments}}, nil
}

// A gemmaReader reads the values of a call's arguments.
type gemmaReader struct {
	rest    string
	schemas map[string]json.RawMessage // of the arguments
}

const maxGemmaDepth = 64

// value takes a value from the beginning of r.rest, nested in depth others, and returns it as JSON: a text between
// marks or a word without any, a number, an object or a list. The object at depth 0 has the arguments.
func (r *gemmaReader) value(depth int) (json.RawMessage, error) {
	r.rest = strings.TrimLeft(r.rest, blanks)
	switch {
	case depth > maxGemmaDepth:
		return nil, fmt.Errorf("its arguments are nested deeper than %d", maxGemmaDepth)
	case strings.HasPrefix(r.rest, gemmaText):
		text, rest, closed := strings.Cut(r.rest[len(gemmaText):], gemmaText)
		r.rest = rest
		if !closed {
			return nil, fmt.Errorf("a text without %s behind it", gemmaText)
		}
		return textOf(text), nil
	case strings.HasPrefix(r.rest, "{"):
		var o object
		err := r.takeUntil('}', func() error {
			key, rest, found := strings.Cut(r.rest, ":")
			r.rest = rest
			if !found {
				return errors.New("an object is not {KEY:VALUE,...}")
			}
			key = strings.Trim(key, blanks+`"`)
			key = strings.TrimSuffix(strings.TrimPrefix(key, gemmaText), gemmaText)
			value, err := r.value(depth + 1)
			if depth == 0 && err == nil { // an argument, which may have a schema
				value = r.typed(key, value)
			}
			o.add(key, value)
			return err
		})
		return o.all(), err
	case strings.HasPrefix(r.rest, "["):
		var list []string
		err := r.takeUntil(']', func() error {
			value, err := r.value(depth + 1)
			list = append(list, string(value))
			return err
		})
		return json.RawMessage("[" + strings.Join(list, ", ") + "]"), err
	}
	n := strings.IndexAny(r.rest, ",}]")
	if n < 0 {
		return nil, errors.New("its arguments do not end")
	}
	word := strings.TrimSpace(r.rest[:n])
	r.rest = r.rest[n:]
	if isJSON(word) {
		return json.RawMessage(word), nil
	}
	return textOf(word), nil
}

// takeUntil takes a bracket, the next byte, and all up to the one that closes it from r.rest; one takes a value between commas.
func (r *gemmaReader) takeUntil(closing byte, one func() error) error {
	r.rest = strings.TrimLeft(r.rest[1:], blanks)
	for r.rest != "" && r.rest[0] != closing {
		if err := one(); err != nil {
			return err
		}
		r.rest = strings.TrimLeft(r.rest, blanks)
		if after, more := strings.CutPrefix(r.rest, ","); more {
			r.rest = strings.TrimLeft(after, blanks)
		} else if r.rest != "" && r.rest[0] != closing {
			return errors.New("no comma stands between two values")
		}
	}
	if r.rest == "" {
		return errors.New("its arguments do not end")
	}
	r.rest = r.rest[1:]
	return nil
}

// typed is the value of an argument by its schema: some models write a number as a text.
func (r *gemmaReader) typed(key string, value json.RawMessage) json.RawMessage {
	var text string
	if told, known := r.schemas[key]; known && json.Unmarshal(value, &text) == nil {
		var s schema
		_ = json.Unmarshal(told, &s) // true is a valid schema, too, without information
		return s.value(text, known)
	}
	return value
}
