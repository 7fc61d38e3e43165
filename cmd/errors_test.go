package cmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"onering/internal/cli"
	"onering/train/rl"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"onering/internal/settings"
)

// TestErrorsOfNames: a newline in a name begins no line of an error, and a long name is shortened.
func TestErrorsOfNames(t *testing.T) {
	long := strings.Repeat("x", 3000)
	dir := filepath.Join(t.TempDir(), "a\nb")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Skip(err)
	}
	for _, args := range [][]string{
		{"watch", dir}, {"report", dir}, {"data", "check", dir + "/none.jsonl"}, {"generate", "--model", dir}, {"tokenize", "--model=" + dir},
		{"sweep", dir + "/x.toml"}, {"train", "--config", dir + "/x.toml"}, {"replay", dir}, {"eval", "--compare", dir, dir},
		{"train", "--set", "train.rounds=" + long}, {"train", "--set", long + "=1"}, {"generate", "--model", long, "--temperature", long}, {long}, {"train", "--" + long},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(args, strings.NewReader(""), &stdout, &stderr); code == 0 {
			t.Errorf("%.80q: exit code 0", args)
		}
		for line := range strings.Lines(stderr.String()) {
			if !strings.HasPrefix(line, "onering: ") && !strings.HasPrefix(line, "Run 'onering") && !strings.HasPrefix(line, "level=") {
				t.Errorf("%.80q begins the line %.200q", args, line)
			}
			if len(line) > 1200 {
				t.Errorf("%.80q gives a line of %d bytes: %.200q", args, len(line), line)
			}
		}
	}
}

// TestNext: the commands that a command proposes next can be run as they are.
func TestNext(t *testing.T) {
	for _, tt := range []struct {
		sets []string
		want []string
	}{
		{[]string{"model.template=chat"}, []string{"onering chat --model 'a run'"}},
		{[]string{"model.template=chat", "model.system=Be short.", `eval.suites=["a.jsonl","amc"]`}, []string{
			"onering chat --model 'a run'",
			"onering eval --model 'a run'",
		}},
		{[]string{"model.template=Q: {problem}", `model.stop=["\n"]`}, []string{
			`echo '{"prompt":"What is 1+1?"}' | onering generate --model 'a run'`,
		}},
		{nil, []string{`echo '{"prompt":"What is 1+1?"}' | onering generate --model 'a run'`}},
		{[]string{"model.path=builtin:arithmetic", "model.template=no"}, []string{`echo '{"prompt":"1+1="}' | onering generate --model 'a run'`}},
		{[]string{"lora.on=true", "model.template=chat", "eval.suites=amc"}, []string{
			`onering chat --model 'a run'`,
			"onering eval --model 'a run'",
		}},
	} {
		set, err := settings.Sets(append([]string{"data.train=x.jsonl", "model.path=m"}, tt.sets...))
		if err != nil {
			t.Fatal(err)
		}
		r, err := resolve(set)
		if err != nil {
			t.Fatal(err)
		}
		got := nextCommands(rl.Summary{Folder: "a run", Checkpoint: "a run/c"}, r.Config)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q\nwant %q", got, tt.want)
		}
		checkShell(t, "next", strings.ReplaceAll(strings.Join(got, "\n"), "'\n'", "x"))
	}
}

// TestHostileNames gives commands names and files with control sequences. Nothing
// that they print has one.
func TestHostileNames(t *testing.T) {
	const evil = "\x1b]0;owned\x07\u009b31m\u202e"
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Skipf("no such names here: %v", err)
		}
		return path
	}
	row := func(key string) string {
		text, err := json.Marshal(map[string]string{key: evil, "answer": evil, "id": evil})
		if err != nil {
			t.Fatal(err)
		}
		return string(text) + "\n"
	}
	model := filepath.Dir(write("m"+evil+"/config.json", `{"model_type": "`+strings.ReplaceAll(evil, "\x1b", `\u001b`)+`"}`))
	write("m"+evil+"/tokenizer.json", `{"model": {"type": "\u001b[31m\u009b\u202e", "vocab": {}, "merges": []}}`)
	folder := filepath.Dir(write("run"+evil+"/metrics.jsonl", `{"kind":"round","round":1,"step":1,"reward":0.5,"eval/\u001b[31m/pass@1":1}`+"\n"))
	write("run"+evil+"/run.toml", "[objective]\nname = \"\\u001b[31m\\u202e\"\n")
	write("run"+evil+"/rollouts/round-00001.jsonl", `{"prompt":"\u001b[31m\u009b","response":"\u202e\u001b[2J","answers":["\u001b"],"answer":"\u001b[0m"}`+"\n")
	broken := filepath.Dir(write("broken"+evil+"/metrics.jsonl", "{\"\x1b\n"))
	for _, args := range [][]string{
		{"generate", "--model", filepath.Join(dir, "none"+evil)},
		{"generate", "--model", model},
		{"tokenize", "--model", model},
		{"verify", write("pairs"+evil+".jsonl", "{\"\x1b[31m\n")},
		{"data", "check", write("rows"+evil+".jsonl", row(evil))},
		{"data", "check", write("good.jsonl", row("problem")+"{}\n")},
		{"data", "check", write("x.csv", evil+","+evil+"\n1,2\n")},
		{"data", "show", "--filter", evil + " in 1..2", write("rows.jsonl", row("problem"))},
		{"train", "--config", write("run.toml", "[train]\n\""+strings.ReplaceAll(evil, "\x1b", `\u001b`)+"\" = 1\n")},
		{"train", "--config", filepath.Join(dir, "none"+evil)},
		{"train", "--set", "train." + evil + "=1"},
		{"train", "--objective", evil, "--out", filepath.Join(dir, "out")},
		{"report", broken},
		{"report", "--out", filepath.Join(dir, "none", evil), folder},
		{"watch", folder},
		{"watch", broken},
		{"eval", "--compare", filepath.Join(dir, "a"+evil), filepath.Join(dir, "b")},
		{evil},
		{"train", "--" + evil},
	} {
		var stdout, stderr bytes.Buffer
		code := run(args, strings.NewReader(""), &stdout, &stderr)
		text := stdout.String() + stderr.String()
		var shown bytes.Buffer
		(&cli.Visible{To: &shown}).Write([]byte(text))
		if shown.String() != text {
			t.Errorf("onering %q (exit code %d) printed %q", args, code, text)
		}
		if len(text) < 10 {
			t.Errorf("onering %q printed only %q", args, text)
		}
	}
}

// TestWithFlags: an error names settings, and the command the flags that it has for them.
func TestWithFlags(t *testing.T) {
	err := settings.About(errors.New("set model.template to chat, or rollout.slots to 1"), "model.template", "rollout.slots")
	for c, want := range map[*cobra.Command]string{
		newTrain():    err.Error() + " (model.template is --template)",
		newChat():     err.Error() + " (model.template is --template)",
		newGenerate(): err.Error() + " (model.template is --template) (rollout.slots is --slots)",
	} {
		if got := withFlags(c, fmt.Errorf("x: %w", err)); got.Error() != "x: "+want {
			t.Errorf("%s: %q, want %q", c.Name(), got, want)
		}
	}
}
