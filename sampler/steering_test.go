package sampler

import (
	"errors"
	"math"
	"slices"
	"testing"
)

// steeredOracle samples a response by what the fields of Steering say, over the whole
// vocabulary.
func steeredOracle(q Request, opts Options) (p Response) {
	tokens, had, read := slices.Clone(q.Prompt), map[int32]float64{}, q.Prompt
	for t := range opts.MaxNewTokens {
		probs := distribution(tokens, opts.Temperature)
		var logits [fakeVocab]float64
		total, best := 0.0, 0
		for j, x := range probs {
			id := int32(j)
			if logits[j] = math.Log(x); opts.Repetition != 0 && (had[id] > 0 || slices.Contains(read, id)) {
				logits[j] *= opts.Repetition
			}
			logits[j] += (opts.Bias[id] - opts.Presence*min(had[id], 1) - opts.Frequency*had[id]) / opts.Temperature
			if t < opts.MinTokens && slices.Contains(opts.EOS, id) {
				logits[j] = math.Inf(-1)
			}
			if total += math.Exp(logits[j]); logits[j] > logits[best] {
				best = j
			}
		}
		if !opts.Greedy {
			best = fakeVocab - 1
			u, sum := float64(Uniform(opts.Seed, q.ID, 0, t))*total, 0.0
			for j := range logits {
				if sum += math.Exp(logits[j]); sum > u {
					best = j
					break
				}
			}
		}
		id := int32(best)
		tokens, had[id] = append(tokens, id), had[id]+1
		p.IDs, p.LogProb = append(p.IDs, id), append(p.LogProb, float32(math.Log(probs[best])))
		if slices.Contains(opts.EOS, id) {
			break
		}
	}
	return p
}

