package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"onering/data"
	"onering/internal/process"
	"onering/reward"
	"onering/reward/rewardtest"
)

// The graders of these tests are this test binary: with the argument "grader" it
// grades instead of testing.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "grader" {
		graders[os.Args[2]](os.Args[3:])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A task is the JSON that a grader reads.
type task struct {
	ID        int
	Problem   map[string]any
	Prompt    string
	Responses []struct {
		Text      string
		IDs       []int
		Truncated bool
	}
}

// each calls f for each group that the grader reads.
func each(f func(t task)) {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var t task
		if err := json.Unmarshal(line, &t); err != nil {
			fmt.Fprintln(os.Stderr, "cannot read:", err)
			os.Exit(3)
		}
		f(t)
	}
}

// answer answers a group with the length of each response in bytes.
func answer(t task) string {
	rewards := make([]int, len(t.Responses))
	for i, r := range t.Responses {
		rewards[i] = len(r.Text)
	}
	text, _ := json.Marshal(map[string]any{"id": t.ID, "rewards": rewards})
	return string(text)
}

// count counts the starts or calls that a file records, over several processes.
func count(path string) int {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.WriteString("x")
		f.Close()
	}
	text, err2 := os.ReadFile(path)
	if err := errors.Join(err, err2); err != nil {
		panic(err)
	}
	return len(text)
}

var graders = map[string]func(args []string){
	"length": func([]string) { each(func(t task) { fmt.Println(answer(t)) }) },
	// The answers of four groups come in reverse order.
	"reversed": func([]string) {
		var held []string
		each(func(t task) {
			if held = append(held, answer(t)); len(held) == 4 {
				slices.Reverse(held)
				fmt.Println(strings.Join(held, "\n"))
				held = nil
			}
		})
	},
	"parts": func([]string) {
		each(func(t task) {
			fmt.Printf(`{"id": %d, "rewards": [1.5, null, -2], "components": {"a": [1, null, -2], "b/c": [0.5, 0, 0]}, "log": {"n": 7, "each": [1, 2, null]}, "answers": ["x", "", "y"], "reasons": ["good", "none", "bad"], "more": {}}`+"\n", t.ID)
		})
	},
	// the elements of the answer, in which ID stands for the group's id
	"says": func(args []string) {
		each(func(t task) { fmt.Println(strings.ReplaceAll(args[0], "ID", strconv.Itoa(t.ID))) })
	},
	"echo": func([]string) { // writes each group that it reads to a log
		in := bufio.NewScanner(os.Stdin)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			fmt.Fprintln(os.Stderr, in.Text())
			var t task
			json.Unmarshal(in.Bytes(), &t)
			fmt.Println(answer(t))
		}
	},
	// Dies at its first groups, as often as the second argument says, counted over processes.
	"dies": func(args []string) {
		deaths, _ := strconv.Atoi(args[1])
		each(func(t task) {
			if count(args[0]) <= deaths {
				fmt.Fprintln(os.Stderr, "no more \x1b[31mpatience")
				os.Exit(3)
			}
			fmt.Println(answer(t))
		})
	},
	// Dies whenever it reads a group called poison, after a delay in which other groups arrive.
	"poisoned": func([]string) {
		each(func(t task) {
			if t.Problem["id"] == "poison" {
				time.Sleep(50 * time.Millisecond)
				os.Exit(4)
			}
			fmt.Println(answer(t))
		})
	},
	"hangs": func(args []string) {
		each(func(t task) {
			if t.Problem["id"] == "slow" && count(args[0]) == 1 {
				time.Sleep(time.Hour)
			}
			fmt.Println(answer(t))
		})
	},
	// Does further work after its input ends.
	"polite": func(args []string) {
		each(func(t task) { fmt.Println(answer(t)) })
		time.Sleep(100 * time.Millisecond)
		count(args[0])
	},
	"deaf": func([]string) { time.Sleep(time.Hour) },
	"last": func(args []string) { // answers once and leaves
		count(args[0])
		in := bufio.NewReader(os.Stdin)
		line, _ := in.ReadBytes('\n')
		var t task
		json.Unmarshal(line, &t)
		fmt.Println(answer(t))
	},
	"endless": func([]string) {
		each(func(t task) {
			for {
				os.Stdout.WriteString(strings.Repeat("x", 1<<16))
			}
		})
	},
	"chatty": func([]string) {
		each(func(t task) {
			for i := range 5000 {
				fmt.Fprintln(os.Stderr, "line", i, strings.Repeat("y", 9000))
			}
			fmt.Println(answer(t))
		})
	},
	// starts a child process that holds the grader's pipes, prints its process id, and exits, hangs
	// or waits
	"parent": func(args []string) {
		child := exec.Command(os.Args[0], "grader", "deaf")
		child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			panic(err)
		}
		os.WriteFile(args[0], []byte(fmt.Sprint(os.Getpid(), " ", child.Process.Pid)), 0o644)
		if args[1] == "ends" {
			return
		}
		each(func(t task) { fmt.Println(answer(t)) })
		time.Sleep(time.Hour)
	},
	// Lets a Program of its own grade a group, and waits to be killed.
	"onering": func(args []string) {
		p := program("parent", args[0], "waits")
		if _, err := p.Score(context.Background(), group("a", "x")); err != nil {
			panic(err)
		}
		fmt.Println("graded")
		time.Sleep(time.Hour)
	},
}

