//go:build !windows

package rl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"onering/data"
	"onering/internal/files"
	"onering/objectives"
	"onering/policy"
	"onering/reward"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/train/rl"
)

// The tests of this file stop tiny runs in many ways and resume them. The files have
// to be those of a run that was never stopped: metrics.jsonl except for times,
// rollouts/, and the last checkpoint to the byte.

// chaosVariable names a folder in which the test binary trains instead of testing.
// Such a process is then killed.
const (
	chaosVariable = "ONERING_CHAOS_FOLDER"
	kindVariable  = "ONERING_CHAOS_KIND"
	killVariable  = "ONERING_CHAOS_KILL" // the number of the file operation at which the process is killed
	slowVariable  = "ONERING_CHAOS_SLOW" // how long every file operation takes
	// everyVariable names a variable that makes TestFailingDisk try every n-th file
	// operation; the default is 211, or 101 with ONERING_LONG.
	everyVariable = "ONERING_CHAOS_EVERY"

	// longVariable names a variable that makes tests take all of their cases, in minutes.
	longVariable = "ONERING_LONG"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(chaosVariable); dir != "" {
		os.Exit(chaosProcess(dir))
	}
	os.Exit(m.Run())
}

// chaosKinds are the kinds of runs. They differ in the parts that a checkpoint has to hold.
var chaosKinds = map[string]func(*rl.Config){
	// The objective keeps a state and averages of roles, and the run has evaluations.
	"ema": func(c *rl.Config) {
		set(c, "pmpo", `{"PRule":"length","Advantage":"rae"}`)
		c.Data.Train, c.Data.Role = rl.TrainFiles{{Path: "testdata/levels.jsonl"}}, "level"
		c.Train.EvalEvery, c.Eval.Suites, c.Eval.Samples, c.Eval.Temperature = 1, rl.Suites(suiteFile), 2, 1
		c.Train.KeepLast, c.Train.KeepBest = 2, 1
	},
	// The run has a reference policy that moves, log-probs of the learner, and two passes over each round.
	"reference": func(c *rl.Config) {
		set(c, "grpo", `{"KLBeta":0.05}`)
		c.Model.ReferenceUpdate, c.Model.ReferenceSteps, c.Optimizer.RateByESS = 0.6, 3, true
		c.Rollout.OldLogProb, c.Train.Epochs = "rescore", 2
	},
	// The run has one response to each problem, and a greedy one beside it.
	"remax": func(c *rl.Config) {
		set(c, "remax", `{}`)
		c.Rollout.PromptsPerRound, c.Rollout.SamplesPerPrompt, c.Train.SaveSteps = 16, 1, 1
	},
	// The run leaves groups out, and has an entropy bonus.
	"dapo": func(c *rl.Config) {
		set(c, "dapo", `{"EntropyBonus":0.01}`)
		c.Train.SaveSteps, c.Train.SaveEvery, c.Train.KeepLast = 1, 1, 1
	},
	// The run has a copy of the weights in 16 bits, and a loss scale that it has to find.
	"half": func(c *rl.Config) {
		set(c, "gmpo", `{}`)
		c.Model.DType, c.Train.SaveSteps, c.Train.SaveEvery = "float16", 2, 1
	},
	// The run trains the filtered policy, with a reference and sums of squared probabilities.
	"kept": func(c *rl.Config) {
		set(c, "grpo", `{"Advantage":"otb","KLBeta":0.05,"EntropyBonus":0.01}`)
		c.Rollout.TopP, c.Rollout.TopK, c.Rollout.Temperature, c.Rollout.LogProb = 0.9, 6, 1.2, "kept"
	},
	// The run has demonstrations, a teacher and its own right responses beside its objective.
	"streams": func(c *rl.Config) {
		set(c, "grpo", `{}`)
		c.Train.SaveSteps = 1
		err := c.Stream.List.UnmarshalTOML([]map[string]any{
			{"data": suiteFile, "weight": 0.3, "batch_size": int64(3), "schedule": "linear", "mix": true, "phi": true},
			{"teacher": data.Arithmetic, "weight": 0.5}, {"name": "forward", "teacher": data.Arithmetic, "loss": "ce", "weight": 0.1, "warmup": 0.5},
			{"tokens": "right", "weight": 0.1},
		})
		if err != nil {
			panic(err)
		}
	},
	// The run has problems of two files, easy ones first, whose order depends on measured rewards.
	"mixed": func(c *rl.Config) {
		c.Data.Train = rl.TrainFiles{{Path: "testdata/levels.jsonl"}, {Path: "testdata/more.jsonl", Weight: 0.3}}
		c.Data.Curriculum, c.Data.Rest = "level", 1
		c.Train.Rounds = 8
	},
}

