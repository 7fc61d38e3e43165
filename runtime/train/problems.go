package train

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"onering/runtime/train/arithmetic"
	"onering/runtime/train/dataset"
)

// A Problem is what a prompt is made of and what a response is held against.
type Problem struct {
	ID      string
	Text    string
	Answers []string // any of them is right
	// Plain problems are prompts as they stand, whatever the template.
	Plain bool
}

// Problems are the training or evaluation problems of a run.
type Problems interface {
	// Len is the number of problems; 0 for an endless stream.
	Len() int
	// Take returns the problems at places first to first+n-1 of the order that
	// seed decides; each pass over them has its own order. So a place in the
	// order is all that resuming needs.
	Take(seed int64, first, n int) []Problem
}

// Arithmetic is the name of the embedded task in data.train and eval.suites.
const Arithmetic = "builtin:arithmetic"

// OpenProblems reads a file of problems, or makes those of the embedded task:
// its held-out part where heldOut is set.
func OpenProblems(name, filter string, limit int, heldOut bool) (Problems, dataset.Report, error) {
	if name == Arithmetic {
		return sums{heldOut}, dataset.Report{}, nil
	}
	if strings.HasPrefix(name, "builtin:") {
		return nil, dataset.Report{}, fmt.Errorf("train: unknown built-in task %q; there is %q", name, Arithmetic)
	}
	rows, report, err := dataset.Load(name, dataset.Options{Filter: filter, Limit: limit})
	if err != nil {
		return nil, report, err
	}
	if len(rows) == 0 {
		return nil, report, fmt.Errorf("train: %s has no problems to train on (filter %q)", name, filter)
	}
	list := make(table, len(rows))
	for i, r := range rows {
		list[i] = Problem{ID: r.ID, Text: r.Prompt, Answers: r.Answers}
	}
	return list, report, nil
}

// A table is problems held in memory.
type table []Problem

func (t table) Len() int { return len(t) }

func (t table) Take(seed int64, first, n int) []Problem {
	out := make([]Problem, 0, n)
	var order []int
	for pass := -1; len(out) < n; first++ {
		if p := first / len(t); p != pass {
			pass = p
			order = rand.New(rand.NewPCG(uint64(seed), uint64(pass))).Perm(len(t))
		}
		out = append(out, t[order[first%len(t)]])
	}
	return out
}

// sums is the endless stream of arithmetic problems.
type sums struct{ heldOut bool }

func (sums) Len() int { return 0 }

func (s sums) Take(seed int64, first, n int) []Problem {
	out := make([]Problem, n)
	for i := range out {
		p := arithmetic.Draw(rand.New(rand.NewPCG(uint64(seed), uint64(first+i))), s.heldOut)
		out[i] = Problem{ID: p.Prompt(), Text: p.Prompt(), Answers: []string{p.Answer()}, Plain: true}
	}
	return out
}
