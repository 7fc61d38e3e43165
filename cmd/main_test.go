package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"onering/runtime"
)

func TestMain(m *testing.M) {
	noSpin = true
	testscript.Main(m, programs)
}

// programs are the programs that the test binary plays when it is called by their names.
var programs = map[string]func(){"onering": Main}

// TestScript runs the text scripts in testdata/script: command lines with their
// exact output, error and exit code. `go test -run TestScript/NAME` runs one.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Condition: func(name string) (bool, error) {
			if name == "onnxruntime" {
				return libraryFound(), nil
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
		Setup: func(env *testscript.Env) error {
			// The scripts' HOME is not the user's, so the test names the cache, where a
			// script finds a library that is already there. No script fetches one.
			if dir, err := os.UserCacheDir(); err == nil && os.Getenv("ONERING_CACHE") == "" {
				env.Setenv("ONERING_CACHE", filepath.Join(dir, "onering"))
			}
			for _, name := range []string{"ONERING_CACHE", "ONNXRUNTIME_LIB"} {
				if value := os.Getenv(name); value != "" {
					env.Setenv(name, value)
				}
			}
			env.Setenv("ONERING_OFFLINE", "1")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"adapter":     adapter,
			"exits":       exits,
			"page":        page,
			"refused":     refused,
			"safetensors": safetensors,
			"truncate":    truncate,
			"patch":       patch,
		},
	})
}

// libraryFound reports whether an ONNX Runtime library can be used without
// fetching one.
var libraryFound = sync.OnceValue(func() bool {
	r, err := runtime.Options{}.Diagnose(context.Background())
	return err == nil && r.Library != nil && len(r.Problems) == 0
})

// exits CODE COMMAND... runs a command and wants that exit code; stdout and
// stderr may be inspected afterwards. (testscript's own exec tells failure from
// success only.)
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	err := ts.Exec("sh", append([]string{"-c", `code=$1; shift; "$@"; got=$?; test $got = $code || { echo "exit code $got, want $code" >&2; exit 1; }`, "sh"}, args...)...)
	if err != nil {
		ts.Fatalf("%s: %v\n%s", strings.Join(args[1:], " "), err, ts.ReadFile("stderr"))
	}
}

// page NAME writes the commands of a page of docs to page.sh, and its Python program to the file
// that its first line names. What is from Python has a test of its own.
func page(ts *testscript.TestScript, neg bool, args []string) {
	text, err := os.ReadFile(filepath.Join("../docs", args[0]))
	ts.Check(err)
	shell, _, _ := strings.Cut(string(text), "\n## From Python\n")
	commands := "set -ex\n"
	for _, block := range regexp.MustCompile("(?s)```(sh|python)\n(.*?)```").FindAllStringSubmatch(shell, -1) {
		if block[1] == "sh" {
			commands += block[2]
			continue
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(block[2], "# "), ":")
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(block[2]), 0o666))
	}
	ts.Check(os.WriteFile(ts.MkAbs("page.sh"), []byte(commands), 0o666))
}

// TestHelp holds every command to the same form.
func TestHelp(t *testing.T) {
	walk(newRoot(), func(c *cobra.Command) {
		name := c.CommandPath()
		if c.Short == "" || strings.HasSuffix(c.Short, ".") || c.Short[0] < 'A' || c.Short[0] > 'Z' {
			t.Errorf("%s: short help %q: want a phrase that begins with a capital and has no full stop", name, c.Short)
		}
		if c.HasParent() && c.Example == "" {
			t.Errorf("%s has no example", name)
		}
		if c.RunE == nil || c.Run != nil {
			t.Errorf("%s: want RunE, not Run: run tells mistakes of usage from failures by it", name)
		}
		if c.Args == nil {
			t.Errorf("%s takes any arguments", name)
		}
		for line := range strings.SplitSeq(c.Long, "\n") {
			if len(line) > 80 {
				t.Errorf("%s: a line of the help is longer than 80: %q", name, line)
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s: --%s has no help", name, f.Name)
			}
		})
	})
}

// TestHelps: each text in help belongs to a command.
func TestHelps(t *testing.T) {
	part := regexp.MustCompile(`\{[a-z]+\}|\n\n`) // words that the program fills in, and empty lines
	var texts strings.Builder
	walk(newRoot(), func(c *cobra.Command) {
		texts.WriteString(c.Use + "\n" + c.Short + "\n" + c.Long + "\nExamples:\n" + c.Example + "\n")
	})
	entries, err := helps.ReadDir("help")
	if err != nil || len(entries) < 20 {
		t.Fatalf("%d texts, %v", len(entries), err)
	}
	for _, e := range entries {
		if text, err := helps.ReadFile("help/" + e.Name()); err != nil || slices.ContainsFunc(part.Split(string(text), -1), func(part string) bool { return !strings.Contains(texts.String(), part) }) {
			t.Errorf("help/%s is the help of no command (%v)", e.Name(), err)
		}
	}
}

