package tokenize

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"onering/tokenize/jinja"
)

// A Message is one turn of a conversation. One that was read from JSON keeps all
// fields of its object, such as tool_calls and reasoning_content, for the template.
type Message struct {
	Role    string // system, user, assistant or tool
	Content string // empty if it is not a text

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

// dict is the message as the template sees it, which is as transformers gives it:
// without fields that are null, and with what a model thought under all names that
// templates know it by.
func (m Message) dict() *jinja.Dict {
	if m.fields == nil {
		return jinja.NewDict("role", m.Role, "content", m.Content)
	}
	var thought jinja.Value
	for _, name := range []string{"reasoning_content", "thinking", "reasoning"} {
		if v, _ := m.fields.Get(name); v != nil {
			thought = v
			break
		}
	}
	d := jinja.NewDict()
	if thought != nil {
		d.Set("thinking", thought)
	}
	for name, v := range m.fields.All() {
		if v != nil {
			d.Set(name, v)
		}
	}
	if thought != nil {
		d.Set("reasoning_content", thought)
	}
	return d
}

// Data is a JSON value that a template sees. Its objects keep the order of their keys.
type Data struct{ value jinja.Value }

// UnmarshalJSON reads any JSON value.
func (d *Data) UnmarshalJSON(data []byte) (err error) {
	d.value, err = jinja.FromJSON(data)
	return err
}

// A Conversation is what a chat template renders. In JSON it has the names of
// apply_chat_template in transformers.
type Conversation struct {
	Messages []Message `json:"messages"`
	// Tools are the descriptions of functions that the model can call, Documents what
	// it can read: lists of objects, if any.
	Tools     Data `json:"tools"`
	Documents Data `json:"documents"`
	// Args are further names that the template reads, such as enable_thinking.
	Args TemplateArgs `json:"chat_template_kwargs"`
	// With AddGenerationPrompt the text ends where the answer of the assistant begins.
	AddGenerationPrompt bool `json:"add_generation_prompt"`
}

// Talk returns a conversation of messages that the assistant is to answer.
func Talk(messages ...Message) Conversation {
	return Conversation{Messages: messages, AddGenerationPrompt: true}
}

// TemplateArgs are names that a chat template reads and their values. The zero value
// has none.
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

// Over returns the names of a and, where a does not have them, those of b.
func (a TemplateArgs) Over(b TemplateArgs) TemplateArgs {
	if b.names == nil || a.names == nil {
		if a.names == nil {
			return b
		}
		return a
	}
	both := b.names.Clone()
	for name, v := range a.names.All() {
		both.Set(name, v)
	}
	return TemplateArgs{both}
}

// ErrNoChatTemplate is wrapped by the error of Chat for a tokenizer without a
// chat template.
var ErrNoChatTemplate = errors.New("the tokenizer has no chat template")

// Chat renders a conversation with the chat template of the tokenizer's folder, as
// apply_chat_template of transformers does. A folder with several has one for
// conversations with tools, tool_use, and one for others, default.
//
// Templates may write earlier turns in another way than before: Qwen3's drops what
// the model thought. In training, tokens that were sampled or read stay as they were,
// so a further turn must be appended to them: do not render the whole conversation
// again with its new turn.
func (t *Tokenizer) Chat(c Conversation) (text string, err error) {
	text, _, err = t.chat.render(c)
	if err != nil {
		return "", fmt.Errorf("tokenize: chat template: %w", err)
	}
	return text, nil
}

// CheckChat returns the error that Chat has for every conversation: there is no chat
// template, or it cannot be read.
func (t *Tokenizer) CheckChat() error {
	_, err := t.chat.plain.parse()
	if t.chat.tools != nil {
		_, both := t.chat.tools.parse()
		err = cmp.Or(err, both)
	}
	if err != nil {
		return fmt.Errorf("tokenize: chat template: %w", err)
	}
	return nil
}

// EncodeChat returns the text of Chat and its ids. It adds no BOS: the template
// writes one if the model has one.
func (t *Tokenizer) EncodeChat(c Conversation) (text string, ids []int32, err error) {
	text, err = t.Chat(c)
	if err != nil {
		return "", nil, err
	}
	return text, t.appendText(nil, text), nil
}

// A chatTemplate is what a folder has of chat templates.
type chatTemplate struct {
	plain, tools *templateText     // tools may be nil
	tokens       map[string]string // bos_token and others that templates name
}

// A templateText is parsed when it is first used: most runs never use it.
type templateText struct {
	source string

	once   sync.Once
	parsed *jinja.Template
	err    error
}

func (t *templateText) parse() (*jinja.Template, error) {
	if t == nil {
		return nil, ErrNoChatTemplate
	}
	t.once.Do(func() {
		if t.err = ErrNoChatTemplate; t.source != "" {
			t.parsed, t.err = jinja.Parse(t.source)
		}
	})
	return t.parsed, t.err
}

// of returns the template for a conversation.
func (c *chatTemplate) of(chat Conversation) *templateText {
	if c.tools != nil && chat.Tools.value != nil {
		return c.tools
	}
	return c.plain
}

func (c *chatTemplate) render(chat Conversation) (text string, marks []jinja.Mark, err error) {
	template, err := c.of(chat).parse()
	if err != nil {
		return "", nil, err
	}
	turns := make(jinja.List, len(chat.Messages))
	for i, m := range chat.Messages {
		turns[i] = m.dict()
	}
	data := jinja.NewDict()
	for name, token := range c.tokens {
		data.Set(name, token)
	}
	if chat.Args.names != nil {
		for name, v := range chat.Args.names.All() {
			data.Set(name, v)
		}
	}
	for name, v := range map[string]jinja.Value{
		"messages": turns, "tools": chat.Tools.value, "documents": chat.Documents.value, "add_generation_prompt": chat.AddGenerationPrompt,
	} {
		data.Set(name, v)
	}
	return template.RenderMarked(data)
}

// A templateSource is one template, or a list of named ones, of which "default" and
// "tool_use" are used.
type templateSource struct{ plain, tools string }

func (s *templateSource) UnmarshalJSON(data []byte) error {
	if len(data) == 0 || data[0] != '[' {
		return json.Unmarshal(data, &s.plain)
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	for _, t := range list {
		switch t.Name {
		case "default":
			s.plain = t.Template
		case "tool_use":
			s.tools = t.Template
		}
	}
	return nil
}

// template returns the chat template of a folder.
func (s templateSource) template(tokens map[string]string) *chatTemplate {
	c := &chatTemplate{plain: &templateText{source: s.plain}, tokens: tokens}
	if s.tools != "" {
		c.tools = &templateText{source: s.tools}
	}
	return c
}
