// Unittests is a grader for generated code: it runs the tests of a problem on the code
// of each response, in a process with limits. It reads and writes the JSON lines of the
// reward "command" of onering:
//
//	[reward]
//	name = "command"
//	command = ["./unittests", "-seconds", "10", "-megabytes", "512"]
//
// The row of a problem has its tests in the column "tests", and in "language" either
// "python", whose tests are statements that raise an error where the code is wrong, or
// "go", whose tests are a file of package solution. The code is the last fenced block
// of the response, or all of it. It earns 1 if the tests pass, else 0.
//
// What the limits do not do: the code can read what you can read, and write where you
// may write. Give it a user or a container of its own where that matters.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Limits bound one run of the tests.
type limits struct {
	Seconds   int // seconds of wall-clock time, and of processor time in all
	Megabytes int // megabytes of memory of a process, and of each file that it writes
	Network   bool
}

// A group is a problem with the responses to it.
type group struct {
	ID      int `json:"id"`
	Problem struct {
		Tests    string `json:"tests"`
		Language string `json:"language"`
	} `json:"problem"`
	Responses []struct {
		Text string `json:"text"`
	} `json:"responses"`
}

// An answer has a reward, a component and a reason for each response.
type answer struct {
	ID         int                  `json:"id"`
	Rewards    []float64            `json:"rewards"`
	Components map[string][]float64 `json:"components"`
	Reasons    []string             `json:"reasons"`
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == jailed {
		fmt.Fprintln(os.Stderr, enter(os.Args[2], os.Args[3:])) // enter returns only if it fails
		os.Exit(125)
	}
	var l limits
	flag.IntVar(&l.Seconds, "seconds", 10, "time for the tests of one response")
	flag.IntVar(&l.Megabytes, "megabytes", 512, "memory for the tests of one response")
	flag.BoolVar(&l.Network, "network", false, "leave the network to the code; without it the grader ends where it cannot be shut off")
	flag.Parse()
	if err := serve(os.Stdin, os.Stdout, l); err != nil {
		fmt.Fprintln(os.Stderr, "unittests:", err)
		os.Exit(1)
	}
}

// serve grades groups until the input ends.
func serve(from io.Reader, to io.Writer, l limits) error {
	if out, err := l.run(context.Background(), os.TempDir(), "true"); err != nil {
		return fmt.Errorf("no process can be shut in here: %w %s; -network does without the part that needs the system's leave", err, out)
	}
	in, out := bufio.NewReader(from), json.NewEncoder(to)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		var g group
		if err := json.Unmarshal(line, &g); err != nil {
			return err
		}
		a := answer{ID: g.ID, Components: map[string][]float64{}}
		for _, r := range g.Responses {
			code, found := fenced(r.Text)
			reward, reason, err := l.grade(g.Problem.Language, code, g.Problem.Tests)
			if err != nil {
				return err // onering starts another grader; the response never counts as 0
			}
			a.Rewards, a.Reasons = append(a.Rewards, reward), append(a.Reasons, reason)
			a.Components["fenced"] = append(a.Components["fenced"], found)
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

var fence = regexp.MustCompile("(?s)```[a-zA-Z]*\n(.*?)```")

// fenced returns the last fenced block of a text and 1, or all of the text and 0.
func fenced(text string) (code string, found float64) {
	if blocks := fence.FindAllStringSubmatch(text, -1); blocks != nil {
		return blocks[len(blocks)-1][1], 1
	}
	return text, 0
}

// grade runs the tests on the code. An error is this program's own.
func (l limits) grade(language, code, tests string) (reward float64, reason string, err error) {
	dir, err := os.MkdirTemp("", "unittests-")
	if err != nil {
		return 0, "", err
	}
	defer os.RemoveAll(dir)
	// Code that ends the process with success before the tests have run does not print
	// the password.
	password := rand.Text()
	var command []string
	switch language {
	case "python":
		command = []string{"python3", "-I", "main.py"}
		err = write(dir, "main.py", code+"\n\n"+tests+"\n\nprint("+fmt.Sprintf("%q", password)+")\n")
	case "go":
		command = []string{"./solution.test"}
		err = errors.Join(
			write(dir, "go.mod", "module solution\n"), write(dir, "solution.go", code), write(dir, "solution_test.go", tests),
			write(dir, "main_test.go", fmt.Sprintf(goMain, password)),
		)
	default:
		return 0, "", fmt.Errorf("the problem's language is %q: want python or go", language)
	}
	if err != nil {
		return 0, "", err
	}
	if language == "go" {
		if out, err := compile(dir); err != nil {
			return 0, "it does not compile: " + last(out), nil
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(l.Seconds)*time.Second)
	defer cancel()
	out, err := l.run(ctx, dir, command...)
	switch {
	case ctx.Err() != nil:
		return 0, fmt.Sprintf("it takes more than %d s", l.Seconds), nil
	case errors.Is(err, exec.ErrNotFound):
		return 0, "", err
	case err != nil || !strings.Contains(out, password):
		return 0, "the tests fail: " + last(strings.ReplaceAll(out, password, "")), nil
	}
	return 1, "the tests pass", nil
}

// goMain prints the password when the tests have passed.
const goMain = `package solution

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		fmt.Println(%q)
	}
	os.Exit(code)
}
`

func write(dir, name, text string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
}

// compile builds the tests of a Go package within two minutes. Compiling does not run the
// code: cgo is off and nothing is fetched.
func compile(dir string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-o", "solution.test", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOPROXY=off", "GOFLAGS=-mod=mod", "GOTOOLCHAIN=local", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run runs a command in the folder dir within the limits, and returns the end of its
// output. The environment, which may hold secrets, is not passed on.
func (l limits) run(ctx context.Context, dir string, command ...string) (string, error) {
	path, err := exec.LookPath(command[0])
	if strings.HasPrefix(command[0], "./") {
		path, err = command[0], nil // in dir
	}
	if err != nil {
		return "", err
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(l)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{jailed, string(text), path}, command[1:]...)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "LANG=C.UTF-8"}
	var out capped
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // time for pipes that a process outside the jail holds open
	l.shut(cmd)
	err = cmd.Run()
	return string(out.text), err
}

// jailed is the argument with which this program enters the jail and becomes another program.
const jailed = "run-in-jail"

// A capped buffer holds the last 64 KB, or a little more.
type capped struct{ text []byte }

func (c *capped) Write(p []byte) (int, error) {
	if c.text = append(c.text, p...); len(c.text) > 256<<10 {
		c.text = append([]byte{}, c.text[len(c.text)-64<<10:]...)
	}
	return len(p), nil
}

// last returns the last line of a text, no more than 200 bytes of it.
func last(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	line := lines[len(lines)-1]
	return line[:min(len(line), 200)]
}
