package tokenize

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"onering/tokenize/jinja"
)

// A Message is one turn of a conversation. One that was read from JSON keeps all
// fields of its object, such as tool_calls and reasoning_content, for the template.
type Message struct {
	Role    string `json:"role"`    // system, user, assistant or tool
	Content string `json:"content"` // empty if it is not a text

	fields *jinja.Dict // of the JSON object; nil for a message made in Go
}

// UnmarshalJSON reads an object.
func (m *Message) UnmarshalJSON(data []byte) error {
	v, err := jinja.FromJSON(data)
	if err != nil {
		return err
	}
	fields, ok := v.(*jinja.Dict)
	if !ok {
		return errors.New("a message must be a JSON object")
	}
	*m = Message{fields: fields}
	role, _ := fields.Get("role")
	content, _ := fields.Get("content")
	m.Role, _ = role.(string)
	m.Content, _ = content.(string)
	return nil
}

// reasoningFields are the names of the field with a model's reasoning.
var reasoningFields = []string{"reasoning_content", "thinking", "reasoning"}

// thought returns the model's reasoning, nil if there is none.
func (m Message) thought() (v jinja.Value) {
	for i := 0; m.fields != nil && v == nil && i < len(reasoningFields); i++ {
		v, _ = m.fields.Get(reasoningFields[i])
	}
	return v
}

// Thought returns the model's reasoning, "" if there is none.
func (m Message) Thought() string {
	text, _ := m.thought().(string)
	return text
}

// dict returns the message as transformers gives it to a template: without null fields, and with the model's
// reasoning as thinking, before the fields, and as reasoning_content, behind them: a template that prints the
// message shows this order. An empty list of calls is left out, since some templates take its name for a call.
func (m Message) dict() *jinja.Dict {
	if m.fields == nil {
		return jinja.NewDict("role", m.Role, "content", m.Content)
	}
	thought, d := m.thought(), jinja.NewDict()
	if thought != nil {
		d.Set("thinking", thought)
	}
	for name, v := range m.fields.All() {
		calls, isList := v.(jinja.List)
		noCalls := name == "tool_calls" && isList && len(calls) == 0
		if v != nil && !noCalls {
			d.Set(name, v)
		}
	}
	if thought != nil {
		d.Set("reasoning_content", thought)
	}
	return d
}

// Data is a JSON value that a template sees. Its objects keep the order of their keys.
type Data struct {
	value jinja.Value
	text  json.RawMessage
}

// UnmarshalJSON reads any JSON value.
func (d *Data) UnmarshalJSON(data []byte) (err error) {
	d.value, err = jinja.FromJSON(data)
	d.text = slices.Clone(data)
	return err
}

// MarshalJSON returns the JSON that was read, null if none was.
func (d Data) MarshalJSON() ([]byte, error) { return d.text.MarshalJSON() }

// Given says whether the Data has a value.
func (d Data) Given() bool { return d.value != nil }

// PythonJSON rewrites what Python prints of lists, tuples and dictionaries as JSON.
func PythonJSON(text string) string { return jinja.PythonJSON(text) }

// A Conversation is the input of a chat template. In JSON it has the names of apply_chat_template in transformers.
type Conversation struct {
	Messages []Message `json:"messages"`
	// Tools are the descriptions of functions that the model can call, Documents the
	// documents that it can read: lists of objects, if any.
	Tools     Data `json:"tools"`
	Documents Data `json:"documents"`
	// Args are further names that the template reads, such as enable_thinking.
	Args TemplateArgs `json:"chat_template_kwargs"`
	// With AddGenerationPrompt the text ends where the answer of the assistant begins.
	AddGenerationPrompt bool `json:"add_generation_prompt"`
	// With Continue the text ends with a field of the last message, unfinished.
	Continue continued `json:"continue_final_message"`
	// Template is the name of one of the folder's chat templates, or the text of another
	// template; "" for the one that fits.
	Template string `json:"chat_template"`
}

// Talk returns a conversation of messages that the assistant should answer.
func Talk(messages ...Message) Conversation {
	return Conversation{Messages: messages, AddGenerationPrompt: true}
}

// TemplateArgs are names that a chat template reads and their values. The zero value has none.
type TemplateArgs struct{ names *jinja.Dict }

// UnmarshalJSON reads an object, or null for none.
func (a *TemplateArgs) UnmarshalJSON(data []byte) error {
	v, err := jinja.FromJSON(data)
	if err != nil {
		return err
	}
	names, ok := v.(*jinja.Dict)
	if !ok && v != nil {
		return errors.New("chat_template_kwargs must be a JSON object")
	}
	a.names = names
	return nil
}

