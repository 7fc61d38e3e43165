package tiles_test

import (
	"strings"
	"testing"

	"onering/models"
	"onering/models/adamw"
	"onering/models/graph"
	"onering/runtime/tiles"
)

// AdamW is fifteen steps on its four arrays and three more; with a 16-bit copy it is
// ONNX Runtime's.
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

// What steps on one element at a time would compute wrongly is refused.
func TestRefuses(t *testing.T) {
	for want, build := range map[string]func(g *graph.Graph){
		"node 0, Exp": func(g *graph.Graph) {
			p := g.Float("p", "n")
			g.OutputOnto("p1", graph.Mul(p, graph.Exp(p)), "p")
		},
		"constants": func(g *graph.Graph) {
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
	if _, err := tiles.Compile(models.Program{Name: "torn", ONNX: []byte{0x3a, 0xff}}); err == nil {
		t.Error("a torn graph is taken")
	}
}
