package sampler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// A partsDecoder is a fakeDecoder that continues prompts.
type partsDecoder struct {
	*fakeDecoder
	part     int
	anywhere bool
	computed int         // number of tokens of prompts
	rooms    map[int]int // of open prefixes
	events   []string    // appended parts and steps
	most     int         // the largest number of tokens for which prefixes had room
}

func (d *partsDecoder) PromptParts() Parts { return d }
func (d *partsDecoder) Part() (int, bool)  { return d.part, d.anywhere }

func (d *partsDecoder) Open(from, n, room int) (int, error) {
	if err := d.failing("open"); err != nil {
		return 0, err
	}
	if n > 0 && n > len(d.prefixes[from]) || n >= room {
		return 0, d.breach("prefix %d has no %d tokens for a room of %d", from, n, room)
	}
	d.handle += 7
	d.prefixes[d.handle] = append([]int32{}, d.prefixes[from][:n]...)
	d.rooms[d.handle] = room
	total := 0
	for _, room := range d.rooms {
		total += room
	}
	d.most = max(d.most, total)
	return d.handle, nil
}

func (d *partsDecoder) Append(prefix int, ids []int32) error {
	if err := d.failing("append"); err != nil {
		return err
	}
	now := append(d.prefixes[prefix], ids...)
	if !d.anywhere && len(now)-len(ids) != (len(now)-len(ids))/d.part*d.part {
		return d.breach("a part begins at %d", len(now)-len(ids))
	}
	if len(now) > d.rooms[prefix] || len(ids) == 0 || len(ids) > d.part {
		return d.breach("prefix %d gets %d tokens", prefix, len(ids))
	}
	d.prefixes[prefix], d.computed = now, d.computed+len(ids)
	d.events = append(d.events, fmt.Sprint("part ", len(ids)))
	return nil
}

func (d *partsDecoder) Save(slot int) (int, int, error) {
	d.handle += 7
	d.prefixes[d.handle], d.rooms[d.handle] = slices.Clone(d.sequences[slot]), len(d.sequences[slot])
	return d.handle, len(d.sequences[slot]), nil
}

func (d *partsDecoder) Step(rows []Row) error {
	d.events = append(d.events, fmt.Sprint("step ", len(rows)))
	return d.fakeDecoder.Step(rows)
}

func (d *partsDecoder) Drop(prefix int) {
	d.fakeDecoder.Drop(prefix)
	delete(d.rooms, prefix)
}

// served is a Scheduler that keeps prefixes, and what its calls got.
type served struct {
	*Scheduler
	d *partsDecoder
	t *testing.T
}

func serving(t *testing.T, slots, part int, anywhere bool, most int) served {
	d := &partsDecoder{fakeDecoder: newFake(slots, 4000), part: part, anywhere: anywhere, rooms: map[int]int{}}
	s, err := NewScheduler(NewInvariant(d, InvariantToNeighbours))
	if err != nil {
		t.Fatal(err)
	}
	s.KeepPrefixes(most)
	t.Cleanup(func() {
		s.Close(fmt.Errorf("the test has ended"))
		s.d.(*Invariant).Close()
		if err := d.clean(); err != nil {
			t.Error(err)
		}
	})
	return served{s, d, t}
}

