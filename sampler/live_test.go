package sampler

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// A mixedFake is a fake decoder whose slots may sample in different ways.
type mixedFake struct {
	*fakeDecoder
	ways []Sampling
}

func newMixed(slots, maxTokens int) *mixedFake {
	return &mixedFake{newFake(slots, maxTokens), make([]Sampling, slots)}
}

func (d *mixedFake) SetSlotSampling(slot int, s Sampling) error {
	d.ways[slot] = s
	return nil
}

// mix draws the answers again, each in its slot's way.
func (d *mixedFake) mix(slots []int, uniforms []float32, next []int32, logp, entropy []float32) error {
	for i, s := range slots {
		if d.ways[s] == (Sampling{}) {
			continue // it samples as all do
		}
		d.temperature, d.greedy = d.ways[s].Temperature, d.ways[s].Greedy
		if err := d.sample(i, s, uniforms[i], next, logp, entropy); err != nil {
			return err
		}
	}
	return nil
}

func (d *mixedFake) Start(prefixes, slots []int, uniforms []float32, next []int32, logp, entropy []float32) error {
	d.temperature = 1
	if err := d.fakeDecoder.Start(prefixes, slots, uniforms, next, logp, entropy); err != nil {
		return err
	}
	return d.mix(slots, uniforms, next, logp, entropy)
}

func (d *mixedFake) Step(slots []int, ids []int32, uniforms []float32, next []int32, logp, entropy []float32) error {
	d.temperature = 1
	if err := d.fakeDecoder.Step(slots, ids, uniforms, next, logp, entropy); err != nil {
		return err
	}
	return d.mix(slots, uniforms, next, logp, entropy)
}

// TestLive has calls with options of their own come at any time and some be
// canceled: every response must be the one that the oracle samples alone, its tokens
// must come in order, and the decoder must be as it was.
func TestLive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newMixed(rapid.IntRange(1, 5).Draw(t, "slots"), 24)
		l, err := NewLive(d)
		if err != nil {
			t.Fatal(err)
		}
		type state struct {
			call      *Call
			tokens    map[int][]int32
			responses []Response
			canceled  bool
		}
		var states []*state
		begin := func(req Request) {
			s := &state{tokens: map[int][]int32{}}
			opts := drawOptions(t)
			opts.Token = func(x Token) { s.tokens[x.Sample] = append(s.tokens[x.Sample], x.ID) }
			s.call = &Call{Options: opts, Request: req, Done: func(r Response) { s.responses = append(s.responses, r) }, Failed: func(err error) { t.Fatal(err) }}
			if err := l.Add(s.call); err != nil {
				t.Fatal(err)
			}
			states = append(states, s)
		}
		for _, req := range drawRequests(t) {
			begin(req)
			for range rapid.IntRange(0, 6).Draw(t, "steps") {
				l.Step()
			}
			if s := rapid.SampledFrom(states).Draw(t, "one"); rapid.IntRange(0, 5).Draw(t, "cancel") == 0 {
				l.Cancel(s.call)
				s.canceled = true
			}
		}
		for l.Step() {
		}
		for i, s := range states {
			if !s.canceled && len(s.responses) != s.call.Samples {
				t.Fatalf("call %d has %d responses, want %d", i, len(s.responses), s.call.Samples)
			}
			for _, got := range s.responses {
				want := oracle(s.call.Request, got.Sample, s.call.Options, 24)
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("call %d: got %+v, want %+v", i, got, want)
				}
				if !reflect.DeepEqual(s.tokens[got.Sample], want.IDs) {
					t.Fatalf("call %d: the tokens came as %v, want %v", i, s.tokens[got.Sample], want.IDs)
				}
			}
		}
		if err := d.clean(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestLiveFailure has the decoder fail: the calls that were being answered are told
// once, and the next ones are answered.
func TestLiveFailure(t *testing.T) {
	for _, where := range []string{"prefill", "start", "step"} {
		d := newMixed(3, 40)
		l, err := NewLive(d)
		if err != nil {
			t.Fatal(err)
		}
		failed, done := 0, 0
		add := func() {
			o := plain(10)
			o.EOS = nil
			err := l.Add(&Call{Options: o, Request: Request{Prompt: []int32{1}, Samples: 2}, Done: func(Response) { done++ }, Failed: func(err error) {
				if failed++; err == nil {
					t.Error("no error")
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
		add()
		d.fail = func(call string) error {
			if call == where {
				return errors.New("no memory")
			}
			return nil
		}
		l.Step()
		l.Step()
		d.fail = nil
		if failed != 1 || done != 0 {
			t.Errorf("%s: %d failed, %d done", where, failed, done)
		}
		add()
		for l.Step() {
		}
		if failed != 1 || done != 2 {
			t.Errorf("%s: afterwards %d failed, %d done", where, failed, done)
		}
		add()
		l.Step()
		l.Close()
		if failed != 2 {
			t.Errorf("%s: a closed Live leaves its calls without an end", where)
		}
		if err := d.clean(); err != nil {
			t.Error(where, err)
		}
	}
}

// TestLiveRefuses has impossible calls be refused before they are queued.
func TestLiveRefuses(t *testing.T) {
	l, err := NewLive(newMixed(1, 8))
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []*Call{
		{Options: plain(0), Request: Request{Prompt: []int32{1}, Samples: 1}},
		{Options: plain(3), Request: Request{Samples: 1}},
		{Options: plain(3), Request: Request{Prompt: []int32{1}}},
		{Options: plain(3), Request: Request{Prompt: make([]int32, 8), Samples: 1}},
	} {
		if l.Add(c) == nil || l.Step() {
			t.Error(fmt.Sprint("call ", i, " was taken"))
		}
	}
}
