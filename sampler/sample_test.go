package sampler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func plain(maxNew int) Options {
	return Options{Sampling: Plain(maxNew), EOS: []int32{0}, Seed: 5}
}

func newLetters() TextDecoder { return letters{} }

func drawOptions(t *rapid.T) Options {
	opts := Options{
		Sampling: Sampling{
			Temperature:  rapid.SampledFrom([]float64{0.6, 1, 2}).Draw(t, "temperature"),
			TopP:         1,
			Greedy:       rapid.Bool().Draw(t, "greedy"),
			MaxNewTokens: rapid.IntRange(1, 30).Draw(t, "max new tokens"),
		},
		EOS:           []int32{0},
		Seed:          rapid.Uint64().Draw(t, "seed"),
		PrefillTokens: rapid.SampledFrom([]int{0, 1, 10}).Draw(t, "prefill tokens"),
	}
	if rapid.Bool().Draw(t, "with stops") {
		opts.Stops = rapid.SliceOfN(rapid.StringMatching(`[a-c]{1,2}`), 1, 2).Draw(t, "stops")
		opts.Text = newLetters
	} else if rapid.Bool().Draw(t, "more eos") {
		opts.EOS = []int32{7, 0}
	}
	return opts
}

func drawRequests(t *rapid.T) []Request {
	n := rapid.IntRange(0, 12).Draw(t, "requests")
	reqs := make([]Request, n)
	for i := range reqs {
		reqs[i] = Request{
			Prompt:  rapid.SliceOfN(rapid.Int32Range(0, fakeVocab-1), 1, 8).Draw(t, "prompt"),
			ID:      uint64(i) * 3,
			Samples: rapid.IntRange(1, 6).Draw(t, "samples"),
		}
		if rapid.IntRange(0, 4).Draw(t, "provide") == 0 {
			for range reqs[i].Samples {
				reqs[i].Uniforms = append(reqs[i].Uniforms, rapid.SliceOfN(rapid.Custom(func(t *rapid.T) float32 {
					return float32(rapid.IntRange(0, 1<<24-1).Draw(t, "u")) / (1 << 24)
				}), 30, 30).Draw(t, "uniforms"))
			}
		}
	}
	return reqs
}

// TestSampleEqualsOneAtATime: the samples equal those of one sequence at a time, for any
// number of slots; each prompt is computed once; every slot and prefix is freed.
func TestSampleEqualsOneAtATime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts, reqs := drawOptions(t), drawRequests(t)
		maxTokens := rapid.IntRange(9, 40).Draw(t, "max tokens")
		d := newFake(rapid.IntRange(1, 17).Draw(t, "slots"), maxTokens)

		var want []Response
		tokens, prompts, prefill := 0, 0, 0
		for i, q := range reqs {
			for k := range q.Samples {
				p := oracle(q, k, opts, maxTokens)
				p.Request = i
				want = append(want, p)
				tokens += len(p.IDs)
			}
			prompts++
			prefill += len(q.Prompt)
		}
		var seen []Response
		// When done is called, Token has been called for the whole response.
		type key struct{ request, sample int }
		streamed := map[key]Response{}
		opts.Token = func(x Token) {
			p := streamed[key{x.Request, x.Sample}]
			p.IDs, p.LogProb = append(p.IDs, x.ID), append(p.LogProb, x.LogProb)
			streamed[key{x.Request, x.Sample}] = p
		}
		got, stats, err := Sample(context.Background(), d, opts, reqs, func(p Response) {
			seen = append(seen, p)
			if s := streamed[key{p.Request, p.Sample}]; !slices.Equal(s.IDs, p.IDs) || !slices.Equal(s.LogProb, p.LogProb) {
				t.Fatalf("the tokens of request %d, sample %d came as %v, the response has %v", p.Request, p.Sample, s.IDs, p.IDs)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.clean(); err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("%d responses, want %d", len(got), len(want))
		}
		for i := range got {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Fatalf("response %d:\n got %+v\nwant %+v", i, got[i], want[i])
			}
		}
		slices.SortFunc(seen, func(a, b Response) int {
			if a.Request != b.Request {
				return a.Request - b.Request
			}
			return a.Sample - b.Sample
		})
		if len(seen) != len(got) || len(got) > 0 && !reflect.DeepEqual(seen, got) {
			t.Fatalf("done saw other responses than were returned")
		}
		if stats.Responses != len(want) || stats.Tokens != tokens || stats.Prompts != prompts || stats.PrefillTokens != prefill {
			t.Fatalf("stats %+v; want %d responses, %d tokens, %d prompts of %d tokens", stats, len(want), tokens, prompts, prefill)
		}
		// Every token except the first of each response comes from a step.
		if stats.SlotSteps != tokens-len(want) || stats.Slots != d.slots || stats.Occupancy() < 0 || stats.Occupancy() > 1 {
			t.Fatalf("stats %+v, occupancy %v", stats, stats.Occupancy())
		}
	})
}

