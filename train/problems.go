package train

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"

	"onering/data"
	"onering/data/arithmetic"
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
const Arithmetic = arithmetic.Name

// OpenProblems reads problems as o says, or makes those of the embedded task:
// its held-out part where heldOut is set. The embedded task is endless, and o is
// not for it.
func OpenProblems(name string, o data.Options, heldOut bool) (Problems, data.Report, error) {
	if name == Arithmetic {
		return sums{heldOut}, data.Report{}, nil
	}
	if strings.HasPrefix(name, "builtin:") {
		return nil, data.Report{}, fmt.Errorf("train: unknown built-in task %q; there is %q", name, Arithmetic)
	}
	rows, report, err := data.Load(name, o)
	if err != nil {
		return nil, report, err
	}
	list := make(table, len(rows))
	for i, r := range rows {
		list[i] = Problem{ID: r.ID, Text: r.Prompt, Answers: r.Answers}
	}
	return list, report, nil
}

// openTraining opens the training problems. Rows that lack a problem or an answer
// are left out; the log names the first of them and says how many there were.
func openTraining(c DataConfig, log *slog.Logger) (Problems, error) {
	const named = 5
	o, bad := c.Options(), 0
	o.OnBad = func(err error) {
		if bad++; bad <= named {
			log.Warn("a row is left out", "why", err)
		}
	}
	problems, report, err := OpenProblems(c.Train, o, false)
	if err != nil {
		return nil, fmt.Errorf("train: data.train: %w", err)
	}
	if len(report.Files) > 0 {
		level := slog.LevelInfo
		if bad > 0 {
			level = slog.LevelWarn
		}
		log.Log(context.Background(), level, "training problems: "+report.String(),
			"files", len(report.Files), "problem", report.Prompt, "answer", report.Answer, "id", report.ID)
	}
	return problems, nil
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
