package train

import (
	"errors"
	"slices"
	"sync"
	"testing"
)

// A checkpoint that could not be pushed is tried again with the next one and at the end, never
// twice at once, and none is removed while it is needed.
func TestPusher(t *testing.T) {
	var mu sync.Mutex
	var pushed []string
	fail := map[string]bool{"a": true, "c": true}
	release := make(chan struct{})
	p := &Pusher{Pushing: Pushing{PushTo: "me/mine", PushEvery: 1}, Push: func(dir string) error {
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
	fail["end"] = true
	if p.Finish("end") {
		t.Error("a push that failed is there")
	}
	fail["end"] = false
	if !p.Finish("end") || !p.Finish("end") {
		t.Error("the result could not be pushed")
	}
	if want := []string{"a", "c", "end", "end"}; !slices.Equal(pushed, want) {
		t.Errorf("pushed %v, want %v", pushed, want)
	}
	every := &Pusher{Pushing: Pushing{PushEvery: 2}, Push: p.Push}
	for range 5 {
		every.Saved("e")
		every.idle.Wait()
	}
	if n := len(pushed) - 4; n != 2 {
		t.Errorf("%d of 5 checkpoints are pushed, want every second", n)
	}
}