// TestSampleDoesNotDependOnOrder: the order of the requests changes only the order of the
// answers.
func TestSampleDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts, reqs := drawOptions(t), drawRequests(t)
		byID := func(reqs []Request, slots int) map[[2]uint64]Response {
			d := newFake(slots, 40)
			got, _, err := Sample(context.Background(), d, opts, reqs, nil)
			if err := errors.Join(err, d.clean()); err != nil {
				t.Fatal(err)
			}
			m := map[[2]uint64]Response{}
			for _, p := range got {
				key := [2]uint64{reqs[p.Request].ID, uint64(p.Sample)}
				p.Request = 0
				m[key] = p
			}
			return m
		}
		shuffled := rapid.Permutation(reqs).Draw(t, "order")
		a, b := byID(reqs, 3), byID(shuffled, 8)
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("other responses in another order")
		}
	})
}

func TestRefillKeepsSlotsBusy(t *testing.T) {
	d := newFake(8, 64)
	reqs := make([]Request, 100)
	for i := range reqs {
		reqs[i] = Request{Prompt: []int32{int32(i % 12), 3}, ID: uint64(i), Samples: 8}
	}
	_, stats, err := Sample(context.Background(), d, plain(60), reqs, nil)
	if err := errors.Join(err, d.clean()); err != nil {
		t.Fatal(err)
	}
	// Only the last sequences can leave slots empty.
	if idle := stats.Steps*stats.Slots - stats.SlotSteps; idle > 60*stats.Slots {
		t.Errorf("%d slot-steps idle in %d steps", idle, stats.Steps)
	}
	if stats.Prompts != 100 || d.maxPrefixes > 2 {
		t.Errorf("%d prompts computed, %d prefixes held at once", stats.Prompts, d.maxPrefixes)
	}
	if o := stats.Occupancy(); o < 0.9 {
		t.Errorf("occupancy %.3f", o)
	}
}

// Free slots are filled with one prefill of as many prompts as the slots need.
func TestPrefillGroups(t *testing.T) {
	reqs := make([]Request, 16)
	for i := range reqs {
		reqs[i] = Request{Prompt: []int32{1, 2, 3, 4}, ID: uint64(i), Samples: 4}
	}
	opts := plain(1)
	for _, c := range []struct{ slots, tokens, prefills, steps int }{
		{64, 0, 1, 0},  // all at once
		{32, 0, 2, 0},  // Eight prompts fill the slots.
		{64, 8, 8, 0},  // Two prompts are eight tokens.
		{64, 3, 16, 0}, // A prompt longer than the bound is computed alone.
		{6, 0, 11, 0},  // two prompts, with two samples of the second still to come; then one more prompt; then the same again
	} {
		opts.PrefillTokens = c.tokens
		d := newFake(c.slots, 16)
		_, stats, err := Sample(context.Background(), d, opts, reqs, nil)
		if err := errors.Join(err, d.clean()); err != nil {
			t.Fatal(err)
		}
		if stats.Prefills != c.prefills || stats.Steps != 0 || stats.Tokens != 64 {
			t.Errorf("%d slots, %d prefill tokens: stats %+v, want %d prefills", c.slots, c.tokens, stats, c.prefills)
		}
	}
}

