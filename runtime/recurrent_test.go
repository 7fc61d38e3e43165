package runtime_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"onering/models"
	"onering/models/decoder"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/sampler"
)

// recurrentConfigs are models whose caches have states of one size beside keys and values, or whose
// tokens see a window of those.
var recurrentConfigs = map[string]string{
	"convolutions": `{"model_type": "lfm2", "vocab_size": 300, "hidden_size": 48, "intermediate_size": 90, "block_auto_adjust_ff_dim": false,
		"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "full_attn_idxs": [1], "conv_bias": true, "max_position_embeddings": 1000}`,
	"delta rule": `{"model_type": "qwen3_5_text", "vocab_size": 300, "hidden_size": 48, "intermediate_size": 90, "full_attention_interval": 2,
		"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 1000, "initializer_range": 0.2,
		"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 12, "linear_value_head_dim": 8}`,
	"windows": `{"model_type": "gemma3_text", "vocab_size": 300, "hidden_size": 48, "intermediate_size": 90, "sliding_window": 11, "sliding_window_pattern": 2,
		"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "max_position_embeddings": 1000, "initializer_range": 0.2}`,
}

// onRecurrent runs a test on each of recurrentConfigs, with random weights.
func onRecurrent(t *testing.T, test func(t *testing.T, env *runtime.Env, ring *runtime.Ring)) {
	env := runtimetest.Test(t)
	for name, config := range recurrentConfigs {
		t.Run(name, func(t *testing.T) {
			m, err := models.ParseConfig([]byte(config), nil)
			check(t, err)
			_, ring := madeUpRing(t, decoder.Architecture{Shape: m.Design.(decoder.Shape)}, 1)
			test(t, env, ring)
		})
	}
}

// TestRecurrentGap: sampled log-probs are the learner's, for prompts and responses of
// several chunks, for several samples of a prompt, and where sequences change their rows.
func TestRecurrentGap(t *testing.T) {
	onRecurrent(t, func(t *testing.T, env *runtime.Env, ring *runtime.Ring) {
		d := must(env.NewDecoder(ring, 5, 260))(t)
		defer d.Close()
		var requests []sampler.Request
		for i, n := range []int{1, 3, 33, 64, 100} {
			prompt := make([]int32, n)
			for t := range prompt {
				prompt[t] = int32((7*i + 11*t*t) % 300)
			}
			requests = append(requests, sampler.Request{Prompt: prompt, ID: uint64(i), Samples: 3})
		}
		options := sampler.Options{Seed: 3, EOS: []int32{3, 9, 200}}
		options.Temperature, options.TopP, options.MaxNewTokens = 1, 1, 150
		responses, _, err := sampler.Sample(context.Background(), d, options, requests, nil)
		check(t, err)
		var sequences []runtime.Sequence
		var sampled [][]float64
		for _, x := range responses {
			sequences = append(sequences, runtime.NewSequence(requests[x.Request].Prompt, x.IDs))
			var logps []float64
			for _, p := range x.LogProb {
				logps = append(logps, float64(p))
			}
			sampled = append(sampled, logps)
		}
		l := must(env.NewLearner(ring, runtime.LearnerOptions{ScoreOnly: true}))(t)
		defer l.Close()
		p := must(l.Forward(sequences, 1, false))(t)
		defer p.Release()
		bound, sum, n := 1e-4, 0.0, 0
		if strings.HasSuffix(t.Name(), "delta_rule") {
			bound = 3e-4 // a few tokens of this model amplify rounding: the learner's own log-probs are up to 1.1e-4 off float64's
		}
		near(t, "log-probs of the learner", p.LogProb, sampled, bound)
		for i, row := range p.LogProb {
			for k, x := range row {
				sum, n = sum+math.Abs(float64(x)-sampled[i][k]), n+1
			}
		}
		if !(sum < 6e-6*float64(n)) {
			t.Errorf("log-probs of the learner: mean difference %.2g", sum/float64(n))
		}
		t.Logf("mean difference %.2g", sum/float64(n))
	})
}

