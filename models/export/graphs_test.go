package export

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"onering/models"
	_ "onering/models/all"
)

// everyExport returns exports of all kinds.
func everyExport(t *testing.T) (all []*Graphs) {
	t.Helper()
	adapter := &models.Adapter{Rank: 2, Scale: 0.5, Modules: []string{"self_attn.q_proj", "mlp.down_proj"}}
	for _, keys := range []string{`"qwen3", "head_dim": 16`, `"qwen3", "head_dim": 10`, `"gemma3_text", "head_dim": 16, "sliding_window": 4, "sliding_window_pattern": 2, "final_logit_softcapping": 30.0`,
		`"qwen3_5_text", "head_dim": 16, "full_attention_interval": 2, "linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 6, "linear_value_head_dim": 4`} {
		model, err := models.ParseConfig(fmt.Appendf(nil, `{"model_type": %s, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
			"num_key_value_heads": 2, "intermediate_size": 40, "vocab_size": 50, "max_position_embeddings": 16, "eos_token_id": 1}`, keys), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []struct {
			Options
			models.Compute
		}{
			{Options{"cpu", 1, nil}, models.Compute{}},
			{Options{"cpu", 2, nil}, models.Compute{}},
			{Options{"cpu", 1, adapter}, models.Compute{Adapter: adapter}},
			{Options{"cpu", 1, nil}, models.Compute{Type: models.F16}},
			{Options{"cuda", 1, nil}, models.Compute{Provider: models.CUDA}},
			{Options{"cuda", 1, adapter}, models.Compute{Provider: models.CUDA, Type: models.BF16, Adapter: adapter}},
		} {
			arch, err := model.Architecture(x.Compute)
			if err != nil {
				t.Fatal(err)
			}
			g, err := Build(arch, x.Options)
			if err != nil {
				t.Fatal(err)
			}
			checkLetters(t, g.manifest)
			all = append(all, g)
		}
	}
	return all
}

// checkLetters wants every letter of a shape to be explained.
func checkLetters(t *testing.T, m manifest) {
	t.Helper()
	for _, g := range m.Graphs {
		for _, p := range slices.Concat(g.Inputs, g.Outputs) {
			for _, size := range p.Shape {
				for factor := range strings.SplitSeq(size, "*") {
					if _, err := strconv.Atoi(factor); err != nil && m.Letters[factor] == "" {
						t.Errorf("%s: the shape of %s has %q, which the manifest does not explain", g.File, p.Name, factor)
					}
				}
			}
		}
	}
}

// TestPorts: each graph has a table with a row for each of its ports, where ports that are
// bound in a loop share one.
func TestPorts(t *testing.T) {
	for _, g := range everyExport(t) {
		tables := strings.Split(g.Ports(), "## ")[1:]
		if len(tables) != len(g.Graphs) {
			t.Fatalf("%d tables of %d graphs", len(tables), len(g.Graphs))
		}
		for i, x := range g.Graphs {
			for side, list := range map[string][]port{"in": x.Inputs, "out": x.Outputs} {
				for _, p := range list {
					r := rowOf(side, p)
					if n := strings.Count(tables[i], fmt.Sprintf("| %s | %s | %s | %s | %s |\n", side, r.name, r.dtype, r.shape, r.doc)); n != 1 && p.Role != "weight" {
						t.Errorf("%s: %s %s has %d rows", x.File, side, p.Name, n)
					}
				}
			}
			if layers := strings.Count(tables[i], "_key."); layers > 4 { // past and present, with their meanings
				t.Errorf("%s: each layer's cache has a row:\n%s", x.File, tables[i])
			}
		}
	}
}

// TestMeaningsAreUsed: every described port and Program is in a graph, and so is every
// name of package ports.
func TestMeaningsAreUsed(t *testing.T) {
	unused, named := maps.Clone(meanings), map[string]bool{}
	for _, e := range everyExport(t) {
		for _, g := range e.Graphs {
			family, _, _ := strings.Cut(nameWithoutForm(g.Program), ".")
			for _, p := range slices.Concat(g.Inputs, g.Outputs) {
				delete(unused, family+"."+p.Name)
				named[p.Name] = true
			}
		}
	}
	if len(unused) > 0 {
		t.Errorf("ports that are in no graph: %q", slices.Sorted(maps.Keys(unused)))
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "ports", "ports.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	ast.Inspect(file, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.FuncDecl:
			return false
		case *ast.GenDecl:
			return x.Tok == token.CONST
		}
		if x, ok := n.(*ast.BasicLit); ok && x.Kind == token.STRING {
			name, _ := strconv.Unquote(x.Value)
			if count++; !named[name] {
				t.Errorf("package ports has %q, which is in no exported graph", name)
			}
		}
		return true
	})
	if count < 50 {
		t.Errorf("found only %d names in package ports", count)
	}
}

// TestManifest: what is written is JSON with a role for every port that is bound in
// a loop, and a graph that says what it is.
func TestManifest(t *testing.T) {
	model, err := models.ParseConfig([]byte(`{"model_type": "qwen2", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1,
		"intermediate_size": 16, "vocab_size": 20, "max_position_embeddings": 16, "eos_token_id": 1}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	arch, err := model.Architecture(models.Compute{})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "graphs")
	g, err := Build(arch, Options{Device: "cpu", Blocks: 1})
	if err != nil {
		t.Fatal(err)
	}
	n, err := g.Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Graphs []struct {
			File            string
			Inputs, Outputs []struct{ Name, Role, Of, Doc string }
		}
	}
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Graphs) != n {
		t.Errorf("%d graphs in the manifest, %d written", len(m.Graphs), n)
	}
	for _, g := range m.Graphs {
		for _, p := range slices.Concat(g.Inputs, g.Outputs) {
			if want := strings.HasPrefix(p.Name, "grad"); want != (p.Role == "gradient") || want != (p.Of != "") {
				t.Errorf("%s: port %s has the role %q of %q", g.File, p.Name, p.Role, p.Of)
			}
		}
		onnx, err := os.ReadFile(filepath.Join(dir, g.File))
		if err != nil || !strings.Contains(string(onnx), g.Inputs[0].Doc) {
			t.Errorf("%s does not say what %s holds (%v)", g.File, g.Inputs[0].Name, err)
		}
	}
}
