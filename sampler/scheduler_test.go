package sampler

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestScheduler adds calls with separate options at any time and cancels some: every
// response must equal the oracle's, which samples alone, tokens must come in order, and
// the decoder must end unchanged.
func TestScheduler(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newFake(rapid.IntRange(1, 5).Draw(t, "slots"), 24)
		l, err := NewScheduler(d)
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

// TestSchedulerFailure lets the decoder fail: each call in progress gets the error once,
// and later calls are answered.
func TestSchedulerFailure(t *testing.T) {
	for _, where := range []string{"prefill", "begin", "step"} {
		d := newFake(3, 40)
		l, err := NewScheduler(d)
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
		l.Close(errors.New("stopped"))
		if failed != 2 {
			t.Errorf("%s: a closed Scheduler leaves its calls without an end", where)
		}
		if err := d.clean(); err != nil {
			t.Error(where, err)
		}
	}
}

// TestSchedulerFailingResponse lets the decoder return a NaN as the first, a middle or
// the last token of one response: only its call fails, once, and all others are answered.
func TestSchedulerFailingResponse(t *testing.T) {
	for _, at := range []int{0, 3, 5} {
		for _, samples := range []int{1, 3} {
			for _, others := range []int{0, 4} {
				name := fmt.Sprintf("token %d of %d samples with %d other calls", at, samples, others)
				d := newFake(2, 40)
				d.spoil = func(tokens []int32, out *Drawn) {
					if tokens[0] == 9 && len(tokens) == 1+at {
						out.LogProb = float32(math.NaN())
					}
				}
				s, err := NewScheduler(d)
				if err != nil {
					t.Fatal(err)
				}
				var failed []error
				done := map[int32]int{}
				add := func(token int32) {
					o := plain(6)
					o.EOS = nil
					c := &Call{Options: o, Request: Request{Prompt: []int32{token}, ID: 8, Samples: samples}, Done: func(Response) { done[token]++ }}
					c.Failed = func(err error) {
						if failed = append(failed, err); token != 9 {
							t.Errorf("%s: call %d failed: %v", name, token, err)
						}
					}
					if err := s.Add(c); err != nil {
						t.Fatal(err)
					}
				}
				if others > 0 {
					add(1)
				}
				add(9)
				for i := range others {
					add(int32(2 + i))
				}
				for s.Step() {
				}
				if len(failed) != 1 || !strings.Contains(failed[0].Error(), fmt.Sprintf("token %d: the decoder gave", at)) || done[9] != 0 && at == 0 {
					t.Errorf("%s: errors %v, %d responses", name, failed, done[9])
				}
				if delete(done, 9); len(done) != max(0, others)+min(1, others) {
					t.Errorf("%s: %v of the others are answered", name, done)
				}
				for token, n := range done {
					if n != samples {
						t.Errorf("%s: call %d has %d responses", name, token, n)
					}
				}
				if err := d.clean(); err != nil {
					t.Error(name, err)
				}
			}
		}
	}
}

// TestSchedulerUniformsRunOut: a call whose uniforms are used up fails alone, in a step
// in which others continue.
func TestSchedulerUniformsRunOut(t *testing.T) {
	d := newFake(4, 40)
	s, err := NewScheduler(d)
	if err != nil {
		t.Fatal(err)
	}
	o := plain(9)
	o.EOS = nil
	failed, done := 0, 0
	for _, q := range []Request{{Prompt: []int32{1}, Samples: 2, Uniforms: [][]float32{{0.1, 0.2, 0.3}, {0.5, 0.6}}}, {Prompt: []int32{2}, Samples: 1}} {
		c := &Call{Options: o, Request: q, Done: func(r Response) {
			if done++; len(r.IDs) != 9 || s.stats.Steps != 8 {
				t.Errorf("%d tokens after %d steps", len(r.IDs), s.stats.Steps)
			}
		}, Failed: func(error) { failed++ }}
		if err := s.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	for s.Step() {
	}
	if failed != 1 || done != 1 {
		t.Errorf("%d failed, %d done", failed, done)
	}
	if err := d.clean(); err != nil {
		t.Error(err)
	}
}

// TestSchedulerRefuses: impossible calls are refused before they are queued.
func TestSchedulerRefuses(t *testing.T) {
	l, err := NewScheduler(newFake(1, 8))
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
