package data

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// columns are the columns of a file that problems are made of.
type columns struct {
	prompt, answer, id string
	opts               Options
}

// findColumns fixes the columns by a file's first row. They then hold for the
// whole file: a row that lacks its answer must not fall back on another column.
func findColumns(first Object, o Options) (columns, error) {
	c := columns{opts: o}
	var err error
	if c.prompt, err = findColumn(first, "prompt", o.Prompt, PromptNames); err != nil {
		return c, err
	}
	if c.answer, err = findColumn(first, "answer", o.Answer, AnswerNames); err != nil && (!o.NoAnswers || o.Answer != "") {
		return c, err
	}
	if c.id, err = findColumn(first, "id", o.ID, IDNames); err != nil && o.ID != "" {
		return c, err
	}
	if c.answer == c.prompt {
		return c, fmt.Errorf("the column %q cannot be both prompt and answer", c.prompt)
	}
	return c, nil
}

func findColumn(first Object, what, given string, automatic []string) (string, error) {
	if given != "" {
		if _, ok := lookup(first, given); ok {
			return given, nil
		}
		return "", fmt.Errorf("there is no column %q for the %s (have %q)", given, what, names(first))
	}
	for _, name := range automatic {
		for _, m := range first {
			if strings.EqualFold(underscores.Replace(m.Name), name) {
				return m.Name, nil
			}
		}
		if strings.Contains(name, ".") {
			if _, ok := lookup(first, name); ok {
				return name, nil
			}
		}
	}
	how := "--" + what
	if what != "response" { // which only sft has
		how = "data." + what + " in a run file, or " + how
	}
	return "", fmt.Errorf("no column looks like the %s (have %q, looked for %q): name it with %s", what, names(first), automatic, how)
}

// underscores turns "Final Answer" and "final-answer" into final_answer, up to
// the case of letters.
var underscores = strings.NewReplacer(" ", "_", "-", "_")

func names(o Object) []string {
	list := make([]string, len(o))
	for i, m := range o {
		list[i] = m.Name
	}
	return list
}

// lookup returns the value of a column, or of one inside a structure by a path
// with dots. A column whose own name is the path comes first.
func lookup(o Object, path string) (any, bool) {
	if v, ok := o.Get(path); ok {
		return v, true
	}
	head, tail, dotted := strings.Cut(path, ".")
	if !dotted {
		return nil, false
	}
	v, _ := o.Get(head)
	inner, ok := v.(Object)
	if !ok {
		return nil, false
	}
	return lookup(inner, tail)
}

// problem makes a problem of a record. The error says why the row is dropped.
func (c columns) problem(rec record, unit, name string) (Problem, *rowError) {
	bad := func(reason string) *rowError {
		return &rowError{File: rec.File, Unit: unit, Line: rec.Line, Reason: reason, Err: fmt.Errorf("%s (columns %q and %q)", reason, c.prompt, c.answer)}
	}
	p := Problem{Fields: rec.Object, File: rec.File, Line: rec.Line}
	value, _ := lookup(rec.Object, c.prompt)
	var reason string
	if p.Text, p.Chat, reason = ReadPrompt(rec.Object, value); reason != "" {
		return Problem{}, bad(reason)
	}
	if c.answer != "" {
		value, _ := lookup(rec.Object, c.answer)
		p.Answers, reason = c.answersOf(value)
		if reason != "" && !(c.opts.NoAnswers && reason == noAnswer) {
			return Problem{}, bad(reason)
		}
	} else if !c.opts.NoAnswers {
		return Problem{}, bad(noAnswer)
	}
	if value, ok := lookup(rec.Object, c.id); ok {
		p.ID, _ = scalar(value)
	}
	if p.ID == "" {
		p.ID = name + ":" + strconv.Itoa(rec.Line)
	}
	return p, nil
}

// The reasons for which rows are dropped.
const (
	noPrompt       = "no prompt"
	noAnswer       = "no answer"
	oddPrompt      = "the prompt is neither text nor a list of messages, each with a role and a text as its content"
	answered       = "the conversation ends with the assistant: a prompt ends with a message of the user or of a tool"
	oddAnswer      = "the answer is neither text, a number nor a list of them"
	noSolution     = "no answer found in the solution"
	unreadableLine = "not readable"
	noAfterHash    = "nothing behind the #### of the answer"
)

