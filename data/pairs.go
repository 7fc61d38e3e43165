package data

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// DemonstrationColumns say where the parts of a demonstration are in a file. Where
// all names are empty a row is a conversation if its column messages ends with the
// assistant, else a prompt with a response, else a text.
type DemonstrationColumns struct {
	Messages string `toml:"messages" help:"column of conversations, each a list of messages; found by name if no column is given"`
	Prompt   string `toml:"prompt" help:"column of the prompt, a text or a list of messages; found by name if not given"`
	Response string `toml:"response" help:"column of the response to the prompt, a text or a list of messages; found by name if not given"`
	Text     string `toml:"text" help:"column of texts that are learned whole; found by name if no column is given"`
	storage
}

// The columns that are looked for, in this order.
var (
	messagesNames = []string{"messages", "conversations", "conversation"}
	responseNames = []string{"response", "completion", "output", "solution", "answer"}
	textNames     = []string{"text"}
)

// A Demonstration is the content of a row for supervised training.
type Demonstration struct {
	// Chat is the whole conversation if the row has messages, else nil. Messages before
	// index From are the prompt.
	Chat *Chat
	From int
	// Prompt and Response are texts as the file has them, if both are texts; the prompt
	// may be a single message of the user. With Whole there is no prompt, and the whole
	// Response is learned.
	Prompt, Response string
	Whole            bool
	Place            string // the file and its line or row, for messages
	Fields           Object // the columns; those of Options.Keep have values
}

// LoadDemonstrations reads the demonstrations of a dataset. It uses Input, Filter, Limit
// and Keep of o. A row that lacks a part is an error, as is a dataset without rows.
func LoadDemonstrations(path string, c DemonstrationColumns, o Options) ([]Demonstration, error) {
	var filter *Filter
	if o.Filter != "" {
		var err error
		if filter, err = ParseFilter(o.Filter); err != nil {
			return nil, err
		}
	}
	o.storage = c.storage
	records, err := OpenRecords(path, o)
	if err != nil {
		return nil, err
	}
	defer records.Close()
	var list []Demonstration
	var found DemonstrationColumns
	var shape []string // the columns of the previous row
	for o.Limit == 0 || len(list) < o.Limit {
		rec, err := records.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if filter != nil && !filter.Match(rec.Object) {
			continue
		}
		if columns := names(rec.Object); !slices.Equal(columns, shape) {
			found, err = c.find(rec.Object)
			shape = columns
		}
		var d Demonstration
		if err == nil {
			d, err = found.demonstration(rec.Object, c.Prompt == "")
		}
		if err != nil {
			return nil, &rowError{File: rec.File, Unit: records.src.Unit, Line: rec.Line, Err: err}
		}
		for i := 0; i < len(rec.Object) && len(o.Keep) > 0; i++ { // only the names of the other columns, for messages
			m := rec.Object[i]
			if !slices.ContainsFunc(o.Keep, func(name string) bool { return strings.EqualFold(m.Name, name) || strings.HasPrefix(name, m.Name+".") }) {
				m.Value = nil
			}
			d.Fields = append(d.Fields, m)
		}
		d.Place = fmt.Sprintf("%s: %s %d", rec.File, records.src.Unit, rec.Line)
		list = append(list, d)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("data: %s: no row is left", path)
	}
	return list, nil
}

// find fixes the columns of rows by the first of them: either Messages, or Prompt and
// Response, or Text is set.
func (c DemonstrationColumns) find(first Object) (found DemonstrationColumns, err error) {
	var set []string
	for _, x := range []struct{ name, column string }{{"messages", c.Messages}, {"text", c.Text}, {"prompt and response", c.Prompt + c.Response}} {
		if x.column != "" {
			set = append(set, x.name)
		}
	}
	if len(set) > 1 {
		return found, fmt.Errorf("columns for %s and %s are named: a demonstration is a conversation, a prompt with a response, or a text", set[0], set[1])
	}
	switch auto := len(set) == 0; {
	case c.Messages != "":
		found.Messages, err = findColumn(first, "messages", c.Messages, nil)
	case c.Text != "":
		found.Text, err = findColumn(first, "text", c.Text, nil)
	default:
		messages, none := findColumn(first, "messages", "", messagesNames)
		if auto && none == nil && isAnswered(first, messages) {
			return DemonstrationColumns{Messages: messages}, nil
		}
		if found.Prompt, err = findColumn(first, "prompt", c.Prompt, PromptNames); err == nil {
			found.Response, err = findColumn(first, "response", c.Response, responseNames)
		}
		if text, none := findColumn(first, "text", "", textNames); auto && err != nil && none == nil {
			return DemonstrationColumns{Text: text}, nil
		}
		if auto && err != nil && none == nil {
			err = fmt.Errorf(`%q has no message {"role": "assistant", "content": ...}, and %w`, messages, err)
		}
	}
	return found, err
}

