package data

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"onering/internal/settings"
	"onering/internal/strict"
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

// Prompt returns the prompt of a problem, as text and as token ids: the problem, with its choices if it does not have
// them, in the template. A character that the vocabulary lacks is an error: the model would see another text.
func (p *Prompter) Prompt(q Problem) (text string, ids []int32, err error) {
	around, plain := p.Template, q.Plain && p.Template.Auto        // plain: the problem's text is the prompt as it is
	if !plain && (q.Chat == nil || !around.Auto && !around.Chat) { // else no text goes around the problem
		around, err = around.Fill(q.Fields.Shown)
	}
	if talk, ok, _ := p.Talk(q); ok && (around.Chat || q.Chat != nil) { // the chat template writes the prompt
		if untold := talk.NewlyUntold(p.Tokenizer); untold != "" { // messages that it leaves out, said once
			slog.Warn(untold, "first", q.ID)
		}
	}
	// A template that names the choices shows them itself.
	if len(p.Template.Columns) == 0 {
		q.addChoices()
	} else if whole := around.Render(q.Text); withChoices(whole, q.Choices) != whole { // this one does not
		q.addChoices()
	}
	switch {
	case err != nil: // of Fill
	case plain:
		text, ids, err = p.Tokenizer.Prompt(tokenize.Template{}, q.Text)
	case q.Chat == nil:
		text, ids, err = p.Tokenizer.Prompt(around, q.Text)
	case around.Chat || around.Auto:
		var chat tokenize.Conversation
		if chat, err = around.Around(q.Chat.Conversation); err == nil {
			text, ids, err = p.Tokenizer.EncodeChat(chat)
		}
	case len(q.Chat.Messages) == 1: // the template takes one text, and this is one
		text, ids, err = p.Tokenizer.Prompt(around, q.Text)
	default:
		err = q.refuseConversation(around)
	}
	if err == nil {
		err = p.Template.CheckKnown(p.Tokenizer, text)
	}
	if err != nil {
		return "", nil, fmt.Errorf("data: problem %q: %w", q.ID, err)
	}
	return text, ids, nil
}

