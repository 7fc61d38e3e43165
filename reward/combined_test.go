package reward_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"onering/internal/settings"
	"onering/reward"
	"onering/reward/rewardtest"
)

// A given is a reward whose scores are fixed by the text of the response.
type given map[string]reward.Score

func (g given) Score(_ context.Context, group []reward.Sample) ([]reward.Score, error) {
	out := make([]reward.Score, len(group))
	for i, s := range group {
		out[i] = g[s.Response]
	}
	return out, nil
}

// A figure is a value that keeps sums and products exact.
var figure = rapid.Map(rapid.IntRange(-8, 8), func(n int) float64 { return float64(n) / 4 })

// drawScore draws a score that a part may give a sample.
func drawScore(t *rapid.T, label string) reward.Score {
	switch rapid.IntRange(0, 5).Draw(t, label+" kind") {
	case 0:
		return reward.Score{Skip: true}
	case 1:
		return reward.Score{Status: reward.Limit}
	}
	return reward.Score{
		Value: figure.Draw(t, label), Answer: rapid.SampledFrom([]string{"", "a " + label}).Draw(t, label+" answer"),
		Components: map[string]float64{"x": 3}, Log: map[string]float64{"y": 4},
	}
}

// TestCombineRules: a combination follows its rules, which the test implements a second
// time.
func TestCombineRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &reward.Combined{Combine: rapid.SampledFrom([]string{"sum", "product", "gate"}).Draw(t, "combine")}
		of := make([]reward.Score, rapid.IntRange(1, 5).Draw(t, "parts"))
		for k := range of {
			label := fmt.Sprint("p", k)
			of[k] = drawScore(t, label)
			p := reward.Part{Name: rapid.SampledFrom([]string{"math", "length"}).Draw(t, label+" name"), As: label, Weight: 1, Threshold: 1, Reward: given{"": of[k]}}
			if c.Combine != "product" {
				p.Weight = figure.Draw(t, label+" weight")
			}
			if c.Combine == "gate" {
				p.Threshold = figure.Draw(t, label+" threshold")
			}
			c.Parts = append(c.Parts, p)
		}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		scores, err := c.Score(context.Background(), make([]reward.Sample, 1))
		if err != nil || len(scores) != 1 {
			t.Fatal(scores, err)
		}
		got := scores[0]
		check(t, c, of, got)
	})
}

func check(t *rapid.T, c *reward.Combined, of []reward.Score, got reward.Score) {
	// open says whether part k counts: no earlier part closed the gate.
	open := func(k int) bool {
		for j := range k {
			if c.Combine == "gate" && !of[j].Skip && (of[j].Status != reward.OK || of[j].Value < c.Parts[j].Threshold) {
				return false
			}
		}
		return true
	}
	var values, weighted []float64
	components, log := map[string]float64{}, map[string]float64{}
	var status reward.Status
	judge := -1
	for k, s := range of {
		p := c.Parts[k]
		if judge < 0 && p.Name == "math" {
			judge = k
		}
		if status == reward.OK {
			status = s.Status
		}
		if s.Components != nil {
			components[p.As+"/x"], log[p.As+"/y"] = 3, 4
		}
		if s.Skip {
			continue
		}
		components[p.As] = 0
		if open(k) {
			components[p.As] = s.Value
		}
		values, weighted = append(values, components[p.As]), append(weighted, p.Weight*components[p.As])
	}
	want := 0.0
	for _, x := range weighted {
		want += x
	}
	if c.Combine == "product" && len(values) > 0 {
		want = 1
		for _, x := range values {
			want *= x
		}
	}
	if got.Skip != (len(values) == 0) || got.Value != want || math.Signbit(got.Value) && want == 0 || got.Status != status {
		t.Errorf("got %+v, want %v %v %q", got, want, len(values) == 0, status)
	}
	if !reflect.DeepEqual(got.Components, components) || len(log)+len(got.Log) > 0 && !reflect.DeepEqual(got.Log, log) {
		t.Errorf("got %+v %+v, want %+v %+v", got.Components, got.Log, components, log)
	}
	answer, right, judged := "", want >= 1, len(values) > 0
	if judge >= 0 {
		answer, right, judged = of[judge].Answer, !of[judge].Skip && open(judge) && of[judge].Value >= 1, !of[judge].Skip || !open(judge)
	} else {
		for _, s := range of {
			if answer == "" {
				answer = s.Answer
			}
		}
	}
	if got.Answer != answer || got.Right() != right || got.Judged() != judged {
		t.Errorf("got %+v, want %q, right %v, judged %v", got, answer, right, judged)
	}
}