func TestFinish(t *testing.T) {
	q := Request{Prompt: []int32{3, 1, 2}, ID: 9, Samples: 1}
	one := func(opts Options, maxTokens int) Response {
		t.Helper()
		d := newFake(2, maxTokens)
		got, _, err := Sample(context.Background(), d, opts, []Request{q}, nil)
		if err := errors.Join(err, d.clean()); err != nil {
			t.Fatal(err)
		}
		return got[0]
	}
	opts := plain(1000)
	opts.EOS = nil
	// With no EOS a response fills its slot: prompt and response, 20 tokens.
	full := one(opts, 20)
	if full.Finish != Length || len(full.IDs) != 17 {
		t.Fatalf("%d tokens, finish %q; want 17 and length", len(full.IDs), full.Finish)
	}
	opts.EOS = []int32{full.IDs[4]}
	at := slices.Index(full.IDs, full.IDs[4])
	p := one(opts, 20)
	if p.Finish != Stop || p.Stop != "" || !slices.Equal(p.IDs, full.IDs[:at+1]) || !slices.Equal(p.LogProb, full.LogProb[:at+1]) {
		t.Errorf("eos %d: %+v", full.IDs[4], p)
	}
	// EOS as the last token that fits still counts as a stop.
	opts.MaxNewTokens = at + 1
	if p := one(opts, 20); p.Finish != Stop {
		t.Errorf("eos as last token: finish %q", p.Finish)
	}
	if opts.MaxNewTokens = at; at > 0 {
		if p := one(opts, 20); p.Finish != Length || len(p.IDs) != at {
			t.Errorf("%d tokens: %+v", at, p)
		}
	}
}

// pieces is a text decoder whose tokens have several characters.
type pieces []string

func (p pieces) Add(id int32) string { return p[id] }

func (pieces) Pending() string { return "" }

func TestStopStringKeepsItsToken(t *testing.T) {
	opts := plain(100)
	opts.EOS = nil
	opts.Stops = []string{"</answer>"}
	words := make(pieces, fakeVocab)
	for i := range words {
		words[i] = []string{"x</ans", "wer>y", "."}[i%3]
	}
	opts.Text = func() TextDecoder { return words }
	reqs := []Request{{Prompt: []int32{1}, Samples: 20}}
	got, _, err := Sample(context.Background(), newFake(4, 128), opts, reqs, nil)
	if err != nil {
		t.Fatal(err)
	}
	stopped := 0
	for _, p := range got {
		if p.Finish != Stop {
			continue
		}
		stopped++
		text := ""
		for _, id := range p.IDs {
			text += words[id]
		}
		if p.Stop != "</answer>" || !strings.HasSuffix(text, "</answer>y") || strings.Count(text, "</answer>") != 1 {
			t.Errorf("stop %q, text %q", p.Stop, text)
		}
	}
	if stopped == 0 {
		t.Fatal("no response met the stop string")
	}
}

func TestProvidedUniforms(t *testing.T) {
	q := Request{Prompt: []int32{3}, ID: 4, Samples: 2, Uniforms: [][]float32{{0.1, 0.9, 0.5}, {0.5, 0.25, 0.75}}}
	opts := plain(3)
	opts.EOS = nil
	d := newFake(1, 16)
	got, _, err := Sample(context.Background(), d, opts, []Request{q}, nil)
	if err := errors.Join(err, d.clean()); err != nil {
		t.Fatal(err)
	}
	for k, p := range got {
		if want := oracle(q, k, opts, 16); !reflect.DeepEqual(p, want) {
			t.Errorf("sample %d: got %+v, want %+v", k, p, want)
		}
	}
	opts.MaxNewTokens = 4
	got, _, err = Sample(context.Background(), d, opts, []Request{q}, nil)
	if err == nil || !strings.Contains(err.Error(), "request 0 (id 4), sample 0: the 3 uniforms given are used up") {
		t.Errorf("uniforms run out: %v", err)
	}
	if err := d.clean(); err != nil || len(got) != 0 {
		t.Errorf("%d responses; %v", len(got), err)
	}
}