// TestExamples parses the examples in the helps, so that no example names a flag that is
// gone.
func TestExamples(t *testing.T) {
	walk(newRoot(), func(c *cobra.Command) {
		checkShell(t, c.CommandPath()+" --help", c.Example)
	})
}

// flagName matches a flag in a text.
var flagName = regexp.MustCompile(`(?:^|[\s('"])--([a-z][a-z-]*[a-z])`)

// TestHelpNamesFlags wants every flag that a help names to be one of the program's: of
// the command itself unless its sentence is about another one, such as a Python tool's.
func TestHelpNamesFlags(t *testing.T) {
	known := map[string]bool{"help": true}
	walk(newRoot(), func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
		c.PersistentFlags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
	})
	walk(newRoot(), func(c *cobra.Command) {
		texts := map[string]string{c.CommandPath() + " --help": c.Long}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { texts[c.CommandPath()+" --"+f.Name] = f.Usage })
		for place, text := range texts {
			if c.Name() == "completion" || c.HasParent() && c.Parent().Name() == "completion" {
				continue // cobra's
			}
			for _, m := range flagName.FindAllStringSubmatch(text, -1) {
				if !known[m[1]] {
					t.Errorf("%s names --%s, which no command has", place, m[1])
				}
			}
		}
	})
}

// TestReadme parses the command lines of the README and of docs, and wants the
// README's table of commands to be that of the program.
func TestReadme(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var readme string
	for _, page := range append(pages, "../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		readme = string(text)
		var shell strings.Builder
		within := false
		for line := range strings.SplitSeq(readme, "\n") {
			if strings.HasPrefix(line, "```") {
				within = line == "```sh"
			} else if within {
				shell.WriteString(line + "\n")
			}
		}
		if n := checkShell(t, page, shell.String()); n < 4 && page == "../README.md" {
			t.Errorf("found %d command lines in the README", n)
		}
	}
	for _, c := range newRoot().Commands() {
		if !strings.Contains(readme, "`"+c.Name()) {
			t.Errorf("the README does not name the command %q", c.Name())
		}
	}
}

// checkShell parses the command lines of this program in a script, and wants the
// files of the repository that it names to be there. It returns how many there are.
func checkShell(t *testing.T, place, script string) (checked int) {
	t.Helper()
	script = strings.NewReplacer("\\\n", " ", "|\n", "| ").Replace(script)
	for line := range strings.SplitSeq(script, "\n") {
		for part := range strings.SplitSeq(line, " | ") {
			part = strings.Replace(strings.TrimSpace(part), "go run ./cmd/onering ", "onering ", 1)
			words := splitWords(part)
			for _, w := range words {
				// The pages' runs write runs/out and other folders.
				w = strings.TrimPrefix(w, "./")
				if _, value, ok := strings.Cut(w, "="); ok {
					w = value
				}
				first, _, deep := strings.Cut(w, "/")
				if !deep || strings.HasPrefix(w, "runs/out") || !slices.Contains([]string{"runs", "bench", "examples", "docs"}, first) {
					continue
				}
				if _, err := os.Stat("../" + w); err != nil {
					t.Errorf("%s: %s: %v", place, line, err)
				}
			}
			if len(words) > 1 && words[0] == "onering" {
				checkCommandLine(t, words)
				checked++
			}
		}
	}
	return checked
}

// checkCommandLine wants a command line that gets as far as the command's own code.
func checkCommandLine(t *testing.T, words []string) {
	t.Helper()
	line := strings.Join(words, " ")
	c, rest, err := newRoot().Find(words[1:])
	if err != nil {
		t.Errorf("%s: %v", line, err)
		return
	}
	if err := c.ParseFlags(rest); err != nil {
		t.Errorf("%s: %v", line, err)
		return
	}
	if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		t.Errorf("%s: %v", line, err)
	}
}

// splitWords splits a shell command as far as the examples need it: quotes are
// taken off, redirections end the command.
func splitWords(s string) []string {
	var words []string
	var word strings.Builder
	var quote rune
	started := false
	for _, r := range s {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, started = r, true
		case r == '<' || r == '>' || r == '#':
			return words
		case r == ' ' || r == '\t':
			if started {
				words = append(words, word.String())
				word.Reset()
				started = false
			}
		default:
			word.WriteRune(r)
			started = true
		}
	}
	if started {
		words = append(words, word.String())
	}
	return words
}

// TestUnwritten: output that cannot be written is a failure, for every command and for help.
func TestUnwritten(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"--version"}, {"version", "--json"}, {"objectives"}, {"rewards"}, {"--help"}, {"train", "--help"}} {
		var stderr bytes.Buffer
		if code := run(args, strings.NewReader(""), full{}, &stderr); code != exitFailed || stderr.String() != "onering: no space\n" {
			t.Errorf("%q: exit code %d, %q", args, code, stderr.String())
		}
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space") }