// refuseConversation returns an error if a template that takes one text gets a conversation.
func (q Problem) refuseConversation(around tokenize.Template) error {
	if q.Chat == nil || len(q.Chat.Messages) == 1 || around.Chat || around.Auto {
		return nil
	}
	return settings.About(fmt.Errorf("its prompt is a list of %d messages, and the template %q takes one text: "+
		"set model.template to chat, the template of the model's tokenizer; the columns system and history are "+
		"messages, too, unless the template names them", len(q.Chat.Messages), around.Name), "model.template")
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

// addChoices puts the choices behind the text and the last message of a copy of a problem.
func (q *Problem) addChoices() {
	offered := withChoices(q.Text, q.Choices)
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
	text := templateText(column, value)
	switch {
	case !ok:
		return "", fmt.Errorf("the row has no such column (have %q)", columnNames(o))
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
		return "the tokenizer does not know the tokens of Qwen's chat format: prompts are written in the model's own " +
			"chat template, with the instruction to answer in a box; set model.template to chat or another to have it without"
	case chat:
		return "the template qwen_math writes Qwen's chat format, whose tokens the tokenizer does not know: set model.template to chat, the model's own"
	}
	return fmt.Sprintf("the template %q writes Qwen's chat format, whose tokens the tokenizer does not know, and "+
		"it has no chat template: set model.template to no, or to a text with {problem} in it", p.Template.Name)
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

// A reading finds parts of a prompt in the columns of a row, and notes the columns that it has read.
type reading struct {
	Object
	shownByTemplate []string // columns that the template shows, so that they are not part of a conversation
	readColumns     []string
}

// The names of columns that belong to a prompt in another column.
var (
	inputNames   = []string{"input", "context"} // what an instruction speaks of, as in Alpaca's and Dolly's rows
	historyNames = []string{"history"}
	systemNames  = []string{"system", "system_prompt", "system_message"}
)

// readFirst returns the value of the first column with one of the names that has one; nil if there
// is none, or if the template shows it.
func (r *reading) readFirst(names []string) any {
	column, value := filled(r.Object, columnsNamed(r.Object, names))
	if !hasValue(value) || slices.ContainsFunc(r.shownByTemplate, func(name string) bool { return strings.EqualFold(name, column) }) {
		return nil
	}
	r.readColumns = append(r.readColumns, column)
	return value
}

// undoRead notes that the column that readFirst has read last is about something else, and so not read.
func (r *reading) undoRead() { r.readColumns = r.readColumns[:len(r.readColumns)-1] }

// Prompt returns the prompt of a row where value is a text or a list of messages.
// If it is neither the reason says so in words.
func (o Object) Prompt(value any) (text string, chat *Chat, reason string) {
	return (&reading{Object: o}).prompt(value, "", false)
}

// prompt returns the prompt of a row from the value of its column and from columns that belong to it:
// its text, and chat if it is a conversation. A column that was found byName may be an instruction
// with an input. If there is no prompt the reason says why.
func (r *reading) prompt(value any, column string, byName bool) (text string, chat *Chat, reason string) {
	messages, isChat, reason := r.promptMessages(value, column, byName)
	if reason != "" {
		return "", nil, reason
	}
	var texts []string
	last := "" // the role of the last message
	for _, m := range messages {
		message, _ := m.(Object)
		role, _ := message.Get("role")
		if last, _ = role.(string); last == "" {
			return "", nil, oddPrompt
		}
		content, odd := contentOf(message)
		if odd != "" {
			return "", nil, cmp.Or(strings.TrimPrefix(odd, noText), oddPrompt) // in place of noText, which says less
		}
		texts = append(texts, last+": "+content)
	}
	if last == "assistant" {
		return "", nil, answered
	}
	text = strings.Join(texts, "\n\n")
	if len(texts) == 1 && last == "user" {
		text = strings.TrimPrefix(text, "user: ")
	}
	if strings.TrimSpace(text) == "" || len(messages) == 0 {
		return "", nil, noPrompt
	}
	if !isChat {
		return text, nil, ""
	}
	chat, err := r.chat(messages)
	if err != nil {
		return "", nil, "not a conversation: " + err.Error()
	}
	return text, chat, ""
}

// promptMessages returns the messages of a prompt, which is a text or a list of messages, behind the
// system message and the earlier turns that other columns of the row have. isChat is false for
// a text alone.
func (r *reading) promptMessages(value any, column string, byName bool) (messages []any, isChat bool, reason string) {
	messages, isChat = messagesOf(value)
	if !isChat {
		text, reason := promptOf(value)
		if reason != "" {
			return nil, false, reason
		}
		if byName && strings.EqualFold(column, "instruction") {
			if input, ok := scalar(r.readFirst(inputNames)); !ok { // a structure is no input
				r.undoRead()
			} else if input != "" {
				text += "\n\n" + input
			}
		}
		messages = []any{Object{{"role", "user"}, {"content", text}}}
	}
	whole, reason := r.withEarlierTurns(messages)
	return whole, isChat || len(whole) > len(messages), reason // the other columns make a text a conversation
}

// withEarlierTurns puts the row's earlier turns in front of messages, but behind their system message, and
// if they have none the system message of a column. The columns that it uses count as read.
func (r *reading) withEarlierTurns(messages []any) (whole []any, reason string) {
	isSystem := func(m any) bool { o, _ := m.(Object); role, _ := o.Get("role"); return role == "system" }
	history := r.readFirst(historyNames)
	if text, isText := history.(string); isText && !strings.HasPrefix(strings.TrimSpace(text), "[") {
		r.undoRead() // no list as CSV files write it, so the column has other things than turns
		history = nil
	}
	if history != nil {
		turns, ok := turnsOf(history)
		if !ok {
			return nil, oddHistory
		}
		behind := 0
		if len(messages) > 0 && isSystem(messages[0]) {
			behind = 1
		}
		messages = slices.Insert(slices.Clone(messages), behind, turns...)
	}
	if slices.ContainsFunc(messages, isSystem) {
		return messages, ""
	}
	system := r.readFirst(systemNames)
	if text, odd := contentOf(Object{{"content", system}}); odd == "" { // nil, without such a column, is odd, too
		return slices.Insert(slices.Clone(messages), 0, any(Object{{"role", "system"}, {"content", text}})), ""
	} else if system != nil {
		r.undoRead()
	}
	return messages, ""
}

// turnsOf returns the messages of a history: a list of messages, or of pairs of what the user
// said and what the assistant answered.
func turnsOf(history any) (messages []any, ok bool) {
	if said, isText := history.(string); isText { // as CSV files write it
		history = fromText(said)
	}
	turns, ok := history.([]any)
	for _, turn := range turns {
		if pair, _ := turn.([]any); len(pair) == 2 {
			asked, isText := pair[0].(string)
			answered, also := pair[1].(string)
			ok = ok && isText && also
			messages = append(messages, Object{{"role", "user"}, {"content", asked}}, Object{{"role", "assistant"}, {"content", answered}})
			continue
		}
		message, _ := messageOf(turn).(Object)
		role, _ := message.Get("role")
		messages, ok = append(messages, message), ok && role != nil
	}
	return messages, ok
}

// listOfObjects matches the beginning of a list of messages that is written as a text.
var listOfObjects = regexp.MustCompile(`(?s)^\s*(?:\[\s*\{.*|(?:array)?\(?\s*\[?\s*\{\s*)["'](?:role|from)["']\s*:`)

// messagesOf returns the messages of a conversation. It renames the parts and roles of
// ShareGPT to those of chat templates. In a CSV file messages are JSON, or as Python writes
// them.
func messagesOf(value any) ([]any, bool) {
	if text, ok := value.(string); ok && listOfObjects.MatchString(text) {
		value = fromText(text)
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

// roles translate ShareGPT's names of speakers.
var roles = map[string]string{
	"human": "user", "user": "user", "system": "system", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant",
	"bard": "assistant", "assistant": "assistant", "model": "assistant", "bot": "assistant", "function_call": "assistant",
	"tool": "tool", "observation": "tool", "function_response": "tool",
}

// messageOf returns a message {"role", "content"} for one of ShareGPT, {"from", "value"}, and
// others with their calls in the field tool_calls, as a list. What is no object is returned as it is.
func messageOf(m any) any {
	o, _ := m.(Object)
	o = slices.Clone(o) // the row stays as it is
	calls := func(call any) Member {
		return Member{"tool_calls", []any{Object{{"type", "function"}, {"function", call}}}}
	}
	for i, part := range o {
		text, isText := part.Value.(string)
		switch {
		case part.Name == "tool_calls" && isText: // files without structures hold them as JSON
			if list, ok := fromText(cmp.Or(strings.TrimSpace(text), "[]")).([]any); ok {
				o[i].Value = list
			}
		case part.Name == "function_call" && part.Value != nil: // OpenAI's older form
			o[i] = calls(part.Value)
		}
	}
	from, _ := o.Get("from")
	name, _ := from.(string)
	role, known := roles[strings.ToLower(name)]
	if _, has := o.Get("role"); has || !known { // it is not ShareGPT's
		if o == nil {
			return m
		}
		return o
	}
	value, _ := o.Get("value")
	content := Member{"content", value}
	if call, ok := value.(string); ok && name == "function_call" {
		content = calls(fromText(call))
	}
	rest := slices.DeleteFunc(o, func(m Member) bool { return m.Name == "from" || m.Name == "value" })
	return append(Object{{"role", role}, content}, rest...)
}

// noText is the reason that a message has no content.
const noText = "has no text"

// contentOf returns the text of a message, which may consist of parts and be missing
// where a tool is called. If it has none the reason says so in words.
func contentOf(message Object) (text, reason string) {
	calls, _ := message.Get("tool_calls")
	if _, isText := calls.(string); isText {
		return "", "the tool_calls of a message are a text that is not a list in JSON or Python"
	}
	value, _ := message.Get("content")
	switch v := value.(type) {
	case nil:
		if calls != nil {
			return "", ""
		}
	case string:
		return v, ""
	case []any:
		var b strings.Builder
		for _, part := range v {
			o, _ := part.(Object)
			value, _ := o.Get("text")
			text, ok := value.(string)
			if kind, _ := o.Get("type"); !ok && kind != nil {
				return "", fmt.Sprintf("a message has a part of type %q, and the model sees texts alone", kind)
			}
			if !ok {
				return "", noText
			}
			b.WriteString(text)
		}
		if len(v) > 0 {
			return b.String(), ""
		}
	}
	return "", noText
}

// chat makes the conversation of a row's messages, and of its columns for the chat template, as
// `onering tokenize --chat` reads it from JSON.
func (r *reading) chat(messages []any) (*Chat, error) {
	parts := Object{{"messages", withoutNulls(messages)}}
	for _, name := range chatColumns {
		value := r.readFirst([]string{name})
		if text, ok := value.(string); ok { // files without structures hold messages as JSON
			if value = fromText(text); value == nil {
				return nil, fmt.Errorf("the column %s is a text that is neither JSON nor Python", name)
			}
		}
		if value = withoutNulls(value); value != nil {
			parts = append(parts, Member{name, value})
		}
	}
	source := appendJSON(nil, parts)
	chat := &Chat{source: source}
	if err := strict.JSON(source, &chat.Conversation); err != nil {
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
