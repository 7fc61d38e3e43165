package runtime_test

import (
	"context"
	"slices"
	"testing"

	"onering/models"
	"onering/runtime"
	"onering/sampler"
)

// TestMixed answers calls of different samplings together, one of which begins later.
// Each must have the bits that Sample gives for it alone.
func TestMixed(t *testing.T) { onDevices(t, testMixed) }

func testMixed(t *testing.T, env *runtime.Env) {
	c := qwen2Of(models.Sizes{Hidden: 64, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 32, FFN: 96, Vocab: 300, MaxPositions: 128})
	c.Tied, c.RopeTheta, c.Provider = true, 1e6, env.Provider()
	_, ring := madeUpRing(t, c, 1)
	ways := []sampler.Sampling{
		sampler.Plain(9), sampler.Greedy(12),
		{Temperature: 0.6, TopP: 0.9, MaxNewTokens: 20}, {Temperature: 1.3, TopP: 1, TopK: 7, MinP: 0.02, MaxNewTokens: 5},
		{Temperature: 0.6, TopP: 0.9, MaxNewTokens: 60}, {Temperature: 1, TopP: 1, MinP: 0.1, MaxNewTokens: 33},
	}
	open := func() *sampler.Invariant {
		d, err := env.NewDecoder(ring, 5, 100)
		check(t, err)
		t.Cleanup(d.Close)
		i := sampler.NewInvariant(d, sampler.InvariantToSlots)
		t.Cleanup(i.Close)
		return i
	}
	live, err := sampler.NewScheduler(open())
	check(t, err)
	var got [][]sampler.Response
	var calls []*sampler.Call
	for i, way := range ways {
		got = append(got, nil)
		call := &sampler.Call{
			Options: sampler.Options{Sampling: way, Seed: uint64(i)},
			Request: sampler.Request{Prompt: []int32{int32(i + 1), 7, 9}, ID: 3, Samples: 1 + i%2},
			Done:    func(r sampler.Response) { got[i] = append(got[i], r) },
			Failed:  func(err error) { t.Error(err) },
		}
		check(t, live.Add(call))
		calls = append(calls, call)
		live.Step()
	}
	for live.Step() {
	}
	alone := open()
	for i, call := range calls {
		want, _, err := sampler.Sample(context.Background(), alone, call.Options, []sampler.Request{call.Request}, nil)
		check(t, err)
		slices.SortFunc(got[i], func(a, b sampler.Response) int { return a.Sample - b.Sample })
		for k, w := range want {
			if g := got[i][k]; !slices.Equal(g.IDs, w.IDs) || !slices.Equal(g.LogProb, w.LogProb) || !slices.Equal(g.Entropy, w.Entropy) {
				t.Errorf("call %d, sample %d: %v %v, alone %v %v", i, k, g.IDs, g.LogProb, w.IDs, w.LogProb)
			}
		}
	}
}

// rowsOf makes rows of slots that draw from the whole vocabulary, each by its uniform.
func rowsOf(slots []int, prefixes []int, uniforms ...float32) []sampler.Row {
	rows := make([]sampler.Row, len(slots))
	for i, slot := range slots {
		rows[i] = sampler.Row{Slot: slot, Prefix: prefixes[i], Uniform: uniforms[i%len(uniforms)], Way: sampler.Plain(1)}
	}
	return rows
}

// fed makes rows append the tokens that were drawn last.
func fed(rows []sampler.Row) []sampler.Row {
	for i := range rows {
		rows[i].ID = rows[i].Out.ID
	}
	return rows
}

// outs returns the log-probs and entropies of rows.
func outs(rows []sampler.Row) (logp, entropy []float32) {
	for _, r := range rows {
		logp, entropy = append(logp, r.Out.LogProb), append(entropy, r.Out.Entropy)
	}
	return logp, entropy
}