// add queues a call of some tokens with a seed.
func (s served) add(owner string, prompt []int32, tokens int, got *Response) *Call {
	s.t.Helper()
	c := &Call{Options: Options{Sampling: Plain(tokens), Seed: 3}, Request: Request{Prompt: prompt, Samples: 1}, Owner: owner}
	c.Done = func(r Response) { *got = r }
	c.Failed = func(err error) { s.t.Error(err) }
	if err := s.Add(c); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// ask answers a call alone.
func (s served) ask(owner string, prompt []int32, tokens int) (r Response, cached int) {
	s.t.Helper()
	c := s.add(owner, prompt, tokens, &r)
	for s.Step() {
	}
	return r, c.Cached
}

func someIDs(seed uint64, n int) []int32 {
	r, x := rand.New(rand.NewPCG(seed, 1)), make([]int32, n)
	for i := range x {
		x[i] = int32(1 + r.IntN(fakeVocab-1))
	}
	return x
}

// TestKeptPrefixes: a prompt continues what is kept of its owner's, in whole parts, and anywhere
// if bits allow it; then behind answers, too.
func TestKeptPrefixes(t *testing.T) {
	first, other := someIDs(1, 300), someIDs(2, 300)
	turn := func(r Response) []int32 { return slices.Concat(first, r.IDs, someIDs(3, 20)) }
	for _, c := range []struct {
		name     string
		anywhere bool
		owner    string
		prompt   func(r Response) []int32
		cached   func(r Response) int
	}{
		{"the same prompt", false, "a", func(Response) []int32 { return first }, func(Response) int { return 256 }},
		{"the same prompt", true, "a", func(Response) []int32 { return first }, func(Response) int { return 299 }},
		{"a turn", false, "a", turn, func(Response) int { return 256 }},
		{"a turn", true, "a", turn, func(r Response) int { return 300 + len(r.IDs) - 1 }},
		{"another key", true, "b", turn, func(Response) int { return 0 }},
		{"another prompt", true, "a", func(Response) []int32 { return other }, func(Response) int { return 0 }},
		{"a common beginning", false, "a", func(Response) []int32 { return slices.Concat(first[:200], other) }, func(Response) int { return 128 }},
		{"a common beginning", true, "a", func(Response) []int32 { return slices.Concat(first[:200], other) }, func(Response) int { return 200 }},
		{"a short beginning", true, "a", func(Response) []int32 { return slices.Concat(first[:25], other) }, func(Response) int { return 0 }},
		{"one token less", false, "a", func(Response) []int32 { return first[:256] }, func(Response) int { return 128 }},
	} {
		t.Run(fmt.Sprint(c.name, " ", c.anywhere), func(t *testing.T) {
			s := serving(t, 3, 128, c.anywhere, 4000)
			r, _ := s.ask("a", first, 9)
			prompt, before := c.prompt(r), s.d.computed
			got, cached := s.ask(c.owner, prompt, 9)
			if want := c.cached(r); cached != want || s.d.computed-before != len(prompt)-want {
				t.Errorf("%d tokens of %d are kept and %d computed, want %d kept", cached, len(prompt), s.d.computed-before, want)
			}
			alone, _ := serving(t, 3, 128, c.anywhere, 4000).ask("x", prompt, 9)
			if !slices.Equal(got.IDs, alone.IDs) || !slices.Equal(got.LogProb, alone.LogProb) {
				t.Errorf("sampled %v, alone %v", got.IDs, alone.IDs)
			}
		})
	}
}

// TestPartsBetweenSteps: while others are decoded, a long prompt is computed a part before each step, and
// several short ones together before one.
func TestPartsBetweenSteps(t *testing.T) {
	s := serving(t, 5, 128, false, 4000)
	var short, long Response
	s.add("a", someIDs(1, 5), 30, &short)
	s.Step()
	s.d.events = nil
	c := s.add("b", someIDs(2, 600), 4, &long)
	for range 5 {
		s.Step()
	}
	if want := []string{"part 128", "step 2", "part 128", "step 2", "part 128", "step 2", "part 128", "step 2", "part 88", "step 2"}; short.IDs == nil && !slices.Equal(s.d.events, want) {
		t.Errorf("the steps were %v", s.d.events)
	}
	// short prompts are computed before one step, up to the first of which more is left
	for s.Step() {
	}
	s.add("a", someIDs(1, 5), 30, &short)
	s.Step()
	s.d.events = nil
	for i, n := range []int{60, 140, 70} {
		s.add("c", someIDs(uint64(20+i), n), 4, new(Response))
	}
	s.Step()
	s.Step()
	if want := []string{"part 60", "part 128", "step 2", "part 12", "part 70", "step 4"}; !slices.Equal(s.d.events, want) {
		t.Errorf("the steps with short prompts were %v, not %v", s.d.events, want)
	}
	for s.Step() {
	}
	// what was computed of a cancelled prompt is kept
	c = s.add("b", someIDs(4, 600), 4, new(Response))
	s.Step()
	s.Step()
	s.Cancel(c)
	for s.Step() {
	}
	if _, cached := s.ask("b", someIDs(4, 600), 4); cached != 256 {
		t.Errorf("%d tokens are kept of a cancelled prompt", cached)
	}
	if c.Cached != 0 || len(long.IDs) == 0 || len(short.IDs) == 0 {
		t.Errorf("%d tokens were kept; responses %v, %v", c.Cached, long.IDs, short.IDs)
	}
}

// TestKeptPrefixesAreBounded: the newest are kept, and no more than there is room for; a
// conversation is kept once.
func TestKeptPrefixesAreBounded(t *testing.T) {
	for _, anywhere := range []bool{false, true} {
		s := serving(t, 3, 128, anywhere, 1000)
		for i := range uint64(6) {
			s.ask("a", someIDs(i, 300), 5)
		}
		if _, cached := s.ask("a", someIDs(5, 300), 5); cached < 256 {
			t.Errorf("anywhere %v: %d tokens are kept of the newest prompt", anywhere, cached)
		}
		if _, cached := s.ask("a", someIDs(0, 300), 5); cached != 0 {
			t.Errorf("anywhere %v: %d tokens are kept of the oldest prompt", anywhere, cached)
		}
		if s.d.most > 1000+310 {
			t.Errorf("anywhere %v: prefixes had room for %d tokens", anywhere, s.d.most)
		}
	}
	s := serving(t, 3, 128, true, 100000)
	prompt := someIDs(9, 100)
	for range 5 {
		r, _ := s.ask("a", prompt, 40)
		prompt = slices.Concat(prompt, r.IDs, someIDs(uint64(len(prompt)), 10))
	}
	if n := len(s.keptPrefixes.prefixes); n != 1 {
		t.Errorf("a conversation is kept %d times", n)
	}
}

// TestKeptPrefixesFail: an error of the decoder ends the call, and what is idle makes room for
// a prompt.
func TestKeptPrefixesFail(t *testing.T) {
	for _, at := range []string{"append", "begin", "step", "open"} {
		s := serving(t, 3, 128, true, 4000)
		s.ask("a", someIDs(1, 300), 5)
		times := 0
		s.d.fail = func(call string) error {
			if call != at || times > 0 {
				return nil
			}
			times++
			return fmt.Errorf("no luck")
		}
		var failed error
		c := s.add("a", someIDs(2, 300), 9, new(Response))
		c.Failed = func(err error) { failed = err }
		for s.Step() {
		}
		if (failed == nil) != (at == "open") {
			t.Errorf("%s failed: %v", at, failed)
		}
		if _, cached := s.ask("a", someIDs(1, 300), 5); (cached == 0) != (at == "open") {
			t.Errorf("%s failed: %d tokens are kept", at, cached)
		}
	}
}
