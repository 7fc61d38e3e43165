package data

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"onering/verifier"
)

// columns find the parts of problems in the rows of a file. Rows of JSON are looked at one by
// one: each has its own columns.
type columns struct {
	opts            Options
	shape           []string    // names of the columns of the row read last
	found           [3][]string // columns of that row that may be the prompt, the answer and the id
	wrong           [3]error    // why the row lacks such columns
	used            [3][]string // columns that rows of the file had, in order
	line            int         // the line of the row read last
	inLine          int         // how many rows of this line precede the row
	hasAnswerColumn bool        // some row had an answer in a column that is not of solutions
}

// The parts of a problem, in the order of columns.found.
const (
	promptPart = iota
	answerPart
	idPart
)

// locateParts sets which columns of a row may be its parts (found), or why none may (wrong), and adds the first of each to
// those in use. It notes a column of answers that are not solutions. The prompt's column is no answer's unless the user says so.
func (c *columns) locateParts(row Object) {
	if c.shape != nil && slices.EqualFunc(c.shape, row, func(name string, m Member) bool { return name == m.Name }) {
		return // the row before had the same columns
	}
	c.shape = columnNames(row)
	for part, x := range [...]struct {
		what, given string
		automatic   []string
	}{{"prompt", c.opts.Prompt, PromptNames}, {"answer", c.opts.Answer, AnswerNames}, {"id", c.opts.ID, IDNames}} {
		c.found[part], c.wrong[part] = findColumns(row, x.what, x.given, x.automatic)
		if len(c.found[part]) > 0 && !slices.Contains(c.used[part], c.found[part][0]) {
			c.used[part] = append(c.used[part], c.found[part][0])
		}
	}
	if prompt := c.found[promptPart]; len(prompt) > 0 && c.opts.Answer == "" {
		c.found[answerPart] = slices.DeleteFunc(c.found[answerPart], func(name string) bool { return name == prompt[0] })
	}
	c.hasAnswerColumn = c.hasAnswerColumn || slices.ContainsFunc(c.found[answerPart], func(name string) bool { return !isSolution(name) })
	if c.opts.ID == "" {
		c.wrong[idPart] = nil // an ID need not exist
	}
	if c.opts.NoAnswers && c.opts.Answer == "" {
		c.wrong[answerPart] = nil
	}
}

// missingColumn returns the error that no row of the file had a column that is needed.
func (c *columns) missingColumn() error {
	for part, err := range c.wrong {
		if err != nil && len(c.used[part]) == 0 {
			return err
		}
	}
	if len(c.used[promptPart]) > 0 && c.opts.Answer != "" && slices.Contains(c.used[promptPart], c.opts.Answer) {
		return fmt.Errorf("the column %q cannot be both prompt and answer", c.opts.Answer)
	}
	return nil
}

// findColumn returns the first of the columns that findColumns finds.
func findColumn(row Object, what, given string, automatic []string) (string, error) {
	found, err := findColumns(row, what, given, automatic)
	if err != nil {
		return "", err
	}
	return found[0], nil
}

// findColumns returns the column that the user has given, or if given is "" the columns of a row that
// have one of the automatic names, in the order of the names. If two columns differ only in case, the
// exact name comes first. what is the part of a problem that they are for, as errors and flags call it.
func findColumns(row Object, what, given string, automatic []string) (found []string, err error) {
	if given != "" {
		if _, ok := lookup(row, given); ok {
			return []string{given}, nil
		}
		how := ""
		if what == "preference" { // whose columns have defaults
			how = ": name it with data.chosen and data.rejected, or --chosen and --rejected"
		}
		return nil, fmt.Errorf("there is no column %q for the %s (have %q)%s", given, what, columnNames(row), how)
	}
	found = columnsNamed(row, automatic)
	if len(found) > 0 {
		return found, nil
	}
	how := "--" + what + " of onering sft, or rename it"
	if what != "response" { // only sft reads responses
		how = "data." + what + " in a run file, or --" + what
	}
	return nil, fmt.Errorf("no column looks like the %s (have %q, looked for %q): name it with %s", what, columnNames(row), automatic, how)
}

// columnsNamed returns the columns of a row with one of the names, in the order of the names.
func columnsNamed(row Object, automatic []string) (found []string) {
	for _, name := range automatic {
		if _, ok := lookup(row, name); ok {
			found = append(found, name)
		}
		for _, m := range row {
			if len(m.Name) == len(name) && m.Name != name && strings.EqualFold(underscores.Replace(m.Name), name) {
				found = append(found, m.Name)
			}
		}
	}
	return found
}

// filled returns the first of the columns that has a value in the row, or the first
// column if none has one.
func filled(row Object, columns []string) (column string, value any) {
	for i, name := range columns {
		v, _ := lookup(row, name)
		if i == 0 {
			column, value = name, v
		}
		if hasValue(v) {
			return name, v
		}
	}
	return column, value
}