func TestBadInput(t *testing.T) {
	good := Request{Prompt: []int32{1}, Samples: 1}
	long := Request{Prompt: make([]int32, 16), ID: 42, Samples: 1}
	for _, c := range []struct {
		name string
		opts func(*Options)
		req  Request
		want string
	}{
		{"temperature", func(o *Options) { o.Temperature = 0 }, good, "temperature = 0: must be in [0.001, 1000]"},
		{"nan temperature", func(o *Options) { o.Temperature = math.NaN() }, good, "temperature = NaN"},
		{"top_p", func(o *Options) { o.TopP = 0 }, good, "top_p = 0: must be in (0, 1]; 1 turns it off"},
		{"top_k", func(o *Options) { o.TopK = -1 }, good, "top_k = -1: must be at least 0; 0 turns it off"},
		{"min_p", func(o *Options) { o.MinP = 1 }, good, "min_p = 1: must be in [0, 1); 0 turns it off"},
		{"length", func(o *Options) { o.MaxNewTokens = 0 }, good, "max_new_tokens = 0: must be at least 1"},
		{"stops without text", func(o *Options) { o.Stops = []string{"x"} }, good, `stop string "x" needs a text decoder`},
		{"empty stop", func(o *Options) { o.Stops, o.Text = []string{""}, newLetters }, good, "stop string 0 is empty"},
		{"prefill", func(o *Options) { o.PrefillTokens = -1 }, good, "prefill tokens -1"},
		{"empty prompt", nil, Request{Samples: 1}, "request 1 (id 0): the prompt is empty"},
		{"samples", nil, Request{Prompt: []int32{1}}, "samples 0 is not at least 1"},
		{"long prompt", nil, long, "request 1 (id 42): the prompt has 16 tokens, and a slot holds 16"},
		{"too few lists", nil, Request{Prompt: []int32{1}, Samples: 2, Uniforms: [][]float32{{0}}}, "1 lists of uniforms for 2 samples"},
		{"empty list", nil, Request{Prompt: []int32{1}, Samples: 1, Uniforms: [][]float32{{}}}, "the list of uniforms is empty"},
		{"uniform 1", nil, Request{Prompt: []int32{1}, Samples: 1, Uniforms: [][]float32{{0, 1}}}, "uniform 1 is 1, not in [0, 1)"},
	} {
		opts := plain(4)
		if c.opts != nil {
			c.opts(&opts)
		}
		d := newFake(2, 16)
		d.fail = func(call string) error { return d.breach("%s was called", call) }
		got, _, err := Sample(context.Background(), d, opts, []Request{good, c.req}, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "sampler: ") {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
		if err := d.clean(); err != nil || got != nil {
			t.Errorf("%s: %v, %d responses", c.name, err, len(got))
		}
	}
	if _, _, err := Sample(context.Background(), newFake(0, 16), plain(1), nil, nil); err == nil {
		t.Error("a decoder without slots was taken")
	}
}

func TestDropLong(t *testing.T) {
	opts := plain(4)
	opts.DropLong = true
	d := newFake(2, 16)
	reqs := []Request{
		{Prompt: make([]int32, 16), ID: 0, Samples: 3},
		{Prompt: make([]int32, 15), ID: 1, Samples: 2},
		{Prompt: make([]int32, 99), ID: 2, Samples: 1},
	}
	got, stats, err := Sample(context.Background(), d, opts, reqs, nil)
	if err := errors.Join(err, d.clean()); err != nil {
		t.Fatal(err)
	}
	if stats.Dropped != 2 || len(got) != 2 || got[0].Request != 1 || got[1].Sample != 1 || len(got[0].IDs) != 1 {
		t.Errorf("stats %+v, responses %+v", stats, got)
	}
}

// TestFailuresLeaveNothingBehind: after a failure of any call at any time, all slots and
// prefixes are freed and the ended responses are returned.
func TestFailuresLeaveNothingBehind(t *testing.T) {
	boom := errors.New("boom")
	rapid.Check(t, func(t *rapid.T) {
		opts, reqs := drawOptions(t), drawRequests(t)
		d := newFake(rapid.IntRange(1, 9).Draw(t, "slots"), 40)
		name := rapid.SampledFrom([]string{"prefill", "begin", "step"}).Draw(t, "call")
		after, failed := rapid.IntRange(0, 20).Draw(t, "after"), false
		d.fail = func(call string) error {
			if call == name {
				if after--; after < 0 {
					failed = true
					return boom
				}
			}
			return nil
		}
		ended := 0
		got, _, err := Sample(context.Background(), d, opts, reqs, func(Response) { ended++ })
		if errors.Is(err, boom) != failed || len(got) != ended {
			t.Fatalf("failed %v, error %v; %d responses, %d ended", failed, err, len(got), ended)
		}
		if err := d.clean(); err != nil {
			t.Fatal(err)
		}
		for _, p := range got {
			want := oracle(reqs[p.Request], p.Sample, opts, 40)
			want.Request = p.Request
			if !reflect.DeepEqual(p, want) {
				t.Fatalf("got %+v, want %+v", p, want)
			}
		}
	})
}

func TestCancel(t *testing.T) {
	reqs := make([]Request, 50)
	for i := range reqs {
		reqs[i] = Request{Prompt: []int32{int32(i % 12)}, ID: uint64(i), Samples: 2}
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := newFake(4, 64)
	steps := 0
	d.fail = func(call string) error {
		if ctx.Err() != nil {
			return d.breach("%s after the end of ctx", call)
		}
		if call == "step" {
			if steps++; steps == 30 {
				cancel()
			}
		}
		return nil
	}
	got, stats, err := Sample(ctx, d, plain(60), reqs, nil)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), fmt.Sprintf("stopped after %d of 100", len(got))) {
		t.Errorf("error %v", err)
	}
	if err := d.clean(); err != nil {
		t.Error(err)
	}
	if stats.Steps != 30 || len(got) == 0 || len(got) == 100 {
		t.Errorf("%d steps, %d responses", stats.Steps, len(got))
	}
	// The context is cancelled before Sample begins: the decoder gets no call.
	if got, _, err := Sample(ctx, d, plain(60), reqs, nil); !errors.Is(err, context.Canceled) || len(got) != 0 {
		t.Errorf("%d responses, error %v", len(got), err)
	}
	if err := d.clean(); err != nil {
		t.Error(err)
	}
}

