package sampler

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// talk is a test environment's answer to a response; it depends only on the response's tokens.
func talk(r Response) Observation {
	h := uint32(len(r.Observed))
	for _, id := range r.IDs {
		h = h*31 + uint32(id)
	}
	if h%3 == 0 || len(r.Observed) == 4 {
		return Observation{End: []Finish{Stop, Length}[h/3%2]}
	}
	ids := make([]int32, 1+h/7%24)
	for i := range ids {
		ids[i] = int32((h + uint32(i)) % fakeVocab)
	}
	return Observation{IDs: ids}
}

// episode plays one response of the model alone, without slots.
func episode(q Request, k int, opts Options, maxTokens int) Response {
	tokens, limit := slices.Clone(q.Prompt), min(opts.MaxNewTokens, maxTokens-len(q.Prompt))
	p, text := Response{Sample: k}, ""
	for {
		id, logp, entropy := draw(tokens, opts.Temperature, opts.Greedy, Uniform(opts.Seed, q.ID, k, len(p.IDs)))
		tokens = append(tokens, id)
		p.IDs, p.LogProb, p.Entropy = append(p.IDs, id), append(p.LogProb, logp), append(p.Entropy, entropy)
		ended := slices.Contains(opts.EOS, id)
		p.Stop = ""
		if !ended && len(opts.Stops) > 0 {
			text += letters{}.Add(id)
			at := -1
			for _, stop := range opts.Stops {
				if i := strings.Index(text, stop); i >= 0 && (at < 0 || i < at) {
					at, p.Stop, ended = i, stop, true
				}
			}
		}
		used := len(tokens) - len(q.Prompt)
		if !ended {
			if used == limit {
				p.Finish = Length
				return p
			}
			continue
		}
		o := talk(p)
		text = ""
		switch {
		case o.End != "":
			p.Finish = o.End
			return p
		case used+len(o.IDs) >= limit:
			p.Finish, p.Stop = Length, ""
			return p
		}
		p.Observed = append(p.Observed, Observed{len(p.IDs), o.IDs})
		tokens = append(tokens, o.IDs...)
	}
}

// TestEpisodes: episodes are the same for any time at which their observations come and
// any number of slots and lanes, and leave the decoder free.
func TestEpisodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts, reqs := drawOptions(t), drawRequests(t)
		for i := range reqs {
			reqs[i].Uniforms = nil
		}
		lanes, fakes := drawLanes(t)
		for _, d := range fakes {
			d.fed = true
		}
		now := rapid.SliceOfN(rapid.IntRange(0, 20), 50, 50).Draw(t, "delays")
		asked := 0
		opts.Turn = func(r Response, answer func(Observation)) {
			delay := now[asked%len(now)]
			asked++
			o := talk(r)
			if delay == 0 {
				answer(o)
				return
			}
			go func() {
				for range delay {
					runtime.Gosched()
				}
				answer(o)
			}()
		}
		if len(lanes.Decoders) > 1 {
			turn := opts.Turn
			one := make(chan bool, 1)
			opts.Turn = func(r Response, answer func(Observation)) {
				one <- true
				turn(r, answer)
				<-one
			}
		}
		got, stats, err := lanes.Sample(context.Background(), opts, reqs, nil)
		if err != nil {
			t.Fatal(err)
		}
		i := 0
		for n, q := range reqs {
			for k := range q.Samples {
				want := episode(q, k, opts, fakes[0].maxTokens)
				if q.LastGreedy && k == q.Samples-1 {
					greedy := opts
					greedy.Greedy = true
					want = episode(q, k, greedy, fakes[0].maxTokens)
				}
				want.Request = n
				if !reflect.DeepEqual(got[i], want) {
					t.Fatalf("request %d, sample %d:\n got %+v\nwant %+v", n, k, got[i], want)
				}
				i++
			}
		}
		if stats.Responses != i {
			t.Errorf("%d responses ended, want %d", stats.Responses, i)
		}
		for _, d := range fakes {
			if err := d.clean(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestEpisodesEnd: an error of an observation, the end of the context and a failing decoder end
// a call whose sequences wait, and leave the decoder free.
func TestEpisodesEnd(t *testing.T) {
	boom := errors.New("boom")
	for _, how := range []string{"error", "context", "prefill", "begin", "step"} {
		d := newFake(3, 400)
		d.fed = true
		o := plain(300)
		o.EOS = []int32{0, 1, 2, 3, 4}
		ctx, cancel := context.WithCancel(context.Background())
		asked := 0
		o.Turn = func(r Response, answer func(Observation)) {
			switch asked++; {
			case asked < 4:
				answer(Observation{IDs: slices.Repeat([]int32{5}, []int{2, 40}[asked%2])})
			case how == "error":
				answer(Observation{Err: boom})
			case how == "context":
				cancel()
			default:
				d.fail = func(call string) error {
					if call == how {
						return boom
					}
					return nil
				}
				answer(Observation{IDs: slices.Repeat([]int32{5}, 40)})
			}
		}
		_, _, err := Sample(ctx, d, o, []Request{{Prompt: []int32{1, 2}, Samples: 5}}, nil)
		if how == "context" && !errors.Is(err, context.Canceled) || how != "context" && !errors.Is(err, boom) {
			t.Errorf("%s: error %v", how, err)
		}
		if err := d.clean(); err != nil {
			t.Errorf("%s: %v", how, err)
		}
		cancel()
	}
}

// TestInterleave puts observed tokens back at their places among the policy's.
func TestInterleave(t *testing.T) {
	all, places := Response{IDs: []int32{1, 2, 3, 4}, Observed: []Observed{{1, []int32{7, 8}}, {3, []int32{9}}}}.Tokens()
	if got, want := fmt.Sprint(all, places), "[1 7 8 2 3 9 4] [0 3 4 6]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
