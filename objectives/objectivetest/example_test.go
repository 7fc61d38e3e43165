package objectivetest_test

import (
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	"onering/objectives"
	_ "onering/objectives/all"
	"onering/objectives/objectivetest"
)

// A Capped is the objective "capped".
type Capped struct {
	objectives.Shared
	// Cap bounds the importance weight of a token. Default 2.
	Cap float64 `toml:"cap" range:"[0,)"`
}

func init() {
	objectives.Register("capped", func() objectives.Objective {
		return &Capped{Shared: objectives.Defaults("standardized"), Cap: 2}
	})
}

// importance returns min(r, cap) of token j.
func (o *Capped) importance(t objectives.Trajectory, j int) float64 {
	return min(math.Exp(t.LogProb[j]-t.OldLogProb[j]), o.Cap)
}

// Loss implements objectives.Objective. The importance weights are detached: they
// are those of at, whatever the log-probs of b.
func (o *Capped) Loss(b, at objectives.Batch) float64 {
	loss := 0.0
	for i, t := range b.Trajectories {
		each := 1 / float64(len(b.Trajectories)*len(t.LogProb))
		for j, logp := range t.LogProb {
			loss -= t.Advantage * each * o.importance(at.Trajectories[i], j) * logp
		}
		loss += o.Penalty(t, each)
	}
	return loss
}

// Weights implements objectives.Objective.
func (o *Capped) Weights(b objectives.Batch, w [][]float64) {
	for i, t := range b.Trajectories {
		each := 1 / float64(len(b.Trajectories)*len(t.LogProb))
		for j := range t.LogProb {
			w[i][j] = -t.Advantage * each * o.importance(t, j)
		}
		o.AddPenalty(t, each, w[i])
	}
}

func TestConformance(t *testing.T) { objectivetest.Run(t, "capped") }

// A Cautious is the page's objective with advantages of its own.
type Cautious struct{ Capped }

// Advantages implements objectives.Advantager: a response that was cut off teaches
// what to avoid, never what to do.
func (o *Cautious) Advantages(group []objectives.Trajectory) []float64 {
	a := objectives.Centered(objectives.Rewards(group))
	for i, t := range group {
		if t.Truncated {
			a[i] = min(a[i], 0)
		}
	}
	return a
}

func TestCautious(t *testing.T) {
	objectivetest.RunNew(t, func() objectives.Objective {
		return &Cautious{Capped{Shared: objectives.Defaults("standardized"), Cap: 2}}
	})
	group := []objectives.Trajectory{{Reward: 1, Truncated: true}, {Reward: 1}, {Reward: 0, Truncated: true}}
	objectives.SetAdvantages(&Cautious{}, group)
	if group[0].Advantage != 0 || group[1].Advantage <= 0 || group[2].Advantage >= 0 {
		t.Errorf("%+v", group)
	}
}

// The objective of docs/objectives.md at work on two responses to one prompt. The
// second token of the first was improbable and has become four times as probable;
// its importance weight is capped at 2.
func Example() {
	o, err := objectives.New("capped")
	if err != nil {
		fmt.Println(err)
		return
	}
	group := []objectives.Trajectory{
		{Reward: 1, LogProb: []float64{-1, -2}, OldLogProb: []float64{-1, -3.386}},
		{Reward: 0, LogProb: []float64{-1}, OldLogProb: []float64{-1}},
	}
	out, err := objectives.Evaluate(o, [][]objectives.Trajectory{group}, 0, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range out.Groups[0] {
		fmt.Printf("%.4f %.4f\n", t.Advantage, t.Weights)
	}
	// Output:
	// 0.7071 [-0.1768 -0.3536]
	// -0.7071 [0.3536]
}

// TestDocumentation: the code that docs/objectives.md shows is the code above, and
// its keys, objectives and rules are those there are.
func TestDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/objectives.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(page), "```go\n")
	if len(parts) < 3 {
		t.Fatalf("%d blocks of code, want two and more", len(parts)-1)
	}
	for _, part := range parts[1:] {
		code, _, closed := strings.Cut(part, "```")
		if !closed {
			t.Fatal("a block of code is not closed")
		}
		if _, body, ok := strings.Cut(code, "\n)\n"); ok && strings.HasPrefix(code, "// Package") {
			code = body // a test file has a separate package and imports
		}
		for paragraph := range strings.SplitSeq(strings.TrimSpace(code), "\n\n") {
			if !strings.Contains(string(source), paragraph) {
				t.Errorf("the page shows code that is not tested:\n%s", paragraph)
			}
		}
	}
	for _, name := range objectives.Names() {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("the page does not name the objective %q", name)
		}
		o, err := objectives.New(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range reflect.VisibleFields(reflect.TypeOf(o).Elem()) {
			if key := field.Tag.Get("toml"); key != "" && !strings.Contains(string(page), "`"+key+"`") {
				t.Errorf("the page does not name the key %q of %q", key, name)
			}
		}
	}
	for _, rule := range objectivetest.Rules() {
		if !strings.Contains(string(page), "`"+rule+"`") {
			t.Errorf("the page does not name the rule %q", rule)
		}
	}
	for d := 1; d <= 30; d++ {
		if !strings.Contains(string(page), fmt.Sprintf("\n| D%d |", d)) {
			t.Errorf("the page does not state decision D%d", d)
		}
	}
}
