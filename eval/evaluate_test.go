package eval_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onering/data"
	"onering/eval"
	"onering/policy"
	"onering/reward"
	_ "onering/reward/all"
	"onering/runtime/runtimetest"
	"onering/sampler"
	"onering/tokenize"
)

// heldOut is n held-out problems of the embedded task.
func heldOut(t *testing.T, n int) eval.Suite {
	t.Helper()
	problems, _, err := data.OpenProblems(data.Arithmetic, data.Options{}, true)
	if err != nil {
		t.Fatal(err)
	}
	return eval.Suite{Name: "arithmetic", Problems: problems.Take(eval.TrainingSeed, 0, n)}
}

// evaluator evaluates with the embedded policy.
type evaluator struct {
	t        *testing.T
	policy   *policy.Policy
	prompter *data.Prompter
	reward   reward.Reward
	suites   []eval.Suite
	settings eval.Settings
}

func newEvaluator(t *testing.T, settings eval.Settings, suites ...eval.Suite) *evaluator {
	t.Helper()
	p, err := policy.Open(runtimetest.Test(t), policy.Options{Path: data.Arithmetic, DType: "float32"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	prompter, err := p.Prompter(tokenize.Template{Name: "no"})
	if err != nil {
		t.Fatal(err)
	}
	rule, err := reward.New("math")
	if err != nil {
		t.Fatal(err)
	}
	settings.Weights = p.Fingerprint()
	return &evaluator{t, p, prompter, rule, suites, settings}
}

// evaluate samples and grades the responses that r lacks.
func (e *evaluator) evaluate(ctx context.Context, d sampler.Decoder, r *eval.Responses, progress func(int)) error {
	x := eval.Evaluator{Decoders: sampler.Lane(d), Prompter: e.prompter, EOS: e.policy.Model.EOS, Reward: e.reward, Progress: progress}
	return x.Evaluate(ctx, e.suites, r)
}

// run samples into a file with so many slots; if stop is not 0, it is interrupted after
// stop responses.
func (e *evaluator) run(path string, slots, stop int) eval.Report {
	e.t.Helper()
	r, err := e.settings.Plan(e.suites).Open(path, true)
	if err != nil {
		e.t.Fatal(err)
	}
	longest, err := eval.Longest(e.prompter, e.suites)
	if err != nil {
		e.t.Fatal(err)
	}
	decoder, err := runtimetest.Test(e.t).NewDecoder(e.policy.Ring, slots+1, e.policy.MaxTokens(longest+e.settings.MaxNewTokens))
	if err != nil {
		e.t.Fatal(err)
	}
	defer decoder.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n := 0
	err = e.evaluate(ctx, decoder, r, func(int) {
		if n++; n == stop {
			cancel()
		}
	})
	if err := r.Close(); err != nil {
		e.t.Fatal(err)
	}
	if stop > 0 {
		// On a busy machine the sampler can finish before that many responses are graded.
		if have, want := r.Count(); !errors.Is(err, context.Canceled) && (err != nil || have < want) {
			e.t.Fatalf("interrupted after %d responses: %v", stop, err)
		}
		return eval.Report{}
	}
	if err != nil {
		e.t.Fatal(err)
	}
	report, err := r.Report(reward.SameAnswer(e.reward))
	if err != nil {
		e.t.Fatal(err)
	}
	return report
}

// lines reads a file of responses.
func (e *evaluator) lines(path string) []eval.Response {
	e.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		e.t.Fatal(err)
	}
	var out []eval.Response
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		var x eval.Response
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			e.t.Fatal(err)
		}
		if i > 0 { // the first is the plan
			out = append(out, x)
		}
	}
	return out
}

// same wants two files to hold the same responses.
func (e *evaluator) same(what, got, want string) {
	e.t.Helper()
	a, b := e.lines(got), e.lines(want)
	if len(a) != len(b) {
		e.t.Fatalf("%s: %d responses, want %d", what, len(a), len(b))
	}
	for i := range a {
		x, y := a[i], b[i]
		gap := 0.0
		for t := range min(len(x.LogProb), len(y.LogProb)) {
			gap = max(gap, math.Abs(float64(x.LogProb[t]-y.LogProb[t])))
		}
		x.LogProb, y.LogProb = nil, nil
		if fmt.Sprint(x) != fmt.Sprint(y) || gap != 0 {
			e.t.Fatalf("%s: response %d differs, its log-probs by %.1e\n%+v\nwant\n%+v", what, i, gap, a[i], b[i])
		}
	}
}

// TestEvaluationIsDeterministic: slots and interruptions change nothing.
func TestEvaluationIsDeterministic(t *testing.T) {
	problems, samples := 80, 4
	if os.Getenv("ONERING_LONG") != "" {
		problems = 500
	}
	for _, s := range []eval.Settings{
		{Template: "no", Samples: 1, Sampling: sampler.Greedy(40)},
		{Template: "no", Samples: samples, Sampling: sampler.Sampling{Temperature: 0.6, TopP: 0.95, MaxNewTokens: 40}, Seed: 11},
	} {
		e := newEvaluator(t, s, heldOut(t, problems))
		dir := t.TempDir()
		whole := filepath.Join(dir, "64.jsonl")
		want, _ := json.Marshal(e.run(whole, 64, 0))
		for _, slots := range []int{1, 7} {
			path := filepath.Join(dir, fmt.Sprint(slots, ".jsonl"))
			if got, _ := json.Marshal(e.run(path, slots, 0)); string(got) != string(want) {
				t.Errorf("%d slots: report\n%s\nwant\n%s", slots, got, want)
			}
			e.same(fmt.Sprint(slots, " slots"), path, whole)
		}
		path := filepath.Join(dir, "interrupted.jsonl")
		e.run(path, 7, problems/3)
		e.run(path, 3, problems/4)
		if got, _ := json.Marshal(e.run(path, 64, 0)); string(got) != string(want) {
			t.Errorf("interrupted: report\n%s\nwant\n%s", got, want)
		}
		e.same("interrupted", path, whole)
	}
}

