// Package tools reads the calls of functions that a model writes in an answer. How a family
// writes them is found from what its chat template writes: see Of.
//
// A text is read once from its beginning to its end, in pieces as they come or whole, with the same result.
// What is not a call, or not a well-formed one, stays in the content as it is, so nothing that a model wrote is
// lost. What stands in its thought (<think> ... </think>) is not read as calls.
package tools

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"onering/internal/strict"
	"onering/tokenize"
)

// A Call is one of a function.
type Call struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"` // an object, as the model wrote it if it wrote JSON
}

// A Format is how a model writes calls in a conversation.
type Format struct {
	// Marks are the marks around calls. Where the vocabulary has them as special tokens, ids
	// have to be decoded with them.
	Marks []string
	// Silent says that the chat template does not write the calls of earlier answers: they are
	// to be a part of their content, as Write has them.
	Silent bool
	// Strict says that the arguments of a function's calls are to be of its schema.
	Strict bool

	family
	beginMarks []string            // marks that begin a call: openMark, and those of calls without it
	functions  map[string]function // functions by name
}

// A family is one way in which models write calls, between two marks.
type family struct {
	name                string
	beforeName          string   // the text before a call's name
	nameToArguments     string   // for a call of the function NAME, the text from there to the arguments
	openMark, closeMark string   // closeMark is "" if a call ends with the text
	behindArguments     string   // the text behind the arguments
	betweenCalls        string   // the text between two calls; "" if one is written alone
	inside              []string // marks within a call
	json                bool     // closeMark counts outside JSON strings only
	bareBegin           byte     // a text that begins with it is a call, too
	read                func(f *Format, block string) ([]Call, error)
	write               func(calls []Call) string // for a template that writes no calls
}

// A function is the description of a tool.
type function struct {
	Name       string          `json:"name"`
	Parameters json.RawMessage `json:"parameters"` // a schema, or what a client has sent in its place
	Strict     bool            `json:"strict"`     // a call's arguments are to be of the schema
}

const (
	probe  = "onering_probe"
	python = "<|python_tag|>"

	functionBegin, functionEnd   = "<function=", "</function>"
	parameterBegin, parameterEnd = "<parameter=", "</parameter>"
)

// families are the supported ones, with their template's text for a call of probe (a group in it is what begins
// says, in the template's own spaces), or the template's instruction if it writes no calls.
var families = []struct {
	family
	writes, teaches *regexp.Regexp
}{
	{family{name: "xml", beforeName: "<tool_call>\n<function=", nameToArguments: "NAME>\n", behindArguments: functionEnd + "\n</tool_call>", betweenCalls: "\n", openMark: "<tool_call>", closeMark: "</tool_call>", read: readXML},
		regexp.MustCompile(`<tool_call>\s*<function=` + probe + `>`), nil},
	{family{name: "hermes", beforeName: "<tool_call>\n{\"name\":", nameToArguments: ` "NAME", "arguments": `, behindArguments: "}\n</tool_call>", betweenCalls: "\n", openMark: "<tool_call>", closeMark: "</tool_call>", json: true, read: readHermes, write: writeHermes},
		regexp.MustCompile(`<tool_call>\s*\{\s*"name":\s*"` + probe + `"`), regexp.MustCompile(`<tool_call>\s*\{\s*"name"`)},
	{family{name: "llama", beforeName: `{"name":`, nameToArguments: ` "NAME", "parameters": `, behindArguments: "}", openMark: python, bareBegin: '{', read: readLlama},
		regexp.MustCompile(`(?:\n|>)\{"name":\s*"` + probe + `",\s*"parameters":`), nil},
	{family{name: "mistral", nameToArguments: ` "NAME", "arguments": `, behindArguments: "}]", openMark: "[TOOL_CALLS]", read: readMistral},
		regexp.MustCompile(`(\[TOOL_CALLS\]\s*\[\s*\{\s*"name":)\s*"` + probe + `"`), nil},
	{family{name: "mistral", beforeName: "[TOOL_CALLS]", nameToArguments: "NAME" + mistralArguments, openMark: "[TOOL_CALLS]", inside: []string{mistralID, mistralArguments}, read: readMistral},
		regexp.MustCompile(`\[TOOL_CALLS\]` + probe + `(?:\[CALL_ID\]\w*)?\[ARGS\]`), nil},
	{family{name: "lfm2", beforeName: "<|tool_call_start|>[", nameToArguments: "NAME(", behindArguments: ")]<|tool_call_end|>", openMark: "<|tool_call_start|>", closeMark: "<|tool_call_end|>", read: readPython, write: writePython},
		regexp.MustCompile(`<\|tool_call_start\|>\[` + probe + `\(`), regexp.MustCompile(`<\|tool_list_start\|>`)},
	{family{name: "gemma", beforeName: "<start_function_call>call:", nameToArguments: "NAME{", openMark: "<start_function_call>", closeMark: "<end_function_call>", inside: []string{gemmaText}, read: readGemma},
		regexp.MustCompile(`<start_function_call>call:` + probe + `\{`), nil},
	{family{name: "pythonic", beforeName: "[", nameToArguments: "NAME(", behindArguments: ")]", openMark: python, bareBegin: '[', read: readPython},
		regexp.MustCompile(`\n\[` + probe + `\(x=`), nil},
}

