package export

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"onering/models"
	_ "onering/models/all"
)

var update = flag.Bool("update", false, "write the tables of docs/ports.md anew")

// A kindGraph is a graph and the kind of export that it is of.
type kindGraph struct {
	graphFile
	kind string
}

// everyGraph returns the graphs of exports of all kinds.
func everyGraph(t *testing.T) (all []kindGraph) {
	t.Helper()
	adapter := &models.Adapter{Rank: 2, Scale: 0.5, Modules: []string{"self_attn.q_proj", "mlp.down_proj"}}
	for _, headDim := range []int{16, 10} {
		model, err := models.ParseConfig(fmt.Appendf(nil, `{"model_type": "qwen3", "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
			"num_key_value_heads": 2, "head_dim": %d, "intermediate_size": 40, "vocab_size": 50, "max_position_embeddings": 16, "eos_token_id": 1}`, headDim), nil)
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
			graphs, err := buildGraphs(arch, x.Options)
			if err != nil {
				t.Fatal(err)
			}
			m := newManifest(arch, graphs, x.Options)
			checkLetters(t, m)
			kind := map[bool]string{true: "16 bits", false: "float32"}[x.Type == models.F16 || x.Type == models.BF16] + " for " + map[string]string{"cpu": "the CPU", "cuda": "CUDA"}[x.Device]
			for _, g := range graphs {
				all = append(all, kindGraph{g, kind})
			}
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

var layerNumber = regexp.MustCompile(`\d+$`)

// A row is the page's description of a port.
type row struct {
	side, name, doc     string
	types, shape, kinds []string
}

// rowOf returns the row of a port; ports that are bound in a loop share one.
func rowOf(side string, p port) row {
	r := row{side, "`" + p.Name + "`", p.Doc, []string{p.DType.String()}, []string{"[" + strings.Join(p.Shape, ",") + "]"}, nil}
	switch p.Role {
	case "weight":
		r.name, r.shape = "weights", []string{"as in the manifest"}
	case "gradient":
		prefix, _, _ := strings.Cut(p.Name, p.Of)
		r.name, r.shape = "`"+prefix+"`W", []string{"as W"}
		r.doc = strings.ReplaceAll(r.doc, p.Of, "W")
	case "keys", "values":
		r.name = layerNumber.ReplaceAllString(r.name[:len(r.name)-1], "i") + "`"
		r.doc = regexp.MustCompile(`(layer |_key\.|_value\.)\d+`).ReplaceAllString(r.doc, "${1}i")
	}
	return r
}

// with returns list with x in it once.
func with(list []string, x string) []string {
	if slices.Contains(list, x) {
		return list
	}
	return append(list, x)
}

// tables writes what each Program is for and what its ports hold.
func tables(graphs []kindGraph) string {
	rows, kinds := map[string][]row{}, map[string][]string{}
	var order []string
	for _, g := range graphs {
		name := programOf(g.Program)
		if rows[name] == nil {
			order = append(order, name)
		}
		kinds[name] = with(kinds[name], g.kind)
		for side, ports := range map[string][]port{"in": g.Inputs, "out": g.Outputs} {
			for _, p := range ports {
				r := rowOf(side, p)
				r.kinds = []string{g.kind}
				i := slices.IndexFunc(rows[name], func(x row) bool { return x.side == side && x.name == r.name })
				if i < 0 {
					rows[name] = append(rows[name], r)
					continue
				}
				have := &rows[name][i]
				for list, more := range map[*[]string]string{&have.types: r.types[0], &have.shape: r.shape[0], &have.kinds: g.kind} {
					*list = with(*list, more)
				}
				if len(r.doc) > len(have.doc) { // the input onto which an output may be bound
					have.doc = r.doc
				}
			}
		}
	}
	var out strings.Builder
	for _, name := range order {
		fmt.Fprintf(&out, "\n## %s\n\n%s\n\n| | port | type | shape | holds |\n|---|---|---|---|---|\n", name, purposes[name])
		for _, side := range []string{"in", "out"} {
			for _, r := range rows[name] {
				if r.side == side {
					slices.Sort(r.types)
					// Exports differ elsewhere by adapters and blocks, which the meanings state.
					if (name == "prefill" || name == "decode") && len(r.kinds) < len(kinds[name]) {
						r.doc += "; only in " + strings.Join(r.kinds, ", ")
					}
					fmt.Fprintf(&out, "| %s | %s | %s | %s | %s |\n", side, r.name, strings.Join(r.types, ", "), strings.Join(r.shape, " or "), r.doc)
				}
			}
		}
	}
	return out.String()
}

// TestPage: docs/ports.md describes every port of every graph.
func TestPage(t *testing.T) {
	const begin, end = "<!-- ports -->\n", "\n<!-- end -->"
	path := filepath.Join("..", "..", "docs", "ports.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	have, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the tables", path)
	}
	want := tables(everyGraph(t))
	if have == want {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the graphs are: go test ./models/export -run TestPage -update", path)
	}
	if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestMeaningsAreUsed: every described port and Program is in a graph, and so is every
// name of package ports.
func TestMeaningsAreUsed(t *testing.T) {
	unused, named := maps.Clone(meanings), map[string]bool{}
	for _, g := range everyGraph(t) {
		family, _, _ := strings.Cut(programOf(g.Program), ".")
		for _, p := range slices.Concat(g.Inputs, g.Outputs) {
			delete(unused, family+"."+p.Name)
			named[p.Name] = true
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
	n, err := Write(dir, arch, Options{Device: "cpu", Blocks: 1})
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