// get returns the value of a name.
func (a TemplateArgs) get(name string) (v jinja.Value, ok bool) {
	if a.names == nil {
		return nil, false
	}
	return a.names.Get(name)
}

// Over returns the names of a and, in addition, names that only b has.
func (a TemplateArgs) Over(b TemplateArgs) TemplateArgs {
	if b.names == nil || a.names == nil {
		return TemplateArgs{cmp.Or(a.names, b.names)}
	}
	both := b.names.Clone()
	for name, v := range a.names.All() {
		both.Set(name, v)
	}
	return TemplateArgs{both}
}

// ErrNoChatTemplate is wrapped by the error of Chat for a tokenizer without a chat template.
var ErrNoChatTemplate = errors.New("the tokenizer has no chat template")

// Chat renders a conversation with the chat template of the tokenizer's folder, as apply_chat_template of
// transformers does. Of a folder with several it takes the one that the conversation names; else tool_use where
// there are tools, else default. A message that the template would refuse, lose or write twice encoded is given
// to it in its own form: see fitting.
//
// Templates may write earlier turns in another way than before: Qwen3's drops what the model thought. In
// training, tokens that were sampled or read stay as they were, so a further turn must be appended to them: do
// not render the whole conversation again with its new turn.
func (t *Tokenizer) Chat(c Conversation) (text string, err error) {
	text, _, err = t.chat.render(c)
	if err != nil {
		return "", fmt.Errorf("tokenize: chat template: %w", err)
	}
	return text, nil
}

// CheckChat returns an error if there is no chat template, or if one cannot be read.
func (t *Tokenizer) CheckChat() error {
	err := t.chat.check()
	if err != nil {
		return fmt.Errorf("tokenize: chat template: %w", err)
	}
	return nil
}

// EncodeChat returns the text of Chat and its ids. It adds no BOS: the template writes one if the model has one.
func (t *Tokenizer) EncodeChat(c Conversation) (text string, ids []int32, err error) {
	text, err = t.Chat(c)
	if err != nil {
		return "", nil, err
	}
	return text, t.appendText(nil, text), nil
}

// xmlTools is SmolLM3's name for tools in its template.
const xmlTools = "xml_tools"

// render returns the text of a conversation and the parts that its template marks. It gives the template the messages
// in the form that it reads (oneCallEach, fitMessages), and for Continue cuts the text behind the message that goes on.
func (c *chatTemplate) render(chat Conversation) (text string, marks []jinja.Mark, err error) {
	source, err := c.choose(chat)
	if err != nil {
		return "", nil, err
	}
	template, err := source.parse()
	if err != nil {
		return "", nil, err
	}
	data := c.names(chat)
	if _, stated := data.Get(xmlTools); !stated && chat.Tools.value != nil && strings.Contains(source.source, xmlTools) {
		data.Set(xmlTools, chat.Tools.value) // SmolLM3's template reads the tools by this name
	}
	try := func(turns jinja.List) (string, error) { // how the template writes messages in some form
		trial := data.Clone()
		trial.Set("messages", turns)
		return template.Render(trial)
	}
	messages := oneCallEach(chat.Messages, func(all []Message) (string, error) { return try(fitMessages(source.source, all, try)) })
	turns := fitMessages(source.source, messages, try)
	said := ""
	if chat.Continue != "" {
		if chat.AddGenerationPrompt {
			return "", nil, errors.New("continue_final_message and add_generation_prompt contradict one another")
		}
		if said, err = chat.Continue.mark(turns, source.source); err != nil { // puts a tag behind the text, where cut finds it
			return "", nil, err
		}
	}
	data.Set("messages", turns)
	if text, marks, err = template.RenderMarked(data); err == nil && chat.Continue != "" {
		text, err = chat.Continue.cut(text, said)
	}
	return text, marks, err
}

// names returns the names that the template reads besides the messages.
func (c *chatTemplate) names(chat Conversation) *jinja.Dict {
	data := jinja.NewDict()
	for name, token := range c.tokens {
		data.Set(name, token)
	}
	if chat.Args.names != nil {
		for name, v := range chat.Args.names.All() {
			if name != "chat_template" { // which says what is rendered
				data.Set(name, v)
			}
		}
	}
	for name, v := range map[string]jinja.Value{
		"tools": chat.Tools.value, "documents": chat.Documents.value, "add_generation_prompt": chat.AddGenerationPrompt,
	} {
		data.Set(name, v)
	}
	return data
}