// program returns the reward whose command is a grader of this file.
func program(args ...string) *Program {
	r, err := reward.New("command")
	if err != nil {
		panic(err)
	}
	p := r.(*Program)
	p.Command = append([]string{os.Args[0], "grader"}, args...)
	p.Timeout, p.Retries = 30, 1
	return p
}

// closed registers that p closes at the end of the test.
func closed(t *testing.T, p *Program) *Program {
	t.Cleanup(func() { p.Close() })
	return p
}

// group makes samples with these texts to the problem called id.
func group(id string, texts ...string) []reward.Sample {
	var out []reward.Sample
	for _, text := range texts {
		out = append(out, reward.Sample{Problem: data.Problem{ID: id, Text: "1+1", Answers: []string{"2"}}, Prompt: "User: 1+1", Response: text, IDs: []int32{5, 6}})
	}
	return out
}

func values(scores []reward.Score) []float64 {
	var out []float64
	for _, s := range scores {
		if s.Skip {
			out = append(out, math.NaN())
		} else {
			out = append(out, s.Value)
		}
	}
	return out
}

// logged collects the log lines of a test.
func logged(t *testing.T) func() string {
	t.Helper()
	var mu sync.Mutex
	var b bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return b.Write(p)
	}), nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return b.String()
	}
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// A steady reward is a Program that may not vary its scores: the grader of these tests
// gives equal groups equal scores.
type steady struct{ program *Program }

func (s *steady) Score(ctx context.Context, group []reward.Sample) ([]reward.Score, error) {
	return s.program.Score(ctx, group)
}

func TestConformance(t *testing.T) {
	for _, workers := range []int{1, 3} {
		rewardtest.RunNew(t, func() reward.Reward {
			p := closed(t, program("length"))
			p.Workers = workers
			return p
		})
	}
	t.Run("same scores", func(t *testing.T) {
		rewardtest.RunNew(t, func() reward.Reward { return &steady{closed(t, program("length"))} })
	})
}

func TestValidate(t *testing.T) {
	for _, command := range [][]string{nil, {}, {" "}} {
		p := program()
		p.Command = command
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), `must name a program and its arguments, such as ["python3", "score.py"]`) {
			t.Errorf("%q: %v", command, err)
		}
	}
}

// TestRequest: a grader receives everything known about the problem and its responses.
func TestRequest(t *testing.T) {
	log := logged(t)
	p := closed(t, program("echo"))
	p.Workers, p.InFlight = 1, 1
	samples := group("p1", "a\u2028<b>", "\xff")
	samples[0].Problem.Fields = data.Object{
		{Name: "problem", Value: "1+1"}, {Name: "answer", Value: "2"}, {Name: "answers", Value: "two"}, {Name: "level", Value: int64(3)},
		{Name: "reward_model", Value: data.Object{{Name: "ground_truth", Value: "2"}}}, {Name: "share", Value: math.NaN()},
	}
	samples[1].Truncated, samples[1].IDs = true, nil
	for range 2 {
		if _, err := p.Score(t.Context(), samples); err != nil {
			t.Fatal(err)
		}
	}
	p.Close()
	const want = `{"id": 1, "problem": {"id": "p1", "text": "1+1", "answers": ["2"], "problem": "1+1", "answer": "2", "level": 3, "reward_model": {"ground_truth": "2"}, "share": "NaN", "columns": {"answers": "two"}}, ` +
		`"prompt": "User: 1+1", "responses": [{"text": "a` + "\u2028" + `<b>", "ids": [5, 6], "truncated": false}, {"text": "` + "\ufffd" + `", "ids": [], "truncated": true}]}`
	for i, line := range []string{want, strings.Replace(want, "1", "2", 1)} {
		// The log quotes the output, and escapes unprintable characters first.
		if quoted := strconv.Quote(process.Printable(line)); !strings.Contains(log(), quoted) {
			t.Errorf("group %d:\n%s\nis not in\n%s", i+1, quoted, log())
		}
	}
}

