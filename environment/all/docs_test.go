package all_test

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"onering/environment"
	_ "onering/environment/all"
	"onering/internal/settings"
)

// example returns the fenced block of a language under a heading of docs/environments.md.
func example(t *testing.T, heading, language string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/environments.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n"+heading+"\n")
	section, _, _ = strings.Cut(section, "\n##")
	block := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(section)
	if block == nil {
		t.Fatalf("docs/environments.md: %q has no block of %s", heading, language)
	}
	return block[1]
}

// configured returns the environment of the run file under a heading.
func configured(t *testing.T, heading string) environment.Environment {
	t.Helper()
	var file struct{ Environment toml.Primitive }
	meta, err := toml.Decode(example(t, heading, "toml"), &file)
	var head struct {
		Name string
		environment.Limits
	}
	if err == nil {
		err = meta.PrimitiveDecode(file.Environment, &head)
	}
	if err != nil {
		t.Fatal(err)
	}
	e, err := environment.New(head.Name)
	if err == nil {
		err = meta.PrimitiveDecode(file.Environment, e)
	}
	if err == nil {
		err = settings.Check(e)
	}
	if err != nil {
		t.Fatal(err)
	}
	if left := meta.Undecoded(); len(left) > 0 {
		t.Errorf("%s: there is no key %v", heading, left)
	}
	t.Cleanup(func() {
		if c, ok := e.(io.Closer); ok {
			c.Close()
		}
	})
	return e
}

// TestPage: the examples in docs/environments.md do what the page says.
func TestPage(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no Python")
	}
	dir := t.TempDir()
	headings := map[string]string{"search.py": "### A Python program as a tool", "game.py": "### A Python program as a game", "server.py": "### An MCP server"}
	for name, heading := range headings {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(example(t, heading, "python")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	made := map[string]environment.Environment{}
	for name, heading := range headings {
		made[name] = configured(t, heading)
	}
	configured(t, "## openenv")
	t.Chdir(dir)
	call := func(name, arguments string) environment.Turn {
		return environment.Turn{Calls: []environment.Call{{Name: name, Arguments: json.RawMessage(arguments)}}}
	}
	play(t, made["search.py"], environment.Start{},
		call("capital", `{"country": "Japan"}`), "Tokyo", call("capital", `{}`), "error: the process died: exit status 1; its last words: no such country",
		call("calculator", `{"expression": "7/2"}`), "3.5")
	play(t, made["game.py"], environment.Start{Seed: 7 << 32}, environment.Turn{Text: "0"}, "Higher.", environment.Turn{Text: "100"}, "Lower.", environment.Turn{Text: "?"}, "That is not a number.")
	if exec.Command("python3", "-c", "from mcp.server import MCPServer").Run() == nil {
		play(t, made["server.py"], environment.Start{}, call("count_words", `{"text": "a b"}`), "2")
	}
}

// play plays an episode of these turns; after each turn the environment must answer with the given
// text.
func play(t *testing.T, e environment.Environment, s environment.Start, turns ...any) {
	t.Helper()
	episode, err := e.Begin(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer episode.Close()
	for i := 0; i < len(turns); i += 2 {
		o, err := episode.Step(t.Context(), turns[i].(environment.Turn))
		if err != nil || o.Done || o.Messages[0].Content != turns[i+1] {
			t.Errorf("%+v: %+v, %v, want %q", turns[i], o, err, turns[i+1])
		}
	}
}