// probed is a conversation with a call.
const probed = `{
	"tools": [{"type": "function", "function": {"name": "` + probe + `", "description": "d",
		"parameters": {"type": "object", "properties": {"x": {"type": "string", "description": "d"}}, "required": ["x"]}}}],
	"messages": [{"role": "user", "content": "q"},
		{"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefghi", "type": "function", "function": {"name": "` + probe + `", "arguments": "{\"x\": \"y\"}"}}]},
		{"role": "tool", "tool_call_id": "abcdefghi", "name": "` + probe + `", "content": "r"}]}`

// Of finds how a model answers a conversation with calls of its tools, from what the chat template of the tokenizer
// writes: it renders a call of a tool called probe, or else reads the template's instruction for calls. It returns an
// error if the template does not show tools to the model, or uses an unsupported form of calls.
func Of(t *tokenize.Tokenizer, talk tokenize.Conversation) (*Format, error) {
	f := &Format{}
	if err := f.readTools(talk.Tools); err != nil {
		return nil, err
	}
	var c tokenize.Conversation
	if err := json.Unmarshal([]byte(probed), &c); err != nil {
		return nil, err
	}
	c.Args, c.Template = talk.Args, talk.Template
	called, _ := t.Chat(c) // some templates do not write calls
	c.Messages, c.AddGenerationPrompt = c.Messages[:1], true
	text, err := t.Chat(c) // the tools without a call
	if err != nil {
		return nil, err
	}
	if !strings.Contains(text, probe) {
		return nil, errors.New("the model's chat template does not show tools to the model")
	}
	for _, x := range families {
		if m := x.writes.FindStringSubmatch(called); m != nil {
			f.family = x.family
			f.beforeName = cmp.Or(f.beforeName, m[len(m)-1]) // a group of the expression has it, in the template's spaces
		}
	}
	for _, x := range families {
		if f.read == nil && x.teaches != nil && x.teaches.MatchString(text) {
			f.family, f.Silent = x.family, true // only the instruction shows the form
		}
	}
	if f.read == nil {
		return nil, errors.New("the model's chat template has calls of tools in a form that is not read here; those " +
			"of Qwen and Hermes, Qwen3-Coder and Qwen3.5, Llama 3, SmolLM3, Mistral, LFM2 and Gemma are")
	}
	f.Marks, f.beginMarks = append([]string{f.openMark, f.closeMark}, f.inside...), []string{f.openMark}
	if f.name == "xml" { // a model may leave out the open mark
		for name := range f.functions {
			f.beginMarks = append(f.beginMarks, functionBegin+name+">")
		}
	}
	return f, nil
}

// toolName matches names of tools, none of which is a mark of a chat template.
var toolName = regexp.MustCompile(`^[\p{L}\p{N}_.:/-]{1,128}$`)

// CheckName refuses a name that no tool may have in a prompt.
func CheckName(name string) error {
	if !toolName.MatchString(name) {
		return fmt.Errorf("the name %.80q: names of tools consist of at most 128 letters, digits and _ - . : /", name)
	}
	return nil
}

// readTools sets the functions, from the descriptions of tools with or without "function" around each.
func (f *Format) readTools(list tokenize.Data) error {
	text, err := list.MarshalJSON()
	if err != nil {
		return err
	}
	var tools []struct {
		function
		Function *function `json:"function"`
	}
	if err := strict.JSON(text, &tools); err != nil {
		return fmt.Errorf("tools must be a list of descriptions of functions: %w", err)
	}
	f.functions = make(map[string]function, len(tools))
	for i, t := range tools {
		if t.Function != nil {
			t.function = *t.Function
		}
		if t.Name == "" {
			return fmt.Errorf(`tool %d has no name: write it as {"type": "function", "function": {"name": ...}}`, i)
		}
		if err := CheckName(t.Name); err != nil {
			return fmt.Errorf("tool %d has %w", i, err)
		}
		if _, twice := f.functions[t.Name]; twice {
			return fmt.Errorf("two tools have the name %q: rename one, or leave one out", t.Name)
		}
		f.functions[t.Name], f.Strict = t.function, f.Strict || t.Strict
	}
	return nil
}