// promptOf returns the text of a prompt: a string, or a conversation of one
// message from the user.
func promptOf(value any) (text, reason string) {
	if list, ok := value.([]any); ok && len(list) == 1 {
		message, _ := list[0].(Object)
		if role, _ := message.Get("role"); role != "user" {
			return "", oddPrompt
		}
		value, _ = message.Get("content")
	}
	switch v := value.(type) {
	case nil:
		return "", noPrompt
	case string:
		text = v
	case []byte:
		text = string(v)
	default:
		return "", oddPrompt
	}
	if strings.TrimSpace(text) == "" {
		return "", noPrompt
	}
	return text, ""
}

// answersOf returns the alternatives of an answer: a string, a number, a truth
// value, or a list of them.
func (c columns) answersOf(value any) ([]string, string) {
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	if text, ok := value.(string); ok && strings.HasPrefix(text, `["`) {
		// A list of texts, as CSV files have them. A bare [1, 2] is an answer.
		var texts []string
		if json.Unmarshal([]byte(text), &texts) == nil {
			list = list[:0]
			for _, s := range texts {
				list = append(list, s)
			}
		}
	}
	answers := make([]string, 0, len(list))
	for _, v := range list {
		text, ok := scalar(v)
		if !ok {
			return nil, oddAnswer
		}
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		text, reason := c.final(text)
		if reason != "" {
			return nil, reason
		}
		answers = append(answers, text)
	}
	if len(answers) == 0 {
		return nil, noAnswer
	}
	return answers, ""
}

// final returns the answer without the working that leads to it. The published
// GSM8K has both in one column, the answer in a last line "#### 42"; a column of
// solutions has the answer somewhere in each.
func (c columns) final(text string) (answer, reason string) {
	line := text[strings.LastIndexByte(text, '\n')+1:]
	if answer, ok := strings.CutPrefix(line, "####"); ok {
		if answer = strings.TrimSpace(answer); answer == "" {
			return "", noAfterHash
		}
		return answer, ""
	}
	if !strings.EqualFold(c.answer, "solution") {
		return text, ""
	}
	from := c.opts.FromSolution
	if from == nil {
		from = lastBoxed
	}
	answer, ok := from(text)
	if answer = strings.TrimSpace(answer); !ok || answer == "" {
		return "", noSolution
	}
	return answer, ""
}

// lastBoxed returns what the last \boxed{} or \fbox{} of a text holds.
func lastBoxed(text string) (string, bool) {
	at := max(strings.LastIndex(text, `\boxed{`), strings.LastIndex(text, `\fbox{`))
	if at < 0 {
		return "", false
	}
	text = text[at:]
	from, depth := strings.IndexByte(text, '{'), 0
	for i := from; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++ // an escaped brace is text
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return text[from+1 : i], true
			}
		}
	}
	return "", false
}

// scalar writes a value that is no list and no structure as text; a missing
// one as the empty text.
func scalar(value any) (string, bool) {
	switch v := value.(type) {
	case nil:
		return "", true
	case string:
		return v, true
	case []byte:
		return string(v), true
	case bool:
		return strconv.FormatBool(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case uint64:
		return strconv.FormatUint(v, 10), true
	case float64:
		if math.IsNaN(v) { // how pandas writes a missing number
			return "", true
		}
		return decimal(v), true
	case json.Number:
		if strings.ContainsAny(string(v), ".eE") {
			if x, err := v.Float64(); err == nil {
				return decimal(x), true
			}
		}
		return string(v), true
	}
	return "", false
}

// decimal writes a float as a person would: 142.0 as 142, and 1e-05 as
// 0.00001, but with an exponent where there would be more than 21 digits.
func decimal(x float64) string {
	if a := math.Abs(x); x != 0 && (a < 1e-7 || a >= 1e21) {
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	return strconv.FormatFloat(x, 'f', -1, 64)
}
