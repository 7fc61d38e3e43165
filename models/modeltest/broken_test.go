package modeltest

import (
	"fmt"
	"strings"
	"testing"

	"onering/models"
	"onering/models/decoder"
	_ "onering/models/llama"
)

const small = `{"model_type": "llama", "hidden_size": 12, "intermediate_size": 14, "num_hidden_layers": 2, "num_attention_heads": 4,
	"num_key_value_heads": 2, "head_dim": 6, "vocab_size": 23, "max_position_embeddings": 16, "attention_bias": true, "tie_word_embeddings": true}`

func TestConformance(t *testing.T) { Run(t, small) }

// A broken design is a Llama with one fault.
type broken struct {
	decoder.Shape
	layout func(*models.Layout) *models.Layout
	decode func(*decoder.Shape) // changes what Decode and Prefill compute
	back   func(*decoder.Shape) // changes what the backward Programs compute
}

func (b broken) Layout() *models.Layout {
	if b.layout == nil {
		return b.Shape.Layout()
	}
	return b.layout(b.Shape.Layout())
}

func (b broken) Architecture(c models.Compute) (models.Architecture, error) {
	a, err := b.Shape.Architecture(c)
	return brokenArchitecture{a, b, c}, err
}

type brokenArchitecture struct {
	models.Architecture
	broken
	models.Compute
}

// changed is the Architecture with the design's change of the Shape, if there is one.
func (a brokenArchitecture) changed(change func(*decoder.Shape)) models.Architecture {
	s := a.Shape
	if change != nil {
		change(&s)
	}
	return decoder.Architecture{Shape: s, Compute: a.Compute}
}

func (a brokenArchitecture) Geometry() models.Geometry        { return a.Architecture.Geometry() }
func (a brokenArchitecture) Layout() *models.Layout           { return a.broken.Layout() }
func (a brokenArchitecture) LayerPrefix(i int) string         { return a.Architecture.LayerPrefix(i) }
func (a brokenArchitecture) Prefill() (models.Program, error) { return a.changed(a.decode).Prefill() }
func (a brokenArchitecture) Decode(f models.Form) (models.Program, error) {
	return a.changed(a.decode).Decode(f)
}

func (a brokenArchitecture) Layer(kind int, full bool, blocks int) (f, b models.Program, err error) {
	if f, _, err = a.changed(nil).Layer(kind, full, blocks); err == nil {
		_, b, err = a.changed(a.back).Layer(kind, full, blocks)
	}
	return f, b, err
}

// A recorder is a test that records errors in place of failing.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Helper()           {}
func (r *recorder) Error(args ...any) { r.errors = append(r.errors, fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}
func (r *recorder) Fatal(args ...any) { r.Error(args...); panic(r) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

// TestBroken: each rule finds a family that breaks it.
func TestBroken(t *testing.T) {
	shape := decoder.Shape{Sizes: models.Sizes{Hidden: 12, FFN: 14, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 6, Vocab: 23, MaxPositions: 16},
		RopeTheta: 100, RMSEps: 1e-6, Tied: true, Names: decoder.LlamaNames}
	for _, b := range []struct {
		rule   string
		design broken
		want   string
	}{
		{"weights", broken{layout: func(l *models.Layout) *models.Layout {
			more, _ := models.NewLayout(append(l.Fused(), models.Plain("model.idle.weight", 3)))
			return more
		}}, `"model.idle.weight" is read: false`},
		{"decode", broken{decode: func(s *decoder.Shape) { s.RMSEps = 1e-2 }}, "prompts, row 0, token 4: state"},
		{"decode", broken{decode: func(s *decoder.Shape) { s.Kinds = models.Kinds{{Frequencies: make([]float32, 3), Scale: 1}} }}, "prompts, row 0, token 4: state"},
		{"gradients", broken{back: func(s *decoder.Shape) { s.RMSEps = 1e-2 }}, "differences give"},
	} {
		b.design.Shape = shape
		m, err := models.NewModel(b.design)
		if err != nil {
			t.Fatal(err)
		}
		w := draw(t, m, 1)
		r := &recorder{TB: t}
		func() {
			defer func() {
				if e := recover(); e != nil && e != any(r) {
					panic(e)
				}
			}()
			for _, rule := range rules {
				if rule.name == b.rule {
					rule.check(r, small, m, w)
				}
			}
		}()
		if !strings.Contains(strings.Join(r.errors, "\n"), b.want) {
			t.Errorf("rule %s: errors %q, want %q", b.rule, r.errors, b.want)
		}
	}
	models.Register("careless", "", func(c *models.ConfigFile) (models.Design, error) { return shape, nil })
	r := &recorder{TB: t}
	checkConfig(r, strings.Replace(small, "llama", "careless", 1), models.Model{}, nil)
	if all := strings.Join(r.errors, "\n"); !strings.Contains(all, "rope_theta 1234.5") || !strings.Contains(all, "dynamic") {
		t.Errorf("a family that reads no config: errors %q", r.errors)
	}
}