// TestGradeTruncated: the model ends with a box and the end of the sequence. If the limit
// cuts between these two, the response is right only if truncated ones are graded.
func TestGradeTruncated(t *testing.T) {
	var right [2]float64
	for i, grade := range []bool{false, true} {
		e := newEvaluator(t, eval.Settings{Template: "no", Samples: 1, Sampling: sampler.Greedy(11), GradeTruncated: grade}, heldOut(t, 60))
		path := filepath.Join(t.TempDir(), "r.jsonl")
		report := e.run(path, 16, 0)
		right[i] = report.Suites[0].Pass1.Value
		for _, x := range e.lines(path) {
			if x.Right && x.Truncated() && !grade {
				t.Errorf("a truncated response is right: %+v", x)
			}
		}
	}
	if right[1] <= right[0] {
		t.Errorf("right %v, with truncated responses graded %v", right[0], right[1])
	}
}

// TestEvaluateLongPrompt: a prompt that does not fit counts as a truncated response, and
// other problems are evaluated.
func TestEvaluateLongPrompt(t *testing.T) {
	long := data.Problem{ID: "long", Text: strings.Repeat("1+", 60), Answers: []string{"60"}, Plain: true}
	s := heldOut(t, 3)
	s.Problems = append(s.Problems, long)
	e := newEvaluator(t, eval.Settings{Template: "no", Samples: 2, Sampling: sampler.Plain(40)}, s)
	path := filepath.Join(t.TempDir(), "r.jsonl")
	report := e.run(path, 4, 0)
	lines := e.lines(path)
	if last := lines[len(lines)-1]; last.Problem != "long" || last.Right || last.Finish != "length" || !strings.HasPrefix(last.Reason, "the prompt has 120 tokens") {
		t.Errorf("%+v", last)
	}
	if x := report.Suites[0]; x.Problems != 4 || x.Truncated < 0.25 {
		t.Errorf("%+v", x)
	}
}

// A doubtful reward skips responses of an even length.
type doubtful struct{ reward.Reward }

func (r doubtful) Score(ctx context.Context, group []reward.Sample) ([]reward.Score, error) {
	scores, err := r.Reward.Score(ctx, group)
	for i, s := range group {
		if len(s.IDs)%2 == 0 {
			scores[i] = reward.Score{Skip: true, Reason: "even"}
		}
	}
	return scores, err
}

// TestEvaluateUngraded: a response that the reward skips counts neither as right
// nor as wrong. It stays missing, and a reward that grades it completes the same
// evaluation.
func TestEvaluateUngraded(t *testing.T) {
	e := newEvaluator(t, eval.Settings{Template: "no", Samples: 2, Sampling: sampler.Plain(40)}, heldOut(t, 20))
	dir := t.TempDir()
	want, _ := json.Marshal(e.run(filepath.Join(dir, "whole.jsonl"), 4, 0))
	path := filepath.Join(dir, "r.jsonl")
	r, err := e.settings.Plan(e.suites).Open(path, false)
	if err != nil {
		t.Fatal(err)
	}
	decoder, err := runtimetest.Test(t).NewDecoder(e.policy.Ring, 4, 60)
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	rule := e.reward
	e.reward = doubtful{rule}
	var ungraded *eval.UngradedError
	if err := e.evaluate(context.Background(), decoder, r, nil); !errors.As(err, &ungraded) {
		t.Fatalf("error %v", err)
	}
	have, all := r.Count()
	if ungraded.Count != all-have || ungraded.Count == 0 || have == 0 || ungraded.Reason != "even" || ungraded.Suite != "arithmetic" {
		t.Errorf("%+v, %d of %d are there", ungraded, have, all)
	}
	if _, err := r.Report(nil); err == nil {
		t.Error("an evaluation with holes has a report")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	e.reward = rule
	if got, _ := json.Marshal(e.run(path, 4, 0)); string(got) != string(want) {
		t.Errorf("report\n%s\nwant\n%s", got, want)
	}
}

// TestEvaluateTwice: existing responses are not sampled again, and a problem that the
// vocabulary cannot express is an error.
func TestEvaluateTwice(t *testing.T) {
	e := newEvaluator(t, eval.Settings{Template: "no", Samples: 1, Sampling: sampler.Greedy(40)}, heldOut(t, 5))
	path := filepath.Join(t.TempDir(), "r.jsonl")
	e.run(path, 5, 0)
	before, _ := os.Stat(path)
	e.run(path, 2, 0)
	if after, _ := os.Stat(path); !after.ModTime().Equal(before.ModTime()) {
		t.Error("the file was written again")
	}
	for text, want := range map[string]string{"": "the prompt is empty", "What is 1+1?": "W"} {
		e.suites = []eval.Suite{{Name: "odd", Problems: []data.Problem{{ID: "o", Text: text, Plain: true}}}}
		r, err := e.settings.Plan(e.suites).Open("", false)
		if err != nil {
			t.Fatal(err)
		}
		decoder, err := runtimetest.Test(t).NewDecoder(e.policy.Ring, 2, 40)
		if err != nil {
			t.Fatal(err)
		}
		defer decoder.Close()
		err = e.evaluate(context.Background(), decoder, r, nil)
		if err == nil || !strings.HasPrefix(err.Error(), `eval: suite "odd", problem "o": `) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
