package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"

	"onering/environment"
	"onering/environment/environmenttest"
	"onering/internal/settings"
)

// The programs of these tests are this test binary: with the argument "tool" it answers a
// call instead of testing.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "tool" {
		programs[os.Args[2]]()
		return
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	os.Exit(m.Run())
}

var programs = map[string]func(){
	"echo":   func() { io.Copy(os.Stdout, os.Stdin) },
	"hangs":  func() { time.Sleep(time.Hour) },
	"floods": func() { io.Copy(os.Stdout, zeros{}) },
	"dies": func() {
		fmt.Println("a beginning")
		fmt.Fprintln(os.Stderr, "no more \x1b[31mpatience")
		os.Exit(3)
	},
	"lies":   func() { os.Stdout.WriteString("\xff\xfe done\n\n") },
	"silent": func() {},
	// starts a child process that holds the tool's pipes, prints its process id and exits
	"parent": func() {
		child := exec.Command(os.Args[0], "tool", "hangs")
		child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			panic(err)
		}
		fmt.Println(child.Process.Pid)
	},
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// with returns the environment with the programs of this file as tools.
func with(names ...string) *Tools {
	e, err := environment.New("tools")
	if err != nil {
		panic(err)
	}
	t := e.(*Tools)
	t.Seconds = 20
	for _, name := range names {
		t.Commands = append(t.Commands, program{Name: name, Command: []string{os.Args[0], "tool", name}, Description: "Is called " + name + "."})
	}
	return t
}

// say plays a turn of calls and returns the answers.
func say(t *testing.T, e environment.Environment, calls ...environment.Call) (texts []string) {
	t.Helper()
	episode, err := e.Begin(t.Context(), environment.Start{})
	if err != nil {
		t.Fatal(err)
	}
	o, err := episode.Step(t.Context(), environment.Turn{Calls: calls})
	if err != nil || o.Done || o.Reward != nil || len(o.Messages) != len(calls) {
		t.Fatalf("%+v, %v", o, err)
	}
	for _, m := range o.Messages {
		if m.Role != "tool" {
			t.Errorf("a message of %q", m.Role)
		}
		texts = append(texts, m.Content)
	}
	if o, err := episode.Step(t.Context(), environment.Turn{Text: "so it is 4"}); err != nil || !o.Done {
		t.Errorf("a turn without calls: %+v, %v", o, err)
	}
	if err := episode.Close(); err != nil {
		t.Error(err)
	}
	return texts
}

func call(name, arguments string) environment.Call {
	return environment.Call{Name: name, Arguments: json.RawMessage(arguments)}
}

func TestConformance(t *testing.T) {
	environmenttest.Run(t, "tools")
	t.Run("plain", func(t *testing.T) {
		environmenttest.RunNew(t, func() environment.Environment {
			e := with()
			e.Plain = true
			return e
		})
	})
	t.Run("programs", func(t *testing.T) {
		environmenttest.RunNew(t, func() environment.Environment { return with("echo", "dies") })
	})
}

// TestAnswers: what a policy reads from tools that work, and from tools that do not.
func TestAnswers(t *testing.T) {
	e := with("echo", "dies", "lies", "silent", "floods")
	e.Output = 50
	got := say(t, e,
		call("calculator", `{"expression": "2+2*3 ="}`), call("calculator", `{"expression": "1/3"}`), call("calculator", `{"expression": "1/0"}`),
		call("calculator", `{"expression": 7}`), call("calculator", `[]`), call("calculator", `{}`),
		call("echo", `{"x": [1,  "ü"]}`), call("dies", `{}`), call("lies", `{}`), call("silent", `{}`), call("floods", `{}`), call("python", `{}`),
	)
	for i, want := range []string{
		"8", "1/3, about 0.333333333333", "error: division by zero",
		`error: the arguments must be an object with a text under "expression"`, `error: the arguments must be an object with a text under "expression"`, `error: the arguments must be an object with a text under "expression"`,
		`{"x":[1,"ü"]}`, "a beginning\nerror: the process died: exit status 3; its last words: no more \\x1b[31mpatience", "\ufffd done", "",
		strings.Repeat("\x00", 50) + "\nerror: it wrote more than 50 bytes and was ended", `error: there is no tool "python"; there are calculator, echo, dies, lies, silent, floods`,
	} {
		if got[i] != want {
			t.Errorf("call %d: %q, want %q", i, got[i], want)
		}
	}
}

// TestManyCalls: a turn of a thousand calls takes much less than a thousand times as long as one
// call.
func TestManyCalls(t *testing.T) {
	var calls []environment.Call
	for range 1000 {
		calls = append(calls, call("calculator", `{"expression": "2+2"}`))
	}
	got := say(t, with(), calls...)
	if got[15] != "4" || got[16] != "error: only 16 calls are answered in one turn" || got[999] != got[16] {
		t.Errorf("%q", got[15:17])
	}
}

