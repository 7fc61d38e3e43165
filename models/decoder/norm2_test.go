package decoder_test

import (
	"math"
	"testing"

	"onering/internal/graphtest"
)

// TestNorm2Scaled finds values that are not finite, and only those.
func TestNorm2Scaled(t *testing.T) {
	p, err := builds[3].of(small()).GradNorm() // float16
	g := graphtest.Loaded(t, p, err)
	g.Single = true
	for _, tt := range []struct {
		g     []float64
		found float64
	}{
		{[]float64{3, -4, 0}, 0}, {[]float64{math.MaxFloat32, -math.MaxFloat32}, 0},
		{[]float64{1, math.Inf(1)}, 1}, {[]float64{math.Inf(-1), 0, math.NaN()}, 2}, {[]float64{0, math.NaN(), 2}, 1},
	} {
		out, err := g.Run(map[string]graphtest.Tensor{"g": graphtest.Floats(tt.g, len(tt.g)), "unscale": graphtest.Floats([]float64{1. / 256})})
		if err != nil {
			t.Fatal(err)
		}
		if got := out["found"].Data[0]; got != tt.found {
			t.Errorf("%v: found %v, want %v", tt.g, got, tt.found)
		}
		if got := out["sum"].Data[0]; tt.g[0] == 3 && got != 25./(1<<16) {
			t.Errorf("%v: sum %v", tt.g, got)
		}
	}
}

func TestNorm2(t *testing.T) {
	p, err := float32Build.of(small()).GradNorm()
	g := graphtest.Loaded(t, p, err)
	for _, v := range [][]float64{{3}, {3, -4}, {1, 2, 3, 4, -5}, {0, 0}} {
		want := 0.0
		for _, x := range v {
			want += x * x
		}
		out, err := g.Run(map[string]graphtest.Tensor{"g": graphtest.Floats(v, len(v))})
		if err != nil {
			t.Fatal(err)
		}
		if got := out["sum"]; len(got.Dims) != 0 || got.Data[0] != want {
			t.Errorf("%v: %v, want %v", v, got.Data, want)
		}
	}
}
