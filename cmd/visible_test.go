package cmd

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEscaped(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"plain – ∞ 日本 é\tx\n", "plain – ∞ 日本 é\tx\n"},
		{"\x1b[2J\x1b]0;title\x07", `\x1b[2J\x1b]0;title\x07`},
		{"a\rb\x00\x7f", `a\rb\x00\u007f`},
		{"\u009b31m", `\u009b31m`},
		{"\x9b31m", `\x9b31m`}, // a control sequence of 8 bits, which is no UTF-8
		{"gnp.\u202etxt\u2066", `gnp.\u202etxt\u2066`},
		{"bad \xff\xfe", `bad \xff\xfe`},
	} {
		if got := escaped(tt.text); got != tt.want {
			t.Errorf("escaped(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}

// TestVisibleWrites cuts texts into pieces anywhere: what is written must not
// depend on it.
func TestVisibleWrites(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "\n", "é", "日", "😀", "\x1b[0m", "\u009b", "\xff", "\xe6\x97", "\u202e"}
	for range 2000 {
		var text strings.Builder
		for range r.IntN(8) {
			text.WriteString(alphabet[r.IntN(len(alphabet))])
		}
		text.WriteString(".") // the beginning of a character at the very end is kept for more
		var out bytes.Buffer
		v := &visible{w: &out}
		for rest := text.String(); rest != ""; {
			n := 1 + r.IntN(len(rest))
			if got, err := v.Write([]byte(rest[:n])); got != n || err != nil {
				t.Fatalf("Write = %d, %v", got, err)
			}
			rest = rest[n:]
		}
		if want := escaped(text.String()); out.String() != want {
			t.Fatalf("%q in pieces: %q, want %q", text.String(), out.String(), want)
		}
	}
}

// TestEscapedJSON has a terminal show JSON that still has the same value.
func TestEscapedJSON(t *testing.T) {
	for r := range rune(0x3000) {
		if !utf8.ValidRune(r) {
			continue
		}
		want := "x" + string(r) + "y"
		var line bytes.Buffer
		if err := (lineWriter{&line}).write(want); err != nil {
			t.Fatal(err)
		}
		shown := escaped(line.String())
		if strings.ContainsFunc(shown, hidden) {
			t.Errorf("%U is shown as %q", r, shown)
		}
		var got string
		if err := json.Unmarshal([]byte(shown), &got); err != nil || got != want {
			t.Errorf("%U: %q reads as %q, %v", r, shown, got, err)
		}
	}
}

// TestRawResults writes results as they are where no terminal shows them.
func TestRawResults(t *testing.T) {
	var out bytes.Buffer
	v := &visible{w: &out}
	if err := (lineWriter{v}).write("\u009b\u202e"); err != nil {
		t.Fatal(err)
	}
	if want := "\"\u009b\u202e\"\n"; out.String() != want {
		t.Errorf("a line of JSON: %q, want %q", out.String(), want)
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
		if strings.ContainsFunc(text, hidden) || !utf8.ValidString(text) {
			t.Errorf("onering %q (exit code %d) printed %q", args, code, text)
		}
		if len(text) < 10 {
			t.Errorf("onering %q printed only %q", args, text)
		}
	}
}
