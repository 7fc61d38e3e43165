package tiles_test

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/cpu"

	"onering/models"
	"onering/models/graph"
	"onering/models/optim/adamw"
	"onering/runtime/internal/tiles"
)

// AdamW is fifteen steps on its four arrays and three more; with a 16-bit copy ONNX
// Runtime computes it.
func TestAdamW(t *testing.T) {
	p, err := adamw.Default().Program(nil, models.F32)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tiles.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Inputs) != 4 || len(c.Scalars) != 9 || len(c.Steps) != 15 || c.Arrays > 7 {
		t.Errorf("inputs %v, scalars %v, %d steps on %d arrays", c.Inputs, c.Scalars, len(c.Steps), c.Arrays)
	}
	p, err = adamw.Default().Program(nil, models.BF16)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tiles.Compile(p); err == nil || !strings.Contains(err.Error(), `output "copy"`) {
		t.Errorf("with a copy: %v", err)
	}
}

// Run has the results of Go's operators, one after the other, in ranges of any length,
// and refuses arrays of other types or lengths.
func TestRun(t *testing.T) {
	p, err := graph.Build("all", func(g *graph.Graph) {
		x, y, s := g.Float("x", "n"), g.Float("y", "n"), g.Float("s")
		z := graph.Sub(graph.Mul(x, s), graph.Div(s, y))
		x1 := graph.Add(graph.Sqrt(graph.Mul(z, z)), y)
		g.OutputOnto("x1", x1, "x")
		g.OutputOnto("y1", graph.Mul(graph.Sign(z), graph.After(s, x1)), "y")
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := tiles.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	const s = 1.7
	for _, n := range []int{0, 1, 15, 16, 17, 255, 256, 257, 1000} {
		x, y, want, signs := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
		for i := range x {
			x[i], y[i] = 0.3*float32(i)-7, 1+0.11*float32(i%90)
			if i%10 == 3 { // z is 0
				x[i], y[i] = 0, float32(math.Inf(1))
			}
			product, quotient := float32(x[i]*s), float32(s/y[i])
			z := float32(product - quotient)
			want[i] = float32(math.Sqrt(float64(float32(z*z)))) + y[i]
			switch {
			case z > 0:
				signs[i] = s
			case z < 0:
				signs[i] = -s
			}
		}
		if err := c.Run([][]float32{x, y}, []float32{s}); err != nil || !slices.Equal(x, want) || !slices.Equal(y, signs) {
			t.Errorf("%d elements: %v, %v, want %v; signs %v, want %v", n, err, x, want, y, signs)
		}
	}
	three := make([]float32, 3)
	for _, arrays := range [][][]float32{{three}, {three, three[1:]}, {three, three, three}} {
		if c.Run(arrays, []float32{1}) == nil {
			t.Errorf("%d arrays, the last of %d elements", len(arrays), len(arrays[len(arrays)-1]))
		}
	}
	if c.Run([][]float32{three, three}, nil) == nil {
		t.Error("no scalar is given")
	}
}

// A Program that cannot be computed element by element is refused.
func TestRefuses(t *testing.T) {
	for want, build := range map[string]func(g *graph.Graph){
		"node 0, Exp": func(g *graph.Graph) {
			p := g.Float("p", "n")
			g.OutputOnto("p1", graph.Mul(p, graph.Exp(p)), "p")
		},
		`"%c0" is unknown`: func(g *graph.Graph) {
			p := g.Float("p", "n")
			g.OutputOnto("p1", graph.Mul(p, g.Scalar(2)), "p")
		},
		`input "q"`: func(g *graph.Graph) {
			p := g.Float("p", "n")
			g.OutputOnto("p1", graph.Mul(p, p), "p")
			q := g.Float("q", "m")
			g.OutputOnto("q1", graph.Mul(q, q), "q")
		},
	} {
		p, err := graph.Build("refused", build)
		if err != nil {
			t.Error(want, err)
			continue
		}
		if _, err := tiles.Compile(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// AdamW's steps are one loop where there are vectors, with the same bits as the steps one
// after the other. For equal bits the terms of a sum change places.
func TestOneLoop(t *testing.T) {
	p, err := adamw.Default().Program(nil, models.F32)
	if err != nil {
		t.Fatal(err)
	}
	one, err := tiles.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	if !one.OneLoop() {
		if runtime.GOARCH == "amd64" && cpu.X86.HasAVX2 {
			t.Fatal("the steps of AdamW run one after the other: runtime/tiles/tiles.c lists others")
		}
		t.Skip("a processor without AVX2")
	}
	several := *one
	several.Steps = slices.Clone(one.Steps)
	for i, s := range several.Steps {
		if s.Op == "Add" && !s.B.Scalar {
			several.Steps[i].A, several.Steps[i].B = s.B, s.A
		}
	}
	if several.OneLoop() {
		t.Fatal("other steps run in AdamW's loop")
	}
	for _, n := range []int{1, 7, 8, 15, 16, 17, 255, 256, 1000} {
		var got [2][][]float32
		for side, c := range []*tiles.Code{&several, one} {
			r := rand.New(rand.NewPCG(1, uint64(n)))
			for range c.Inputs {
				x := make([]float32, n)
				for i := range x {
					x[i] = float32(math.Abs(r.NormFloat64()) * math.Pow(10, float64(r.IntN(60)-42)))
				}
				got[side] = append(got[side], x)
			}
			scalars := make([]float32, len(c.Scalars))
			for i := range scalars {
				scalars[i] = r.Float32()
			}
			for range 3 {
				if err := c.Run(got[side], scalars); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i, want := range got[0] {
			for j, x := range want {
				if y := got[1][i][j]; math.Float32bits(x) != math.Float32bits(y) {
					t.Fatalf("element %d of %d of %s: %v in one loop, %v by steps", j, n, one.Inputs[i], y, x)
				}
			}
		}
	}
}
