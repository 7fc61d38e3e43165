package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"onering/tokenize"
)

// A Prompter turns problems into prompts: text and token ids.
type Prompter struct {
	Tokenizer *tokenize.Tokenizer
	Template  tokenize.Template
}

// NewPrompter makes a Prompter. If the template is the tokenizer's chat
// template, the tokenizer must have one that can be rendered.
func NewPrompter(t *tokenize.Tokenizer, template tokenize.Template) (*Prompter, error) {
	if template.Chat { // a template that fails for one problem fails for all
		if _, _, err := t.Prompt(template, "x"); err != nil {
			return nil, err
		}
	}
	return &Prompter{t, template}, nil
}

// Prompt returns the prompt of a problem, as text and as token ids. A character that
// the vocabulary lacks is an error: the model would see another text.
func (p *Prompter) Prompt(q Problem) (text string, ids []int32, err error) {
	around, plain := p.Template, q.Plain && p.Template.Auto
	if !plain && (q.Chat == nil || !around.Auto && !around.Chat) {
		around, err = around.Fill(q.Fields.Shown)
	}
	// A template that names the choices shows them itself.
	if len(p.Template.Columns) == 0 {
		q.offer()
	} else if whole := around.Render(q.Text); offer(whole, q.Choices) != whole {
		q.offer()
	}
	switch {
	case err != nil:
	case plain:
		text, ids, err = p.Tokenizer.Prompt(tokenize.Template{}, q.Text)
	case q.Chat == nil:
		text, ids, err = p.Tokenizer.Prompt(around, q.Text)
	case around.Chat || around.Auto:
		var chat tokenize.Conversation
		if chat, err = around.Around(q.Chat.Conversation); err == nil {
			text, ids, err = p.Tokenizer.EncodeChat(chat)
		}
	case len(q.Chat.Messages) == 1:
		text, ids, err = p.Tokenizer.Prompt(around, q.Text)
	default:
		err = fmt.Errorf("its prompt is a list of %d messages, and the template %q takes one text: set model.template (--template) to chat, the template of the model's tokenizer", len(q.Chat.Messages), p.Template.Name)
	}
	if err == nil {
		err = p.Template.CheckKnown(p.Tokenizer, text)
	}
	if err != nil {
		return "", nil, fmt.Errorf("data: problem %q: %w", q.ID, err)
	}
	return text, ids, nil
}

// Talk returns the conversation that the prompt of a problem begins, for its later turns.
// chat is false if the template is not a chat template.
func (p *Prompter) Talk(q Problem) (c tokenize.Conversation, chat bool, err error) {
	switch around := p.Template; {
	case q.Plain && around.Auto || !around.Talks(p.Tokenizer):
		return c, false, nil
	case q.Chat != nil:
		c, err = around.Around(q.Chat.Conversation)
	default:
		c, err = around.Around(tokenize.Talk(tokenize.Message{Role: "user", Content: q.Text}))
	}
	return c, true, err
}

// offer puts the choices behind the text and the last message of a copy of a problem.
func (q *Problem) offer() {
	offered := offer(q.Text, q.Choices)
	if q.Chat != nil && offered != q.Text {
		chat := *q.Chat
		chat.Messages = slices.Clone(chat.Messages)
		chat.Messages[len(chat.Messages)-1].Content += offered[len(q.Text):]
		q.Chat = &chat
	}
	q.Text = offered
}

// Shown returns the value of a column as templates show it: choices with their letters,
// other lists with one element on each line.
func (o Object) Shown(column string) (string, error) {
	value, ok := lookup(o, column)
	for i := 0; i < len(o) && !ok; i++ {
		if ok = strings.EqualFold(o[i].Name, column); ok {
			value = o[i].Value
		}
	}
	text, readable := shown(column, value)
	switch {
	case !ok:
		return "", fmt.Errorf("the row has no such column (have %q)", names(o))
	case !readable:
		return "", errors.New("the column is no text, number or list of them")
	case strings.TrimSpace(text) == "":
		return "", errors.New("the column is empty in this row; leave such rows out with a filter")
	}
	return text, nil
}

// Warning returns a warning about the template with this tokenizer; "" if there is none.
func (p *Prompter) Warning() string {
	switch chat := p.Tokenizer.CheckChat() == nil; {
	case !p.Template.Foreign(p.Tokenizer):
		return ""
	case p.Template.Auto && chat:
		return "the tokenizer does not know the tokens of Qwen's chat format: prompts are written in the model's own chat template, with the instruction to answer in a box; set model.template (--template) to chat or another to have it without"
	case chat:
		return "the template qwen_math writes Qwen's chat format, whose tokens the tokenizer does not know: set model.template (--template) to chat, the model's own"
	}
	return fmt.Sprintf("the template %q writes Qwen's chat format, whose tokens the tokenizer does not know, and it has no chat template: set model.template (--template) to no, or to a text with {problem} in it", p.Template.Name)
}

// A Chat is a prompt in the form of a conversation.
type Chat struct {
	tokenize.Conversation
	source []byte // the JSON that the conversation was read from
}

// MarshalJSON returns the JSON that the conversation was read from: an object with
// messages and, if there are any, tools, documents and chat_template_kwargs.
func (c *Chat) MarshalJSON() ([]byte, error) { return c.source, nil }

// chatColumns are columns besides the messages that a row may have for the chat template.
var chatColumns = []string{"tools", "documents", "chat_template_kwargs"}

