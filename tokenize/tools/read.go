package tools

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"onering/tokenize"
)

// A written is a call as JSON.
type written struct {
	Name       *string         `json:"name"`
	Arguments  json.RawMessage `json:"arguments"`
	Parameters json.RawMessage `json:"parameters"`
}

// call is the call that was written, if it is one.
func (w written) call() (Call, error) {
	arguments := w.Arguments
	if arguments == nil {
		arguments = w.Parameters
	}
	var quoted string
	if json.Unmarshal(arguments, &quoted) == nil && quoted != "" {
		arguments = json.RawMessage(strings.TrimSpace(quoted))
	}
	switch {
	case w.Name == nil || *w.Name == "":
		return Call{}, errors.New(`a call has no "name"`)
	case len(arguments) == 0:
		return Call{}, fmt.Errorf(`the call of %.60q has no "arguments"`, *w.Name)
	case arguments[0] != '{':
		return Call{}, fmt.Errorf("the arguments of the call of %.60q are no JSON object", *w.Name)
	}
	if err := new(tokenize.Data).UnmarshalJSON(arguments); err != nil { // which bounds their depth
		return Call{}, fmt.Errorf("the arguments of the call of %.60q are not read: %w", *w.Name, err)
	}
	return Call{*w.Name, arguments}, nil
}

// readHermes reads {"name": NAME, "arguments": OBJECT}.
func readHermes(_ *Format, block string) ([]Call, error) {
	var w written
	if err := json.Unmarshal([]byte(block), &w); err != nil {
		return nil, fmt.Errorf("a call is no JSON object: %w", err)
	}
	c, err := w.call()
	return []Call{c}, err
}

// readLlama reads {"name": NAME, "parameters": OBJECT}, of which models write several with
// semicolons between, or NAME.call(KEY="VALUE", ...), which stands for a tool that was built in.
func readLlama(_ *Format, block string) (calls []Call, err error) {
	rest := strings.TrimSpace(block)
	if !strings.HasPrefix(rest, "{") {
		return readBuiltin(rest)
	}
	for rest != "" {
		var w written
		decoder := json.NewDecoder(strings.NewReader(rest))
		if err := decoder.Decode(&w); err != nil {
			return nil, fmt.Errorf("a call is no JSON object: %w", err)
		}
		if w.Name == nil && w.Arguments == nil && w.Parameters == nil && len(calls) == 0 {
			return nil, nil // an answer in JSON
		}
		c, err := w.call()
		if err != nil {
			return nil, err
		}
		if calls = append(calls, c); len(calls) > maxCalls {
			return nil, fmt.Errorf("there are more than %d calls", maxCalls)
		}
		rest = strings.TrimLeft(rest[decoder.InputOffset():], "; \t\r\n")
	}
	return calls, nil
}

var (
	builtinCall = regexp.MustCompile(`(?s)^([A-Za-z_]\w*)\.call\((.*)\)$`)
	builtinArg  = regexp.MustCompile(`^\s*([A-Za-z_]\w*)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s",()]+)\s*(?:,|$)`)
)

func readBuiltin(text string) ([]Call, error) {
	m := builtinCall.FindStringSubmatch(text)
	if m == nil {
		return nil, errors.New("code stands where a call is read")
	}
	var o object
	for rest := m[2]; strings.TrimSpace(rest) != ""; {
		arg := builtinArg.FindStringSubmatch(rest)
		if arg == nil {
			return nil, fmt.Errorf("the call of %.60q has arguments that are not KEY=\"VALUE\"", m[1])
		}
		value := json.RawMessage(arg[2])
		if !json.Valid(value) {
			value = textOf(strings.Trim(arg[2], `"`))
		}
		o.add(arg[1], value)
		rest = rest[len(arg[0]):]
	}
	return []Call{{m[1], o.all()}}, nil
}

// readXML reads <function=NAME>, with <parameter=KEY> VALUE </parameter> for each argument, and
// </function>.
func readXML(f *Format, block string) ([]Call, error) {
	name, rest, ok := element(strings.TrimSpace(block), "<function=")
	inside, closed := strings.CutSuffix(rest, "</function>")
	if !ok || !closed {
		return nil, errors.New("a call is not <function=NAME> ... </function>")
	}
	var o object
	for rest := strings.TrimSpace(inside); rest != ""; rest = strings.TrimSpace(rest) {
		var key, value string
		key, rest, ok = element(rest, "<parameter=")
		value, rest, closed = strings.Cut(rest, "</parameter>")
		if !ok || !closed {
			return nil, fmt.Errorf("the call of %.60q has something else than <parameter=KEY> ... </parameter>", name)
		}
		value = strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n")
		var s schema
		told, known := f.functions[name].Parameters.Properties[key]
		_ = json.Unmarshal(told, &s) // true is a schema, too: it tells nothing
		o.add(key, s.value(value, known))
	}
	return []Call{{name, o.all()}}, nil
}

// element cuts the name out of a mark such as <function=NAME>.
func element(text, mark string) (name, rest string, ok bool) {
	text, ok = strings.CutPrefix(text, mark)
	name, rest, closed := strings.Cut(text, ">")
	name = strings.TrimSpace(name)
	return name, rest, ok && closed && name != "" && !strings.Contains(name, "\n")
}

// A schema is what is told of an argument.
type schema struct {
	Type  any      `json:"type"` // a text, or a list of them
	AnyOf []schema `json:"anyOf"`
	OneOf []schema `json:"oneOf"`
	AllOf []schema `json:"allOf"`
	Ref   string   `json:"$ref"`
}

// has reports whether the argument may be of a type.
func (s schema) has(kind string) bool {
	for _, other := range slices.Concat(s.AnyOf, s.OneOf, s.AllOf) {
		if other.has(kind) {
			return true
		}
	}
	list, _ := s.Type.([]any)
	return slices.Contains(list, any(kind)) || s.Type == any(kind) || kind == "object" && s.Ref != ""
}

// value is the JSON of a value that stands as text, by what the argument may be. Python's
// words for true, false and null are what some templates write.
func (s schema) value(text string, known bool) json.RawMessage {
	word := strings.TrimSpace(text)
	bare := strings.ToLower(word)
	switch {
	case known && (bare == "null" || bare == "none") && (s.has("null") || s.Type != nil && !s.has("string")):
		return json.RawMessage("null")
	case s.has("boolean") && (bare == "true" || bare == "false"):
		return json.RawMessage(bare)
	case new(tokenize.Data).UnmarshalJSON([]byte(word)) != nil:
		return textOf(text)
	}
	kind := map[byte]string{'{': "object", '[': "array", '"': "string", 't': "boolean", 'f': "boolean", 'n': "null"}[word[0]]
	switch {
	case kind == "" && (s.has("number") || s.has("integer")), kind != "" && kind != "string" && s.has(kind):
		return json.RawMessage(word)
	}
	return textOf(text)
}

// textOf is a text as JSON.
func textOf(text string) json.RawMessage {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a text has no error
	return json.RawMessage(strings.TrimSuffix(b.String(), "\n"))
}

// An object is JSON whose keys stay in their order.
type object struct{ strings.Builder }

func (o *object) add(key string, value json.RawMessage) {
	if o.Len() > 0 {
		o.WriteString(", ")
	}
	o.Write(textOf(key))
	o.WriteString(": ")
	o.Write(value)
}

func (o *object) all() json.RawMessage { return json.RawMessage("{" + o.String() + "}") }
