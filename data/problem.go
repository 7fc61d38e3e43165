package data

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// A Problem is a row of a dataset, or a task that a program makes up: a prompt is made of
// it, and responses are graded against it.
type Problem struct {
	// ID names the problem stably: the id column, else the file's name in the
	// dataset, a colon, and Line. It does not depend on filters and limits.
	ID string
	// Text is the problem as its author wrote it, before any template.
	Text string
	// Answers are the accepted answers; a right response has one of them. With
	// Options.NoAnswers the list may be empty. Numbers are written plainly: 142, not
	// 142.0.
	Answers []string
	// Chat is the prompt if that is a conversation. Text then has the messages in
	// sequence, or for a single message of the user its text alone.
	Chat *Chat
	// Choices are the options that prompts show behind the text, one on each line.
	Choices []string
	// Plain problems are prompts already: the template auto leaves them as they are.
	Plain bool
	// Fields are the columns of the row in the file's order, including prompt and answer,
	// with the types of the file; see Object. Load may leave columns out, see
	// Report.LeftOut. Fields are shared: do not change them.
	Fields Object
	// Source names the file or task of the problem where problems come from several.
	Source string
	File   string // path of the file; empty if the problem does not come from one
	Line   int    // line (JSON lines, CSV) or row in the file, from 1
}

// Object returns the problem as users' programs read it: its id, text and answers and
// then the columns of its row. A column with one of these three names, or "columns", is
// in an object "columns" instead, so that the three mean the same with every dataset.
func (p Problem) Object() Object {
	answers := make([]any, len(p.Answers))
	for i, answer := range p.Answers {
		answers[i] = answer
	}
	out := Object{{Name: "id", Value: p.ID}, {Name: "text", Value: p.Text}, {Name: "answers", Value: answers}}
	var taken Object
	for _, column := range p.Fields {
		switch column.Name {
		case "id", "text", "answers", "columns":
			taken = append(taken, column)
		default:
			out = append(out, column)
		}
	}
	if len(taken) > 0 {
		out = append(out, Member{Name: "columns", Value: taken})
	}
	return out
}

// Problems are the training or evaluation problems of a run.
type Problems interface {
	// Len is the number of problems; 0 for an endless stream.
	Len() int
	// Take returns the problems at places first to first+n-1 of the order that seed
	// decides; each pass over the problems has its own order. To resume, a place in the
	// order is enough.
	Take(seed int64, first, n int) []Problem
	// Digest identifies these problems by the parts that make a prompt and by the
	// answers.
	Digest() string
}

// OpenProblems reads the problems of a dataset as o says. The name builtin:arithmetic
// stands for the embedded task, which is endless and ignores o; heldOut selects its
// held-out part.
func OpenProblems(name string, o Options, heldOut bool) (Problems, Report, error) {
	if name == Arithmetic {
		return sums{heldOut}, Report{}, nil
	}
	if strings.HasPrefix(name, "builtin:") {
		return nil, Report{}, fmt.Errorf("data: unknown built-in task %q; there is %q", name, Arithmetic)
	}
	list, report, err := Load(name, o)
	if err != nil {
		return nil, report, err
	}
	return List(list), report, nil
}

// A List is problems held in memory.
type List []Problem

// Len is the number of problems.
func (l List) Len() int { return len(l) }

// Take implements Dataset; see the function Take.
func (l List) Take(seed int64, first, n int) []Problem { return Take(l, seed, first, n) }

// Take returns n elements of endless passes over a list that is not empty, from place first on.
// Each pass is shuffled with a random generator of its own.
func Take[T any](list []T, seed int64, first, n int) []T {
	out := make([]T, 0, n)
	var order []int
	for pass := -1; len(out) < n; first++ {
		if p := first / len(list); p != pass {
			pass = p
			order = rand.New(rand.NewPCG(uint64(seed), uint64(pass))).Perm(len(list))
		}
		out = append(out, list[order[first%len(list)]])
	}
	return out
}

// Digest is a hash over names, texts and answers in order. Files and other
// columns do not count: a run may resume with the same problems in another
// format.
func (l List) Digest() string {
	h := sha256.New()
	enc := json.NewEncoder(h)
	for _, p := range l {
		enc.Encode(struct { // writing to a hash does not fail
			ID, Text string
			Answers  []string
			Plain    bool
			Chat     *Chat    `json:",omitempty"`
			Choices  []string `json:",omitempty"`
		}{p.ID, p.Text, p.Answers, p.Plain, p.Chat, p.Choices})
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// sums is the endless stream of arithmetic problems.
type sums struct{ heldOut bool }

func (sums) Len() int { return 0 }

func (s sums) Take(seed int64, first, n int) []Problem {
	out := make([]Problem, n)
	for i := range out {
		p := DrawSum(rand.New(rand.NewPCG(uint64(seed), uint64(first+i))), 3, s.heldOut)
		text, answer := p.Prompt(), p.Answer()
		out[i] = Problem{
			ID: text, Text: text, Answers: []string{answer}, Plain: true,
			Fields: Object{{"problem", text}, {"answer", answer}},
		}
	}
	return out
}

// Digest is the constant that checkpoints of all versions store for this task.
func (sums) Digest() string { return "train.sums" }