// Write returns an answer with calls behind its content, as a model with a Silent template writes it.
func (f *Format) Write(content string, calls []Call) string {
	if content != "" && len(calls) > 0 {
		content += "\n"
	}
	return content + f.write(calls)
}

func writeHermes(calls []Call) string {
	var texts []string
	for _, c := range calls {
		texts = append(texts, "<tool_call>\n"+`{"name": `+string(textOf(c.Name))+`, "arguments": `+cmp.Or(strings.TrimSpace(string(c.Arguments)), "{}")+"}\n</tool_call>")
	}
	return strings.Join(texts, "\n")
}

// Parse returns the calls in a text and the content around them. Calls that are not well-formed stay in the
// content, and the error says what is wrong with the first of them, so that the model can be told.
func (f *Format) Parse(text string) (content string, calls []Call, err error) {
	s := f.Stream()
	content, calls = s.Add(text)
	rest, more, err := s.End()
	return content + rest, append(calls, more...), err
}

// A writtenCall is a call as JSON.
type writtenCall struct {
	Name       *string         `json:"name"`
	Arguments  json.RawMessage `json:"arguments"`
	Parameters json.RawMessage `json:"parameters"`
}

// call is the call that was written, if it is one. A tool of the request may be called without arguments; arguments may
// also be called parameters, or be JSON in a text.
func (f *Format) call(w writtenCall) (Call, error) {
	arguments := w.Arguments
	if isNull(arguments) {
		arguments = w.Parameters
	}
	var quoted string
	if json.Unmarshal(arguments, &quoted) == nil {
		arguments = json.RawMessage(strings.TrimSpace(quoted))
	}
	if w.Name == nil || *w.Name == "" {
		return Call{}, errors.New(`a call has no "name"`)
	}
	if _, known := f.functions[*w.Name]; known && isNull(arguments) {
		arguments = json.RawMessage("{}")
	}
	switch {
	case isNull(arguments):
		return Call{}, fmt.Errorf(`the call of %.60q has no "arguments"`, *w.Name)
	case arguments[0] != '{':
		return Call{}, fmt.Errorf("the arguments of the call of %.60q are not a JSON object", *w.Name)
	}
	if err := new(tokenize.Data).UnmarshalJSON(arguments); err != nil { // JSON bounds the depth of objects
		return Call{}, fmt.Errorf("the arguments of the call of %.60q are not read: %w", *w.Name, err)
	}
	return Call{*w.Name, arguments}, nil
}

func isNull(value json.RawMessage) bool { return len(value) == 0 || string(value) == "null" }

// notCall says why a text is not a call, in the words of package strict. It does not decode
// calls: a key that a model repeats counts once, as Python's json has it.
func notCall(text string, err error) error {
	if why := strict.JSON([]byte(text), new(writtenCall)); why != nil {
		err = why
	}
	return fmt.Errorf("the call is not a JSON object: %w", err)
}

// readHermes reads {"name": NAME, "arguments": OBJECT}.
func readHermes(f *Format, block string) ([]Call, error) {
	var w writtenCall
	if err := json.Unmarshal([]byte(block), &w); err != nil {
		return nil, notCall(block, err)
	}
	c, err := f.call(w)
	return []Call{c}, err
}

// readLlama reads {"name": NAME, "parameters": OBJECT}, several of which are separated by
// semicolons, or NAME.call(KEY="VALUE", ...) for a built-in tool.
func readLlama(f *Format, block string) (calls []Call, err error) {
	rest := strings.TrimSpace(block)
	if !strings.HasPrefix(rest, "{") {
		return readBuiltin(rest)
	}
	for rest != "" {
		var w writtenCall
		decoder := json.NewDecoder(strings.NewReader(rest))
		if err := decoder.Decode(&w); err != nil {
			return nil, notCall(rest, err)
		}
		if w.Name == nil && w.Arguments == nil && w.Parameters == nil && len(calls) == 0 {
			return nil, nil // the answer is plain JSON
		}
		c, err := f.call(w)
		if err != nil {
			return nil, err
		}
		calls = append(calls, c)
		if err := checkCount(calls); err != nil {
			return nil, err
		}
		rest = strings.TrimLeft(rest[decoder.InputOffset():], "; \t\r\n")
	}
	return calls, nil
}

