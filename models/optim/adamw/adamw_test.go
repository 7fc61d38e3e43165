package adamw_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
	"onering/models/optim/adamw"
)

func TestOfficialChecker(t *testing.T) {
	var all []models.Program
	for _, copy := range []models.DType{models.F32, models.BF16, models.F16} {
		p, err := adamw.AdamW{}.Program(nil, copy)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	graphtest.Check(t, all...)
}

// TestCopy: the copy is the new weights rounded, while the weights keep what
// is too small for it: five hundred steps of a thousandth of the copy's
// unit move it.
func TestCopy(t *testing.T) {
	for elem, unit := range map[models.DType]float64{models.BF16: 1. / 128, models.F16: 1. / 1024} {
		p, err := adamw.AdamW{}.Program(nil, elem)
		g := graphtest.Loaded(t, p, err)
		g.Single = true
		if fmt.Sprint(p.Alias) != "map[m1:m p1:p v1:v]" {
			t.Errorf("aliases %v", p.Alias)
		}
		state := map[string]graphtest.Tensor{"p": graphtest.Floats([]float64{1}, 1), "m": graphtest.Zeros(1), "v": graphtest.Zeros(1)}
		copies := map[float64]int{}
		for range 600 {
			in := map[string]graphtest.Tensor{"g": graphtest.Floats([]float64{-1}, 1), "p": state["p"], "m": state["m"], "v": state["v"]}
			for name, x := range map[string]float64{"clip": 1, "beta1": 0, "beta2": 0, "rest1": 1, "rest2": 1, "rate": unit / 1000, "root": 1, "eps": 0, "keep": 1} {
				in[name] = graphtest.Floats([]float64{x})
			}
			out, err := g.Run(in)
			if err != nil {
				t.Fatal(err)
			}
			for output, input := range p.Alias {
				state[input] = out[output]
			}
			if got := out["copy"]; got.Type != elem || got.Data[0] != state["p"].As(elem).Data[0] {
				t.Fatalf("copy %v of %v", got.Data, state["p"].Data)
			}
			copies[out["copy"].Data[0]]++
		}
		if n := copies[1]; n < 480 || n > 520 || copies[1+unit] != 600-n {
			t.Errorf("%v: the copy was %v", elem, copies)
		}
	}
}

// TestStep takes several steps and compares with torch.optim.AdamW's formula in
// its own order: decay the parameter, update the moments, correct their bias,
// step.
func TestStep(t *testing.T) {
	program, err := adamw.AdamW{}.Program(nil, models.F32)
	g := graphtest.Loaded(t, program, err)
	if fmt.Sprint(program.Alias) != "map[m1:m p1:p v1:v]" {
		t.Errorf("aliases %v", program.Alias)
	}
	const n = 7
	for _, tt := range []struct{ lr, beta1, beta2, eps, decay, clip float64 }{
		{1e-6, 0.9, 0.95, 1e-8, 0, 1},
		{1e-3, 0.9, 0.999, 1e-8, 0.01, 1},
		{0.1, 0, 0.5, 1e-3, 0.1, 0.25},
		{0, 0.9, 0.95, 1e-8, 0.1, 1},
	} {
		r := rand.New(rand.NewPCG(1, 1))
		state := map[string]graphtest.Tensor{"p": graphtest.Normal(r, n), "m": graphtest.Zeros(n), "v": graphtest.Zeros(n)}
		p, m, v := append([]float64{}, state["p"].Data...), make([]float64, n), make([]float64, n)
		for step := 1; step <= 5; step++ {
			grad := graphtest.Normal(r, n)
			grad.Data[3] = 0 // This weight never has a gradient: it only decays.
			correct1, correct2 := 1-math.Pow(tt.beta1, float64(step)), 1-math.Pow(tt.beta2, float64(step))
			for i, d := range grad.Data {
				d *= tt.clip
				p[i] *= 1 - tt.lr*tt.decay
				m[i] += (d - m[i]) * (1 - tt.beta1)
				v[i] = v[i]*tt.beta2 + (1-tt.beta2)*d*d
				denominator := math.Sqrt(v[i])/math.Sqrt(correct2) + tt.eps
				p[i] -= tt.lr / correct1 * m[i] / denominator
			}
			in := map[string]graphtest.Tensor{"g": grad, "p": state["p"], "m": state["m"], "v": state["v"]}
			for name, x := range map[string]float64{
				"clip": tt.clip, "beta1": tt.beta1, "beta2": tt.beta2, "rest1": 1 - tt.beta1, "rest2": 1 - tt.beta2,
				"rate": tt.lr / correct1, "root": 1 / math.Sqrt(correct2), "eps": tt.eps, "keep": 1 - tt.lr*tt.decay,
			} {
				in[name] = graphtest.Floats([]float64{x})
			}
			out, err := g.Run(in)
			if err != nil {
				t.Fatal(err)
			}
			for output, input := range program.Alias {
				state[input] = out[output]
			}
			for name, want := range map[string][]float64{"p": p, "m": m, "v": v} {
				for i, x := range want {
					if got := state[name].Data[i]; !(math.Abs(got-x) <= 1e-14*(1+math.Abs(x))) {
						t.Errorf("%+v, step %d: %s[%d] = %v, want %v", tt, step, name, i, got, x)
					}
				}
			}
		}
	}
}