// TestRecurrentRows: other rows and forms change no log-prob, and a row that idles goes on as if it
// had not.
func TestRecurrentRows(t *testing.T) {
	onRecurrent(t, func(t *testing.T, env *runtime.Env, ring *runtime.Ring) {
		var want []float32
		if env.Device() == "cpu" {
			cacheRows(t, env, ring)
		}
		for _, of := range []sampler.Invariance{sampler.InvariantToSlots, sampler.NoInvariance} {
			d := must(env.NewDecoder(ring, 40, 200))(t)
			defer d.Close()
			d.SetInvariant(of)
			got := decodeFewer(t, d, 40)
			if want == nil {
				want = got
			}
			for i := range want {
				if !(math.Abs(float64(got[i]-want[i])) <= 5e-5) {
					t.Fatalf("number %d is %v, in Direct alone %v", i, got[i], want[i])
				}
			}
		}
		var steady []float32
		for _, rest := range []int{0, 4} {
			d := must(env.NewDecoder(ring, 3, 100))(t)
			defer d.Close()
			d.SetInvariant(sampler.InvariantToSlots)
			rows := rowsOf([]int{0, 1, 2}, must(d.Prefill([][]int32{{5, 6, 7}, {8}, {1, 2}}))(t), 0.5)
			check(t, d.Begin(rows))
			var logps []float32
			for step := range 12 + rest {
				rows[1].Idle = step >= 5 && step < 5+rest
				for i := range rows {
					rows[i].ID = int32(20 + 3*len(logps) + i)
				}
				check(t, d.Step(rows))
				if !rows[1].Idle {
					logps = append(logps, rows[1].Out.LogProb)
				}
			}
			if steady == nil {
				steady = logps
			}
			if !slices.Equal(logps, steady) {
				t.Errorf("log-probs of a row that idles for %d steps are %v, else %v", rest, logps, steady)
			}
		}
	})
}

// TestRecurrentInvariance: the bits of a row do not depend on the other rows.
func TestRecurrentInvariance(t *testing.T) {
	onRecurrent(t, func(t *testing.T, env *runtime.Env, ring *runtime.Ring) {
		var want []float32
		for _, n := range []int{2, 3, 7, 16, 33} {
			d := must(env.NewDecoder(ring, n, 100))(t)
			defer d.Close()
			d.SetInvariant(sampler.InvariantToSlots)
			slots, prompts := make([]int, n), make([][]int32, n)
			for i := range slots {
				slots[i], prompts[i] = i, make([]int32, 1+(i*7)%50)
			}
			at := n / 2
			prompts[at] = []int32{4, 8, 15, 16, 23, 42}
			rows := rowsOf(slots, must(d.Prefill(prompts))(t), 0.5)
			check(t, d.Begin(rows))
			var got []float32
			for step := range 20 {
				got = append(got, rows[at].Out.LogProb, rows[at].Out.Entropy)
				for i := range rows {
					rows[i].ID = int32((50*step + 3*i*n) % 300)
				}
				rows[at].ID = int32(step)
				check(t, d.Step(rows))
			}
			if want == nil {
				want = got
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d rows: %v, of 2 rows %v", n, got, want)
			}
		}
	})
}

// TestRecurrentKept: a turn that a kept slot continues has the log-probs of one whose whole
// conversation is a prompt.
func TestRecurrentKept(t *testing.T) {
	onRecurrent(t, func(t *testing.T, env *runtime.Env, ring *runtime.Ring) {
		var want []float32
		for _, cost := range []int{1, 1000} { // with the second, nothing is continued
			d := must(env.NewDecoder(ring, 1, 200))(t)
			defer d.Close()
			kept := sampler.NewKept(d, cost)
			var got []float32
			conversation := []int32{5, 8, 13}
			for turn := range 4 {
				conversation = append(conversation, int32(40+turn), int32(90+turn))
				options := sampler.Options{Seed: uint64(turn)}
				options.Temperature, options.TopP, options.MaxNewTokens = 1, 1, 20
				responses, _, err := sampler.Sample(context.Background(), kept, options, []sampler.Request{{Prompt: conversation, Samples: 1}}, nil)
				check(t, err)
				if continued := kept.Reused > 0; continued != (cost == 1 && turn > 0) {
					t.Errorf("turn %d continues %d tokens", turn, kept.Reused)
				}
				got, conversation = append(got, responses[0].LogProb...), append(conversation, responses[0].IDs...)
			}
			if want == nil {
				want = got
			}
			for i := range want {
				if !(math.Abs(float64(got[i]-want[i])) <= 5e-5) {
					t.Fatalf("log-prob %d is %v anew, %v continued", i, got[i], want[i])
				}
			}
		}
	})
}
