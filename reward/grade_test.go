package reward_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"onering/data"
	"onering/environment"
	"onering/reward"
	"onering/sampler"
)

// coins is a Decoder whose tokens are the tenths of the uniforms: 0 ends a response, and
// the other tenths are letters.
type coins struct{ slots int }

func (d coins) Slots() int                             { return d.slots }
func (coins) MaxTokens() int                           { return 100 }
func (coins) Prefill(prompts [][]int32) ([]int, error) { return make([]int, len(prompts)), nil }
func (coins) Free(int)                                 {}
func (coins) Drop(int)                                 {}
func (d coins) Begin(rows []sampler.Row) error         { return d.Step(rows) }
func (coins) Step(rows []sampler.Row) error {
	for i := range rows {
		rows[i].Out.ID = int32(10 * rows[i].Uniform)
	}
	return nil
}

func letters(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		if id > 0 {
			b.WriteByte('a' + byte(id) - 1)
		}
	}
	return b.String()
}

// A rule grades by a function, and records its samples.
type rule struct {
	mu     sync.Mutex
	groups [][]reward.Sample
	score  func(group []reward.Sample) ([]reward.Score, error)
}

func (r *rule) Score(_ context.Context, group []reward.Sample) ([]reward.Score, error) {
	r.mu.Lock()
	r.groups = append(r.groups, group)
	r.mu.Unlock()
	return r.score(group)
}

// byLength gives each sample its length minus the shortest length of the group.
func byLength(group []reward.Sample) ([]reward.Score, error) {
	shortest := slices.MinFunc(group, func(a, b reward.Sample) int { return len(a.IDs) - len(b.IDs) })
	scores := make([]reward.Score, len(group))
	for i, s := range group {
		scores[i] = reward.Score{Value: float64(len(s.IDs) - len(shortest.IDs)), Answer: s.Response}
	}
	return scores, nil
}

var options = sampler.Options{Sampling: sampler.Plain(6), EOS: []int32{0}, Seed: 3}

func tasks(problems, samples int) []reward.Task {
	out := make([]reward.Task, problems)
	for i := range out {
		id := fmt.Sprint("p", i)
		out[i] = reward.Task{
			Group: environment.Group{Problem: data.Problem{ID: id, Answers: []string{"7"}}}, Prompt: "prompt of " + id,
			Request: sampler.Request{Prompt: []int32{int32(i)}, ID: uint64(i), Samples: samples},
		}
	}
	return out
}

// TestSample: every response is graded once, with its group and its problem, however many
// are sampled at once.
func TestSample(t *testing.T) {
	const problems, samples = 20, 5
	var want [problems][samples]reward.Graded
	for _, slots := range []int{1, 7, 100} {
		for _, together := range []bool{true, false} {
			r := &rule{score: byLength}
			var got [problems][samples]reward.Graded
			count := 0
			stats, err := reward.Grader{Reward: r, Decode: letters, Together: together}.Sample(t.Context(), sampler.Lane(coins{slots}), options, tasks(problems, samples), func(g reward.Graded) error {
				got[g.Request][g.Sample] = g
				count++ // Calls never overlap: the race detector would report it.
				return nil
			})
			if err != nil || count != problems*samples || stats.Responses != count {
				t.Fatalf("%d responses graded, %d sampled: %v", count, stats.Responses, err)
			}
			size := 1
			if together {
				size = samples
			}
			truncated := 0
			for _, group := range r.groups {
				if len(group) != size {
					t.Errorf("a group of %d, want %d", len(group), size)
				}
				for k, s := range group {
					g := got[s.PromptIDs[0]][k]
					if !together {
						g = got[s.PromptIDs[0]][slices.IndexFunc(got[s.PromptIDs[0]][:], func(g reward.Graded) bool { return &g.IDs[0] == &s.IDs[0] })]
					}
					if id := fmt.Sprint("p", s.PromptIDs[0]); s.Problem.ID != id || s.Prompt != "prompt of "+id || s.Response != letters(s.IDs) || !slices.Equal(s.IDs, g.IDs) || s.Response != g.Text {
						t.Errorf("graded %+v as %+v", g, s)
					}
					if s.Truncated != (s.IDs[len(s.IDs)-1] != 0) || s.Truncated != g.Truncated() {
						t.Errorf("response %v: truncated %v", s.IDs, s.Truncated)
					}
					if s.Truncated {
						truncated++
					}
				}
			}
			if truncated == 0 || truncated == problems*samples {
				t.Errorf("%d responses are truncated", truncated)
			}
			if together && slots == 1 {
				want = got
			}
			for i := range got {
				for k, g := range got[i] {
					w := want[i][k]
					if !slices.Equal(g.IDs, w.IDs) || g.Score.Answer != g.Text || together && g.Score.Value != w.Score.Value || !together && g.Score.Value != 0 {
						t.Errorf("%d slots, together %v: problem %d, sample %d: %v %+v, want %v %+v", slots, together, i, k, g.IDs, g.Score, w.IDs, w.Score)
					}
				}
			}
		}
	}
}

