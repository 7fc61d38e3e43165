package sampler

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestKeptGolden: which tokens the filters keep, and the log-prob and the entropy among them, are
// those of testdata/kept.json. It was computed in float64 by PyTorch (gen/field.py OUT --seed
// 7411 --shapes dev); models/decoder has the gradients of its logits.
func TestKeptGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/kept.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vectors []struct {
			Logits                []float64
			Temperature           float64
			TopK                  int     `json:"top_k"`
			TopP                  float64 `json:"top_p"`
			MinP                  float64 `json:"min_p"`
			Token                 int32
			Kept                  []int32
			LogPKept, EntropyKept float64
		}
	}
	if err := json.Unmarshal(rename(text), &file); err != nil {
		t.Fatal(err)
	}
	for i, v := range file.Vectors {
		total := 0.0
		for _, x := range v.Logits {
			total += math.Exp(x / v.Temperature)
		}
		var all []Candidate
		entropy := 0.0
		for id, x := range v.Logits {
			logp := x/v.Temperature - math.Log(total)
			entropy -= math.Exp(logp) * logp
			all = append(all, Candidate{ID: int32(id), LogProb: float32(logp)})
		}
		way := Sampling{Temperature: v.Temperature, TopK: v.TopK, TopP: v.TopP, MinP: v.MinP, MaxNewTokens: 1}
		drawn := false
		for u := float32(0); u < 1; u += 1.0 / 256 {
			row := Row{Way: way, Uniform: u, Kept: true}
			if !row.Draw(descending(all), true, float32(entropy)) {
				t.Fatalf("vector %d: the vocabulary is too small to draw from", i)
			}
			want := v.Kept
			if len(want) == len(all) {
				want = nil
			}
			if x := row.Out; !slices.Equal(x.Kept, want) {
				t.Fatalf("vector %d: %v are kept, want %v", i, x.Kept, want)
			} else if x.ID == v.Token {
				drawn = true
				if math.Abs(float64(x.LogProb)-v.LogPKept) > 1e-6 || math.Abs(float64(x.Entropy)-v.EntropyKept) > 1e-6 {
					t.Errorf("vector %d: log-prob %v, entropy %v, want %v and %v", i, x.LogProb, x.Entropy, v.LogPKept, v.EntropyKept)
				}
			}
		}
		if !drawn && math.Exp(v.LogPKept) > 1.0/128 {
			t.Errorf("vector %d: token %d was never drawn", i, v.Token)
		}
	}
}

// rename gives the figures of the file the names of the fields that read them.
func rename(text []byte) []byte {
	var file map[string]any
	if json.Unmarshal(text, &file) == nil {
		for _, v := range file["vectors"].([]any) {
			x := v.(map[string]any)
			x["LogPKept"], x["EntropyKept"] = x["logp_kept"], x["entropy_kept"]
		}
	}
	out, _ := json.Marshal(file)
	return out
}

// TestRestrict: a draw among what the filters keep has the probability that it has in the whole
// vocabulary over that of the kept tokens, whatever the order of equally likely candidates;
// the probabilities of the kept tokens add up to 1; and the token is the one that is drawn
// without asking for the log-prob among them.
func TestRestrict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, all := drawFilters(t), drawCandidates(t)
		if !s.Filtered() {
			return
		}
		u := float32(rapid.IntRange(0, 1<<24-1).Draw(t, "u")) / (1 << 24)
		whole, kept := Row{Way: s, Uniform: u}, Row{Way: s, Uniform: u, Kept: true}
		whole.Draw(descending(all), true, 1.5)
		kept.Draw(descending(rapid.Permutation(all).Draw(t, "order")), true, 1.5)
		if whole.Out.ID != kept.Out.ID || whole.Out.Kept != nil || whole.Out.Entropy != 1.5 {
			t.Fatalf("%+v and %+v", whole.Out, kept.Out)
		}
		set := kept.Out.Kept
		if len(set) == 0 {
			if kept.Out.LogProb != whole.Out.LogProb || kept.Out.Entropy != 1.5 {
				t.Fatalf("the whole vocabulary gives %+v, not %+v", kept.Out, whole.Out)
			}
			return
		}
		if _, ok := slices.BinarySearch(set, kept.Out.ID); !ok || !slices.IsSorted(set) || len(set) == len(all) {
			t.Fatalf("%+v", kept.Out)
		}
		mass := 0.0
		for _, id := range set {
			mass += math.Exp(float64(all[id].LogProb))
		}
		want := float64(all[kept.Out.ID].LogProb) - math.Log(mass)
		if got := float64(kept.Out.LogProb); got > 0 || math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
			t.Fatalf("log-prob %v, want %v", got, want)
		}
		if h := float64(kept.Out.Entropy); h < 0 || h > math.Log(float64(len(set)))+1e-6 {
			t.Fatalf("an entropy of %v among %d tokens", h, len(set))
		}
	})
}

// TestKeptResponse: a response has a set for each of its tokens, also of those before the first
// one that the filters changed.
func TestKeptResponse(t *testing.T) {
	d := newFake(2, 24)
	d.spoil = func(_ []int32, x *Drawn) { // from the second token on
		if n := len(x.Kept); n == 0 && x.ID%2 == 1 {
			x.Kept = []int32{x.ID}
		}
	}
	list, _, err := Sample(t.Context(), d, Options{Sampling: Plain(12), Kept: true, Seed: 3}, []Request{{Prompt: []int32{1}, Samples: 4}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	some := 0
	for _, r := range list {
		if r.Kept == nil {
			continue
		}
		if len(r.Kept) != len(r.IDs) {
			t.Fatalf("%d sets for %d tokens", len(r.Kept), len(r.IDs))
		}
		for i, set := range r.Kept {
			if (len(set) == 1) != (r.IDs[i]%2 == 1) {
				t.Errorf("token %d: %v", r.IDs[i], set)
			}
			some += len(set)
		}
	}
	if some == 0 {
		t.Error("no response has a set")
	}
	steered := Options{Sampling: Plain(12), Kept: true, Steering: Steering{Presence: 1}}
	if _, _, err := Sample(t.Context(), d, steered, []Request{{Prompt: []int32{1}, Samples: 1}}, nil); err == nil {
		t.Error("penalties beside kept sets are not refused")
	}
}