// hasValue says whether a value is not missing, a blank text or an empty list.
func hasValue(v any) bool {
	list, isList := v.([]any)
	text, ok := scalar(v)
	return ok && strings.TrimSpace(text) != "" || !ok && (!isList || len(list) > 0)
}

// underscores turns "Final Answer" and "final-answer" into final_answer, and ignores
// case.
var underscores = strings.NewReplacer(" ", "_", "-", "_")

func columnNames(o Object) []string {
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

// problem makes a problem of a record, and notes in rest which of its columns nothing reads. The error
// says why the row is dropped. unit is what lines of the file are called, name what IDs call the file.
func (c *columns) problem(rec record, unit, name string, rest *unread) (Problem, *rowError) {
	c.locateParts(rec.Object)
	c.inLine++ // one more row of this line precedes this one, as where objects share a line
	if rec.Line != c.line {
		c.line, c.inLine = rec.Line, 0
	}
	var at [3]string // the columns of the parts
	var values [3]any
	for part := range at {
		at[part], values[part] = filled(rec.Object, c.found[part])
	}
	bad := func(reason string, part int) *rowError {
		err := c.wrong[part]
		if len(c.used[part]) > 0 { // else no row of the file had such a column yet, as wrong says
			column := func(part int) string { return cmp.Or(at[part], slices.Concat(c.used[part], []string{""})[0]) }
			both := fmt.Sprintf("columns %q and %q", column(promptPart), column(answerPart))
			err = fmt.Errorf("%s (%s)", reason, strings.TrimSuffix(both, ` and ""`)) // files may have no answers
		}
		return &rowError{File: rec.File, Unit: unit, Line: rec.Line, Reason: reason, Err: err}
	}
	p := Problem{Fields: rec.Object, File: rec.File, Line: rec.Line}
	var reason string
	row := reading{Object: rec.Object, shownByTemplate: c.opts.Keep, readColumns: at[:]} // the columns of the parts are read
	if p.Text, p.Chat, reason = row.prompt(values[promptPart], at[promptPart], c.opts.Prompt == ""); reason != "" {
		return Problem{}, bad(reason, promptPart)
	}
	if p.Answers, reason = c.answersOf(values[answerPart], at[answerPart]); reason != "" && !c.opts.NoAnswers {
		return Problem{}, bad(reason, answerPart)
	}
	if c.opts.Offers != nil {
		p.Choices = labeled(c.opts.Offers(rec.Object))
		row.readColumns = append(row.readColumns, rec.Object.ChoiceColumn())
	}
	rest.noteColumns(row)
	if p.ID, _ = scalar(values[idPart]); p.ID == "" {
		p.ID = name + ":" + strconv.Itoa(rec.Line)
		if c.inLine > 0 {
			p.ID += "." + strconv.Itoa(c.inLine+1)
		}
	}
	return p, nil
}

// The reasons for which rows are dropped.
const (
	oddHistory     = "the column history is not a list of pairs, each of what the user said and what the assistant answered"
	oddText        = "the prompt is a text that begins as messages do, and is not a list in JSON or Python"
	noPrompt       = "no prompt"
	noAnswer       = "no answer"
	oddPrompt      = "the prompt is neither text nor a list of messages, each with a role and a text as its content, or with ShareGPT's from and value"
	answered       = "the conversation ends with the assistant: a prompt ends with a message of the user or of a tool"
	oddAnswer      = "the answer is neither text, a number nor a list of them"
	noSolution     = "no answer found in the solution"
	unreadableLine = "not readable"
	noAfterHash    = "nothing behind the #### of the answer"
)

// promptOf returns the text of a prompt that messagesOf did not read: a string, the bytes of a
// column of Parquet without a type, or a conversation of one message from the user.
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
		if listOfObjects.MatchString(v) { // messagesOf reads it if it is one
			return "", oddText
		}
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

// answersOf returns the alternatives of an answer: a string, a number, a truth value, or a list of
// them, each without its working; or else the reason why the row is dropped.
func (c *columns) answersOf(value any, column string) ([]string, string) {
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	if text, ok := value.(string); ok {
		// A list of texts, as CSV files have them. A bare [1, 2] is an answer.
		if texts := textsOf(strings.TrimSpace(text)); texts != nil {
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
		text, reason := c.finalAnswer(text, column)
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

// textsOf reads a list of texts as JSON or Python writes it; nil if text is no such list.
func textsOf(text string) (list []string) {
	if !strings.HasPrefix(text, `["`) && !strings.HasPrefix(text, "['") {
		return nil
	}
	values, _ := fromText(text).([]any)
	for _, v := range values {
		text, ok := v.(string)
		if !ok {
			return nil
		}
		list = append(list, text)
	}
	return list
}

func isSolution(column string) bool { return strings.EqualFold(column, "solution") }

// finalAnswer returns the answer without the working that leads to it. The published GSM8K has
// both in one column, and the answer in a last line "#### 42"; a solution has the answer
// somewhere, or consists of it. A box or tags around the answer are taken off.
func (c *columns) finalAnswer(text, column string) (answer, reason string) {
	line := text[strings.LastIndexByte(text, '\n')+1:]
	if answer, ok := strings.CutPrefix(line, "####"); ok {
		if answer = strings.TrimSpace(answer); answer == "" {
			return "", noAfterHash
		}
		return answer, ""
	}
	namedProse := column == c.opts.Answer && !c.opts.AsWritten && isProse(text) // the user named the column
	if !isSolution(column) && !isWrapped(text) && !namedProse {
		return text, ""
	}
	if _, said, ok := strings.Cut(text, "</think>"); ok {
		text = strings.TrimSpace(said)
	}
	answer, marked := verifier.Verifier{}.Solution(text)
	switch {
	case answer != "" && (marked || !c.hasAnswerColumn): // beside a column of answers, no guess from a solution counts
		return answer, ""
	case !isSolution(column):
		return text, ""
	}
	return "", noSolution
}

// prose matches the end of a sentence inside a text, or a line break between words.
var prose = regexp.MustCompile(`\p{L}{2}\S*\s*[.:;!?]\s+\S.*\p{L}{2}|\p{L}{3}.*\n.*\p{L}{3}`)

// isProse says whether an answer is a text of several sentences or lines, such as the working
// that leads to it.
func isProse(text string) bool {
	words := 0
	for word := range strings.FieldsSeq(text) {
		if strings.ContainsFunc(word, unicode.IsLetter) {
			words++
		}
	}
	return words >= 8 && prose.MatchString(text)
}

// isWrapped says whether a text begins and ends as a box or a tag around an answer.
func isWrapped(text string) bool {
	inner := strings.Trim(text, "$ ")
	boxed := strings.HasPrefix(inner, `\boxed`) || strings.HasPrefix(inner, `\fbox`)
	return boxed && strings.HasSuffix(inner, "}") == strings.Contains(inner, "{") ||
		strings.HasPrefix(text, "<answer>") && strings.HasSuffix(text, "</answer>")
}

// scalar writes a value that is neither a list nor a structure as text; a missing
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
		if math.IsNaN(v) { // pandas writes a missing number so
			return "", true
		}
		if math.IsInf(v, 0) {
			return strings.Trim(string(appendFloat(nil, v)), `"`), true
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

// An unread notes columns that have a value in some row and that nothing reads.
type unread struct {
	names []string
	known map[string]bool // of the columns in names, and of those that need no word
}

// bookkeeping matches columns that are not part of a problem.
var bookkeeping = regexp.MustCompile(`(?i)^(?:.*_)?(?:id|idx|index|uuid|source|dataset|url|license|split|hash|version|date|timestamp|created_at|index_level_\d+__)$`)

// media matches columns with pictures, sounds and films.
var media = regexp.MustCompile(`(?i)image|picture|video|audio|multi_?modal`)

// noteColumns notes those columns of a row that have a value, and that are neither read nor shown.
func (u *unread) noteColumns(r reading) {
	for _, m := range r.Object {
		if u.known[m.Name] || !hasValue(m.Value) {
			continue
		}
		reads := func(column string) bool {
			return strings.EqualFold(column, m.Name) || strings.HasPrefix(column, m.Name+".")
		}
		if slices.ContainsFunc(r.readColumns, reads) || slices.ContainsFunc(r.shownByTemplate, reads) {
			continue
		}
		u.known[m.Name] = true
		if !bookkeeping.MatchString(m.Name) {
			u.names = append(u.names, m.Name)
		}
	}
}

// NotRead names the columns with values of which no prompt and no answer is made; "" if there
// are none.
func (r Report) NotRead() string {
	switch {
	case len(r.Unread) == 0:
		return ""
	case slices.ContainsFunc(r.Unread, media.MatchString):
		return fmt.Sprintf("columns that are not read: %s; the model sees texts alone", strings.Join(r.Unread, ", "))
	}
	return "columns that are not read: " + strings.Join(r.Unread, ", ")
}

// Log logs what is left out of the rows of a file.
func (r Report) Log(log *slog.Logger, path string) {
	for _, err := range r.bad {
		log.Warn("a row is left out", "why", err)
	}
	if len(r.Dropped) > 0 {
		log.Warn("rows are left out: "+r.String(), "path", path)
	}
	level, ofPrompts := slog.LevelInfo, slices.Concat(historyNames, systemNames)
	if slices.ContainsFunc(r.Unread, func(name string) bool { return media.MatchString(name) || slices.Contains(ofPrompts, name) }) {
		level = slog.LevelWarn
	}
	if text := r.NotRead(); text != "" {
		log.Log(context.Background(), level, text, "path", path)
	}
}