// TestAnswer: the answers of a grader become scores.
func TestAnswer(t *testing.T) {
	scores, err := closed(t, program("parts")).Score(t.Context(), group("p", "1", "2", "3"))
	if err != nil {
		t.Fatal(err)
	}
	want := []reward.Score{
		{Value: 1.5, Answer: "x", Reason: "good", Components: map[string]float64{"a": 1, "b/c": 0.5}, Log: map[string]float64{"n": 7, "each": 1}},
		{Skip: true, Reason: "none", Components: map[string]float64{"b/c": 0}, Log: map[string]float64{"n": 7, "each": 2}},
		{Value: -2, Answer: "y", Reason: "bad", Components: map[string]float64{"a": -2, "b/c": 0}, Log: map[string]float64{"n": 7}},
	}
	if got, want := fmt.Sprintf("%+v", scores), fmt.Sprintf("%+v", want); got != want {
		t.Errorf("scores %s\nwant %s", got, want)
	}
}

// TestAnyOrder: several groups are in flight together, and each answer reaches its group.
// The grader answers only when it has four groups.
func TestAnyOrder(t *testing.T) {
	p := closed(t, program("reversed"))
	if p.Groups() != 4 {
		t.Fatalf("%d groups at once", p.Groups())
	}
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			scores, err := p.Score(t.Context(), group("p", strings.Repeat("x", i), "y"))
			if err != nil || !slices.Equal(values(scores), []float64{float64(i), 1}) {
				t.Errorf("group %d: %v, %v", i, values(scores), err)
			}
		})
	}
	all.Wait()
}

// TestDies: a grader that dies is started again, and no group suffers unless it dies too
// often. A grader that answers and exits is started again for each group.
func TestDies(t *testing.T) {
	file := filepath.Join(t.TempDir(), "n")
	p := closed(t, program("dies", file, "1"))
	p.InFlight = 1
	scores, err := p.Score(t.Context(), group("p", "four"))
	if err != nil || !slices.Equal(values(scores), []float64{4}) || count(file) != 3 {
		t.Errorf("%v, %v after %d calls", scores, err, count(file)-1)
	}
	p = closed(t, program("last", filepath.Join(t.TempDir(), "n")))
	for i := range 5 {
		if scores, err := p.Score(t.Context(), group("p", "four")); err != nil || scores[0].Value != 4 {
			t.Errorf("group %d: %v, %v", i, scores, err)
		}
	}
	if starts := count(p.Command[3]) - 1; starts != 5 {
		t.Errorf("%d starts", starts)
	}
}