// isAnswered says whether a column holds a conversation with a turn of the assistant.
func isAnswered(row Object, column string) bool {
	value, _ := lookup(row, column)
	messages, _ := messagesOf(value)
	return slices.ContainsFunc(messages, isAssistant)
}

func isAssistant(message any) bool {
	o, _ := message.(Object)
	role, _ := o.Get("role")
	return role == "assistant"
}

// ofOthers says whether a row is from the rollouts of a run, and the policy did not write
// all of its response.
func ofOthers(row Object) bool {
	turns, _ := row.Get("turns")
	list, _ := turns.([]any)
	return slices.ContainsFunc(list, func(turn any) bool {
		o, _ := turn.(Object)
		author, _ := o.Get("author")
		return author == "environment"
	})
}

// demonstration reads a row. A prompt column that was found by its name may be an
// instruction with an input.
func (c DemonstrationColumns) demonstration(row Object, byName bool) (d Demonstration, err error) {
	switch {
	case c.Text != "":
		d.Whole = true
		d.Response, err = textOf(row, "text", c.Text)
		return d, err
	case c.Messages != "":
		value, _ := lookup(row, c.Messages)
		messages, ok := messagesOf(value)
		if !ok {
			return d, fmt.Errorf("%s (column %q)", oddMessages, c.Messages)
		}
		return conversation(row, withSystem(row, messages), 0)
	}
	asked, _ := lookup(row, c.Prompt)
	answer, _ := lookup(row, c.Response)
	prompt, chats := messagesOf(asked)
	response, answers := messagesOf(answer)
	text, reason := promptOf(asked) // also the prompt of a single message by the user
	if !chats {
		if reason != "" {
			return d, fmt.Errorf("%s (column %q)", reason, c.Prompt)
		}
		if byName {
			text = withInput(row, c.Prompt, text)
			if prompt, reason = alpaca(row, c.Prompt, text); reason != "" {
				return d, errors.New(reason)
			}
		}
		if chats = prompt != nil; !chats {
			prompt = []any{Object{{"role", "user"}, {"content", text}}}
		}
	}
	if !answers {
		if ofOthers(row) {
			return d, errors.New(`column "turns": an environment has written parts of the response, which would be learned as the model's own; leave such rows out`)
		}
		if d.Response, err = textOf(row, "response", c.Response); err != nil {
			return d, err
		}
		response = []any{Object{{"role", "assistant"}, {"content", d.Response}}}
	}
	if d.Prompt = text; len(prompt) > 1 {
		d.Prompt = "" // the conversation has more than this text
	}
	if chats || answers {
		whole, err := conversation(row, slices.Concat(prompt, response), len(prompt))
		d.Chat, d.From = whole.Chat, whole.From
		return d, err
	}
	return d, nil
}

// oddMessages says what form messages must have.
const oddMessages = "the messages are no list of objects, each with a role and a text as its content, or of ShareGPT's, each with from (human, gpt, system, tool ...) and value"

// conversation makes a demonstration of messages; those before index from are the prompt.
func conversation(row Object, messages []any, from int) (d Demonstration, err error) {
	for i, m := range messages {
		message, _ := m.(Object)
		role, _ := message.Get("role")
		if name, _ := role.(string); name == "" {
			return d, fmt.Errorf("message %d has no role: %s", i+1, oddMessages)
		}
		if _, ok := contentOf(message); !ok {
			return d, fmt.Errorf("message %d has no text: %s", i+1, oddMessages)
		}
	}
	if !slices.ContainsFunc(messages[from:], isAssistant) {
		return d, fmt.Errorf("none of the %d messages that are to be learned from is the assistant's", len(messages)-from)
	}
	chat, err := newChat(row, messages)
	return Demonstration{Chat: chat, From: from}, err
}

// textOf returns the text of a column.
func textOf(row Object, what, column string) (string, error) {
	value, _ := lookup(row, column)
	text, ok := scalar(value)
	switch {
	case !ok:
		return "", fmt.Errorf("the %s is no text (column %q)", what, column)
	case text == "":
		return "", fmt.Errorf("no %s (column %q)", what, column)
	}
	return text, nil
}
