package external

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"onering/data"
	"onering/internal/process"
	"onering/internal/strict"
	"onering/reward"
)

// Encode returns the JSON object for a group, on one line:
//
//	{"id": 7, "problem": {"id": ..., "text": ..., "answers": [...], ...},
//	 "prompt": ..., "responses": [{"text": ..., "ids": [...], "truncated": false}, ...]}
//
// The problem has all columns of its row; see data.Problem.Object. A response of an episode
// is its last turn, and "earlier" has the texts of those before it.
func Encode(id int, group []reward.Sample) []byte {
	responses := make([]any, len(group))
	for i, s := range group {
		o := data.Object{{Name: "text", Value: s.Response}, {Name: "ids", Value: IDs(s.IDs)}, {Name: "truncated", Value: s.Truncated}}
		if len(s.Earlier) > 0 {
			var earlier []string
			for _, turn := range s.Earlier {
				earlier = append(earlier, turn.Text)
			}
			o = append(o, data.Member{Name: "earlier", Value: Texts(earlier)})
		}
		responses[i] = o
	}
	return Marshal(data.Object{
		{Name: "id", Value: int64(id)}, {Name: "problem", Value: group[0].Problem.Object()},
		{Name: "prompt", Value: group[0].Prompt}, {Name: "responses", Value: responses},
	})
}

// Marshal returns an object as JSON without a line break.
func Marshal(o data.Object) []byte {
	text, err := o.MarshalJSON()
	if err != nil {
		panic(err) // these values can always be encoded
	}
	return text
}

// IDs returns token ids as a value of a data.Object.
func IDs(ids []int32) []any {
	out := make([]any, len(ids))
	for i, id := range ids {
		out[i] = int64(id)
	}
	return out
}

// Texts returns texts as a value of a data.Object.
func Texts(texts []string) []any {
	out := make([]any, len(texts))
	for i, text := range texts {
		out[i] = text
	}
	return out
}

// An Answer is a program's answer about a group. Keys with other names are ignored.
type Answer struct {
	ID         json.RawMessage       `json:"id"`      // id of the group, if the program states it
	Rewards    []*float64            `json:"rewards"` // a nil reward skips the response
	Components map[string][]*float64 `json:"components"`
	// Log has a list, or a number for all responses, under each name.
	Log     map[string]json.RawMessage `json:"log"`
	Answers []string                   `json:"answers"`
	Reasons []string                   `json:"reasons"`
	Error   *string                    `json:"error"`
}

// Decode reads the answer to group id, of n responses:
//
//	{"rewards": [1, 0, null, ...], "components": {"name": [...]}, "log": {"name": [...] or a number}}
//
// A reward that is null skips its response; in the other lists null stands for no
// figure. "answers" and "reasons" may have a text for each response. {"error": "..."}
// says that the group could not be graded. An "id" has to be that of the group.
func Decode(text []byte, id, n int) ([]reward.Score, error) {
	var a Answer
	if err := Read(text, &a); err != nil {
		return nil, err
	}
	if said := strings.Trim(string(a.ID), `"`); said != "" && said != "null" && said != strconv.Itoa(id) {
		return nil, fmt.Errorf("the answer %s is to group %s, and group %d was asked about", process.Excerpt(text), process.Printable(said), id)
	}
	if a.Error != nil {
		return nil, fmt.Errorf("the grader reports: %s", process.Printable(*a.Error))
	}
	return a.Scores(text, n)
}

// Read reads JSON into a value. What cannot be read is a Permanent error that quotes it.
func Read(text []byte, into any) error {
	if err := strict.JSON(text, into); err != nil {
		return Permanent(fmt.Errorf("the answer %s cannot be read: %w", process.Excerpt(text), err))
	}
	return nil
}

// Scores returns the scores that the answer text gives to n responses.
func (a *Answer) Scores(text []byte, n int) ([]reward.Score, error) {
	scores, err := a.scores(n)
	if err != nil {
		return nil, Permanent(fmt.Errorf("the answer %s: %w", process.Excerpt(text), err))
	}
	return scores, nil
}

// scores makes n scores of the lists of an answer. Each list that is there must have a value for each response.
func (a *Answer) scores(n int) ([]reward.Score, error) {
	scores := make([]reward.Score, n)
	for _, list := range []struct {
		name     string
		length   int
		required bool
	}{{"rewards", len(a.Rewards), true}, {"answers", len(a.Answers), false}, {"reasons", len(a.Reasons), false}} {
		if list.length != n && (list.required || list.length > 0) {
			return nil, fmt.Errorf("%q has %d values for %d responses, and each needs one (null where there is none)", list.name, list.length, n)
		}
	}
	for i, value := range a.Rewards {
		if value == nil {
			scores[i].Skip = true
		} else {
			scores[i].Value = *value
		}
		if a.Answers != nil {
			scores[i].Answer = a.Answers[i]
		}
		if a.Reasons != nil {
			scores[i].Reason = a.Reasons[i]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.Components)) {
		if err := setFigures(scores, "components", name, a.Components[name], func(s *reward.Score) *map[string]float64 { return &s.Components }); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.Log)) {
		values, err := readFigures(a.Log[name], n)
		if err == nil {
			err = setFigures(scores, "log", name, values, func(s *reward.Score) *map[string]float64 { return &s.Log })
		}
		if err != nil {
			return nil, err
		}
	}
	return scores, nil
}

// readFigures returns the values of a figure that is a list, or a number for all responses.
func readFigures(text json.RawMessage, n int) ([]*float64, error) {
	var values []*float64
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		return values, strict.JSON(text, &values)
	}
	var one *float64
	if err := strict.JSON(text, &one); err != nil {
		return nil, err
	}
	for range n {
		values = append(values, one)
	}
	return values, nil
}

// mostFigures bounds the names of one answer: each becomes a metric.
const mostFigures = 100

// setFigures adds the values of a figure to the scores, one to each but nil, in the map that of returns.
// kind is the key of the answer that has the figure.
func setFigures(scores []reward.Score, kind, name string, values []*float64, of func(*reward.Score) *map[string]float64) error {
	if err := CheckName(name); err != nil {
		return fmt.Errorf("%q: %w", kind, err)
	}
	if len(values) != len(scores) {
		return fmt.Errorf("%q: %q has %d values for %d responses, and each needs one (null where there is none)", kind, name, len(values), len(scores))
	}
	for i, value := range values {
		if value == nil {
			continue
		}
		figures := of(&scores[i])
		if *figures == nil {
			*figures = map[string]float64{}
		}
		(*figures)[name] = *value
		if len(*figures) > mostFigures {
			return fmt.Errorf("%q has more than %d names", kind, mostFigures)
		}
	}
	return nil
}

// CheckName refuses names that cannot be part of a metric's name.
func CheckName(name string) error {
	if name == "" || len(name) > 100 || !utf8.ValidString(name) {
		return fmt.Errorf("a name needs 1 to 100 bytes of UTF-8, and %s is none", process.Excerpt([]byte(name)))
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("the name %s has a character that cannot be printed", process.Excerpt([]byte(name)))
		}
	}
	return nil
}
