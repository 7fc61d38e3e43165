package tools

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"onering/tokenize"
)

// A Call is one of a function.
type Call struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"` // an object, as the model wrote it if it wrote JSON
}

// A Format is how a model writes calls in a conversation.
type Format struct {
	// Special says that special tokens are a part of calls: ids have to be decoded with them.
	Special bool
	// Silent says that the chat template does not write the calls of earlier answers: they are
	// to be a part of their content, as Write has them.
	Silent bool

	family
	functions map[string]function // by name
	thinking  bool                // the prompt ends inside a thought
}

// A family writes calls in one way. A call stands between two marks.
type family struct {
	name        string
	begins      string // a call
	named       string // what follows before the arguments, of the function NAME
	open, close string // close is "" where a call goes on to the end of the text
	json        bool   // close counts outside JSON strings only
	bare        bool   // a text that begins with { is a call, too
	read        func(f *Format, block string) ([]Call, error)
}

// A function is what the description of a tool says of it.
type function struct {
	Name       string `json:"name"`
	Parameters struct {
		Properties map[string]json.RawMessage `json:"properties"`
	} `json:"parameters"`
}

const (
	probe    = "onering_probe"
	python   = "<|python_tag|>"
	thought  = "<think>"
	reasoned = "</think>"
)

// families are those that are read, with what a template writes for a call of probe, or in its
// instruction where it does not write calls.
var families = []struct {
	family
	writes, teaches *regexp.Regexp
}{
	{family{"xml", "<tool_call>\n<function=", "NAME>\n", "<tool_call>", "</tool_call>", false, false, readXML}, regexp.MustCompile(`<tool_call>\s*<function=` + probe + `>`), nil},
	{family{"hermes", "<tool_call>\n{\"name\":", ` "NAME", "arguments":`, "<tool_call>", "</tool_call>", true, false, readHermes},
		regexp.MustCompile(`<tool_call>\s*\{\s*"name":\s*"` + probe + `"`), regexp.MustCompile(`<tool_call>\s*\{\s*"name"`)},
	{family{"llama", `{"name":`, ` "NAME", "parameters":`, python, "", false, true, readLlama},
		regexp.MustCompile(`(?:\n|>)\{"name":\s*"` + probe + `",\s*"parameters":`), nil},
}

// probed is a conversation with a call.
const probed = `{
	"tools": [{"type": "function", "function": {"name": "` + probe + `", "description": "d",
		"parameters": {"type": "object", "properties": {"x": {"type": "string", "description": "d"}}, "required": ["x"]}}}],
	"messages": [{"role": "user", "content": "q"},
		{"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefghi", "type": "function", "function": {"name": "` + probe + `", "arguments": "{\"x\": \"y\"}"}}]},
		{"role": "tool", "tool_call_id": "abcdefghi", "name": "` + probe + `", "content": "r"}]}`

// Of finds how a model answers a conversation with calls of its tools, from what the chat
// template of the tokenizer writes. It returns an error if the template does not show tools
// to the model, or has calls in a form that is not read here.
func Of(t *tokenize.Tokenizer, talk tokenize.Conversation) (*Format, error) {
	f := &Format{}
	if err := f.know(talk.Tools); err != nil {
		return nil, err
	}
	var c tokenize.Conversation
	if err := json.Unmarshal([]byte(probed), &c); err != nil {
		return nil, err
	}
	c.Args, c.Template = talk.Args, talk.Template
	called, _ := t.Chat(c) // some templates write no call
	c.Messages, c.AddGenerationPrompt = c.Messages[:1], true
	text, err := t.Chat(c)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(text, probe) {
		return nil, errors.New("the model's chat template does not show tools to the model")
	}
	f.thinking = strings.HasSuffix(strings.TrimSpace(text), thought)
	for _, x := range families {
		if x.writes.MatchString(called) {
			f.family = x.family
		}
	}
	for _, x := range families {
		if f.read == nil && x.teaches != nil && x.teaches.MatchString(text) {
			f.family, f.Silent = x.family, true
		}
	}
	if f.read == nil {
		return nil, errors.New("the model's chat template has calls of tools in a form that is not read here; those of Qwen and Hermes, Qwen3-Coder, Llama 3 and SmolLM3 are")
	}
	f.Special = f.open == python
	return f, nil
}

// know reads the descriptions of tools.
func (f *Format) know(list tokenize.Data) error {
	text, err := list.MarshalJSON()
	if err != nil {
		return err
	}
	var tools []struct {
		function
		Function *function `json:"function"`
	}
	if err := json.Unmarshal(text, &tools); err != nil {
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
		f.functions[t.Name] = t.function
	}
	return nil
}

// Write returns an answer with calls behind its content, as a model with a Silent template
// writes it.
func (f *Format) Write(content string, calls []Call) string {
	for _, c := range calls {
		if content != "" {
			content += "\n"
		}
		content += f.open + "\n" + `{"name": ` + string(textOf(c.Name)) + `, "arguments": ` + cmp.Or(strings.TrimSpace(string(c.Arguments)), "{}") + "}\n" + f.close
	}
	return content
}

// Begin returns the beginning of a call, of the function with a name if one is given, to be put
// behind a prompt: the model goes on with it. Of a prompt that ends inside a thought there is
// none.
func (f *Format) Begin(name string) (text string, err error) {
	if _, known := f.functions[name]; name != "" && !known {
		return "", fmt.Errorf("there is no tool %q", name)
	}
	if f.thinking {
		return "", errors.New("the model's prompt ends inside a thought, where no call can begin")
	}
	if text = f.begins; name != "" {
		quoted := textOf(name)
		text += strings.Replace(f.named, "NAME", string(quoted[1:len(quoted)-1]), 1)
	}
	return text, nil
}

// Parse returns the calls in a text and the content around them. Calls that are not well-formed
// stay in the content, and the error says what is wrong with the first of them: a model can be
// told so.
func (f *Format) Parse(text string) (content string, calls []Call, err error) {
	s := f.Stream()
	content, calls = s.Add(text)
	rest, more, err := s.End()
	return content + rest, append(calls, more...), err
}
