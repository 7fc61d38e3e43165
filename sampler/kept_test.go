package sampler

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A conversation through a Kept decoder equals one through a decoder that computes every
// prompt anew. Kept computes no token twice where it may append.
func TestKeptContinues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts := drawOptions(t)
		fake, again := newFake(1, 400), newFake(1, 400)
		fake.fed = true
		kept := NewKept(fake, rapid.SampledFrom([]int{0, 1, 8}).Draw(t, "step cost"))
		var conversation []int32
		held := 0 // tokens in the slot
		for turn := range rapid.IntRange(1, 6).Draw(t, "turns") {
			if rapid.IntRange(0, 5).Draw(t, "reset") == 0 {
				conversation, held = nil, 0
			}
			said := rapid.SliceOfN(rapid.Int32Range(0, fakeVocab-1), 1, 6).Draw(t, "said")
			conversation = append(slices.Clone(conversation), said...)
			request := []Request{{Prompt: conversation, ID: uint64(turn), Samples: 1}}
			got, stats, err := Sample(context.Background(), kept, opts, request, nil)
			if err != nil {
				t.Fatal(err)
			}
			want, _, err := Sample(context.Background(), again, opts, request, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("turn %d:\n got %+v\nwant %+v", turn, got, want)
			}
			// After a reset the conversation may begin with the same tokens again.
			if held > 0 {
				reused := 0
				if (len(conversation)-held)*kept.StepCost <= held {
					reused = held
				}
				if kept.Reused != reused {
					t.Fatalf("turn %d: %d of %d tokens reused, want %d", turn, kept.Reused, len(conversation), reused)
				}
			}
			conversation = append(conversation, got[0].IDs...)
			held = len(conversation) - 1 // The last token was not fed yet.
			if stats.Steps != len(got[0].IDs)-1 {
				t.Fatalf("turn %d: %d steps are counted for %d tokens", turn, stats.Steps, len(got[0].IDs))
			}
		}
		kept.Close()
		if err := errors.Join(fake.clean(), again.clean()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestKeptForgetsAFailure: after a step that failed, Kept reuses no tokens.
func TestKeptForgetsAFailure(t *testing.T) {
	fake := newFake(1, 100)
	fake.fed = true
	kept := NewKept(fake, 0)
	request := []Request{{Prompt: []int32{1, 2, 3}, Samples: 1}}
	opts := Options{Sampling: Greedy(20)} // There is no EOS, so the response takes all 20 steps.
	boom := errors.New("boom")
	calls := 0
	fake.fail = func(call string) error {
		if calls++; calls > 6 {
			return boom
		}
		return nil
	}
	if _, _, err := Sample(context.Background(), kept, opts, request, nil); !errors.Is(err, boom) {
		t.Fatalf("%v, want %v", err, boom)
	}
	fake.fail = nil
	request[0].Prompt = append(request[0].Prompt, draws(request[0].Prompt, 3)...)
	got, _, err := Sample(context.Background(), kept, opts, request, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, _, err := Sample(context.Background(), newFake(1, 100), opts, request, nil)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v (%v), want %+v", got, err, want)
	}
	kept.Close()
	if err := fake.clean(); err != nil {
		t.Fatal(err)
	}
}

// draws returns the next n tokens of greedy decoding.
func draws(tokens []int32, n int) (ids []int32) {
	for range n {
		id, _, _ := draw(append(slices.Clone(tokens), ids...), 1, true, 0)
		ids = append(ids, id)
	}
	return ids
}