// TestHangs: a program that hangs is killed with its children after its time limit, and
// at once when its caller stops waiting.
func TestHangs(t *testing.T) {
	e := with("hangs", "parent")
	e.Seconds = 0.1
	if got := say(t, e, call("hangs", "{}"))[0]; got != "error: it took more than 0.1 s and was ended" {
		t.Errorf("%q", got)
	}
	e.Seconds = 20
	if got := say(t, e, call("parent", "{}"))[0]; runtime.GOOS == "linux" {
		if _, err := os.Stat("/proc/" + got + "/exe"); err == nil { // a zombie has no link exe
			t.Errorf("process %s is still there", got)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	episode, err := e.Begin(ctx, environment.Start{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := episode.Step(ctx, environment.Turn{Calls: []environment.Call{call("hangs", "{}")}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

// TestPython: Python runs within its limits. A call cannot reach what the limits forbid.
func TestPython(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no Python")
	}
	t.Setenv("A_SECRET", "12345")
	e := with()
	e.Tools, e.Megabytes = []string{"python"}, 64
	for _, tt := range []struct{ code, want string }{
		{"print(6 * 7)", "42\n"},
		{"x = 6", "The program printed nothing."},
		{"1/0", "Traceback (most recent call last):\n  File \"<stdin>\", line 1, in <module>\nZeroDivisionError: division by zero\nerror: the process died: exit status 1"},
		{"def f(:", "SyntaxError"},
		{"import os; print(sorted(os.environ), os.listdir())", "['HOME', 'LANG', "},
		{"import os; print(os.environ.get('A_SECRET'))", "None\n"},
		{"print(input())", "EOFError"},
		{"import sys; sys.exit(4)", "error: the process died: exit status 4"},
	} {
		arguments, _ := json.Marshal(map[string]string{"code": tt.code})
		if got := say(t, e, call("python", string(arguments)))[0]; !strings.Contains(got, tt.want) {
			t.Errorf("%s\nis answered with\n%s\nwant\n%s", tt.code, got, tt.want)
		}
	}
	if runtime.GOOS != "linux" {
		return
	}
	for _, tt := range []struct{ code, want string }{
		{"x = bytearray(200 << 20)", "MemoryError"},
		{"f = open('f', 'wb')\nfor i in range(65): f.write(bytes(1 << 20))", "File too large"},
		{"import socket; socket.create_connection(('127.0.0.1', 1))", "OSError"},
	} {
		if strings.Contains(tt.code, "socket") && exec.Command("unshare", "-rn", "true").Run() != nil {
			continue // This system gives users no namespaces.
		}
		arguments, _ := json.Marshal(map[string]string{"code": tt.code})
		if got := say(t, e, call("python", string(arguments)))[0]; !strings.Contains(got, tt.want) {
			t.Errorf("%s\nis answered with\n%s\nwant\n%s", tt.code, got, tt.want)
		}
	}
}

// TestPlain: a model without a chat template asks by =, and any other text ends its episode.
func TestPlain(t *testing.T) {
	e := with()
	e.Plain = true
	if got := e.Stops(); len(got) != 1 || got[0] != "=" || !e.Repeats() {
		t.Errorf("stops %q", got)
	}
	episode, err := e.Begin(t.Context(), environment.Start{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		text, want string
		done       bool
	}{{"9+5+0=", "14", false}, {";2+5+1=", "8", false}, {"nothing=", "", false}, {`;\boxed{1084}`, "", true}} {
		o, err := episode.Step(t.Context(), environment.Turn{Text: tt.text})
		if err != nil || o.Done != tt.done || !o.Done && o.Messages[0].Content != tt.want {
			t.Errorf("%q: %+v, %v", tt.text, o, err)
		}
	}
	if o, err := environmenttest.Open(e, environment.Start{}); err != nil || !reflect.DeepEqual(o, environment.Opening{}) {
		t.Errorf("it opens with %+v, %v", o, err)
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{`tools = ["calculator", "python"]`, ""},
		{`tools = []`, "there is no tool"},
		{`tools = ["calculater"]`, "must be calculator or python"},
		{`tools = ["python", "python"]`, "each once"},
		{`plain = true`, ""},
		{"plain = true\ntools = [\"python\"]", "has a meaning with"},
		{`commands = [{name = "calculator", command = ["x"]}]`, "a name of its own"},
		{`commands = [{name = "a b", command = ["x"]}]`, "a name of its own"},
		{`commands = [{name = "a", command = []}]`, "must have a command"},
		{`commands = [{name = "a", command = ["x"], parameters = "{"}]`, "a JSON schema"},
		{`commands = [{name = "a", command = ["x"], parameters = "null"}]`, "a JSON schema"},
		{`seconds = 0`, "must be"},
		{`commands = [{name = "a", command = ["x"], parameters = '{"type": "object"}'}]`, ""},
	} {
		e := with()
		if _, err := toml.Decode(tt.text, e); err != nil {
			t.Errorf("%s: %v", tt.text, err)
		}
		if err := settings.Check(e); tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.text, err, tt.want)
		}
	}
}

// TestCommands: a run file's settings of programs are read, written and read again.
func TestCommands(t *testing.T) {
	const text = `[{name = "a", command = ["x", "y"], description = "d", parameters = "{}"}]`
	for _, source := range []string{"commands = " + text, "[[commands]]\nname = \"a\"\ncommand = [\"x\", \"y\"]\ndescription = \"d\"\nparameters = \"{}\""} {
		e := with()
		if _, err := toml.Decode(source, e); err != nil {
			t.Fatal(err)
		}
		if got, err := e.Commands.MarshalTOML(); err != nil || string(got) != text {
			t.Errorf("%s: %s, %v", source, got, err)
		}
	}
	if _, err := toml.Decode(`commands = [{nam = "a"}]`, with()); err == nil || !strings.Contains(err.Error(), `unknown key "nam"; did you mean "name"?; a command has name, command, description, parameters`) {
		t.Errorf("error %v", err)
	}
}

// TestReady: a missing program is found before a run.
func TestReady(t *testing.T) {
	e := with("echo")
	if err := e.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	e.Commands[0].Command = []string{"no-such-program-of-onering"}
	e.Tools, e.Python = []string{"python"}, "no-such-python"
	if err := e.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "no-such-python") || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("error %v", err)
	}
}
