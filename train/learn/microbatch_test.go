package learn

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"onering/runtime"
)

func TestMicroBatches(t *testing.T) {
	var sequences []runtime.Sequence
	for _, n := range []int{3, 9, 4, 20, 5, 4} {
		sequences = append(sequences, runtime.NewSequence(make([]int32, 1), make([]int32, n-1)))
	}
	for _, tt := range []struct {
		limit int
		live  []bool
		want  string
	}{
		{1, nil, "[[3] [1] [4] [2] [5] [0]]"},
		{10, nil, "[[3] [1] [4 2] [5 0]]"},
		{45, nil, "[[3 1 4 2 5 0]]"},
		{45, []bool{true, false, true, true, false, true}, "[[3 2 5 0] [1 4]]"},
		{10, []bool{true, false, true, true, false, true}, "[[3] [2 5] [0] [1] [4]]"},
	} {
		if got := fmt.Sprint(microBatches(sequences, tt.live, []int{0, 1, 2, 3, 4, 5}, tt.limit, 0)); got != tt.want {
			t.Errorf("at most %d tokens, live %v: %s, want %s", tt.limit, tt.live, got, tt.want)
		}
	}
	if got := microBatches(nil, nil, nil, 10, 0); len(got) != 0 {
		t.Errorf("of no sequences: %v", got)
	}
}

// TestMicroBatchesByPrompt: responses to one prompt are adjacent in a micro-batch, if
// they are of one kind.
func TestMicroBatchesByPrompt(t *testing.T) {
	var sequences []runtime.Sequence
	for i, n := range []int{6, 9, 7, 5, 8, 9} { // responses to the prompts 1 and 2 in turns
		sequences = append(sequences, runtime.NewSequence([]int32{int32(1 + i%2), 3}, make([]int32, n-2)))
	}
	for _, tt := range []struct {
		limit, alone int
		live         []bool
		want         string
	}{
		{100, 0, nil, "[[1 5 3 4 2 0]]"},
		{20, 0, nil, "[[1 5] [3 4 2] [0]]"},
		{100, 0, []bool{true, true, false, true, false, false}, "[[1 3 0] [5 4 2]]"},
		{100, 15, nil, "[[1] [5 3] [4] [2 0]]"}, // The second of two responses to one prompt counts 2 tokens less.
		{100, 16, nil, "[[1 5] [3 4] [2 0]]"},
		{9, 16, nil, "[[1] [5] [3] [4] [2] [0]]"},
	} {
		if got := fmt.Sprint(microBatches(sequences, tt.live, []int{0, 1, 2, 3, 4, 5}, tt.limit, tt.alone)); got != tt.want {
			t.Errorf("at most %d tokens, alone %d, live %v: %s, want %s", tt.limit, tt.alone, tt.live, got, tt.want)
		}
	}
}

// Micro-batches of equal length compute no prefix more often than others: cut evenly, these of 3
// prompts of 2,000 tokens with 8 responses of 100 each would take 10,400 tokens in place of 8,400.
func TestMicroBatchesKeepPrompts(t *testing.T) {
	var sequences []runtime.Sequence
	var own []int
	for i := range 24 {
		prompt := make([]int32, 2000)
		prompt[0] = int32(i / 8)
		sequences, own = append(sequences, runtime.NewSequence(prompt, make([]int32, 100))), append(own, i)
	}
	var sizes []int
	for _, group := range microBatches(sequences, nil, own, 1e9, 6000) {
		sizes = append(sizes, len(group))
	}
	if !slices.Equal(sizes, []int{16, 8}) {
		t.Errorf("micro-batches of %v responses", sizes)
	}
}

func TestSchedule(t *testing.T) {
	for _, tt := range []struct {
		s     Schedule
		total float64
		want  []float64 // of steps 1, 2, ...
	}{
		{Schedule{Shape: "constant", Floor: 0.5}, 3, []float64{2, 2, 2}},
		{Schedule{Warmup: 2, Shape: "constant"}, 4, []float64{1, 2, 2, 2}},
		{Schedule{Warmup: 0.5, Shape: "constant"}, 4, []float64{1, 2, 2, 2}},
		{Schedule{Warmup: 2, Shape: "linear"}, 6, []float64{1, 2, 2, 1.5, 1, 0.5, 0, 0}},
		{Schedule{Shape: "linear"}, 1, []float64{2, 0}},
		{Schedule{Shape: "linear"}, 2, []float64{2, 1, 0}},
		{Schedule{Shape: "linear", Floor: 0.1}, 2, []float64{2, 1.1, 0.2, 0.2}},
		{Schedule{Shape: "cosine"}, 1, []float64{2, 0}},
		{Schedule{Shape: "cosine"}, 4, []float64{2, 1 + math.Sqrt2/2, 1, 1 - math.Sqrt2/2, 0}},
		{Schedule{Warmup: 4, Shape: "linear"}, 2, []float64{0.5, 1, 1.5, 2, 0}},
		{Schedule{Warmup: 0.1, Shape: "linear"}, 1, []float64{2, 0}}, // a share that is less than a step
	} {
		for i, want := range tt.want {
			if got := tt.s.Rate(2, i, tt.total); math.Abs(got-want) > 1e-15 {
				t.Errorf("%+v of %v steps: step %d has rate %v, want %v", tt.s, tt.total, i+1, got, want)
			}
		}
	}
}
