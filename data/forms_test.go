package data

import (
	"fmt"
	"strings"
	"testing"
)

// TestForms: files and rows as people have them, and the problems that they give.
func TestForms(t *testing.T) {
	solution := func(text string) string {
		return fmt.Sprintf(`{"problem": "p", "solution": %q}`, text)
	}
	for _, c := range []struct{ name, file, text, want string }{
		{"a bare solution", "x.jsonl", solution("4"), "p: 4"},
		{"a solution in dollars", "x.jsonl", solution("$\\frac{3}{4}$"), "p: \\frac{3}{4}"},
		{"a solution that is a list in a text", "x.jsonl", solution(`["7", "seven"]`), "p: 7|seven"},
		{"a solution in a tag", "x.jsonl", solution("<answer>12</answer>"), "p: 12"},
		{"a solution in a sentence", "x.jsonl", solution("The answer is 15."), "p: 15"},
		{"a box behind a blank", "x.jsonl", solution("so \\boxed {5}"), "p: 5"},
		{"a box without braces", "x.jsonl", solution("so $\\boxed 8$"), "p: 8"},
		{"answer before Answer", "x.jsonl", `{"question": "q", "Answer": "wrong", "answer": "2"}`, "q: 2"},
		{"columns that a later row has", "x.jsonl", "{\"problem\": \"a\", \"answer\": 1}\n{\"question\": \"b\", \"answer\": 2}", "a: 1; b: 2"},
		{"alpaca", "x.jsonl", `{"instruction": "Add.", "input": "1+1", "answer": "2"}`, "Add.\n\n1+1: 2"},
		{"alpaca without input", "x.jsonl", `{"instruction": "Add 1 and 1.", "input": "", "answer": "2"}`, "Add 1 and 1.: 2"},
		{"numbers of Python", "x.jsonl", `{"problem": "p", "answer": "1", "score": NaN, "low": -Infinity}`, "p: 1"},
		{"pretty-printed objects", "x.json", "{\n  \"problem\": \"a\",\n  \"answer\": 1\n}\n{\n  \"problem\": \"b\",\n  \"answer\": 2\n}\n", "a: 1; b: 2"},
		{"objects on one line", "x.json", `{"problem": "a", "answer": 1}{"problem": "b", "answer": 2}`, "a: 1; b: 2"},
		{"rows in an object", "x.json", `{"version": 1, "data": [{"problem": "a", "answer": 1}, {"problem": "b", "answer": 2}]}`, "a: 1; b: 2"},
		{"inches in CSV", "x.csv", "problem,answer\na 5\" board,3\n", "a 5\" board: 3"},
	} {
		rows, _, err := Load(write(t, c.file, c.text), Options{})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got []string
		for _, p := range rows {
			got = append(got, p.Text+": "+strings.Join(p.Answers, "|"))
		}
		if all := strings.Join(got, "; "); all != c.want {
			t.Errorf("%s: %q, want %q", c.name, all, c.want)
		}
	}
}

// TestRowsWithoutAnswers: training that needs no answers reads rows without them; other
// training leaves such rows out and continues.
func TestRowsWithoutAnswers(t *testing.T) {
	path := write(t, "x.jsonl", "{\"problem\": \"a\"}\n{\"problem\": \"b\", \"answer\": 2}\n{\"problem\": \"c\", \"answer\": null}\n{\"problem\": \"d\", \"answer\": 2}")
	if rows, _, err := Load(path, Options{NoAnswers: true}); err != nil || len(rows) != 4 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	bad := 0
	rows, report, err := Load(path, Options{OnBad: func(error) { bad++ }})
	if err != nil || len(rows) != 2 || rows[0].Text != "b" || bad != 2 {
		t.Errorf("rows %v, %d bad ones, report %v, error %v", rows, bad, report, err)
	}
}