// TestCombinedExamples checks the examples of docs/rewards.md.
func TestCombinedExamples(t *testing.T) {
	format, answer := reward.Score{Reason: "no think tags"}, reward.Score{Value: 1, Answer: "7", Reason: "equal"}
	for _, tt := range []struct {
		combine, reason string
		value           float64
		right           bool
	}{
		{"sum", "equal", 2, true},
		{"product", "equal", 0, true},
		{"gate", "format is below its threshold: no think tags", 0, false},
	} {
		c := &reward.Combined{Combine: tt.combine, Parts: []reward.Part{
			{Name: "regex", As: "format", Weight: 1, Threshold: 1, Reward: given{"": format}},
			{Name: "math", As: "math", Weight: 2, Threshold: 1, Reward: given{"": answer}},
		}}
		got, err := c.Score(t.Context(), make([]reward.Sample, 1))
		if err != nil || got[0].Value != tt.value || got[0].Right() != tt.right || got[0].Reason != tt.reason || got[0].Answer != "7" {
			t.Errorf("%s: %+v, %v", tt.combine, got, err)
		}
		c.Right = "format"
		if got, _ := c.Score(t.Context(), make([]reward.Sample, 1)); got[0].Right() || got[0].Answer != "" {
			t.Errorf("%s by format: %+v", tt.combine, got)
		}
	}
}

// A meeting reward waits until all of some rewards are scoring.
type meeting struct{ all *sync.WaitGroup }

func (m meeting) Score(_ context.Context, group []reward.Sample) ([]reward.Score, error) {
	m.all.Done()
	m.all.Wait()
	return make([]reward.Score, len(group)), nil
}

// TestCombinedTogether: the parts score at the same time.
func TestCombinedTogether(t *testing.T) {
	var all sync.WaitGroup
	c := &reward.Combined{Combine: "sum"}
	for k := range 4 {
		all.Add(1)
		c.Parts = append(c.Parts, reward.Part{As: fmt.Sprint(k), Weight: 1, Reward: meeting{&all}})
	}
	if scores, err := c.Score(t.Context(), make([]reward.Sample, 2)); err != nil || len(scores) != 2 {
		t.Error(scores, err)
	}
}

// TestCombinedFails: a part that fails cancels the other parts, and the error names the part that
// failed.
func TestCombinedFails(t *testing.T) {
	boom := errors.New("boom")
	var ended atomic.Bool
	waits := rewardFunc(func(ctx context.Context, group []reward.Sample) ([]reward.Score, error) {
		<-ctx.Done()
		ended.Store(true)
		return nil, ctx.Err()
	})
	for _, tt := range []struct {
		fails rewardFunc
		want  string
	}{
		{func(context.Context, []reward.Sample) ([]reward.Score, error) { return nil, boom }, "judge: boom"},
		{func(context.Context, []reward.Sample) ([]reward.Score, error) { return nil, nil }, "judge: 0 scores for 1 responses"},
		{func(context.Context, []reward.Sample) ([]reward.Score, error) {
			return []reward.Score{{Value: math.NaN()}}, nil
		}, "judge: response 0: the reward would be NaN: it must be a number from -1e9 to 1e9"},
		{func(context.Context, []reward.Sample) ([]reward.Score, error) {
			return []reward.Score{{Value: 1, Status: reward.Error}}, nil
		}, "judge: response 0: the sample was not graded, but its value is 1 and not 0"},
	} {
		ended.Store(false)
		c := &reward.Combined{Combine: "sum", Parts: []reward.Part{{As: "slow", Reward: waits}, {As: "judge", Reward: tt.fails}}}
		if _, err := c.Score(t.Context(), make([]reward.Sample, 1)); err == nil || err.Error() != tt.want || !ended.Load() {
			t.Errorf("error %v, want %s", err, tt.want)
		}
	}
}

type rewardFunc func(ctx context.Context, group []reward.Sample) ([]reward.Score, error)

func (f rewardFunc) Score(ctx context.Context, group []reward.Sample) ([]reward.Score, error) {
	return f(ctx, group)
}

// TestGraderScore: the value of a reward by name is a component, unless the reward has
// one of that name; a Combined may have a value beside a status; a sample that all parts
// skip is skipped.
func TestGraderScore(t *testing.T) {
	own := map[string]float64{"own": 2}
	score := func(g reward.Grader) reward.Score {
		scores, err := g.Score(t.Context(), make([]reward.Sample, 1))
		if err != nil {
			t.Fatal(err)
		}
		return scores[0]
	}
	got := score(reward.Grader{Name: "it", Reward: given{"": {Value: 3, Components: own}}})
	if want := map[string]float64{"it": 3, "own": 2}; !reflect.DeepEqual(got.Components, want) || len(own) != 1 {
		t.Errorf("components %v of %v, want %v", got.Components, own, want)
	}
	if got := score(reward.Grader{Name: "own", Reward: given{"": {Value: 3, Components: own}}}); !reflect.DeepEqual(got.Components, own) {
		t.Errorf("components %v, want %v", got.Components, own)
	}
	parts := &reward.Combined{Combine: "sum", Parts: []reward.Part{
		{As: "a", Weight: 1, Reward: given{"": {Status: reward.Limit}}}, {As: "b", Weight: 1, Reward: given{"": {Value: 1}}},
	}}
	if got := score(reward.Grader{Reward: parts}); got.Value != 1 || got.Status != reward.Limit {
		t.Errorf("%+v", got)
	}
	if _, err := (reward.Grader{Reward: given{"": {Value: 1, Status: reward.Limit}}}).Score(t.Context(), make([]reward.Sample, 1)); err == nil {
		t.Error("a single reward has a value beside a status")
	}
	parts.Parts[0].Reward, parts.Parts[1].Reward = given{"": {Skip: true}}, given{"": {Skip: true}}
	if got := score(reward.Grader{Reward: parts}); !got.Skip {
		t.Errorf("%+v", got)
	}
}

