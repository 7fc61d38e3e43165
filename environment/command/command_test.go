package command

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"onering/data"
	"onering/environment"
	"onering/environment/environmenttest"
	"onering/internal/settings"
)

// The programs of these tests are this test binary: with the argument "game" it plays instead
// of testing.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "game" {
		games[os.Args[2]](os.Args[3:])
		return
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	os.Exit(m.Run())
}

type line struct {
	ID    int
	Reset *struct {
		Problem map[string]any
		Seed    int64
		Sample  int
	}
	Step *struct {
		Turn  int
		Text  string
		Calls []environment.Call
	}
	Close *struct{}
}

// each calls f for each line that a game reads.
func each(f func(l line, text string)) {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		text, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			fmt.Fprintln(os.Stderr, "cannot read:", err)
			os.Exit(3)
		}
		f(l, string(text))
	}
}

// well gives the right answer to a line.
func well(l line) {
	switch {
	case l.Reset != nil:
		fmt.Printf(`{"id": %d, "messages": [{"role": "user", "content": "guess"}]}`+"\n", l.ID)
	case l.Step != nil:
		text, _ := json.Marshal(fmt.Sprint(os.Getpid(), " ", len(l.Step.Text), " ", len(l.Step.Calls)))
		fmt.Printf(`{"id": %d, "messages": [{"role": "user", "content": %s}], "reward": 0.25, "done": %v}`+"\n", l.ID, text, l.Step.Text == "end")
	default:
		fmt.Printf(`{"id": %d}`+"\n", l.ID)
	}
}

var games = map[string]func(args []string){
	"well": func([]string) { each(func(l line, _ string) { well(l) }) },
	"log": func(args []string) {
		f, err := os.Create(args[0])
		if err != nil {
			panic(err)
		}
		each(func(l line, text string) { f.WriteString(text); well(l) })
	},
	// Answers each step with the text of the turn, behind its id.
	"says": func([]string) {
		each(func(l line, _ string) {
			if l.Step == nil {
				well(l)
				return
			}
			switch l.Step.Text {
			case "die":
				fmt.Fprintln(os.Stderr, "no more \x1b[31mpatience")
				os.Exit(3)
			case "leave":
				os.Exit(0)
			case "hang":
				time.Sleep(time.Hour)
			case "flood":
				for {
					os.Stdout.WriteString(strings.Repeat("x", 1<<16))
				}
			}
			fmt.Println(strings.ReplaceAll(l.Step.Text, "ID", strconv.Itoa(l.ID)))
		})
	},
	"deaf":   func([]string) { time.Sleep(time.Hour) },
	"absent": func([]string) { os.Exit(4) },
	// Does not answer the end of an episode.
	"rude": func([]string) {
		each(func(l line, _ string) {
			if l.Close == nil {
				well(l)
			}
		})
	},
	"parent": func(args []string) { // leaves a child process that holds the game's pipes
		child := exec.Command(os.Args[0], "game", "deaf")
		child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			panic(err)
		}
		os.WriteFile(args[0], []byte(fmt.Sprint(os.Getpid(), " ", child.Process.Pid)), 0o644)
		each(func(l line, _ string) {
			if l.Step == nil {
				well(l)
			} else {
				time.Sleep(time.Hour)
			}
		})
	},
	// Plays an episode of its own, and waits to be killed.
	"onering": func(args []string) {
		e, err := program("parent", args[0]).Begin(context.Background(), environment.Start{})
		if err != nil {
			panic(err)
		}
		fmt.Println("begun")
		e.Step(context.Background(), environment.Turn{})
	},
}

func program(args ...string) *Program {
	e, err := environment.New("command")
	if err != nil {
		panic(err)
	}
	p := e.(*Program)
	p.Command = append([]string{os.Args[0], "game"}, args...)
	return p
}

