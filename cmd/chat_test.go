package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"onering/policy"
	"onering/runtime/runtimetest"
	"onering/sampler"
	"onering/tokenize"
)

// talker writes a model of random weights whose vocabulary has the two bytes of é as
// tokens of their own, and the escape character. Its chat template writes answers
// before the last one in another way, as Qwen3's does.
func talker(t *testing.T) string {
	t.Helper()
	runtimetest.Test(t) // skips the test where there is no library
	out := filepath.Join(t.TempDir(), "talker")
	var stderr bytes.Buffer
	if code := run([]string{"init", "--config", "../policy/testdata/talker", "--seed", "3", "--out", out, "-q"}, strings.NewReader(""), &stderr, &stderr); code != 0 {
		t.Fatal(stderr.String())
	}
	return out
}

// talkTo opens a conversation with the model in a folder.
func talkTo(t *testing.T, dir string, o sampler.Options) (*chatting, *policy.Policy) {
	t.Helper()
	p, err := policy.Open(runtimetest.Test(t), policy.Options{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	template, _ := tokenize.ParseTemplate("chat")
	c, err := newChatting(p, template, o, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, p
}

// generatedTexts are what generate samples for the rows of input, by index.
func generatedTexts(t *testing.T, input string, args ...string) (texts []string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(append([]string{"generate", "-q"}, args...), strings.NewReader(input), &stdout, &stderr); code != 0 {
		t.Fatal(stderr.String())
	}
	for line := range strings.Lines(stdout.String()) {
		var g generated
		if err := json.Unmarshal([]byte(line), &g); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, *g.Text)
	}
	return texts
}

// TestChatStreams: the pieces that a chat prints equal what generate samples for the same
// tokens, whichever part of the cache was reused.
func TestChatStreams(t *testing.T) {
	dir := talker(t)
	c, p := talkTo(t, dir, sampler.Options{Sampling: sampler.Plain(24), Seed: 5})
	tok := p.Tokenizer
	said := []string{"1+1", "2", "é=?"}
	var conversation []int32
	var rows strings.Builder
	var texts []string
	for i, text := range said {
		// The conversation is written by hand: the tokens of earlier turns stay, though
		// the template would drop what they said.
		end := ""
		if n := len(conversation); n > 0 && conversation[n-1] != 8 {
			end = "<eos>"
		}
		conversation = append(conversation, tok.Encode(end+"?"+text+"<eos>=")...)
		ids, _ := json.Marshal(conversation)
		fmt.Fprintf(&rows, `{"prompt_ids":%s}`+"\n", ids)
		var pieces []string
		a, err := c.Answer(context.Background(), text, c.Options, func(piece string) error { pieces = append(pieces, piece); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if a.Turn != i || a.PromptTokens != len(conversation) {
			t.Errorf("turn %d with %d tokens before it, want %d with %d", a.Turn, a.PromptTokens, i, len(conversation))
		}
		if got := strings.Join(pieces, ""); got != a.Text || slices.ContainsFunc(pieces, func(s string) bool { return !utf8.ValidString(s) }) {
			t.Errorf("turn %d: shown as %q, the answer is %q", i, pieces, a.Text)
		}
		if len(a.IDs) > 6 && len(pieces) < len(a.IDs)/3 {
			t.Errorf("turn %d: %d tokens in %d pieces", i, len(a.IDs), len(pieces))
		}
		texts = append(texts, a.Text)
		conversation = append(conversation, a.IDs...)
	}
	if want := generatedTexts(t, rows.String(), "--model", dir, "--seed", "5", "--max-tokens", "24"); !slices.Equal(texts, want) {
		t.Errorf("chat says\n%q\ngenerate\n%q", texts, want)
	}
	if want := generatedTexts(t, `{"prompt":"1+1"}`, "--model", dir, "--seed", "5", "--max-tokens", "24", "--chat"); texts[0] != want[0] {
		t.Errorf("chat says %q, generate --chat %q", texts[0], want[0])
	}
}

// TestChatCommands types the commands of chat, which begin with a slash.
func TestChatCommands(t *testing.T) {
	c, p := talkTo(t, talker(t), sampler.Options{Sampling: sampler.Greedy(4)})
	deaf := func(string) error { return nil }
	if _, err := c.Answer(context.Background(), "1", c.Options, deaf); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	if err := os.WriteFile(there, []byte("mine"), 0o666); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "a chat.jsonl")
	for _, tt := range []struct{ line, says string }{
		{"/help", "/reset"},
		{"/save " + file, "saved 2 messages"},
		{"/save " + file, "saved 2 messages"}, // the file that this chat wrote
		{"/save " + there, "there is such a file already"},
		{"/save", "/save needs the name of a file"},
		{"/sav x", `unknown command "/sav"; did you mean "/save"?`},
		{"/reset now", "takes nothing after it"},
		{"/system", "there is no system message"},
		{"/system x", "not in the vocabulary"},
		{"/system 1+", "begins anew with this system message"},
		{"/system", "1+"},
		{"/save " + filepath.Join(dir, "b"), "there is nothing to save yet"},
	} {
		var out strings.Builder
		if err := c.slashCommand(&out, tt.line); err != nil {
			out.WriteString(err.Error())
		}
		if !strings.Contains(out.String(), tt.says) {
			t.Errorf("%s: %q, want %q", tt.line, out.String(), tt.says)
		}
	}
	if mine, _ := os.ReadFile(there); string(mine) != "mine" {
		t.Errorf("/save wrote over a file: %q", mine)
	}
	// generate reads the saved file
	saved, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var row struct{ Messages []tokenize.Message }
	if err := json.Unmarshal(saved, &row); err != nil || len(row.Messages) != 2 || row.Messages[0].Content != "1" || row.Messages[1].Role != "assistant" {
		t.Errorf("%s: %v", saved, err)
	}
	if a, err := c.Answer(context.Background(), "1", c.Options, deaf); err != nil || a.PromptTokens != len(p.Tokenizer.Encode("+1+<eos>?1<eos>=")) {
		t.Errorf("after /system: %+v, %v", a, err)
	}
}

// TestChatLines talks to chat through a pipe: each line is a turn, and an error ends only its turn.
func TestChatLines(t *testing.T) {
	dir := talker(t)
	chat := func(input string, args ...string) (stdout, stderr string, code int) {
		var out, talk bytes.Buffer
		code = run(append([]string{"chat", "--model", dir, "--greedy", "--max-tokens", "4"}, args...), strings.NewReader(input), &out, &talk)
		return out.String(), talk.String(), code
	}
	one, _, code := chat("1\n")
	if code != 0 || !strings.HasSuffix(one, "\n") {
		t.Fatalf("exit code %d, %q", code, one)
	}
	out, talk, code := chat("\n1\r\nx\n/reset\n1\n/exit\n1\n")
	if out != one+one || code != 1 || !strings.Contains(talk, "onering: stdin:3: tokenize: 'x'") {
		t.Errorf("exit code %d, %q\n%s", code, out, talk)
	}
	out, _, code = chat("1\nx\n", "--json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 1 || len(lines) != 2 || !strings.HasPrefix(lines[0], `{"turn":0,"prompt":"1","text":`) || !strings.HasPrefix(lines[1], `{"turn":1,"prompt":"x","error":"tokenize: 'x'`) {
		t.Errorf("exit code %d, %q", code, lines)
	}
	if out, talk, code = chat("1\n1\xff\n1\n"); out != one || code != 1 || !strings.Contains(talk, "onering: stdin:2: not UTF-8") {
		t.Errorf("exit code %d, %q\n%s", code, out, talk)
	}
	// Another template keeps no memory of earlier turns.
	out, _, code = chat("1+\n1+\n", "--template", "no")
	if a, b, _ := strings.Cut(strings.TrimSuffix(out, "\n"), "\n"); code != 0 || a != b {
		t.Errorf("exit code %d, %q", code, out)
	}
	if _, talk, code = chat("1\n", "--template", "r1", "--system", "1"); code != 2 || !strings.Contains(talk, "--system \"1\": goes with the template chat") {
		t.Errorf("exit code %d, %s", code, talk)
	}
}
