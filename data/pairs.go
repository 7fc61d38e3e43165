package data

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
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

	side  string // column of one of two responses that are compared: in any of the three forms
	label string // column that says of a response without another one whether it is good
}

// The columns that are looked for, in this order.
var (
	messagesNames = []string{"messages", "conversations", "conversation"}
	responseNames = []string{"response", "completion", "output", "solution", "answer"}
	textNames     = []string{"text"}
)

// labelName is the column of labels of single responses, as TRL has it.
const labelName = "label"

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
	// Good says of a preference without a second response whether the response is good; nil
	// for other rows.
	Good   *bool
	Place  string // the file and its line or row, for messages
	Fields Object // the columns; those of Options.Keep have values
}

// LoadDemonstrations reads the demonstrations of a dataset. It uses Input, Filter, Limit,
// Keep and OnBad of o. A row with an empty prompt, response or text is dropped, as Open drops
// rows; one of another form is an error, as is a dataset without rows.
func LoadDemonstrations(path string, c DemonstrationColumns, o Options) (list []Demonstration, report Report, err error) {
	report, err = loadRows(path, []DemonstrationColumns{c}, o, func(row []Demonstration) error {
		list = append(list, row[0])
		return nil
	})
	return list, report, err
}

// loadRows gives add the demonstrations of every row: one for each element of by, which says in which columns it is, such as
// the chosen and the rejected response. A row with the error dropsRow, also from add, is dropped; others end the reading.
func loadRows(path string, by []DemonstrationColumns, o Options, add func(row []Demonstration) error) (Report, error) {
	o.storage = by[0].storage // all have the same
	r, err := Open(path, o)
	if err != nil {
		return Report{}, err
	}
	defer r.Close()
	r.demonstrations = true                        // so that it looks for no columns of problems
	found := make([]DemonstrationColumns, len(by)) // what find returned for the previous row
	var shape []string                             // the columns of the previous row
	for o.Limit == 0 || r.report.Rows < o.Limit {
		rec, err := r.row()
		if err == io.EOF {
			break
		}
		if err != nil {
			return r.Report(), err
		}
		if columns := columnNames(rec.Object); !slices.Equal(columns, shape) {
			for i := 0; i < len(by) && err == nil; i++ {
				found[i], err = by[i].find(rec.Object)
			}
			if err == nil {
				shape = columns
			} else {
				err = r.withHeaderHint(err)
			}
		}
		row := reading{Object: rec.Object, shownByTemplate: o.Keep} // it collects the columns that are read
		all := make([]Demonstration, len(by))
		for i := 0; i < len(by) && err == nil; i++ {
			all[i], err = found[i].demonstration(&row, by[i].Prompt == "")
			all[i].Fields = o.keptFields(rec.Object)
			all[i].Place = fmt.Sprintf("%s: %s %d", rec.File, r.records.src.Unit, rec.Line)
		}
		if err == nil {
			err = add(all)
		}
		if err != nil {
			bad := &rowError{File: rec.File, Unit: r.records.src.Unit, Line: rec.Line, Err: err}
			if !errors.As(err, new(dropsRow)) {
				return r.Report(), bad
			}
			bad.Reason = err.Error()
			if err := r.drop(bad); err != nil {
				return r.Report(), err
			}
			continue
		}
		r.unread.noteColumns(row)
		r.report.Rows++
	}
	if r.report.Rows == 0 {
		return r.Report(), fmt.Errorf("data: %s: no row is left: %v", path, r.Report())
	}
	return r.Report(), nil
}

// keptFields returns the columns of a row, of which those of Keep have values and the others only
// names, for messages.
func (o Options) keptFields(row Object) (fields Object) {
	for i := 0; i < len(row) && len(o.Keep) > 0; i++ {
		m := row[i]
		if !slices.ContainsFunc(o.Keep, func(name string) bool { return strings.EqualFold(m.Name, name) || strings.HasPrefix(name, m.Name+".") }) {
			m.Value = nil
		}
		fields = append(fields, m)
	}
	return fields
}