func begin(t *testing.T, p *Program) environment.Episode {
	t.Helper()
	t.Cleanup(func() { p.Close() })
	e, err := p.Begin(t.Context(), environment.Start{Problem: data.Problem{ID: "p"}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestConformance(t *testing.T) {
	environmenttest.RunNew(t, func() environment.Environment { return program("well") })
}

// TestLines: the program receives all known facts about the problem and the turn.
func TestLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lines")
	p := program("log", file)
	start := environment.Start{Seed: 7<<32 + 5, Sample: 3, Problem: data.Problem{ID: "p1", Text: "a<b>\u2028", Answers: []string{"2"}, Fields: data.Object{{Name: "level", Value: int64(3)}, {Name: "id", Value: "own"}}}}
	o, err := environmenttest.Open(p, start)
	if err != nil || len(o.Messages) != 1 || o.Messages[0].Content != "guess" {
		t.Fatalf("%+v, %v", o, err)
	}
	e, err := p.Begin(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.Step(t.Context(), environment.Turn{Number: 1, Text: "\xff\n", Calls: []environment.Call{{Name: "f", Arguments: json.RawMessage(`{"x": 1}`)}}})
	if err != nil || got.Done || got.Reward == nil || *got.Reward != 0.25 || len(got.Messages) != 1 || got.Messages[0].Role != "user" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := e.Step(t.Context(), environment.Turn{Number: 2, Text: "end"}); err != nil || !got.Done {
		t.Errorf("%+v, %v", got, err)
	}
	if err := errors.Join(e.Close(), p.Close()); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const reset = `"reset":{"problem":{"id":"p1","text":"a\u003cb\u003e\u2028","answers":["2"],"level":3,"columns":{"id":"own"}},"seed":7,"sample":3}}` + "\n"
	want := `{"id":1,` + reset + `{"id":2,"close":{}}` + "\n" + `{"id":3,` + reset +
		`{"id":4,"step":{"turn":1,"text":"\ufffd\n","calls":[{"name":"f","arguments":{"x":1}}]}}` + "\n" + `{"id":5,"step":{"turn":2,"text":"end","calls":[]}}` + "\n" + `{"id":6,"close":{}}` + "\n"
	if string(text) != want {
		t.Errorf("the program reads\n%s\nwant\n%s", text, want)
	}
}

// TestBad: a program that dies, leaves, hangs, floods or lies ends its episode with an
// error that names the program and its fault, and another process plays the next episode.
func TestBad(t *testing.T) {
	p := program("says")
	for _, tt := range []struct{ text, want string }{
		{"die", `the process died: exit status 3; its last words: no more \x1b[31mpatience`},
		{"leave", "the process ended before it had answered"},
		{"flood", "is longer than 16 MB"},
		{"debugging", `line 2 of its output: "debugging\n" is not an answer`},
		{`{"messages": []}`, `has no "id"`},
		{`{"id": 77}`, "answers message 77, which it was not given"},
		{`{"id": 1}`, "answers message 1 a second time"},
		{`{"id": ID, "reward": NaN}`, "is not an answer"},
		{`{"id": ID, "reward": 1e999}`, "reward is 1e999, not a number of 64 bits"},
		{`{"id": ID, "reward": "much"}`, `reward is "much", not a number`},
		{`{"id": ID, "done": 1}`, "done is 1, not true or false"},
		{`{"id": ID, "messages": {}}`, "messages is an object, not a list"},
		{`{"id": ID, "messages": [{"role": "assistant", "content": "I"}]}`, `the role "assistant": it must be one of tool, user`},
		{`{"id": ID, "messages": [{"role": "use", "content": "I"}]}`, `the role "use": it must be one of tool, user`},
		{`{"id": ID, "messages": [{"content": "I"}]}`, `the role "": it must be one of tool, user`},
		{`{"id": ID, "messages": [7]}`, "cannot be read"},
		{`{"id": ID, "reward": 1}`, "to a step has no messages, and is not done"},
		{`{"id": ID, "error": "no board\u001b[2J"}`, `it reports: no board\x1b[2J`},
	} {
		e := begin(t, p)
		_, err := e.Step(t.Context(), environment.Turn{Text: tt.text})
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), `environment "command": "`+os.Args[0]+` game says": `) {
			t.Errorf("%s: %v, want %q", tt.text, err, tt.want)
		}
		if _, err := e.Step(t.Context(), environment.Turn{}); err == nil {
			t.Errorf("%s: the episode goes on", tt.text)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if len(p.idle) != 0 {
			t.Errorf("%s: its process has another episode", tt.text)
		}
	}
	e := begin(t, p)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := e.Step(ctx, environment.Turn{Text: "hang"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a program that hangs: %v", err)
	}
	if err := e.Close(); err != nil || len(p.idle) != 0 {
		t.Errorf("%v, %d processes", err, len(p.idle))
	}
	if _, err := program("absent").Begin(t.Context(), environment.Start{}); err == nil || !strings.Contains(err.Error(), "exit status 4") {
		t.Errorf("a program that is gone: %v", err)
	}
	p.Command = []string{"no-such-program-of-onering"}
	if _, err := p.Begin(t.Context(), environment.Start{}); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("a program that is not there: %v", err)
	}
}

// TestProcesses: there are as many processes as concurrent episodes, and a process plays
// one episode after the other.
func TestProcesses(t *testing.T) {
	p := program("well")
	t.Cleanup(func() { p.Close() })
	var mu sync.Mutex
	seen := map[string]bool{}
	for range 5 {
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				e, err := p.Begin(t.Context(), environment.Start{})
				if err != nil {
					t.Error(err)
					return
				}
				o, err := e.Step(t.Context(), environment.Turn{Text: "x"})
				if err != nil {
					t.Error(err)
				} else {
					pid, _, _ := strings.Cut(o.Messages[0].Content, " ")
					mu.Lock()
					seen[pid] = true
					mu.Unlock()
				}
				e.Close()
			})
		}
		all.Wait()
	}
	if len(seen) > 3 || len(p.idle) > 3 {
		t.Errorf("%d processes, %d of them idle", len(seen), len(p.idle))
	}
}

