package data

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	path := write(t, "x.jsonl", `{"id": "a", "problem": "one  two", "answer": "1"}
{"id": "b", "problem": "one two ", "answer": "1"}
{"id": "c", "problem": "one two", "answer": "2"}
{"id": "a", "problem": "three", "answer": ["??", "3"]}
{"id": "d", "problem": "four", "answer": "??"}
{"id": "e", "problem": "five", "answer": ""}
{"id": "f", "problem": "refused", "answer": "1"}
`)
	opts := CheckOptions{
		Examples: 1,
		Tokens: func(p Problem) (int, error) {
			if p.Text == "refused" {
				return 0, errors.New("no such character")
			}
			return len(strings.Fields(p.Text)), nil
		},
		Parse: func(s string) error {
			if s == "??" {
				return errors.New("not an answer")
			}
			return nil
		},
	}
	got, err := Check(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		finding finding
		rows    int
		example string
	}{
		{"duplicate ids", got.DuplicateIDs, 1, path + `:4 has the id "a" of ` + path + `:1`},
		{"duplicate prompts", got.DuplicatePrompts, 2, path + ":2 has the prompt of " + path + ":1"},
		{"conflicts", got.Conflicts, 1, path + ":3 has the prompt of " + path + `:1, and the answer ["2"]`},
		{"bad", got.Bad, 1, "data: " + path + `: line 6: no answer (columns "problem" and "answer")`},
		{"unparsed", got.Unparsed, 1, path + `:5: ["??"]: not an answer`},
		{"untokenized", got.Untokenized, 1, path + ":7: no such character"},
	} {
		if want := (finding{c.rows, []string{c.example}}); !reflect.DeepEqual(c.finding, want) {
			t.Errorf("%s: got %+v, want %+v", c.name, c.finding, want)
		}
	}
	if want := (&tokenLengths{Mean: 1.6, Median: 2, P95: 2, P99: 2, Max: 2, Counts: []int{0, 2, 3}}); !reflect.DeepEqual(got.Lengths, want) {
		t.Errorf("lengths %+v, want %+v", got.Lengths, want)
	}
	if got.OK() || got.Rows != 6 || got.Dropped[noAnswer] != 1 {
		t.Errorf("report %+v", got)
	}
	text := got.String()
	for _, part := range []string{"6 of 7 rows, 1 dropped (no answer)", "2 rows with the prompt of an earlier row", "and 1 more", "median 2", "2-3"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
	if b, err := json.Marshal(got); err != nil || !strings.Contains(string(b), `"duplicate_prompts":{"rows":2,`) {
		t.Errorf("%s, %v", b, err)
	}
	clean, err := Check(write(t, "x.jsonl", `{"problem": "p", "answer": "a"}`), CheckOptions{})
	if err != nil || !clean.OK() || clean.Lengths != nil {
		t.Errorf("%+v, %v", clean, err)
	}
}
