//go:build !windows

package rl_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"onering/environment"
	"onering/policy"
	"onering/runtime/runtimetest"
	"onering/tokenize"
	"onering/train/metrics"
	"onering/train/rl"
	"onering/train/rundir"
)

// An adder answers a turn that ends with = with the sum before it. The time that it takes
// varies, and so do the answers of a Moody one.
type adder struct {
	Moody bool `toml:"moody" help:"answer as it likes"`

	asked atomic.Int64
	open  atomic.Int64
	fail  func(turn environment.Turn, sample int) error
	pays  bool // a quarter for each turn; every second answer is empty
}

type adding struct {
	*adder
	sample int
}

func (a *adder) Begin(_ context.Context, s environment.Start) (environment.Episode, error) {
	a.open.Add(1)
	return adding{a, s.Sample}, nil
}

func (a *adder) Stops() []string { return []string{"="} }
func (a *adder) Repeats() bool   { return !a.Moody }

var working = regexp.MustCompile(`(\d)([+-])(\d)([+-])(\d)=$`)

func (a adding) Step(ctx context.Context, t environment.Turn) (o environment.Observation, err error) {
	n := a.asked.Add(1)
	if a.fail != nil {
		if err := a.fail(t, a.sample); err != nil {
			return o, err
		}
	}
	if a.pays {
		earned := 0.25
		content := []string{"", "7"}[t.Number%2]
		return environment.Observation{Reward: &earned, Done: !strings.HasSuffix(t.Text, "="), Messages: []tokenize.Message{{Role: "user", Content: content}}}, nil
	}
	time.Sleep(time.Duration(n%5) * 100 * time.Microsecond)
	parts := working.FindStringSubmatch(t.Text)
	if parts == nil {
		return environment.Observation{Done: !strings.HasSuffix(t.Text, "="), Messages: []tokenize.Message{{Role: "tool", Content: "?"}}}, nil
	}
	number := func(i int) int { x, _ := strconv.Atoi(parts[i]); return x }
	text := ""
	if sum := number(1) + number(3) + number(5); parts[2] == "+" {
		text = fmt.Sprint(sum)
	} else if text = fmt.Sprint(number(1) - number(3) - number(5)); text[0] == '-' {
		text = fmt.Sprint(number(1)-number(3)-number(5)+10) + "c"
	}
	if a.Moody {
		text = fmt.Sprint(n % 10)
	}
	return environment.Observation{Messages: []tokenize.Message{{Role: "tool", Content: text}}}, nil
}

func (a adding) Close() error { a.open.Add(-1); return nil }

func episodes(t *testing.T, a *adder, rounds int) rl.Config {
	c := embedded(t, "pmpo", 1, rounds)
	c.Rollout.PromptsPerRound, c.Train.BatchSize = 8, 32
	c.Environment.Name, c.Environment.Settings = "adder", a
	return c
}

// turnsOf returns the lines of a file of rollouts.
func turnsOf(t *testing.T, dir string, round int) (lines []rundir.RolloutLine) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "rollouts", fmt.Sprintf("round-%05d.jsonl", round)))
	if err != nil {
		t.Fatal(err)
	}
	for one := range strings.Lines(string(text)) {
		var x rundir.RolloutLine
		if err := json.Unmarshal([]byte(one), &x); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, x)
	}
	return lines
}

// TestEpisodes: an environment's answers stand between the policy's turns and count in no
// loss, and the learner's log-probs equal the sampler's for any duration of the answers.
func TestEpisodes(t *testing.T) {
	env := runtimetest.Test(t)
	a := &adder{}
	c := episodes(t, a, 2)
	s, rounds := learn(t, env, c)
	if s.LogPGap > 1e-4 {
		t.Errorf("logp_gap_max is %g", s.LogPGap)
	}
	if n := a.open.Load(); n != 0 {
		t.Errorf("%d episodes were not closed", n)
	}
	if got := rounds[0].Float("turns/mean"); !(got > 1) || rounds[0].Float("environment/failed") != 0 {
		t.Errorf("%v turns, %v failed", got, rounds[0].Float("environment/failed"))
	}
	several := 0
	for _, x := range turnsOf(t, c.Output.Dir, 1) {
		if len(x.Turns) == 0 {
			continue
		}
		several++
		text, at := "", 0
		for i, turn := range x.Turns {
			if turn.From != at || turn.To <= at || turn.Author != []string{rundir.Policy, rundir.Environment}[i%2] {
				t.Fatalf("turn %d: %+v", i, turn)
			}
			if at = turn.To; turn.Author == rundir.Environment {
				for k := turn.From; k < turn.To; k++ {
					if x.LogP[k] != 0 || len(x.W) > 0 && (x.W[k] != 0 || x.Delta[k] != 0) {
						t.Fatalf("token %d of the environment has %v, %v", k, x.LogP[k], x.W[k])
					}
				}
				if parts := working.FindStringSubmatch(x.Turns[i-1].Text); parts == nil {
					t.Errorf("after %q it answers %q", x.Turns[i-1].Text, turn.Text)
				}
			}
			text += turn.Text
		}
		if at != len(x.IDs) || text != x.Response {
			t.Errorf("turns are %q with %d tokens, the response is %q with %d", text, at, x.Response, len(x.IDs))
		}
	}
	if several == 0 {
		t.Fatal("no response has several turns")
	}
	again := c
	again.Output.Dir = filepath.Join(t.TempDir(), "again")
	again.Rollout.Slots = 5
	again.Environment.Settings = &adder{}
	learn(t, env, again)
	if !reflect.DeepEqual(turnsOf(t, c.Output.Dir, 2), turnsOf(t, again.Output.Dir, 2)) {
		t.Error("another run with other slots and times has other episodes")
	}
}