// TestFails: a group that cannot be graded stops the run with an error that names the
// command and quotes its output, or is skipped. It never counts as a reward of 0.
func TestFails(t *testing.T) {
	for _, tt := range []struct {
		name  string
		args  []string
		want  string
		calls int // attempts
	}{
		{"dies", []string{"dies", "FILE", "99"}, `the process died: exit status 3; its last words: no more \x1b[31mpatience (after 2 attempts)`, 2},
		{"debugging output", []string{"says", "debug ID"}, `line 1 of its output: "debug 1\n" is not an answer: not JSON at byte 0, near "debug 1\n"; what is not one belongs on standard error (after 2 attempts)`, 2},
		{"no id", []string{"says", `{"rewards": [1, 2]}`}, `has no "id"`, 2},
		{"another id", []string{"says", `{"id": 77, "rewards": [1, 2]}`}, `answers group 77, which it was not given`, 2},
		{"no end", []string{"endless"}, "is longer than 16 MB", 2},
		{"NaN", []string{"says", `{"id": ID, "rewards": [1, NaN]}`}, "is not an answer: not JSON at byte", 2},
		{"infinity", []string{"says", `{"id": ID, "rewards": [1, 1e999]}`}, "rewards[1] is 1e999, not a number of 64 bits", 1},
		{"truth", []string{"says", `{"id": ID, "rewards": [true, false]}`}, "rewards[0] is true, not a number", 1},
		{"too few", []string{"says", `{"id": ID, "rewards": [1]}`}, `"rewards" has 1 values for 2 responses`, 1},
		{"none", []string{"says", `{"id": ID}`}, `"rewards" has 0 values for 2 responses`, 1},
		{"wrong components", []string{"says", `{"id": ID, "rewards": [1, 2], "components": {"z": [1], "y": [1], "x": [1], "w": [1]}}`}, `"components": "w" has`, 1},
		{"wrong component", []string{"says", `{"id": ID, "rewards": [1, 2], "components": {"x": [1]}}`}, `"components": "x" has 1 values for 2 responses`, 1},
		{"odd name", []string{"says", `{"id": ID, "rewards": [1, 2], "log": {"a\nb": 1}}`}, `the name "a\nb" has a character that cannot be printed`, 1},
		{"error", []string{"says", `{"id": ID, "error": "no judge\u001b[2J"}`}, `the grader reports: no judge\x1b[2J (after 2 attempts)`, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for i := range tt.args {
				if tt.args[i] == "FILE" {
					tt.args[i] = filepath.Join(t.TempDir(), "n")
				}
			}
			p := closed(t, program(tt.args...))
			p.InFlight = 1
			scores, err := p.Score(t.Context(), group("p", "x", "y"))
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), `reward "command": "`+os.Args[0]+" grader "+tt.args[0]) {
				t.Errorf("%v, %v, want %q", scores, err, tt.want)
			}
			if tt.args[0] == "dies" && count(tt.args[1])-1 != tt.calls {
				t.Errorf("%d attempts", count(tt.args[1])-1)
			}
			p.OnError = "skip"
			scores, err = p.Score(t.Context(), group("p", "x", "y"))
			if err != nil || len(scores) != 2 {
				t.Fatalf("%v, %v", scores, err)
			}
			for _, s := range scores {
				if !s.Skip || s.Status != reward.Error || s.Value != 0 || !strings.Contains(s.Reason, tt.want[:10]) {
					t.Errorf("%+v", s)
				}
			}
		})
	}
}

// TestHopeless: a grader that always dies costs each further group one try, whether groups come
// one by one or together, and a later group has all tries again once the grader has answered.
func TestHopeless(t *testing.T) {
	const groups = 12
	for _, together := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "n")
		p := closed(t, program("dies", file, "1000"))
		p.OnError, p.Retries, p.Workers = "skip", 3, 2
		grade := func() {
			scores, err := p.Score(t.Context(), group("p", "x"))
			if err != nil || !scores[0].Skip {
				t.Errorf("%v, %v", scores, err)
			}
		}
		var all sync.WaitGroup
		for range groups {
			if together {
				all.Go(grade)
			} else {
				grade()
			}
		}
		all.Wait()
		// The first three groups have four tries each.
		if tries := count(file) - 1; tries > groups+3*3 {
			t.Errorf("%d tries of %d groups", tries, groups)
		}
		p.noteAnswer(new(worker))
		if len(p.unanswered) > 0 {
			t.Error("an answer changes nothing")
		}
	}
}

// TestPoison: other groups are still graded if one group kills each process.
func TestPoison(t *testing.T) {
	p := closed(t, program("poisoned"))
	p.OnError, p.Retries, p.InFlight = "skip", 3, 4
	var all sync.WaitGroup
	for i := range 12 {
		id := fmt.Sprint("p", i)
		if i%6 == 0 {
			id = "poison"
		}
		all.Go(func() {
			scores, err := p.Score(t.Context(), group(id, "four"))
			if err != nil || scores[0].Skip != (id == "poison") {
				t.Errorf("%s: %v, %v", id, scores, err)
			}
		})
	}
	all.Wait()
}

// TestTwice: a second answer to a group is an error of the process, and is reported for
// the group in flight when it is found.
func TestTwice(t *testing.T) {
	p := closed(t, program("says", `{"id": ID, "rewards": [1]}`+"\n"+`{"id": ID, "rewards": [2]}`))
	p.Retries, p.InFlight = 0, 1
	var err error
	for i := 0; i < 20 && err == nil; i++ { // The second answer may be found after the group, and then costs nothing.
		_, err = p.Score(t.Context(), group("p", "x"))
	}
	if err != nil && !strings.Contains(err.Error(), "a second time") {
		t.Errorf("error %v", err)
	}
}