// TestSampleFails: a reward that fails, or breaks a rule, ends the sampling with an error
// that names the problem.
func TestSampleFails(t *testing.T) {
	boom := errors.New("boom")
	for _, tt := range []struct {
		name  string
		score func(group []reward.Sample) ([]reward.Score, error)
		want  string
	}{
		{"error", func([]reward.Sample) ([]reward.Score, error) { return nil, boom }, "boom"},
		{"too few", func([]reward.Sample) ([]reward.Score, error) { return nil, nil }, "0 scores for 2 responses"},
		{"value of a skipped one", func(g []reward.Sample) ([]reward.Score, error) {
			return []reward.Score{{}, {Skip: true, Value: 1}}, nil
		}, "not graded, but its value is 1"},
		{"status", func(g []reward.Sample) ([]reward.Score, error) { return []reward.Score{{Status: "odd"}, {}}, nil }, `status "odd" is unknown`},
		{"value", func(g []reward.Sample) ([]reward.Score, error) {
			return []reward.Score{{Status: reward.Limit, Value: 1}, {}}, nil
		}, "not graded, but its value is 1"},
	} {
		done := 0
		_, err := reward.Grader{Reward: &rule{score: tt.score}, Decode: letters, Together: true}.Sample(t.Context(), sampler.Lane(coins{2}), options, tasks(1, 2), func(reward.Graded) error { done++; return nil })
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), `reward: problem "p0": `) || done > 0 {
			t.Errorf("%s: %v after %d responses, want %q", tt.name, err, done, tt.want)
		}
		if tt.name == "error" && !errors.Is(err, boom) {
			t.Errorf("%v does not wrap the reward's error", err)
		}
	}
	_, err := reward.Grader{Reward: &rule{score: byLength}, Decode: letters}.Sample(t.Context(), sampler.Lane(coins{2}), options, tasks(9, 2), func(reward.Graded) error { return boom })
	if !errors.Is(err, boom) {
		t.Errorf("an error of done: %v", err)
	}
}

// TestSampleStops: when the context ends, Sample returns its error, and responses that
// had ended before are still graded.
func TestSampleStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := 0
	_, err := reward.Grader{Reward: &rule{score: byLength}, Decode: letters}.Sample(ctx, sampler.Lane(stopping{coins{4}, 5, new(int), cancel}), options, tasks(50, 4), func(reward.Graded) error { done++; return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if done == 0 || done == 200 {
		t.Errorf("%d responses graded of 200", done)
	}
}

// A stopping is a Decoder that cancels a context after some steps.
type stopping struct {
	coins
	after  int
	steps  *int
	cancel func()
}

func (d stopping) Step(rows []sampler.Row) error {
	if *d.steps++; *d.steps == d.after {
		d.cancel()
	}
	return d.coins.Step(rows)
}

func TestRegister(t *testing.T) {
	reward.Register("graded by length", func() reward.Reward { return &rule{score: byLength} })
	if r, err := reward.New("graded by length"); err != nil || r == nil {
		t.Errorf("%v, %v", r, err)
	}
	if !slices.Contains(reward.Names(), "graded by length") {
		t.Errorf("names %q", reward.Names())
	}
	if _, err := reward.New("graded by weight"); err == nil || !strings.Contains(err.Error(), `unknown reward "graded by weight" (have graded by length; forgotten import?)`) {
		t.Errorf("error %v", err)
	}
	for range 2 {
		reward.Register("called as another", func() reward.Reward { return &rule{score: byLength} })
	}
	if _, err := reward.New("called as another"); err == nil || !strings.Contains(err.Error(), `reward "called as another" is registered twice`) {
		t.Errorf("error %v", err)
	}
	if reward.SameAnswer(&rule{}) != nil {
		t.Error("a rule without SameAnswer compares answers")
	}
	for name, register := range map[string]func(){
		"without a name": func() { reward.Register("", func() reward.Reward { return nil }) },
		"without a rule": func() { reward.Register("x", nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("registered %s", name)
				}
			}()
			register()
		}()
	}
}

// A ledger is a journal that notes the numbers of the tasks whose scores it keeps.
type ledger struct {
	environment.Journal
	mu   sync.Mutex
	kept map[int]int // how many scores, by task
}

func (l *ledger) Find(int, int, []reward.Sample) []reward.Score { return nil }

func (l *ledger) Keep(task, _ int, group []reward.Sample, _ []reward.Score) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept[task] += len(group)
	return nil
}

// TestJournalNumbers: a journal knows a task by its number, wherever it stands among the tasks.
func TestJournalNumbers(t *testing.T) {
	journal, some := &ledger{kept: map[int]int{}}, tasks(3, 2)
	for i := range some {
		some[i].Number = 10 - i
	}
	g := reward.Grader{Reward: &rule{score: byLength}, Decode: letters, Together: true, Journal: journal}
	if _, err := g.Sample(t.Context(), sampler.Lane(coins{4}), options, some, func(reward.Graded) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if want := (map[int]int{10: 2, 9: 2, 8: 2}); !maps.Equal(journal.kept, want) {
		t.Errorf("kept %v, want %v", journal.kept, want)
	}
}