const suiteFile = "testdata/sums.jsonl"

func set(c *rl.Config, objective, settings string) {
	o, err := objectives.New(objective)
	if err == nil {
		// This is the type without its methods: an objective may unmarshal its state.
		v := reflect.ValueOf(o).Elem()
		fields := map[string]any{}
		err = json.Unmarshal([]byte(settings), &fields)
		for name, value := range fields {
			f := v.FieldByName(name)
			f.Set(reflect.ValueOf(value).Convert(f.Type()))
		}
	}
	if err != nil {
		panic(err)
	}
	c.Objective = rl.ObjectiveConfig{Name: objective, Settings: o}
	c.Model.ReferenceUpdate = 0 // the objective may have no reference
}

func chaosConfig(kind, dir string) rl.Config {
	c := rl.Default()
	c.Model.Path, c.Model.Template, c.Data.Train = data.Arithmetic, "no", rl.TrainFiles{{Path: data.Arithmetic}}
	c.Rollout.PromptsPerRound, c.Rollout.SamplesPerPrompt = 4, 4
	c.Rollout.MaxNewTokens, c.Rollout.MaxPromptTokens, c.Rollout.Slots = 40, 16, 16
	c.Optimizer.LearningRate, c.Optimizer.Shape = 1e-3, "cosine"
	c.Train.Rounds, c.Train.BatchSize, c.Train.SaveEvery, c.Train.SaveSteps = 3, 4, 2, 3
	c.Output.Dir = dir
	if kind == judgeKind {
		c.Reward = rl.RewardConfig{Name: judgeKind, Rule: new(judge)}
		c.Train.EvalEvery, c.Eval.Suites, c.Eval.Samples, c.Eval.Temperature = 1, rl.Suites(suiteFile), 2, 1
		return c
	}
	chaosKinds[kind](&c)
	return c
}

// chaosRun trains once, and resumes if there is a checkpoint to resume from.
func chaosRun(ctx context.Context, env *runtime.Env, kind, dir string, log *slog.Logger) error {
	_, err := os.Stat(dir)
	c := chaosConfig(kind, dir)
	policy, openErr := policy.Open(env, policy.Options{Path: c.Model.Path, DType: c.Model.DType})
	if openErr != nil {
		return openErr
	}
	defer policy.Close()
	trainer, openErr := rl.New(ctx, c, env, policy, log, &quiet{})
	if openErr != nil {
		return openErr
	}
	defer trainer.Close()
	_, err = trainer.Run(ctx, err == nil)
	return err
}

