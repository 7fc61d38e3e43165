package data

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"onering/tokenize"
)

// PreferenceColumns say where the parts of a preference are in a file: two responses to a
// prompt, of which one is preferred. A response is a text or a list of messages. Without a
// column of prompts both begin with the prompt: it is what they have in common. Rows without
// them may have one response, found by its name, and a column label.
type PreferenceColumns struct {
	Prompt   string `toml:"prompt" help:"column of the prompt, a text or a list of messages; found by name, and if there is none, what chosen and rejected begin with alike"`
	Chosen   string `toml:"chosen" help:"column of the better response, a text or a list of messages"`
	Rejected string `toml:"rejected" help:"column of the worse response"`
	storage
}

// LoadPreferences reads preferences as LoadDemonstrations reads demonstrations. It returns the
// chosen and then the rejected demonstration of each row, or if rows have one response, and a
// label that says whether it is good, that one. A row whose responses are equal is dropped.
func LoadPreferences(path string, c PreferenceColumns, o Options) (list []Demonstration, report Report, err error) {
	side := func(column string) DemonstrationColumns {
		return DemonstrationColumns{Prompt: c.Prompt, storage: c.storage, side: column}
	}
	report, err = loadRows(path, []DemonstrationColumns{side(c.Chosen), side(c.Rejected)}, o, func(row []Demonstration) error {
		if len(list) > 0 && (list[0].Good == nil) != (row[1].Good == nil) {
			return errors.New("some rows have two responses and others one with a label: take them from two files")
		}
		if row[1].Good != nil { // one response with a label, which both sides read where their columns are missing
			list = append(list, row[1])
			return nil
		}
		if err := splitOffPrompt(&row[0], &row[1]); err != nil {
			return err
		}
		list = append(list, row...)
		return nil
	})
	return list, report, err
}

// splitOffPrompt makes the common beginning of both demonstrations of a row their prompt: messages, or words if they
// are texts and no column has the prompt. The error says what is wrong with the pair.
func splitOffPrompt(a, b *Demonstration) error {
	switch {
	case a.Chat != nil && b.Chat != nil:
		same := 0
		for same < min(len(a.Chat.Messages), len(b.Chat.Messages)) && reflect.DeepEqual(a.Chat.Messages[same], b.Chat.Messages[same]) {
			same++
		}
		if same == len(a.Chat.Messages) && same == len(b.Chat.Messages) {
			return dropsRow("the chosen and the rejected response are equal")
		}
		for _, d := range []*Demonstration{a, b} {
			if same < min(len(a.Chat.Messages), len(b.Chat.Messages)) && d.Chat.Messages[same].Role != "assistant" {
				return dropsRow(fmt.Sprintf("the conversations differ in message %d, which is not a response: both have to answer one prompt", same+1))
			}
		}
		answers := func(d *Demonstration) bool {
			return slices.ContainsFunc(d.Chat.Messages[same:], func(m tokenize.Message) bool { return m.Role == "assistant" })
		}
		for same > 0 && !(answers(a) && answers(b)) {
			same-- // where one response ends inside the other, their last common turn is compared, too
		}
		a.From, b.From = max(a.From, same), max(b.From, same) // the responses begin there, or after the prompt's column
	case a.Response == b.Response:
		return dropsRow("the chosen and the rejected response are equal")
	case a.Whole && b.Whole: // no column has the prompt, so each text begins with it; otherwise Prompt is already set
		n := 0
		for n < min(len(a.Response), len(b.Response)) && a.Response[n] == b.Response[n] {
			n++
		}
		n = strings.LastIndexAny(a.Response[:n], " \n") + 1 // a word is not cut
		if n == 0 {
			return dropsRow("the chosen and the rejected text do not begin alike: name the column of the prompt")
		}
		for _, d := range []*Demonstration{a, b} {
			d.Prompt, d.Response, d.Whole = d.Response[:n], d.Response[n:], false
		}
	}
	return nil
}