// A log-prob that is NaN stops Sample.
func TestNaNStops(t *testing.T) {
	opts := plain(20)
	opts.EOS = nil
	d, drawn := newFake(2, 64), 0
	d.spoil = func(_ []int32, out *Drawn) {
		if drawn++; drawn == 2+5*2 { // the second sample of the fifth step
			out.LogProb = float32(math.NaN())
		}
	}
	_, _, err := Sample(context.Background(), d, opts, []Request{{Prompt: []int32{1}, ID: 8, Samples: 2}}, nil)
	if err == nil || !strings.Contains(err.Error(), "request 0 (id 8), sample 1, token 5: the decoder gave") {
		t.Errorf("error %v", err)
	}
	if err := d.clean(); err != nil {
		t.Error(err)
	}
}

// A panic of the decoder or of done passes through Sample, which still frees its slots and
// prefixes.
func TestPanicFreesSlots(t *testing.T) {
	d := newFake(4, 64)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of done was lost")
			}
		}()
		Sample(context.Background(), d, plain(20), []Request{{Prompt: []int32{1}, Samples: 9}}, func(Response) { panic("done") })
	}()
	if err := d.clean(); err != nil {
		t.Error(err)
	}
}

// TestLastGreedy: the last sample of a request that asks for it takes the likeliest
// tokens under any schedule, and the other samples do not change.
func TestLastGreedy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newFake(rapid.IntRange(1, 5).Draw(t, "slots"), 24)
		opts := Options{Sampling: Plain(rapid.IntRange(1, 9).Draw(t, "limit")), EOS: []int32{0}, Seed: 5}
		opts.TopK = rapid.IntRange(0, 3).Draw(t, "top k") // which the fake ignores
		var reqs []Request
		for i := range rapid.IntRange(1, 4).Draw(t, "requests") {
			reqs = append(reqs, Request{
				Prompt: []int32{int32(1 + i)}, ID: uint64(i), Samples: rapid.IntRange(1, 6).Draw(t, "samples"),
				LastGreedy: rapid.Bool().Draw(t, "greedy"),
			})
		}
		got, _, err := Sample(context.Background(), d, opts, reqs, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range got {
			q, one := reqs[p.Request], opts
			one.Greedy = q.LastGreedy && p.Sample == q.Samples-1
			want := oracle(q, p.Sample, one, 24)
			want.Request = p.Request
			if !reflect.DeepEqual(p, want) {
				t.Errorf("request %+v, sample %d: %+v, want %+v", q, p.Sample, p, want)
			}
		}
		if err := d.clean(); err != nil {
			t.Error(err)
		}
	})
}
