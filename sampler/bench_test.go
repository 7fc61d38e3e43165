package sampler

import (
	"context"
	"testing"
	"time"
)

// idleDecoder answers at once, so that a benchmark measures the sampler alone. Its
// responses end by length, at slightly different times.
type idleDecoder struct{ slots int }

func (d idleDecoder) Slots() int                         { return d.slots }
func (d idleDecoder) MaxTokens() int                     { return 1 << 20 }
func (d idleDecoder) Prefill(p [][]int32) ([]int, error) { return make([]int, len(p)), nil }
func (d idleDecoder) Free(int)                           {}
func (d idleDecoder) Drop(int)                           {}

func (d idleDecoder) Begin(rows []Row) error { return d.Step(rows) }

func (d idleDecoder) Step(rows []Row) error {
	for i := range rows {
		rows[i].Out = Drawn{ID: int32(rows[i].Uniform*1000) + 1, LogProb: -1, Entropy: 1}
	}
	return nil
}

// BenchmarkSample measures the overhead per token at 512 slots, in ns and allocations.
func BenchmarkSample(b *testing.B) {
	for _, c := range []struct {
		name  string
		stops []string
	}{{"plain", nil}, {"stops", []string{"</answer>", "\n\nQuestion:"}}} {
		b.Run(c.name, func(b *testing.B) {
			opts := Options{Sampling: Plain(400), EOS: []int32{0, 1}, Stops: c.stops, Seed: 1}
			opts.Text = func() TextDecoder { return letter{} }
			reqs := make([]Request, 192)
			for i := range reqs {
				reqs[i] = Request{Prompt: make([]int32, 32), ID: uint64(i), Samples: 8}
			}
			b.ReportAllocs()
			tokens := 0
			begin := time.Now()
			for b.Loop() {
				_, stats, err := Sample(context.Background(), idleDecoder{512}, opts, reqs, nil)
				if err != nil {
					b.Fatal(err)
				}
				tokens += stats.Tokens
			}
			b.ReportMetric(float64(time.Since(begin).Nanoseconds())/float64(tokens), "ns/token")
		})
	}
}

type letter struct{}

func (letter) Add(int32) string { return "word" }

func (letter) Pending() string { return "" }

// TestStepsDoNotAllocate: a longer response costs no more allocations: none is made per token.
// (The buffers of the slots grow by doubling, a few times in a call.)
func TestStepsDoNotAllocate(t *testing.T) {
	allocs := func(maxNew int) float64 {
		opts := Options{Sampling: Plain(maxNew), Stops: []string{"</answer>"}, Text: func() TextDecoder { return letter{} }}
		reqs := []Request{{Prompt: []int32{1}, Samples: 8}}
		return testing.AllocsPerRun(3, func() {
			if _, _, err := Sample(context.Background(), idleDecoder{8}, opts, reqs, nil); err != nil {
				t.Fatal(err)
			}
		})
	}
	short, long := allocs(1000), allocs(9000)
	if more := long - short; more > 8*3*12 {
		t.Errorf("%v allocations for 8 x 1000 tokens, %v for 8 x 9000", short, long)
	}
}