func chaosProcess(dir string) int {
	kill, _ := strconv.ParseInt(os.Getenv(killVariable), 10, 64)
	slow, _ := time.ParseDuration(os.Getenv(slowVariable))
	var count atomic.Int64
	files.Fault = func(string, string) error {
		time.Sleep(slow)
		if count.Add(1) == kill {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	}
	env, err := runtime.Open(context.Background(), runtime.Options{Device: runtimetest.Device, NoSpin: true})
	if err == nil {
		err = chaosRun(context.Background(), env, os.Getenv(kindVariable), dir, slog.New(slog.DiscardHandler))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// contents returns the files of a finished run that must not depend on how often it
// was stopped.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var lines []string
	for line := range bytes.Lines(read("metrics.jsonl")) {
		var fields map[string]any
		d := json.NewDecoder(bytes.NewReader(line))
		d.UseNumber()
		if err := d.Decode(&fields); err != nil {
			t.Fatalf("%s: metrics.jsonl: %v in %q", dir, err, line)
		}
		for name := range fields {
			if strings.HasPrefix(name, "seconds/") || name == "time" {
				delete(fields, name)
			}
		}
		text, _ := json.Marshal(fields)
		lines = append(lines, string(text))
	}
	out["metrics.jsonl"] = strings.Join(lines, "\n")
	files, _ := filepath.Glob(filepath.Join(dir, "[re][ov][la][lu]*s", "*")) // rollouts and evaluations
	for _, f := range files {
		name, _ := filepath.Rel(dir, f)
		out[name] = string(read(name))
	}
	last, _ := filepath.Glob(filepath.Join(dir, "checkpoints", "step-*"))
	last = slices.DeleteFunc(last, func(name string) bool { return strings.HasSuffix(name, ".damaged") })
	if len(last) == 0 {
		t.Fatalf("%s has no checkpoint", dir)
	}
	name, _ := filepath.Rel(dir, last[len(last)-1])
	out["last"] = name
	out["model.safetensors"] = string(read(filepath.Join(name, "model.safetensors")))
	moments, _ := filepath.Glob(filepath.Join(dir, name, "state", "exp_avg*.safetensors"))
	for _, f := range moments {
		out[filepath.Base(f)] = string(read(filepath.Join(name, "state", filepath.Base(f))))
	}
	if len(moments) == 0 {
		t.Errorf("%s keeps no moments", name)
	}
	var state map[string]any
	if err := json.Unmarshal(read(filepath.Join(name, "state", "state.json")), &state); err != nil {
		t.Fatal(err)
	}
	delete(state, "metrics_bytes")   // Timings have more or fewer digits.
	delete(state, "unsaved_metrics") // The scores are in metrics.jsonl by now.
	text, _ := json.Marshal(state)
	out["state"] = string(text)
	hidden, _ := filepath.Glob(filepath.Join(dir, "*", ".*"))
	if len(hidden) > 0 {
		t.Errorf("%s: left behind: %v", dir, hidden)
	}
	return out
}

func same(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s: %s differs from the run that was never stopped (%d and %d bytes)", what, name, len(got[name]), len(want[name]))
			if name == "state" {
				t.Fatalf("%s\n%s", got[name], want[name])
			}
			if name == "metrics.jsonl" {
				a, b := strings.Split(got[name], "\n"), strings.Split(want[name], "\n")
				for i := range min(len(a), len(b)) {
					if a[i] != b[i] {
						t.Fatalf("line %d of %d and %d:\n%s\n%s", i+1, len(a), len(b), a[i], b[i])
					}
				}
			}
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d files, want %d", what, len(got), len(want))
	}
}

// whole returns the files of each kind of run that is never stopped.
func whole(t *testing.T, env *runtime.Env) map[string]map[string]string {
	t.Helper()
	out := map[string]map[string]string{}
	for kind := range chaosKinds {
		dir := filepath.Join(t.TempDir(), kind)
		if err := chaosRun(context.Background(), env, kind, dir, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		out[kind] = contents(t, dir)
	}
	return out
}

// A run whose process is killed at random moments, again and again, ends with the
// same files as one that was never killed.
func TestKilled(t *testing.T) {
	env := runtimetest.Test(t)
	kills := 12
	if os.Getenv(longVariable) != "" {
		kills = 60
	}
	want := whole(t, env)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	process := func(kind, dir string, more ...string) *exec.Cmd {
		c := exec.Command(os.Args[0])
		c.Env = append(append(os.Environ(), chaosVariable+"="+dir, kindVariable+"="+kind), more...)
		c.Stderr = new(bytes.Buffer)
		return c
	}
	kinds := slices.Sorted(func(yield func(string) bool) {
		for k := range chaosKinds {
			if !yield(k) {
				return
			}
		}
	})
	began := time.Now()
	if err := process(kinds[0], filepath.Join(t.TempDir(), "timed")).Run(); err != nil {
		t.Fatal(err)
	}
	length := time.Since(began)
	done, runs := 0, 0
	tally := newTally("Killed")
	for done < kills {
		kind := kinds[runs%len(kinds)]
		dir := filepath.Join(t.TempDir(), fmt.Sprintf("run-%d", runs))
		var trail []string
		for attempt := 0; ; attempt++ {
			var more []string
			last := attempt >= 4
			var after time.Duration
			switch {
			case last:
			case runs%2 == 0: // at a file operation
				n := 1 + random.IntN(120)
				more = append(more, killVariable+"="+strconv.Itoa(n))
				trail = append(trail, fmt.Sprintf("operation %d", n))
			default: // at a time
				after = time.Duration(random.Int64N(int64(length)))
				trail = append(trail, after.String())
			}
			if runs%5 == 4 {
				more = append(more, slowVariable+"=2ms")
			}
			c := process(kind, dir, more...)
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			if after > 0 {
				timer := time.AfterFunc(after, func() { c.Process.Kill() })
				defer timer.Stop()
			}
			err := c.Wait()
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.ExitCode() == -1 {
				done++
				how := "at a file operation"
				if after > 0 {
					how = "at an instant"
				}
				if runs%5 == 4 {
					how += ", slow disk"
				}
				tally.add(how, "tried", "stopped")
				if _, err := os.Stat(filepath.Join(dir, "metrics.jsonl")); err != nil {
					os.RemoveAll(dir) // The kill came before the run had a folder.
				}
				continue
			}
			if err != nil {
				t.Fatalf("seed %d, %s after %v: %v\n%s", seed, kind, trail, err, c.Stderr)
			}
			break
		}
		got := contents(t, dir)
		tally.lose(lostSteps(got, want[kind]))
		same(t, fmt.Sprintf("seed %d, %s killed at %v", seed, kind, trail), got, want[kind])
		if t.Failed() {
			return
		}
		runs++
	}
	t.Logf("%d kills of %d runs, each of which ended with the same bits\n%s", done, runs, tally)
}

// A file operation that fails stops the run, which is then resumed and ends with the
// same files. Each of the operations that are tried fails alone, and together with
// all later ones.
func TestFailingDisk(t *testing.T) {
	env := runtimetest.Test(t)
	t.Setenv("TMPDIR", t.TempDir()) // for the rescues
	want := whole(t, env)
	defer func() { files.Fault = nil }()
	stride, kinds := 211, []string{"ema", "dapo"}
	if os.Getenv(longVariable) != "" {
		stride = 101
	}
	if testing.Short() {
		kinds = kinds[:1]
	} else if every := os.Getenv(everyVariable); every != "" {
		var err error
		if stride, err = strconv.Atoi(every); err != nil || stride < 1 {
			t.Fatalf("%s=%s: want 1 for every file operation, n for one in n", everyVariable, every)
		}
	}
	tally := newTally("Failing operation")
	for _, kind := range kinds {
		for _, forever := range []bool{false, true} {
			for n := int64(1); ; n += int64(stride) {
				dir := filepath.Join(t.TempDir(), fmt.Sprintf("%s-%v-%d", kind, forever, n))
				var count atomic.Int64
				var what atomic.Value
				what.Store("")
				files.Fault = func(op, path string) error {
					k := count.Add(1)
					if k == n || k > n && forever && strings.HasPrefix(path, dir) {
						if k == n {
							what.Store(op + " " + filepath.Base(path))
						}
						return syscall.ENOSPC
					}
					return nil
				}
				err := chaosRun(context.Background(), env, kind, dir, slog.New(slog.DiscardHandler))
				files.Fault = nil
				if count.Load() < n {
					if err != nil {
						t.Fatal(err)
					}
					break
				}
				how, _, _ := strings.Cut(what.Load().(string), " ")
				if forever {
					how += ", and all after it"
				}
				tally.add(how, "tried")
				at := fmt.Sprintf("%s, operation %d (%s) fails, and those after it: %v", kind, n, what.Load(), forever)
				switch {
				case err == nil:
					tally.add(how, "went on")
				case !errors.Is(err, syscall.ENOSPC):
					t.Fatalf("%s: the run stopped with %v", at, err)
				default:
					tally.add(how, "stopped")
					if strings.Contains(err.Error(), "onering-rescue") {
						tally.add(how, "rescued")
						resumeRescue(t, env, kind, err, at, want[kind])
					}
					if err := chaosRun(context.Background(), env, kind, dir, slog.New(slog.DiscardHandler)); err != nil {
						t.Fatalf("%s: resuming: %v", at, err)
					}
				}
				got := contents(t, dir)
				tally.lose(lostSteps(got, want[kind]))
				same(t, at, got, want[kind])
				if t.Failed() {
					return
				}
				os.RemoveAll(dir)
			}
		}
	}
	t.Logf("one operation in %d of the runs %v failed\n%s", stride, kinds, tally)
}

// A tally counts the faults that runs went through. docs/safety.md has its table.
type tally struct {
	head  string
	hows  []string
	count map[string]map[string]int
	lost  int // see lostSteps
}

func newTally(head string) *tally { return &tally{head: head, count: map[string]map[string]int{}} }

func (t *tally) add(how string, what ...string) {
	if t.count[how] == nil {
		t.hows, t.count[how] = append(t.hows, how), map[string]int{}
	}
	for _, w := range what {
		t.count[how][w]++
	}
}

func (t *tally) lose(steps int) { t.lost += steps }

func (t *tally) String() string {
	var b strings.Builder
	columns := []string{"tried", "stopped", "rescued", "went on"}
	fmt.Fprintf(&b, "| %s | %s |\n|---|--:|--:|--:|--:|\n", t.head, strings.Join(columns, " | "))
	sum := map[string]int{}
	row := func(how string, n map[string]int) {
		fmt.Fprintf(&b, "| %s |", how)
		for _, c := range columns {
			fmt.Fprintf(&b, " %d |", n[c])
			sum[c] += n[c]
		}
		b.WriteString("\n")
	}
	slices.Sort(t.hows)
	for _, how := range t.hows {
		row(how, t.count[how])
	}
	row("all", maps.Clone(sum))
	fmt.Fprintf(&b, "\nlost steps: %d", t.lost)
	return b.String()
}

// lostSteps counts the optimizer steps of the run that was never stopped whose records
// are missing in the resumed run or have other figures.
func lostSteps(got, want map[string]string) (n int) {
	have := map[string]bool{}
	for line := range strings.SplitSeq(got["metrics.jsonl"], "\n") {
		have[line] = true
	}
	for line := range strings.SplitSeq(want["metrics.jsonl"], "\n") {
		if strings.Contains(line, `"kind":"step"`) && !have[line] {
			n++
		}
	}
	return n
}

// resumeRescue resumes from the folder that the error names. The rollouts of
// rounds before the rescue are in the first folder only.
func resumeRescue(t *testing.T, env *runtime.Env, kind string, err error, at string, want map[string]string) {
	t.Helper()
	_, rest, _ := strings.Cut(err.Error(), " is saved in ")
	dir, _, _ := strings.Cut(rest, ":")
	defer os.RemoveAll(dir)
	if err := chaosRun(context.Background(), env, kind, dir, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatalf("%s: resuming the rescue: %v", at, err)
	}
	got := contents(t, dir)
	for name := range want {
		if (strings.HasPrefix(name, "rollouts") || strings.HasPrefix(name, "evaluations")) && got[name] == "" {
			got[name] = want[name]
		}
	}
	same(t, at+", rescued", got, want)
}

// judgeKind is a run whose reward gives another score at each call. It is none of
// chaosKinds, because no two of its runs are the same.
const judgeKind = "judge"

// A judge gives random scores, and skips some responses.
type judge struct{}

func (judge) Varies() bool { return true }

func (judge) Score(_ context.Context, group []reward.Sample) ([]reward.Score, error) {
	scores := make([]reward.Score, len(group))
	for i := range scores {
		scores[i] = reward.Score{
			Value: rand.Float64() * 2, Answer: strconv.Itoa(rand.IntN(4)), Reason: "a \"mood\"\n",
			Components: map[string]float64{"mood": rand.NormFloat64()}, Log: map[string]float64{"third": 1.0 / 3},
		}
		if len(group) > 1 && rand.IntN(10) == 0 {
			scores[i] = reward.Score{Skip: true, Status: reward.Error, Reason: "moody"}
		}
	}
	return scores, nil
}

// A run whose reward is random is killed again and again. Results written before a kill
// stay: no group is graded twice, and the files equal those of a run that was never
// stopped and whose reward gave the same scores.
func TestKilledJudge(t *testing.T) {
	env := runtimetest.Test(t)
	runs := 4
	if testing.Short() {
		runs = 2
	}
	kills, lost := 0, 0
	for run := range runs {
		dir := filepath.Join(t.TempDir(), fmt.Sprint("run-", run))
		for attempt := 0; ; attempt++ {
			c := exec.Command(os.Args[0])
			c.Env = append(os.Environ(), chaosVariable+"="+dir, kindVariable+"="+judgeKind)
			c.Stderr = new(bytes.Buffer)
			if attempt < 5 {
				c.Env = append(c.Env, killVariable+"="+strconv.Itoa(1+rand.IntN(60)))
			}
			shown := shownBy(dir)
			err := c.Run()
			for name, before := range shown {
				after, _ := os.ReadFile(filepath.Join(dir, name))
				if name == "grades.jsonl" && !strings.HasPrefix(string(after), before) || name != "grades.jsonl" && string(after) != before {
					t.Errorf("%s was another one before the run was killed", name)
				}
			}
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.ExitCode() == -1 {
				kills++
				if _, err := os.Stat(filepath.Join(dir, "metrics.jsonl")); err != nil {
					os.RemoveAll(dir) // The kill came before there was a run.
				}
				if len(shownBy(dir)["grades.jsonl"]) > len(shown["grades.jsonl"]) {
					lost++
				}
				continue
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, c.Stderr)
			}
			break
		}
		grades := shownBy(dir)["grades.jsonl"]
		seen := map[string]bool{}
		for line := range strings.Lines(grades) {
			var x struct{ Key string }
			if err := json.Unmarshal([]byte(line), &x); err != nil || seen[x.Key] || x.Key == "" {
				t.Errorf("graded twice, or %v: %s", err, line)
			}
			seen[x.Key] = true
		}
		if want := 3*4 + 4*4*2; len(seen) != want { // scores of groups, and of responses in evaluations
			t.Errorf("%d groups are graded, want %d", len(seen), want)
		}
		// A run that begins anew with these grades grades no group itself.
		again := filepath.Join(t.TempDir(), "again")
		if err := errors.Join(os.Mkdir(again, 0o755), os.WriteFile(filepath.Join(again, "grades.jsonl"), []byte(grades), 0o644)); err != nil {
			t.Fatal(err)
		}
		if err := chaosRun(context.Background(), env, judgeKind, again, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		if got := shownBy(again)["grades.jsonl"]; got != grades {
			t.Errorf("%d bytes of grades have become %d", len(grades), len(got))
		}
		same(t, "killed", contents(t, dir), contents(t, again))
		if t.Failed() {
			return
		}
	}
	if lost == 0 {
		t.Error("no run was killed after it had graded: the test shows nothing")
	}
	t.Logf("%d kills, %d after something new was graded", kills, lost)
}

// shownBy returns the files of a run that must not change any more: the files of finished
// rounds, and the grades, which may only grow.
func shownBy(dir string) map[string]string {
	out := map[string]string{}
	names, _ := filepath.Glob(filepath.Join(dir, "rollouts", "round-*.jsonl"))
	for _, path := range append(names, filepath.Join(dir, "grades.jsonl")) {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		name, _ := filepath.Rel(dir, path)
		out[name] = string(text[:bytes.LastIndexByte(text, '\n')+1]) // The last line may be torn.
	}
	return out
}
