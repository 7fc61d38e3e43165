package rewardtest_test

import (
	"context"
	"errors"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"onering/reward"
	"onering/reward/rewardtest"
)

// plain is a correct reward: 1 where the response holds an answer. Each broken reward
// below differs from it in one thing.
type plain struct {
	Bonus float64 `toml:"bonus"`
}

func (r *plain) Score(_ context.Context, group []reward.Sample) ([]reward.Score, error) {
	scores := make([]reward.Score, len(group))
	for i, s := range group {
		for _, a := range s.Problem.Answers {
			if a != "" && strings.Contains(s.Response, a) && !s.Truncated {
				scores[i] = reward.Score{Value: 1 + r.Bonus, Answer: a, Components: map[string]float64{"right": 1}, Log: map[string]float64{"length": float64(len(s.IDs))}}
			}
		}
	}
	return scores, nil
}

// broken is plain with its scores changed by a function.
type broken struct {
	plain
	mu    sync.Mutex
	calls int
	kept  []reward.Sample
	spoil func(r *broken, group []reward.Sample, scores []reward.Score) ([]reward.Score, error)
}

func (r *broken) Score(ctx context.Context, group []reward.Sample) ([]reward.Score, error) {
	scores, _ := r.plain.Score(ctx, group)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	return r.spoil(r, group, scores)
}

func TestPlain(t *testing.T) {
	rewardtest.RunNew(t, func() reward.Reward { return new(plain) })
}

// A moody reward gives a response another value each time, and may declare that its scores vary.
type moody struct {
	plain
	calls  atomic.Int32
	honest bool
}

func (r *moody) Score(ctx context.Context, group []reward.Sample) ([]reward.Score, error) {
	scores, err := r.plain.Score(ctx, group)
	for i := range scores {
		scores[i].Value += float64(r.calls.Add(1))
	}
	return scores, err
}

func (r *moody) Varies() bool { return r.honest }

// TestVarying: a reward whose scores vary keeps the rules only if it declares it.
func TestVarying(t *testing.T) {
	rewardtest.RunNew(t, func() reward.Reward { return &moody{honest: true} })
	var failed []string
	for _, err := range joined(rewardtest.Check(func() reward.Reward { return new(moody) })) {
		var f *rewardtest.Failure
		if errors.As(err, &f) {
			failed = append(failed, f.Rule)
		}
	}
	if want := []string{"retention", "determinism", "order", "concurrency"}; !slices.Equal(failed, want) {
		t.Errorf("broken rules %q, want %q", failed, want)
	}
}

func TestUnknown(t *testing.T) {
	if _, err := reward.New("none"); err == nil || !strings.Contains(err.Error(), `unknown reward "none"`) {
		t.Errorf("error %v", err)
	}
}

type (
	untagged struct {
		plain
		Malus float64
	}
	taken struct {
		plain
		Name string `toml:"name"`
	}
	outside struct {
		plain
		Share float64 `toml:"share" range:"(0,1]"`
	}
	byValue   struct{}
	rejecting struct{ plain }
	lopsided  struct{ plain }
)

func (byValue) Score(ctx context.Context, g []reward.Sample) ([]reward.Score, error) {
	return new(plain).Score(ctx, g)
}
func (*rejecting) Validate() error            { return errors.New("bonus = 0: must be positive") }
func (*lopsided) SameAnswer(a, b string) bool { return a < b }