// TestEpisodesFail: an episode whose environment fails, hangs or panics has no gradeand
// is counted apart, and the run does not wait for it.
func TestEpisodesFail(t *testing.T) {
	env := runtimetest.Test(t)
	a := &adder{}
	a.fail = func(turn environment.Turn, sample int) error {
		switch {
		case turn.Number == 1 && sample == 0:
			return errors.New("the tool died")
		case turn.Number == 0 && sample == 1:
			time.Sleep(time.Minute)
		case sample == 2:
			panic("a bug of the tool's")
		}
		return nil
	}
	c := episodes(t, a, 1)
	c.Rollout.PromptsPerRound, c.Train.BatchSize, c.Eval.Suites, c.Train.EvalEvery = 2, 16, nil, 0
	c.Environment.StepSeconds = 0.05
	_, rounds := learn(t, env, c)
	failed := map[string]int{}
	for _, x := range turnsOf(t, c.Output.Dir, 1) {
		if x.Failed != x.Skipped {
			t.Errorf("failed is %v and skipped %v: %s", x.Failed, x.Skipped, x.Reason)
		}
		if x.Failed {
			failed[x.Reason]++
		}
	}
	for _, want := range []string{"environment: turn 1: it has not answered within 0.05 s (environment.step_seconds)", "environment: turn 1: the environment panics: a bug of the tool's"} {
		if failed[want] == 0 {
			t.Errorf("no episode ends by %q: %v", want, failed)
		}
	}
	sum := 0
	for _, n := range failed {
		sum += n
	}
	most := rounds[0].Get("environment/reason").(string)
	for reason, n := range failed {
		if n > failed[most] {
			t.Errorf("the commonest reason is %q with %d and not %q with %d", reason, n, most, failed[most])
		}
	}
	if got := rounds[0].Float("environment/failed_share"); got != float64(sum)/16 {
		t.Errorf("%v of the 16 episodes failed, want %d", got, sum)
	}
	if got := rounds[0].Float("environment/failed"); int(got) != sum || rounds[0].Float("reward/skipped") != got {
		t.Errorf("%v failed and %v were skipped, want %d", got, rounds[0].Float("reward/skipped"), sum)
	}
}

// TestEpisodesEarn: rewards of the environment stand with the turns that earned them, also in an
// episode of one turn and where it answers nothing, and add up to that of the line.
func TestEpisodesEarn(t *testing.T) {
	c := episodes(t, &adder{pays: true}, 1)
	c.Rollout.PromptsPerRound, c.Train.BatchSize, c.Eval.Suites, c.Train.EvalEvery = 2, 16, nil, 0
	learn(t, runtimetest.Test(t), c)
	lengths := map[int]int{}
	for _, x := range turnsOf(t, c.Output.Dir, 1) {
		if err := x.Turns.Check(len(x.IDs)); err != nil {
			t.Error(err)
		}
		text, own := "", 0
		for _, turn := range x.Turns {
			if text += turn.Text; turn.Author == rundir.Policy {
				own++
			}
		}
		sum, rewarded := x.Turns.Earned()
		if earned := 0.25 * float64(own); !rewarded || sum != *x.Reward || sum != earned && !(x.Truncated && sum == earned-0.25) || text != x.Response {
			t.Errorf("%+v %d turns of the policy earn %v, the line says %v; %q and %q", x.Turns, own, sum, *x.Reward, text, x.Response)
		}
		lengths[len(x.Turns)]++
	}
	if lengths[1] == 0 || lengths[1] == 16 {
		t.Errorf("the numbers of turns are %v: want one, and more", lengths)
	}
}

