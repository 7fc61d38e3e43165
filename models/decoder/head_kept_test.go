package decoder_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
)

// TestKeptGolden: log-prob, entropy, sum of squares and the gradient of the logits over kept
// tokens, and over the whole vocabulary, are those of PyTorch in float64; see
// sampler/filter_kept_test.go. The head is the identity, so h is the logits over the temperature.
func TestKeptGolden(t *testing.T) {
	text, err := os.ReadFile("../../sampler/testdata/kept.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vectors []struct {
			Logits      []float64
			Temperature float64
			Token       int
			Kept        []int
			LogPFull    float64   `json:"logp_full"`
			LogPKept    float64   `json:"logp_kept"`
			GradFull    []float64 `json:"grad_full"`
			GradKept    []float64 `json:"grad_kept"`
			EntropyKept float64   `json:"entropy_kept"`
			Squares     float64   `json:"sum_pi_squared_kept"`
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	near := func(what string, i int, got, want float64) {
		if !(math.Abs(got-want) <= 1e-9*(1+math.Abs(want))) {
			t.Errorf("vector %d: %s is %v, want %v", i, what, got, want)
		}
	}
	for i, v := range file.Vectors {
		n := len(v.Logits)
		c := small()
		c.Hidden, c.Vocab = n, n
		h, e, one := graphtest.Zeros(1, n), graphtest.Zeros(n, n), graphtest.Floats([]float64{1}, 1, 1)
		for k, x := range v.Logits {
			h.Data[k], e.Data[k*n+k] = x/v.Temperature, 1
		}
		start := graphtest.Floats([]float64{-1e30}, 1, 1)
		for _, kept := range []bool{false, true} {
			sets := map[string]graphtest.Tensor{}
			if kept {
				places, ones := []int{0, 0}, []float64{0}
				for _, id := range v.Kept {
					places, ones = append(places, 0, id), append(ones, 1)
				}
				sets["every"], sets["set"], sets["ones"] = graphtest.Zeros(1, 1), graphtest.Ints(places, len(ones), 2), graphtest.Floats(ones, len(ones))
			}
			f, tg, b, err := c.Head(models.HeadForm{Kept: kept, Squares: true})
			with := func(in map[string]graphtest.Tensor) map[string]graphtest.Tensor {
				for name, x := range sets {
					in[name] = x
				}
				return in
			}
			out := run(t, graphtest.Loaded(t, f, err), with(map[string]graphtest.Tensor{"h": h, "E": e, "z": start, "u": graphtest.Zeros(1, 1), "q": start}))
			z := out["z_out"]
			logit := run(t, graphtest.Loaded(t, tg, err), map[string]graphtest.Tensor{"h": h, "E": e, "y": graphtest.Ints([]int{v.Token})})["logit"]
			back := run(t, graphtest.Loaded(t, b, err), with(map[string]graphtest.Tensor{"h": h, "E": e, "z": z, "w": one, "dh": graphtest.Zeros(1, n),
				"dE": graphtest.Zeros(n, n), "at": graphtest.Ints([]int{0, v.Token}, 1, 2), "dlogit": graphtest.Floats([]float64{1}, 1)}))
			logp, grad := v.LogPFull, v.GradFull
			if kept {
				logp, grad = v.LogPKept, v.GradKept
				near("the entropy", i, z.Data[0]-out["u_out"].Data[0], v.EntropyKept)
				near("the sum of squares", i, math.Exp(out["q_out"].Data[0]-2*z.Data[0]), v.Squares)
			}
			near("the log-prob", i, logit.Data[0]-z.Data[0], logp)
			for k, x := range back["dh_out"].Data {
				near("a gradient", i, x/v.Temperature, grad[k])
			}
		}
	}
}