// TestBrokenRewards: each broken reward fails the rule that it breaks.
func TestBrokenRewards(t *testing.T) {
	shared := new(plain)
	spoil := func(f func(r *broken, group []reward.Sample, scores []reward.Score) ([]reward.Score, error)) func() reward.Reward {
		return func() reward.Reward { return &broken{spoil: f} }
	}
	set := func(change func(*reward.Score)) func() reward.Reward {
		return spoil(func(_ *broken, _ []reward.Sample, scores []reward.Score) ([]reward.Score, error) {
			for i := range scores {
				change(&scores[i])
			}
			return scores, nil
		})
	}
	for _, tt := range []struct {
		name, rule string
		new        func() reward.Reward
	}{
		{"no pointer", "defaults", func() reward.Reward { return byValue{} }},
		{"one value for all", "defaults", func() reward.Reward { return shared }},
		{"no tag", "defaults", func() reward.Reward { return new(untagged) }},
		{"a tag that is taken", "defaults", func() reward.Reward { return new(taken) }},
		{"a default outside its range", "defaults", func() reward.Reward { return new(outside) }},
		{"refused defaults", "defaults", func() reward.Reward { return new(rejecting) }},
		{"a score too few", "count", spoil(func(_ *broken, _ []reward.Sample, scores []reward.Score) ([]reward.Score, error) {
			return scores[:max(0, len(scores)-1)], nil
		})},
		{"no empty group", "count", spoil(func(_ *broken, group []reward.Sample, scores []reward.Score) ([]reward.Score, error) {
			_ = group[0]
			return scores, nil
		})},
		{"no large group", "count", spoil(func(_ *broken, group []reward.Sample, scores []reward.Score) ([]reward.Score, error) {
			if len(group) > 100 {
				return nil, errors.New("too many")
			}
			return scores, nil
		})},
		{"NaN", "values", set(func(s *reward.Score) { s.Value = math.NaN() })},
		{"infinite figure", "values", set(func(s *reward.Score) { s.Log = map[string]float64{"x": math.Inf(1)} })},
		{"infinite component", "values", set(func(s *reward.Score) { s.Components = map[string]float64{"x": math.Inf(-1)} })},
		{"own status", "values", set(func(s *reward.Score) { s.Status = "fine" })},
		{"value of a skipped sample", "values", set(func(s *reward.Score) { s.Skip, s.Value = true, 1 })},
		{"value of a limit", "values", set(func(s *reward.Score) { s.Status, s.Value = reward.Limit, -1 })},
		{"error at an empty response", "any-text", spoil(func(_ *broken, group []reward.Sample, scores []reward.Score) ([]reward.Score, error) {
			if len(group) == 1 && group[0].Response == "" {
				return nil, errors.New("empty")
			}
			return scores, nil
		})},
		{"panic without fields", "any-text", spoil(func(_ *broken, group []reward.Sample, scores []reward.Score) ([]reward.Score, error) {
			for _, s := range group {
				_ = s.Problem.Fields[0]
			}
			return scores, nil
		})},
		{"changes an answer", "arguments", spoil(func(_ *broken, group []reward.Sample, scores []reward.Score) ([]reward.Score, error) {
			for _, s := range group {
				if len(s.Problem.Answers) > 1 {
					s.Problem.Answers[1] = "x"
				}
			}
			return scores, nil
		})},
		{"keeps samples", "retention", spoil(func(r *broken, group []reward.Sample, scores []reward.Score) ([]reward.Score, error) {
			if r.kept == nil {
				r.kept = group
			}
			for i := range scores {
				scores[i].Reason = r.kept[0].Response
			}
			return scores, nil
		})},
		{"writes to what it returned", "retention", spoil(func(r *broken, group []reward.Sample, scores []reward.Score) ([]reward.Score, error) {
			keep := lastScores[r]
			for i := range keep {
				keep[i].Value = 0.5
			}
			lastScores[r] = scores
			return scores, nil
		})},
		{"counts its calls", "determinism", spoil(func(r *broken, _ []reward.Sample, scores []reward.Score) ([]reward.Score, error) {
			for i := range scores {
				scores[i].Value += float64(r.calls)
			}
			return scores, nil
		})},
		{"first come", "order", spoil(func(_ *broken, _ []reward.Sample, scores []reward.Score) ([]reward.Score, error) {
			if i := slices.IndexFunc(scores, func(s reward.Score) bool { return s.Value > 0 }); i >= 0 {
				scores[i].Value = 2
			}
			return scores, nil
		})},
		{"one at a time", "concurrency", func() reward.Reward { return new(lone) }},
		{"an error of its own at the end", "context", func() reward.Reward { return new(deaf) }},
		{"half an answer at the end", "context", func() reward.Reward { return &deaf{half: true} }},
		{"an order of answers", "same-answer", func() reward.Reward { return new(lopsided) }},
	} {
		err := rewardtest.Check(tt.new)
		var found bool
		for _, e := range joined(err) {
			var f *rewardtest.Failure
			if !errors.As(e, &f) {
				t.Errorf("%s: %v is not a Failure", tt.name, e)
			} else if f.Rule == tt.rule {
				found = true
			}
		}
		if !found {
			t.Errorf("%s: the rule %q is not seen to be broken: %v", tt.name, tt.rule, err)
		}
	}
}

// A lastScores keeps the scores that a reward returned last.
var lastScores = map[*broken][]reward.Score{}

// A lone reward is wrong while another call is in progress.
type lone struct {
	plain
	calls atomic.Int32
}

func (r *lone) Score(ctx context.Context, group []reward.Sample) ([]reward.Score, error) {
	scores, err := r.plain.Score(ctx, group)
	r.calls.Add(1)
	defer r.calls.Add(-1)
	for range 100 {
		runtime.Gosched() // Another call that waits begins here.
		if r.calls.Load() > 1 {
			return nil, errors.New("one at a time, please")
		}
	}
	return scores, err
}

// A deaf reward does not report that the context ended.
type deaf struct {
	plain
	half bool
}

func (r *deaf) Score(ctx context.Context, group []reward.Sample) ([]reward.Score, error) {
	scores, err := r.plain.Score(ctx, group)
	if ctx.Err() == nil {
		return scores, err
	}
	if r.half {
		return scores[:len(scores)/2], nil
	}
	return nil, errors.New("closed")
}

func joined(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return j.Unwrap()
	}
	return nil
}

// The rules equal those of the interface's comment, in number and order.
func TestRules(t *testing.T) {
	source, err := os.ReadFile("../reward.go")
	if err != nil {
		t.Fatal(err)
	}
	comment, _, _ := strings.Cut(string(source), "type Reward interface")
	var stated []string
	for _, rule := range strings.Split(comment, "//   - ")[1:] {
		text := strings.Join(strings.Fields(strings.ReplaceAll(rule, "//", "")), " ")
		stated = append(stated, strings.ToLower(strings.TrimSuffix(text, ".")))
	}
	var checked []string
	for _, e := range joined(rewardtest.Check(func() reward.Reward { panic("no reward") })) {
		var f *rewardtest.Failure
		if errors.As(e, &f) {
			checked = append(checked, strings.ToLower(f.Explanation))
		}
	}
	if !slices.Equal(checked, stated) {
		t.Errorf("checked are %d rules\n%s\nstated are %d\n%s", len(checked), strings.Join(checked, "\n"), len(stated), strings.Join(stated, "\n"))
	}
}