// A dropsRow is an error for which a row alone is left out, such as an empty part of its demonstration.
type dropsRow string

func (e dropsRow) Error() string { return string(e) }

// find returns where rows like first have a demonstration: in Messages alone, in Prompt and Response, or in Text
// alone. Columns that the user named come first, then those that are found by name, in this order. With side, the column
// of one of two responses that are compared, it is findSide.
func (c DemonstrationColumns) find(first Object) (found DemonstrationColumns, err error) {
	var set []string // the forms of which the user named a column
	for _, x := range []struct{ name, column string }{{"messages", c.Messages}, {"text", c.Text}, {"prompt and response", c.Prompt + c.Response}} {
		if x.column != "" {
			set = append(set, x.name)
		}
	}
	if len(set) > 1 {
		return found, fmt.Errorf("columns for %s and %s are named: a demonstration is a conversation, a prompt with a response, or a text", set[0], set[1])
	}
	switch auto := len(set) == 0; { // auto: the user named no column
	case c.side != "":
		return c.findSide(first)
	case c.Messages != "":
		found.Messages, err = findColumn(first, "messages", c.Messages, nil)
	case c.Text != "":
		found.Text, err = findColumn(first, "text", c.Text, nil)
	default:
		messages, noMessages := findColumn(first, "messages", "", messagesNames)
		if auto && noMessages == nil && isAnswered(first, messages) {
			return DemonstrationColumns{Messages: messages}, nil
		}
		if found.Prompt, err = findColumn(first, "prompt", c.Prompt, PromptNames); err == nil {
			found.Response, err = findColumn(first, "response", c.Response, responseNames)
		}
		if text, absent := findColumn(first, "text", "", textNames); auto && err != nil && absent == nil {
			return DemonstrationColumns{Text: text}, nil
		}
		if auto && err != nil && noMessages == nil { // there are messages, but nobody answers
			err = dropsRow(fmt.Sprintf(`%q has no message {"role": "assistant", "content": ...}, and %v`, messages, err))
		}
	}
	return found, err
}