var (
	builtinCall = regexp.MustCompile(`(?s)^([A-Za-z_]\w*)\.call\((.*)\)$`)
	builtinArg  = regexp.MustCompile(`^\s*([A-Za-z_]\w*)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s",()]+)\s*(?:,|$)`)
)

// readBuiltin reads NAME.call(KEY="VALUE", ...).
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

// readXML reads <function=NAME>, with <parameter=KEY> VALUE </parameter> for each argument, and </function>.
func readXML(f *Format, block string) ([]Call, error) {
	name, rest, ok := element(strings.TrimSpace(block), functionBegin)
	inside, closed := strings.CutSuffix(rest, functionEnd)
	if !ok || !closed {
		return nil, errors.New("a call is not <function=NAME> ... </function>")
	}
	schemas := f.arguments(name)
	var o object
	for rest := strings.TrimSpace(inside); rest != ""; rest = strings.TrimSpace(rest) {
		var key, value string
		key, rest, ok = element(rest, parameterBegin)
		value, rest, closed = strings.Cut(rest, parameterEnd)
		if !ok || !closed {
			return nil, fmt.Errorf("the call of %.60q has something else than <parameter=KEY> ... </parameter>", name)
		}
		value = strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n")
		var s schema
		told, known := schemas[key]
		_ = json.Unmarshal(told, &s) // true is a valid schema, too, without information
		o.add(key, s.value(value, known))
	}
	return []Call{{name, o.all()}}, nil
}

// arguments are the schemas of a function's arguments, as far as the client has told them.
func (f *Format) arguments(name string) map[string]json.RawMessage {
	var parameters struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	_ = json.Unmarshal(f.functions[name].Parameters, &parameters)
	return parameters.Properties
}

// element cuts the name out of a mark such as <function=NAME>.
func element(text, mark string) (name, rest string, ok bool) {
	text, ok = strings.CutPrefix(text, mark)
	name, rest, closed := strings.Cut(text, ">")
	name = strings.TrimSpace(name)
	return name, rest, ok && closed && name != "" && !strings.Contains(name, "\n")
}

// A schema is the description of an argument.
type schema struct {
	Type  any      `json:"type"` // a text, or a list of them
	AnyOf []schema `json:"anyOf"`
	OneOf []schema `json:"oneOf"`
	AllOf []schema `json:"allOf"`
	Ref   string   `json:"$ref"`
}

// has reports whether the argument may be of a type.
func (s schema) has(kind string) bool {
	has := func(other schema) bool { return other.has(kind) }
	list, _ := s.Type.([]any)
	return slices.ContainsFunc(slices.Concat(s.AnyOf, s.OneOf, s.AllOf), has) || slices.Contains(list, any(kind)) ||
		s.Type == any(kind) || kind == "object" && s.Ref != ""
}

// value returns the JSON of an argument that was written without quotes, by its schema; known says whether there is
// one. What is no JSON or Python value of a type that the schema allows is a text.
func (s schema) value(text string, known bool) json.RawMessage {
	word := strings.TrimSpace(text)
	bare := strings.ToLower(word)
	mayBeNull := s.has("null") || s.Type != nil && !s.has("string")
	switch {
	case known && mayBeNull && (bare == "null" || bare == "none"):
		return json.RawMessage("null")
	case s.has("boolean") && (bare == "true" || bare == "false"):
		return json.RawMessage(bare)
	case !isJSON(word):
		if word = tokenize.PythonJSON(word); !isJSON(word) || strings.IndexByte("[{", word[0]) < 0 { // a Python list or dictionary
			return textOf(text)
		}
	}
	kind := map[byte]string{'{': "object", '[': "array", '"': "string", 't': "boolean", 'f': "boolean", 'n': "null"}[word[0]] // "": a number
	switch {
	case kind == "" && (s.has("number") || s.has("integer")), kind != "" && kind != "string" && s.has(kind):
		return json.RawMessage(word)
	}
	return textOf(text)
}

func isJSON(text string) bool { return new(tokenize.Data).UnmarshalJSON([]byte(text)) == nil }

// textOf is a text as JSON.
func textOf(text string) json.RawMessage {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a text can always be encoded
	return json.RawMessage(strings.TrimSuffix(b.String(), "\n"))
}

// An object is a JSON object whose keys keep their order.
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
