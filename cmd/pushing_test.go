package cmd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"onering/models/hub"
	"onering/train"
)

// A run that pushes its checkpoints sends each so many of them while it goes on, and the last one
// at the end.
func TestPushWhileTraining(t *testing.T) {
	files := takePushes(t, "token")
	dir := filepath.Join(t.TempDir(), "run")
	code, stdout, stderr := command(t, "", "train", "--quiet", "--json", "--report=false", "--out", dir, "--set", "output.push_to=me/mine", "--set", "train.rounds=2",
		"--set", "rollout.prompts_per_round=4", "--set", "train.batch_size=32", "--set", "train.save_every=1", "--set", "eval.suites=")
	if code != 0 || strings.Contains(stdout, "early") {
		t.Fatalf("code %d\n%s%s", code, stdout, stderr)
	}
	for _, name := range []string{"model.safetensors", "config.json", "README.md"} {
		if len(files[name]) == 0 {
			t.Errorf("%s was not pushed", name)
		}
	}
	t.Setenv("HF_TOKEN", "another")
	code, _, stderr = command(t, "", "train", "--quiet", "--out", dir+"-4", "--set", "output.push_to=me/mine")
	if code == 0 || !strings.Contains(stderr, `output.push_to = "me/mine": `) || !strings.Contains(stderr, "or is not valid") {
		t.Errorf("code %d: a run with a token that the hub does not know begins\n%s", code, stderr)
	}
	t.Setenv("HF_ENDPOINT", "http://127.0.0.1:9")
	code, stdout, stderr = command(t, "", "train", "--quiet", "--json", "--report=false", "--out", dir+"-3", "--set", "output.push_to=me/mine", "--set", "train.rounds=1",
		"--set", "rollout.prompts_per_round=4", "--set", "train.batch_size=32", "--set", "eval.suites=")
	if code != 1 || !strings.Contains(stdout, `"rounds":1`) || !strings.Contains(stderr, "onering push --model ") {
		t.Errorf("code %d: the summary of a run whose last push failed is missing\n%s%s", code, stdout, stderr)
	}
	t.Setenv("HF_TOKEN", "")
	code, _, stderr = command(t, "", "train", "--quiet", "--out", dir+"-2", "--set", "output.push_to=me/mine")
	if code == 0 || !strings.Contains(stderr, `output.push_to = "me/mine": `) || !strings.Contains(stderr, "set HF_TOKEN") {
		t.Errorf("code %d: a run without a token begins\n%s", code, stderr)
	}
}

// A checkpoint that could not be pushed is tried again with the next one and at the end, never
// twice at once, and none is removed while it is needed.
func TestPusher(t *testing.T) {
	var mu sync.Mutex
	var pushed []string
	fail := map[string]bool{"a": true, "c": true}
	release := make(chan struct{})
	p := &pusher{Pushing: train.Pushing{PushTo: "me/mine", PushEvery: 1}, ctx: t.Context(), push: func(_ context.Context, dir string) error {
		<-release
		mu.Lock()
		defer mu.Unlock()
		pushed = append(pushed, dir)
		if fail[dir] {
			return errors.New("the hub is away")
		}
		return nil
	}}
	p.Saved("a")
	if !p.Needs("a") || p.Needs("b") {
		t.Error("a checkpoint that is being pushed is not needed, or another is")
	}
	p.Saved("b")
	p.Saved("c") // takes the place of b, which waits
	if p.Needs("b") || !p.Needs("c") {
		t.Error("the newest checkpoint does not wait in the place of the one before")
	}
	close(release)
	p.idle.Wait()
	if !p.failed || p.Needs("c") {
		t.Error("the push of c failed, and c is free")
	}
	dir := t.TempDir() // stands for the result
	fail[dir] = true
	if err := p.finish(dir); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("onering push --model %s --to me/mine", shellQuoted(nearest(dir)))) {
		t.Error(err)
	}
	fail[dir] = false
	if err := p.finish(dir); err != nil {
		t.Error(err)
	}
	if want := []string{"a", "c", dir, dir}; !slices.Equal(pushed, want) {
		t.Errorf("pushed %v, want %v", pushed, want)
	}
	every := &pusher{Pushing: train.Pushing{PushEvery: 2}, push: p.push, ctx: t.Context()}
	for range 5 {
		every.Saved("e")
		every.idle.Wait()
	}
	if n := len(pushed) - 4; n != 2 {
		t.Errorf("%d of 5 checkpoints are pushed, want every second", n)
	}
	if _, err := newPusher(t.Context(), train.Pushing{PushTo: "mine"}, hub.Options{}); err == nil || !strings.Contains(err.Error(), "OWNER/NAME") {
		t.Error(err)
	}
}