// TestSteering: each field of Steering changes the choice as it says, alone and with others, and
// never a log-prob.
func TestSteering(t *testing.T) {
	plain := 0 // responses that are those without steering
	for name, s := range map[string]Steering{
		"bias": {Bias: map[int32]float64{3: 100}}, "ban": {Bias: map[int32]float64{1: -100, 2: -100, 4: 1.5}}, "presence": {Presence: 2}, "liked": {Presence: -2},
		"frequency": {Frequency: 1.5}, "repetition": {Repetition: 3}, "least": {MinTokens: 9}, "none": {Repetition: 1},
		"all": {Bias: map[int32]float64{7: 2}, Presence: 0.5, Frequency: 0.5, Repetition: 1.2, MinTokens: 4},
	} {
		for seed := range uint64(40) {
			way := Plain(20)
			way.Temperature = []float64{0.5, 1, 2}[seed%3]
			if seed%4 == 0 {
				way = Greedy(20)
			}
			opts := Options{Sampling: way, Steering: s, EOS: []int32{0, 5}, Seed: seed}
			q := Request{Prompt: []int32{3, 1, 2}, ID: seed, Samples: 1}
			d := newFake(2, 40)
			got, _, err := Sample(t.Context(), d, opts, []Request{q}, nil)
			if err != nil || d.clean() != nil {
				t.Fatal(name, err, d.clean())
			}
			want := steeredOracle(q, opts)
			if !slices.Equal(got[0].IDs, want.IDs) {
				t.Errorf("%s, seed %d: %v, want %v", name, seed, got[0].IDs, want.IDs)
				continue
			}
			for i, x := range got[0].LogProb {
				if math.Abs(float64(x-want.LogProb[i])) > 1e-5 {
					t.Errorf("%s, seed %d: token %d has the log-prob %v, the model's is %v", name, seed, i, x, want.LogProb[i])
				}
			}
			if slices.Equal(got[0].IDs, oracle(q, 0, opts, 40).IDs) {
				plain++
			}
		}
	}
	if plain < 40 || plain > 160 {
		t.Errorf("%d of 360 responses are as without steering", plain)
	}
	for _, bad := range []Steering{{Presence: 3}, {Frequency: -2.5}, {Repetition: -1}, {MinTokens: -1}, {Presence: math.NaN()}} {
		if _, _, err := Sample(t.Context(), newFake(1, 9), Options{Sampling: Plain(3), Steering: bad}, []Request{{Prompt: []int32{1}, Samples: 1}}, nil); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// TestLeastText: a stop string does not end a response that has too few tokens.
func TestLeastText(t *testing.T) {
	opts := Options{Sampling: Greedy(12), Steering: Steering{MinTokens: 6}, Stops: []string{"a", "b", "c", "d", "e", "f"}, Text: func() TextDecoder { return letters{} }}
	opts.Bias = map[int32]float64{0: -100}
	got, _, err := Sample(t.Context(), newFake(1, 30), opts, []Request{{Prompt: []int32{1}, Samples: 1}}, nil)
	if err != nil || len(got[0].IDs) < 6 {
		t.Errorf("%+v, %v", got, err)
	}
}

// few is a Constraint that allows some ids for a number of tokens, and then the end.
type few struct {
	ids  []int32
	left int
}

func (f *few) Next() (allowed []uint64, ends bool, err error) {
	allowed = make([]uint64, 1)
	for _, id := range f.ids {
		if f.left > 0 {
			allowed[0] |= 1 << id
		}
	}
	if f.left < 0 {
		err = errors.New("behind the end")
	}
	return allowed, f.left == 0, err
}

func (f *few) Add(int32) { f.left-- }

// TestConstraint: tokens are drawn from those that a Constraint allows, as if the others were
// impossible, with the model's log-probs, whatever is sampled beside them; and its end is that of the response.
func TestConstraint(t *testing.T) {
	ids := []int32{2, 3, 6}
	banned := map[int32]float64{}
	for id := range int32(fakeVocab) {
		if !slices.Contains(ids, id) {
			banned[id] = -1e6
		}
	}
	for seed := range uint64(40) {
		way := Plain(9)
		way.Temperature = []float64{0.5, 1, 2}[seed%3]
		switch seed % 4 {
		case 0:
			way = Greedy(9)
		case 1:
			way.TopP = 0.6
		case 2:
			way.TopK = 2
		}
		q := []Request{{Prompt: []int32{3, 1, 2}, ID: seed, Samples: 3}}
		opts := Options{Sampling: way, Constraint: func() Constraint { return &few{ids, 6} }, EOS: []int32{0, 5}, Seed: seed}
		got, _, err := Sample(t.Context(), newFake(1, 40), opts, q, nil)
		together, _, err2 := Sample(t.Context(), newFake(3, 40), opts, q, nil)
		opts.Constraint, opts.Bias, opts.EOS, opts.MaxNewTokens = nil, banned, nil, 6
		want, _, err3 := Sample(t.Context(), newFake(2, 40), opts, q, nil)
		if err := errors.Join(err, err2, err3); err != nil {
			t.Fatal(err)
		}
		for k := range got {
			if ids := got[k].IDs; len(ids) != 7 || !slices.Equal(ids[:6], want[k].IDs) || !slices.Equal(ids, together[k].IDs) || got[k].Finish != Stop || ids[6] != 0 && ids[6] != 5 {
				t.Errorf("seed %d: %v %s and %v, want %v and an end", seed, ids, got[k].Finish, together[k].IDs, want[k].IDs)
			} else if !slices.Equal(got[k].LogProb[:6], want[k].LogProb) {
				t.Errorf("seed %d: log-probs %v, want %v", seed, got[k].LogProb, want[k].LogProb)
			}
		}
	}
	opts := Options{Sampling: Plain(9), Constraint: func() Constraint { return &few{ids, 2} }}
	got, _, err := Sample(t.Context(), newFake(1, 40), opts, []Request{{Prompt: []int32{1}, Samples: 1}}, nil)
	if err != nil || len(got[0].IDs) != 2 || got[0].Finish != Stop {
		t.Errorf("without an EOS id: %+v, %v", got, err)
	}
	for _, bad := range []Options{{Constraint: opts.Constraint, Kept: true}, {Constraint: opts.Constraint, Steering: Steering{MinTokens: 2}}} {
		bad.Sampling = Plain(3)
		if _, _, err := Sample(t.Context(), newFake(1, 40), bad, []Request{{Prompt: []int32{1}, Samples: 1}}, nil); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	// Tokens so unlikely that their probabilities are 0 are drawn where there are no others.
	row := Row{Way: Plain(1), Uniform: 0.9, Score: func(c Candidate) float32 {
		if c.ID == 7 {
			return float32(math.Inf(-1))
		}
		return c.LogProb
	}}
	if ok := row.Draw([]Candidate{{ID: 7}, {ID: 4, LogProb: -2000}, {ID: 9, LogProb: -2000}}, true, 0); !ok || row.Out.ID != 9 || row.Out.LogProb != -2000 {
		t.Errorf("%+v", row.Out)
	}
}