// TestMissing: a missing program is an error at once.
func TestMissing(t *testing.T) {
	p := program()
	p.Command = []string{"no-such-grader-anywhere", "x"}
	_, err := p.Score(t.Context(), group("p", "x"))
	if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), `"no-such-grader-anywhere x": cannot be started: `) {
		t.Errorf("error %v", err)
	}
}

// TestInnocent: groups that were in flight with a group that kills the process are graded alone,
// and only the killing group is left out.
func TestInnocent(t *testing.T) {
	p := closed(t, program("poisoned"))
	p.OnError, p.Retries = "skip", 1
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			id := fmt.Sprint("p", i)
			if i == 5 {
				id = "poison"
			}
			scores, err := p.Score(t.Context(), group(id, "four"))
			if err != nil || scores[0].Skip != (i == 5) || i != 5 && scores[0].Value != 4 {
				t.Errorf("group %d: %+v, %v", i, scores, err)
			}
		})
	}
	all.Wait()
}

// TestTimeout: a grader that does not answer in time is killed, and a grader that does
// not read blocks no other group.
func TestTimeout(t *testing.T) {
	file := filepath.Join(t.TempDir(), "n")
	p := closed(t, program("hangs", file))
	p.Timeout = 0.2
	if scores, err := p.Score(t.Context(), group("slow", "four")); err != nil || scores[0].Value != 4 || count(file) != 3 {
		t.Errorf("%v, %v", scores, err)
	}
	p = closed(t, program("deaf"))
	p.Timeout, p.Retries = 0.2, 0
	_, err := p.Score(t.Context(), group("p", strings.Repeat("more than a pipe holds", 100_000)))
	if err == nil || !strings.Contains(err.Error(), "no answer to group 1 within 0.2 s, the process is killed") {
		t.Errorf("error %v", err)
	}
}

// TestCancelled: a run that ends does not wait for the grader, and a late answer has no
// effect.
func TestCancelled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "n")
	p := closed(t, program("hangs", file))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 9 { // Some of the groups wait for room.
		all.Go(func() {
			if _, err := p.Score(ctx, group("slow", "four")); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
		})
	}
	for size := 0; p.load() < 4 || size == 0; time.Sleep(time.Millisecond) {
		text, _ := os.ReadFile(file)
		size = len(text)
	}
	cancel()
	all.Wait()
	p.Command[2] = "length"
	p.Close() // kills the process
	if scores, err := p.Score(t.Context(), group("p", "four")); err != nil || scores[0].Value != 4 {
		t.Errorf("%v, %v", scores, err)
	}
}

func (p *Program) load() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.workers) == 0 {
		return 0
	}
	return p.workers[0].groups
}

// TestStderr: the stderr of a grader goes to the log, line by line, up to a limit.
func TestStderr(t *testing.T) {
	log := logged(t)
	p := closed(t, program("chatty"))
	if _, err := p.Score(t.Context(), group("p", "x")); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Score(t.Context(), group("p", "x")); err != nil {
		t.Fatal(err)
	}
	p.Close()
	lines := strings.Count(log(), "the grader says")
	if want := 200 + 2*20; lines != want {
		t.Errorf("%d lines are logged, want %d", lines, want)
	}
	if !strings.Contains(log(), "writes more to its standard error than is logged") {
		t.Error("nothing says that lines are left out")
	}
	for line := range strings.Lines(log()) {
		if len(line) > 4096+200 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
}

// The log of the tests themselves is not shown.
func init() { slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil))) }

// TestReady: a missing program, or a missing script of an interpreter, is found before
// there is a group to grade.
func TestReady(t *testing.T) {
	here, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "score.py")
	if err := os.WriteFile(script, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		command []string
		ready   bool
	}{
		{[]string{here}, true}, {[]string{here, "-u", script, "gone.py"}, true}, {[]string{here, "words"}, true},
		{[]string{here + ".gone"}, false}, {[]string{"no-such-program-of-onering"}, false}, {[]string{here, "-u", script + ".py"}, false}, {[]string{filepath.Dir(here)}, false},
	} {
		rule, err := reward.New("command")
		if err != nil {
			t.Fatal(err)
		}
		rule.(*Program).Command = tt.command
		if err := reward.Ready(context.Background(), rule); (err == nil) != tt.ready {
			t.Errorf("%q: %v", tt.command, err)
		}
	}
}