// Prompt returns the prompt of a row where value is a text or a list of messages.
// If it is neither the reason says so in words.
func (o Object) Prompt(value any) (text string, chat *Chat, reason string) {
	messages, ok := messagesOf(value)
	if !ok {
		text, reason = promptOf(value)
		return text, nil, reason
	}
	messages = withSystem(o, messages)
	var texts []string
	last := ""
	for _, m := range messages {
		message, _ := m.(Object)
		role, _ := message.Get("role")
		if last, ok = role.(string); !ok || last == "" {
			return "", nil, oddPrompt
		}
		content, ok := contentOf(message)
		if !ok {
			return "", nil, oddPrompt
		}
		texts = append(texts, last+": "+content)
	}
	if last == "assistant" {
		return "", nil, answered
	}
	if text = strings.Join(texts, "\n\n"); len(texts) == 1 && last == "user" {
		text = strings.TrimPrefix(text, "user: ")
	}
	if strings.TrimSpace(text) == "" || len(messages) == 0 {
		return "", nil, noPrompt
	}
	chat, err := newChat(o, messages)
	if err != nil {
		return "", nil, "not a conversation: " + err.Error()
	}
	return text, chat, ""
}

// messagesOf returns the messages of a conversation. It renames the parts and roles of
// ShareGPT to those of chat templates. In a CSV file messages are JSON.
func messagesOf(value any) ([]any, bool) {
	if text, ok := value.(string); ok && strings.HasPrefix(text, "[{") && (strings.Contains(text, `"role"`) || strings.Contains(text, `"from"`)) {
		value = fromJSON(text)
	}
	list, ok := value.([]any)
	if !ok {
		return nil, false
	}
	messages := make([]any, len(list))
	for i, m := range list {
		messages[i] = messageOf(m)
	}
	return messages, true
}

// withSystem puts the row's column system, if it has one, in front of messages without a
// system message.
func withSystem(row Object, messages []any) []any {
	system, _ := row.Get("system")
	text, _ := system.(string)
	if strings.TrimSpace(text) == "" || slices.ContainsFunc(messages, func(m any) bool { o, _ := m.(Object); role, _ := o.Get("role"); return role == "system" }) {
		return messages
	}
	return slices.Insert(slices.Clone(messages), 0, any(Object{{"role", "system"}, {"content", text}}))
}

// roles translate ShareGPT's names of speakers.
var roles = map[string]string{
	"human": "user", "user": "user", "system": "system", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant",
	"bard": "assistant", "assistant": "assistant", "model": "assistant", "bot": "assistant", "function_call": "assistant",
	"tool": "tool", "observation": "tool", "function_response": "tool",
}

// messageOf returns a message {"role", "content"} for one of ShareGPT, {"from", "value"}, and
// others as they are.
func messageOf(m any) any {
	o, _ := m.(Object)
	from, _ := o.Get("from")
	name, _ := from.(string)
	role, known := roles[strings.ToLower(name)]
	if _, has := o.Get("role"); has || !known {
		return m
	}
	value, _ := o.Get("value")
	content := Member{"content", value}
	if call, ok := value.(string); ok && name == "function_call" {
		content = Member{"tool_calls", []any{Object{{"type", "function"}, {"function", fromJSON(call)}}}}
	}
	rest := slices.DeleteFunc(slices.Clone(o), func(m Member) bool { return m.Name == "from" || m.Name == "value" })
	return append(Object{{"role", role}, content}, rest...)
}

// fromJSON returns the value that text is in JSON, nil if text is no JSON.
func fromJSON(text string) any {
	row, err := parseObject([]byte(`{"value": ` + text + `}`))
	if err != nil || len(row) != 1 {
		return nil
	}
	return row[0].Value
}

// contentOf returns the text of a message, which may consist of parts and be missing
// where a tool is called.
func contentOf(message Object) (string, bool) {
	value, _ := message.Get("content")
	switch v := value.(type) {
	case nil:
		calls, _ := message.Get("tool_calls")
		return "", calls != nil
	case string:
		return v, true
	case []any:
		var b strings.Builder
		for _, part := range v {
			o, _ := part.(Object)
			value, _ := o.Get("text")
			text, ok := value.(string)
			if !ok {
				return "", false
			}
			b.WriteString(text)
		}
		return b.String(), len(v) > 0
	}
	return "", false
}

// newChat makes the conversation of a row's messages as `onering tokenize --chat`
// reads it from JSON.
func newChat(row Object, messages []any) (*Chat, error) {
	parts := Object{{"messages", withoutNulls(messages)}}
	for _, name := range chatColumns {
		value, _ := row.Get(name)
		if text, ok := value.(string); ok { // files without structures hold messages as JSON
			value = fromJSON(text)
		}
		if value = withoutNulls(value); value != nil {
			parts = append(parts, Member{name, value})
		}
	}
	source := appendJSON(nil, parts)
	chat := &Chat{source: source}
	if err := json.Unmarshal(source, &chat.Conversation); err != nil {
		return nil, err
	}
	chat.AddGenerationPrompt = true
	return chat, nil
}

// withoutNulls leaves out members without a value: in a columnar file every message
// has the members of all others.
func withoutNulls(value any) any {
	switch v := value.(type) {
	case []any:
		list := make([]any, len(v))
		for i, x := range v {
			list[i] = withoutNulls(x)
		}
		return list
	case Object:
		o := make(Object, 0, len(v))
		for _, m := range v {
			if x := withoutNulls(m.Value); x != nil {
				o = append(o, Member{m.Name, x})
			}
		}
		return o
	}
	return value
}