// findSide is find for side, the column of one of two responses: it is the response to a prompt, or where
// there is none, a conversation or a text that begins with it. Rows without the column may have a single
// response, found by its name, and its label.
func (c DemonstrationColumns) findSide(first Object) (found DemonstrationColumns, err error) {
	side, missing := findColumn(first, "preference", c.side, nil)
	prompt, err := findColumn(first, "prompt", c.Prompt, PromptNames)
	if missing != nil {
		response, noResponse := findColumn(first, "response", "", responseNames)
		if _, labeled := first.Get(labelName); !labeled || err != nil || noResponse != nil {
			return found, missing
		}
		return DemonstrationColumns{Prompt: prompt, Response: response, label: labelName}, nil
	}
	value, _ := lookup(first, side)
	messages, _ := messagesOf(value)
	switch {
	case isAnswered(first, side) && !isAssistant(messages[0]): // as UltraFeedback's, with the prompt in a column, too
		found.Messages = side
	case err == nil:
		found = DemonstrationColumns{Prompt: prompt, Response: side}
	case c.Prompt != "":
		return found, err
	default:
		found.Text = side
	}
	return found, nil
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

// hasForeignTurns says whether a row is from the rollouts of a run, and the policy did not write
// all of its response.
func hasForeignTurns(row Object) bool {
	turns, _ := row.Get("turns")
	list, _ := turns.([]any)
	return slices.ContainsFunc(list, func(turn any) bool {
		o, _ := turn.(Object)
		author, _ := o.Get("author")
		return author == "environment"
	})
}

// demonstration reads a row by c, which find has returned. byName says that the prompt's column was
// found by its name; then it may be an instruction with an input.
func (c DemonstrationColumns) demonstration(row *reading, byName bool) (d Demonstration, err error) {
	row.readColumns = append(row.readColumns, c.Messages, c.Prompt, c.Response, c.Text, c.label)
	if c.label != "" {
		value, _ := lookup(row.Object, c.label)
		text, _ := scalar(value)
		good, err := strconv.ParseBool(text)
		if err != nil {
			return d, fmt.Errorf("the label %q is neither true nor false (column %q)", text, c.label)
		}
		d.Good = &good
	}
	switch {
	case c.Text != "":
		d.Whole = true
		d.Response, err = textOf(row.Object, "text", c.Text)
		return d, err
	case c.Messages != "":
		value, _ := lookup(row.Object, c.Messages)
		messages, ok := messagesOf(value)
		if !ok {
			return d, fmt.Errorf("%s (column %q)", oddMessages, c.Messages)
		}
		messages, reason := row.withEarlierTurns(messages)
		if reason != "" {
			return d, errors.New(reason)
		}
		return row.conversation(messages, 0) // 0: no messages are the prompt, so all turns of the assistant may be learned
	}
	asked, _ := lookup(row.Object, c.Prompt)
	answer, _ := lookup(row.Object, c.Response)
	prompt, promptIsChat, reason := row.promptMessages(asked, c.Prompt, byName)
	switch reason {
	case "":
	case noPrompt:
		return d, dropsRow(fmt.Sprintf("%s (column %q)", reason, c.Prompt))
	default:
		return d, fmt.Errorf("%s (column %q)", reason, c.Prompt)
	}
	response, responseIsChat := messagesOf(answer)
	if !responseIsChat {
		if hasForeignTurns(row.Object) {
			return d, errors.New(`column "turns": an environment has written parts of the response, which would be learned as the model's own; leave such rows out`)
		}
		if d.Response, err = textOf(row.Object, "response", c.Response); err != nil {
			return d, err
		}
		response = []any{Object{{"role", "assistant"}, {"content", d.Response}}}
	}
	if len(prompt) == 1 { // else the conversation has more than this text
		d.Prompt, _ = promptOf(prompt)
	}
	if promptIsChat || responseIsChat {
		whole, err := row.conversation(slices.Concat(prompt, response), len(prompt))
		d.Chat, d.From = whole.Chat, whole.From
		return d, err
	}
	return d, nil
}

// oddMessages says what form messages must have.
const oddMessages = "the messages are not a list of objects, each with a role and a text as its content, or of " +
	"ShareGPT's, each with from (human, gpt, system, tool ...) and value"

// conversation makes a demonstration of messages; those before index from are the prompt.
func (r *reading) conversation(messages []any, from int) (d Demonstration, err error) {
	for i, m := range messages {
		message, _ := m.(Object)
		role, _ := message.Get("role")
		if name, _ := role.(string); name == "" {
			return d, fmt.Errorf("message %d has no role: %s", i+1, oddMessages)
		}
		switch _, odd := contentOf(message); odd {
		case "":
		case noText:
			return d, fmt.Errorf("message %d %s: %s", i+1, odd, oddMessages)
		default:
			return d, fmt.Errorf("message %d: %s", i+1, odd)
		}
	}
	if !slices.ContainsFunc(messages[from:], isAssistant) {
		return d, dropsRow("none of the messages that are to be learned from is the assistant's")
	}
	if d.Chat, err = r.chat(messages); err != nil {
		return d, err
	}
	learns := false
	for i, m := range d.Chat.Messages {
		learned, err := m.Learned()
		if err != nil {
			return d, fmt.Errorf("message %d: %w", i+1, err)
		}
		learns = learns || i >= from && learned && m.Role == "assistant"
	}
	d.From = from
	if !learns {
		return d, dropsRow("its messages say that no turn of the assistant is learned")
	}
	return d, nil
}

// textOf returns the text of a column.
func textOf(row Object, what, column string) (string, error) {
	value, _ := lookup(row, column)
	text, ok := scalar(value)
	switch {
	case !ok:
		return "", fmt.Errorf("the %s is not a text (column %q)", what, column)
	case text == "":
		return "", dropsRow(fmt.Sprintf("no %s (column %q)", what, column))
	}
	return text, nil
}
