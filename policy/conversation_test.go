package policy

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/internal/settings"
	"onering/models"
	"onering/runtime/runtimetest"
	"onering/sampler"
	"onering/tokenize"
)

// talkTo begins a conversation with a model of random weights. Its chat template drops
// the thoughts of earlier answers, as Qwen3's does.
func talkTo(t *testing.T) *Conversation {
	t.Helper()
	env := runtimetest.Test(t)
	dir := t.TempDir()
	const shape = "testdata/talker"
	model, err := models.ReadConfig(shape)
	if err != nil {
		t.Fatal(err)
	}
	weights, err := model.Init(3)
	if err == nil {
		err = model.Save(filepath.Join(dir, "model"), weights, models.SaveOptions{DType: models.F32, Tokenizer: shape})
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := Open(env, Options{Path: filepath.Join(dir, "model")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	chat, _ := tokenize.ParseTemplate("chat")
	c, err := p.Conversation(chat)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func deaf(string) error { return nil }

// TestConversationAppends: the ids of earlier turns stay, though the template would write
// them anew, and the part of the conversation that the decoder has cached changes no token.
func TestConversationAppends(t *testing.T) {
	anew, kept := talkTo(t), talkTo(t)
	kept.decoder.StepCost = 0       // always append
	anew.decoder.StepCost = 1 << 30 // never
	o := sampler.Options{Sampling: sampler.Plain(24), Seed: 5}
	for i, text := range []string{"1+1", "2", "é=?"} {
		before := slices.Clone(kept.IDs)
		a, err := kept.Answer(context.Background(), text, o, deaf)
		if err != nil {
			t.Fatal(err)
		}
		b, err := anew.Answer(context.Background(), text, o, deaf)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && (a.ReusedTokens == 0 || b.ReusedTokens != 0) {
			t.Errorf("turn %d: %d and %d tokens were not computed again", i, a.ReusedTokens, b.ReusedTokens)
		}
		if !slices.Equal(a.IDs, b.IDs) || !slices.Equal(kept.IDs[:len(before)], before) {
			t.Errorf("turn %d: %v on top of what there was, %v anew; %v became %v", i, a.IDs, b.IDs, before, kept.IDs)
		}
	}
}

// TestConversationStops: an interrupted answer keeps the tokens it has, and the next turn
// follows it. A turn that fails changes nothing.
func TestConversationStops(t *testing.T) {
	c := talkTo(t)
	o := sampler.Options{Sampling: sampler.Sampling{Temperature: 1, TopP: 1, TopK: 1, MaxNewTokens: 60}} // The first choice is not an EOS for many tokens.
	ctx, cancel := context.WithCancel(context.Background())
	pieces := 0
	a, err := c.Answer(ctx, "1", o, func(string) error {
		if pieces++; pieces == 3 {
			cancel()
		}
		return nil
	})
	if err != nil || !a.Interrupted() || len(a.IDs) < 3 || len(a.IDs) == 60 {
		t.Fatalf("%+v, %v", a, err)
	}
	if n := len(c.IDs); n != a.PromptTokens+len(a.IDs) || len(c.Messages) != 2 || c.Messages[1].Content != a.Text {
		t.Errorf("%d ids and %v after %+v", n, c.Messages, a)
	}
	broken := errors.New("nobody listens")
	if _, err := c.Answer(context.Background(), "2", o, func(string) error { return broken }); err != broken || len(c.Messages) != 2 {
		t.Errorf("%v, %d messages", err, len(c.Messages))
	}
	if b, err := c.Answer(context.Background(), "2", o, deaf); err != nil || b.PromptTokens <= a.PromptTokens+len(a.IDs) {
		t.Errorf("%+v, %v", b, err)
	}
	var full error
	for range 4 {
		if _, full = c.Answer(context.Background(), strings.Repeat("1+", 10), o, deaf); full != nil {
			break
		}
	}
	before := len(c.Messages)
	if e := (FullError{}); !errors.As(full, &e) || e.Context != 120 || e.Tokens <= 120 {
		t.Errorf("%v", full)
	}
	if _, err := c.Answer(context.Background(), "x", o, deaf); err == nil || len(c.Messages) != before {
		t.Errorf("a character that the vocabulary lacks: %v, %d messages", err, len(c.Messages))
	}
	c.Reset()
	if _, err := c.Answer(context.Background(), "1", o, deaf); err != nil {
		t.Error(err)
	}
}

// TestReadRun reads run files of other commands and versions, and refuses other files.
func TestReadRun(t *testing.T) {
	text := func(run settings.Source) string {
		text, _ := settings.Find("model.template", run).Value.(string)
		return text
	}
	for _, tt := range []struct {
		text, want string
		template   string
	}{
		{"[model]\ntemplate = \"no\"\n", "", "no"},
		{"", "", ""},
		{"[model]\ntemplate = \"no\"\nfuture = 1\n[episodes]\nturns = 3\n[rollout]\nslots = \"many\"\n[[parts]]\na = 1\n", "", "no"},
		{"[model", "run.toml", ""},
	} {
		run := t.TempDir()
		if err := os.WriteFile(filepath.Join(run, "run.toml"), []byte(tt.text), 0o666); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{run, filepath.Join(run, "checkpoints", "step-000001")} {
			r, err := ReadRun(dir)
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) || tt.want == "" && (err != nil || text(r.Settings) != tt.template) {
				t.Errorf("%q: %+v, %v", tt.text, r, err)
			}
		}
	}
	run := t.TempDir()
	if r, err := ReadRun(run); r != nil || err != nil {
		t.Errorf("no run: %+v, %v", r, err)
	}
	if err := os.Symlink("/dev/zero", filepath.Join(run, "run.toml")); err == nil {
		if _, err := ReadRun(run); err == nil {
			t.Error("a device in the place of run.toml was read")
		}
	}
}