// An able reward has all optional abilities.
type able struct {
	given
	template string
	rule     string
	groups   int
	closed   error
	Size     int `toml:"size" range:"[1,)"`
}

func (a *able) SetTemplate(name string) { a.template = name }
func (a *able) Extract() string         { return a.rule }
func (a *able) WithExtract(rule string) reward.Reward {
	b := *a
	b.rule = rule
	return &b
}
func (a *able) Groups() int  { return a.groups }
func (a *able) Close() error { return a.closed }
func (a *able) Validate() error {
	return &settings.Error{Key: "size", Value: a.Size, Remedy: "must be even"}
}
func (a *able) SameAnswer(x, y string) bool { return strings.EqualFold(x, y) }

// TestCombinedAbilities: a Combined has the optional abilities of its parts.
func TestCombinedAbilities(t *testing.T) {
	boom := errors.New("boom")
	a, b := &able{groups: 2000, closed: boom}, &able{groups: 1000, Size: 1}
	c := &reward.Combined{Combine: "sum", Parts: []reward.Part{
		{Name: "x", As: "x", Weight: 1, Threshold: 1, Reward: given{}}, {Name: "y", As: "a", Weight: 1, Threshold: 1, Reward: a}, {Name: "y", As: "b", Weight: 1, Threshold: 1, Reward: b},
	}}
	c.SetTemplate("r1")
	if a.template != "r1" || b.template != "r1" || c.Groups() != 1000 {
		t.Errorf("%+v %+v %d", a, b, c.Groups())
	}
	if reward.Extract(c) != "" || !reward.FindsAnswers(c) {
		t.Error("a rule of extraction that no part has")
	}
	if _, err := reward.WithExtract(c, "auto"); err == nil {
		t.Error("a rule of extraction for parts that have none")
	}
	b.rule = "boxed"
	if other, err := reward.WithExtract(c, "auto"); err != nil || reward.Extract(other) != "auto" || reward.Extract(c) != "boxed" || b.rule != "boxed" {
		t.Errorf("%v, %v", other, err)
	}
	b.rule = ""
	if err := c.Close(); !errors.Is(err, boom) || err.Error() != "a: boom" {
		t.Errorf("error %v", err)
	}
	if !c.SameAnswer("X", "x") {
		t.Error("answers are not compared by the first part that compares")
	}
	c.Right = "x"
	if c.SameAnswer("X", "x") || !c.SameAnswer("x", "x") {
		t.Error("answers are not compared by the part that says what is right")
	}
	want := "use.a.size = 0: must be at least 1\nuse.a.size = 0: must be even\nuse.b.size = 1: must be even"
	if err := c.Validate(); err == nil || err.Error() != want {
		t.Errorf("error %v", err)
	}
	c.Parts = append(c.Parts[:1], c.Parts[0])
	if err := c.Validate(); err == nil || err.Error() != `use.x.as = "x": is the name of two parts: give one another name` {
		t.Errorf("error %v", err)
	}
}

// TestCombinedConformance: a combination keeps the rules of a reward, and its keys are
// unique to it.
func TestCombinedConformance(t *testing.T) {
	for _, combine := range []string{"sum", "product", "gate"} {
		err := rewardtest.Check(func() reward.Reward {
			return &reward.Combined{Combine: combine, Parts: []reward.Part{
				{Name: "short", As: "short", Weight: 1, Threshold: 0.5, Reward: rewardFunc(short)},
				{Name: "math", As: "answer", Weight: 1, Threshold: 1, Reward: rewardFunc(states)},
			}}
		})
		for _, err := range settings.Flatten(err) {
			var failure *rewardtest.Failure
			if !errors.As(err, &failure) || failure.Rule != "defaults" {
				t.Errorf("%s: %v", combine, err)
			}
		}
	}
}

func short(_ context.Context, group []reward.Sample) ([]reward.Score, error) {
	scores := make([]reward.Score, len(group))
	for i, s := range group {
		scores[i] = reward.Score{Value: 1 / float64(1+len(s.IDs)), Log: map[string]float64{"tokens": float64(len(s.IDs))}}
	}
	return scores, nil
}

func states(_ context.Context, group []reward.Sample) ([]reward.Score, error) {
	scores := make([]reward.Score, len(group))
	for i, s := range group {
		p := s.Problem
		if len(p.Answers) > 0 && strings.Contains(s.Response, p.Answers[0]) {
			scores[i] = reward.Score{Value: 1, Answer: p.Answers[0]}
		}
	}
	return scores, nil
}
