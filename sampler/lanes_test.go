package sampler

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// TestLanes: several decoders sample the same responses as one, in the same order, for
// any slots and any number of decoders at the same time. The calls of done and the counts
// equal those of one decoder.
func TestLanes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts, reqs := drawOptions(t), drawRequests(t)
		lanes, fakes := drawLanes(t)
		var inside atomic.Int32
		alone := func() func() {
			if inside.Add(1) != 1 {
				t.Error("two at the same time")
			}
			return func() { inside.Add(-1) }
		}
		ended, tokens, rests, wakes := 0, 0, 0, 0
		lanes.Rest = func() (func(), error) { rests++; return func() { wakes++ }, nil }
		opts.Token = func(Token) { defer alone()(); tokens++ }
		got, stats, err := lanes.Sample(context.Background(), opts, reqs, func(Response) { defer alone()(); ended++ })
		for _, d := range fakes {
			err = errors.Join(err, d.clean())
		}
		if err != nil {
			t.Fatal(err)
		}
		if several := len(lanes.Decoders) > 1 && lanes.AtOnce > 1; rests != wakes || several != (rests == 1) || rests > 1 {
			t.Fatalf("%d decoders, %d at once: %d rests, %d wakes", len(lanes.Decoders), lanes.AtOnce, rests, wakes)
		}
		opts.Token = nil
		want, one, err := Sample(context.Background(), newFake(5, 40), opts, reqs, nil)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("error %v; the lanes sampled %+v, one decoder %+v", err, got, want)
		}
		if ended != len(want) || tokens != one.Tokens || stats.Responses != one.Responses || stats.Tokens != one.Tokens || stats.Prompts != one.Prompts ||
			stats.PrefillTokens != one.PrefillTokens || stats.SlotSteps != one.SlotSteps || stats.Occupancy() > 1 {
			t.Fatalf("%d responses and %d tokens told, stats %+v; one decoder has %+v", ended, tokens, stats, one)
		}
	})
}

func drawLanes(t *rapid.T) (lanes Lanes, fakes []*fakeDecoder) {
	lanes.AtOnce = rapid.IntRange(1, 4).Draw(t, "at once")
	for range rapid.IntRange(1, 4).Draw(t, "decoders") {
		d := newFake(rapid.IntRange(1, 9).Draw(t, "slots"), 40)
		fakes, lanes.Decoders = append(fakes, d), append(lanes.Decoders, d)
	}
	return lanes, fakes
}

// TestLanesFail: the error of one decoder ends all decoders and is the only error, and
// all slots and prefixes are freed.
func TestLanesFail(t *testing.T) {
	boom := errors.New("boom")
	rapid.Check(t, func(t *rapid.T) {
		opts, reqs := drawOptions(t), drawRequests(t)
		lanes, fakes := drawLanes(t)
		var failed atomic.Bool
		bad := rapid.SampledFrom(fakes).Draw(t, "which fails")
		after := rapid.IntRange(0, 9).Draw(t, "after")
		bad.fail = func(call string) error {
			if after--; call == "step" && after < 0 {
				failed.Store(true)
				return boom
			}
			return nil
		}
		got, stats, err := lanes.Sample(context.Background(), opts, reqs, nil)
		if errors.Is(err, boom) != failed.Load() || errors.Is(err, context.Canceled) || (err == nil) == failed.Load() {
			t.Fatalf("failed %v, error %v", failed.Load(), err)
		}
		if stats.Responses != len(got) {
			t.Fatalf("%d responses, and %d in %+v", len(got), stats.Responses, stats)
		}
		for _, d := range fakes {
			if err := d.clean(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestSpans: consecutive spans cover all requests, and none exceeds its share of samples
// by more than one request.
func TestSpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var reqs []Request
		total, most := 0, 0
		for _, k := range rapid.SliceOfN(rapid.IntRange(1, 9), 0, 20).Draw(t, "samples") {
			reqs = append(reqs, Request{Samples: k})
			total, most = total+k, max(most, k)
		}
		n := rapid.IntRange(1, 6).Draw(t, "decoders")
		next := 0
		list := cutIntoSpans(reqs, n)
		for _, s := range list {
			sum := 0
			for i := range reqs {
				if s.has(i) {
					sum += reqs[i].Samples
				}
			}
			if s.from != next || s.to <= s.from && len(reqs) > 0 || sum*n > total+most*n {
				t.Fatalf("%v of %v", list, reqs)
			}
			next = s.to
		}
		if next != len(reqs) || len(list) > n {
			t.Fatalf("%v of %v", list, reqs)
		}
	})
}