// TestEpisodesResume: a run stores an environment's answers. If it is killed inside an
// episode it continues with them, though the environment would now answer otherwise.
func TestEpisodesResume(t *testing.T) {
	env := runtimetest.Test(t)
	run := func(grades string) (a *adder, dir string) {
		a = &adder{Moody: true}
		c := episodes(t, a, 1)
		c.Rollout.PromptsPerRound, c.Train.BatchSize, c.Eval.Suites, c.Train.EvalEvery = 2, 16, nil, 0
		if grades != "" {
			path := filepath.Join(c.Output.Dir, "grades.jsonl")
			if err := errors.Join(os.MkdirAll(c.Output.Dir, 0o755), os.WriteFile(path, []byte(grades), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		p, err := policy.Open(env, policy.Options{Path: c.Model.Path, DType: c.Model.DType})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		trainer, err := rl.New(context.Background(), c, env, p, slog.New(slog.DiscardHandler), metrics.Unobserved{})
		if err != nil {
			t.Fatal(err)
		}
		defer trainer.Close()
		if _, err := trainer.Run(context.Background(), grades != ""); err != nil {
			t.Fatal(err)
		}
		return a, c.Output.Dir
	}
	noted := func(dir string) string {
		text, err := os.ReadFile(filepath.Join(dir, "grades.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first, whole := run("")
	all := noted(whole)
	if n := strings.Count(all, `"answer":{`); int64(n) != first.asked.Load() || n < 8 {
		t.Fatalf("%d answers are noted of %d", n, first.asked.Load())
	}
	again, dir := run(all)
	if n := again.asked.Load(); n != 0 || noted(dir) != all || !reflect.DeepEqual(turnsOf(t, dir, 1), turnsOf(t, whole, 1)) {
		t.Errorf("a run that knows all answers asks %d times, and has other episodes or notes", n)
	}
	lines := strings.SplitAfter(all, "\n")
	for _, n := range []int{1, 3, len(lines) / 2} {
		known := strings.Join(lines[:n], "")
		part, dir := run(known)
		got := noted(dir)
		if part.asked.Load() == 0 || !strings.HasPrefix(got, known) {
			t.Errorf("with %d answers known it asks %d times and keeps %v", n, part.asked.Load(), strings.HasPrefix(got, known))
		}
		// Each stored answer is in its old place.
		final, last := run(got)
		if final.asked.Load() != 0 || !reflect.DeepEqual(turnsOf(t, last, 1), turnsOf(t, dir, 1)) {
			t.Errorf("with %d answers known the run has noted what it did not do", n)
		}
	}
}

// TestEpisodesTogether: the episodes of two ranks equal those of one, with the same
// log-probs, and an adapter's episodes have its learner's log-probs.
func TestEpisodesTogether(t *testing.T) {
	env := runtimetest.Test(t)
	config := func(dir string) rl.Config {
		c := episodes(t, &adder{}, 2)
		c.Rollout.PromptsPerRound, c.Train.BatchSize, c.Eval.Suites, c.Train.EvalEvery = 4, 16, nil, 0
		c.Output.Dir = dir
		return c
	}
	gap := func(dir string) (largest float64) {
		text, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var x struct {
				Gap float64 `json:"logp_gap_max"`
			}
			if err := json.Unmarshal([]byte(line), &x); err != nil {
				t.Fatal(err)
			}
			largest = max(largest, x.Gap)
		}
		return largest
	}
	one, two := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two")
	for n, dir := range map[int]string{1: one, 2: two} {
		wellTogether(t, env, n, false, func(int) rl.Config { return config(dir) })
		if got := gap(dir); !(got > 0 && got <= 1e-4) {
			t.Errorf("%d ranks: the gap is %g", n, got)
		}
	}
	if !reflect.DeepEqual(responses(t, one), responses(t, two)) {
		t.Error("two ranks have other episodes than one")
	}
	adapter := config(filepath.Join(t.TempDir(), "adapter"))
	adapter.LoRA.On, adapter.Optimizer.LearningRate = true, 1e-3
	wellTogether(t, env, 1, false, func(int) rl.Config { return adapter })
	if got := gap(adapter.Output.Dir); !(got > 0 && got <= 1e-4) {
		t.Errorf("with an adapter the gap is %g", got)
	}
}
