package sampler

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawCandidates makes the log-probs of a vocabulary, of one of several kinds, by id.
func drawCandidates(t *rapid.T) []Candidate {
	kind := rapid.SampledFrom([]string{"normal", "wide", "flat", "one", "ties", "holes"}).Draw(t, "kind")
	all := make([]Candidate, rapid.SampledFrom([]int{1, 2, 30, 400}).Draw(t, "vocabulary"))
	logits, total := make([]float64, len(all)), 0.0
	likely := rapid.IntRange(0, len(all)-1).Draw(t, "likely")
	for i := range logits {
		x := rapid.Float64Range(-3, 3).Draw(t, "logit")
		switch {
		case kind == "wide":
			x *= 10
		case kind == "flat":
			x = 1
		case kind == "one" && i != likely, kind == "holes" && i%3 > 0 && i != likely:
			x = -2000
		case kind == "ties":
			x = math.Floor(x)
		}
		logits[i] = x
		total += math.Exp(x)
	}
	for i := range all {
		all[i] = Candidate{ID: int32(i), LogProb: float32(logits[i] - math.Log(total))}
	}
	return all
}

func descending(list []Candidate) []Candidate {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Candidate) int { return cmp.Compare(b.LogProb, a.LogProb) })
	return list
}

// kept is the oracle of the filters: it returns, by ids, the tokens that each filter
// keeps of those of the filter before, as defined over the whole vocabulary.
func kept(s Sampling, all []Candidate) (ids []int32, margin float64) {
	list := descending(all)
	cut := func(n int) {
		for n < len(list) && list[n].LogProb == list[n-1].LogProb {
			n++
		}
		list = list[:n]
	}
	margin = math.Inf(1)
	if s.TopK > 0 {
		cut(min(s.TopK, len(list)))
	}
	total := 0.0
	for _, c := range list {
		total += math.Exp(float64(c.LogProb))
	}
	sum := 0.0
	for i, c := range list {
		if sum += math.Exp(float64(c.LogProb)); s.TopP < 1 {
			margin = min(margin, math.Abs(sum/total-s.TopP))
			if sum >= s.TopP*total {
				cut(i + 1)
				break
			}
		}
	}
	if s.MinP > 0 {
		first := list[0].LogProb
		list = slices.DeleteFunc(list, func(c Candidate) bool {
			below := float64(first) + math.Log(s.MinP) - float64(c.LogProb)
			if c.LogProb != first {
				margin = min(margin, math.Abs(below))
			}
			return below > 0
		})
	}
	for _, c := range list {
		ids = append(ids, c.ID)
	}
	slices.Sort(ids)
	return ids, margin
}

func drawFilters(t *rapid.T) Sampling {
	s := Plain(1)
	s.TopK = rapid.SampledFrom([]int{0, 1, 2, 20, 64, 500}).Draw(t, "top_k")
	s.TopP = rapid.SampledFrom([]float64{1, 0.01, 0.5, 0.9, 0.999}).Draw(t, "top_p")
	s.MinP = rapid.SampledFrom([]float64{0, math.SmallestNonzeroFloat64, 0.01, 0.5, math.Nextafter(1, 0)}).Draw(t, "min_p")
	return s
}

// TestDraw: the drawn id is the first kept id whose cumulative probability exceeds the
// uniform, for any number of candidates with which Draw can decide.
func TestDraw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, all := drawFilters(t), drawCandidates(t)
		if !s.Filtered() {
			return
		}
		u := rapid.SampledFrom([]float32{0, 1.0 / (1 << 24), 0.5, 1 - 1.0/(1<<24)}).Draw(t, "u")
		if rapid.Bool().Draw(t, "any u") {
			u = float32(rapid.IntRange(0, 1<<24-1).Draw(t, "any")) / (1 << 24)
		}
		want, keeps, ok := s.Draw(u, descending(all), true)
		if !ok {
			t.Fatal("the whole vocabulary is too short")
		}
		// Equally likely candidates may come in any order.
		shuffled := descending(rapid.Permutation(all).Draw(t, "order"))
		for n := 1; n <= len(all); n += max(1, n/3) {
			got, _, ok := s.Draw(u, slices.Clone(shuffled[:n]), n == len(all))
			if ok && got != want {
				t.Fatalf("%d candidates give %v, all %v", n, got, want)
			}
		}
		ids, margin := kept(s, all)
		if margin < 1e-6 {
			return // Rounding decides which candidates are kept.
		}
		if !slices.Contains(ids, want.ID) {
			t.Fatalf("%v is drawn, kept are %v", want, ids)
		}
		var same []int32
		for _, c := range keeps {
			same = append(same, c.ID)
		}
		if slices.Sort(same); !slices.Equal(same, ids) {
			t.Fatalf("Draw keeps %v, not %v", same, ids)
		}
		total, before := 0.0, 0.0
		for _, id := range ids {
			p := math.Exp(float64(all[id].LogProb))
			if total += p; id < want.ID {
				before += p
			}
		}
		p := math.Exp(float64(want.LogProb))
		if x := float64(u) * total; p == 0 || x < before-1e-12 || x > before+p+1e-12 {
			t.Fatalf("u = %v draws %v, which stands for %v to %v of %v", u, want, before, before+p, total)
		}
	})
}

// TestDrawNeedsMore: Draw reports too few candidates, and one more candidate that is less
// likely than the last kept one is enough.
func TestDrawNeedsMore(t *testing.T) {
	list := make([]Candidate, 8) // The probabilities are 1/2, 1/4 ... of the whole.
	for i := range list {
		list[i] = Candidate{ID: int32(i), LogProb: float32(-float64(i+1) * math.Ln2)}
	}
	for _, tt := range []struct {
		s    Sampling
		need int
	}{
		{Sampling{TopP: 1, TopK: 3}, 4},
		{Sampling{TopP: 0.7}, 3},
		{Sampling{TopP: 1, MinP: 0.2}, 4},
		{Sampling{TopP: 0.7, TopK: 3, MinP: 0.9}, 4},
	} {
		tt.s.Temperature = 1
		for n := 1; n <= len(list); n++ {
			if _, _, ok := tt.s.Draw(0.5, slices.Clone(list[:n]), false); ok != (n >= tt.need) {
				t.Errorf("%s of %d candidates: %v", tt.s.Describe(), n, ok)
			}
		}
	}
	nan := []Candidate{{ID: 3, LogProb: float32(math.NaN())}, {ID: 4, LogProb: float32(math.NaN())}}
	if x, _, ok := (Sampling{Temperature: 1, TopP: 0.5}).Draw(0.5, nan, false); !ok || x.ID != 3 {
		t.Errorf("NaN: %v, %v", x, ok)
	}
}

// TestFiltered: greedy decoding and a temperature count as unfiltered, and each filter counts as
// filtered.
func TestFiltered(t *testing.T) {
	greedy := Greedy(3)
	greedy.TopK = 3
	for s, want := range map[Sampling]bool{
		Plain(3): false, greedy: false, {Temperature: 0.5, TopP: 1}: false,
		{Temperature: 1, TopP: 1, TopK: 1}: true, {Temperature: 1, TopP: 0.9}: true, {Temperature: 2, TopP: 1, MinP: 0.1}: true,
	} {
		if s.Filtered() != want {
			t.Errorf("%+v: %v", s, !want)
		}
	}
}