// TestRude: a program that does not answer the end of an episode is killed.
func TestRude(t *testing.T) {
	patience = 100 * time.Millisecond
	defer func() { patience = 2 * time.Second }()
	p := program("rude")
	e := begin(t, p)
	if err := e.Close(); err != nil || len(p.idle) != 0 {
		t.Errorf("%v, %d processes", err, len(p.idle))
	}
}

// gone waits until a process has ended.
func gone(t *testing.T, what string, pid int) {
	t.Helper()
	for range 500 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%s, process %d, is still there", what, pid)
}

// TestNothingIsLeft: a program that is cut off in a step ends, with its children. It also
// ends when onering is killed.
func TestNothingIsLeft(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("looks for processes in /proc")
	}
	file := filepath.Join(t.TempDir(), "pids")
	pids := func() (parent, child int) {
		text, err := os.ReadFile(file)
		if err == nil {
			_, err = fmt.Sscan(string(text), &parent, &child)
		}
		if err != nil {
			t.Fatal(err)
		}
		return parent, child
	}
	e := begin(t, program("parent", file))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := e.Step(ctx, environment.Turn{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	e.Close()
	parent, child := pids()
	gone(t, "the program", parent)
	gone(t, "its child", child)

	onering := exec.Command(os.Args[0], "game", "onering", file)
	out, err := onering.StdoutPipe()
	if err == nil {
		err = onering.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if text, err := bufio.NewReader(out).ReadString('\n'); err != nil || text != "begun\n" {
		t.Fatalf("%q, %v", text, err)
	}
	parent, child = pids()
	if process, err := os.FindProcess(child); err == nil {
		defer process.Kill() // No process kills the children of children.
	}
	onering.Process.Kill()
	onering.Wait()
	gone(t, "the program", parent)
}

func TestValidate(t *testing.T) {
	for _, command := range [][]string{nil, {" "}} {
		p := program()
		p.Command = command
		if err := settings.Check(p); err == nil || !strings.Contains(err.Error(), "must name a program") {
			t.Errorf("%q: %v", command, err)
		}
	}
	p := program()
	if err := errors.Join(settings.Check(p), p.Ready(t.Context())); err != nil {
		t.Error(err)
	}
	p.Command = []string{"no-such-program-of-onering"}
	if err := p.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "environment.command") {
		t.Error(err)
	}
}
