package graph_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
	"onering/models/graph"
)

// TestMisuse: any misuse is an error from Build that names the op and the mistake;
// nothing panics.
func TestMisuse(t *testing.T) {
	dims := graph.Dims
	type n = *graph.Node
	for _, tt := range []struct {
		want string // in the error
		f    func(g *graph.Graph, x n) any
	}{
		// x is float [N,6].
		{"Add: shapes [N,6] and [5] do not broadcast", func(g *graph.Graph, x n) any { return graph.Add(x, g.Float("y", 5)) }},
		{"Add: shapes [N,6] and [M,6] do not broadcast", func(g *graph.Graph, x n) any { return graph.Add(x, g.Float("y", "M", 6)) }},
		{"Sub: element types F32 and I64 differ", func(g *graph.Graph, x n) any { return graph.Sub(x, g.Ints(1)) }},
		{"Mul: operand 2 is nil", func(g *graph.Graph, x n) any { return graph.Mul(x, nil) }},
		{"Mul: operand 1 is nil", func(g *graph.Graph, x n) any { return graph.Mul(nil, x) }},
		{"Div: operands 1 and 2 belong to different graphs", func(g *graph.Graph, x n) any { return graph.Div(x, new(graph.Graph).Float("y", 6)) }},
		{"Max: operands are BOOL", func(g *graph.Graph, x n) any { c := graph.LessOrEqual(x, x); return graph.Max(c, c) }},
		{"Exp: operands are I64, not floating-point", func(g *graph.Graph, x n) any { return graph.Exp(g.Ints(1)) }},
		{"Neg: operand 1 is nil", func(g *graph.Graph, x n) any { return graph.Neg(nil) }},
		{"Where: the condition is F32, not BOOL", func(g *graph.Graph, x n) any { return graph.Where(x, x, x) }},
		{"Where: element types F32 and F64 differ", func(g *graph.Graph, x n) any { return graph.Where(graph.LessOrEqual(x, x), x, g.Double(1)) }},
		{"Cast: element type DType(99) is not supported", func(g *graph.Graph, x n) any { return graph.Cast(x, 99) }},
		{"Gemm: [N,6] and [6] are not matrices", func(g *graph.Graph, x n) any { return graph.Gemm(x, g.Float("w", 6), nil, false, false) }},
		{"Gemm: inner sizes 6 and 5 of [N,6] and [4,5] differ", func(g *graph.Graph, x n) any { return graph.Linear(x, g.Float("w", 4, 5), nil) }},
		{"Gemm: c of shape [N,1,4] does not broadcast to [N,4]", func(g *graph.Graph, x n) any {
			return graph.Linear(x, g.Float("w", 4, 6), g.Float("b", "N", 1, 4))
		}},
		{"Gemm: shapes [N,4] and [5] do not broadcast", func(g *graph.Graph, x n) any { return graph.Linear(x, g.Float("w", 4, 6), g.Float("b", 5)) }},
		{"Gemm: operand 2 is nil", func(g *graph.Graph, x n) any { return graph.Linear(x, nil, nil) }},
		{"MatMul: shapes [N,6] and [2,6,4] do not fit", func(g *graph.Graph, x n) any {
			return graph.MatMul(x, g.Float("w", 2, 6, 4), false, false, 1)
		}},
		{"MatMul: inner sizes 6 and 4", func(g *graph.Graph, x n) any { return graph.MatMul(x, g.Float("w", 6, 4), false, true, 1) }},
		{"MatMul: shapes [] and [] do not fit", func(g *graph.Graph, x n) any { return graph.MatMul(g.Scalar(1), g.Scalar(1), false, false, 1) }},
		{"Softmax: the operand of shape [] has fewer than 1 dimensions", func(g *graph.Graph, x n) any { return graph.Softmax(g.Scalar(1)) }},
		{"ReduceSum: no axis 2 in [N,6]", func(g *graph.Graph, x n) any { return graph.ReduceSum(x, 2) }},
		{"ReduceMax: no axis -3 in [N,6]", func(g *graph.Graph, x n) any { return graph.ReduceMax(x, -3) }},
		{"ReduceMean: operands are I64", func(g *graph.Graph, x n) any { return graph.ReduceMean(g.Ints(1, 2), 0) }},
		{"ReduceSumSquare: operand 1 is nil", func(g *graph.Graph, x n) any { return graph.ReduceSumSquare(nil) }},
		{"ArgMax: the operand of shape []", func(g *graph.Graph, x n) any { return graph.ArgMax(g.Scalar(1)) }},
		{"CumSum: no axis 5", func(g *graph.Graph, x n) any { return graph.CumSum(x, 5, false) }},
		{"TopK: k has shape [2], not [1]", func(g *graph.Graph, x n) any { v, _ := graph.TopK(x, g.Ints(1, 2), "k"); return v }},
		{"TopK: k is F32, not I64", func(g *graph.Graph, x n) any { v, _ := graph.TopK(x, g.Scalar(1), "k"); return v }},
		{`"" is not a letter`, func(g *graph.Graph, x n) any { v, _ := graph.TopK(x, g.Ints(1), ""); return v }},
		{"Reshape: [N,6] to [5 -1]", func(g *graph.Graph, x n) any { return graph.Reshape(x, 5, -1) }},
		{"Reshape: [N,6] to [-1 -1]", func(g *graph.Graph, x n) any { return graph.Reshape(x, -1, -1) }},
		{"Reshape: [N,6] to [0 2 2]", func(g *graph.Graph, x n) any { return graph.Reshape(x, 0, 2, 2) }},
		{"Reshape: [N,6] to [0 6 0]", func(g *graph.Graph, x n) any { return graph.Reshape(x, 0, 6, 0) }},
		{"Reshape: [N,6] to [-2]", func(g *graph.Graph, x n) any { return graph.Reshape(x, -2) }},
		{"Transpose: [0 0] is not an order of the axes of [N,6]", func(g *graph.Graph, x n) any { return graph.Transpose(x, 0, 0) }},
		{"Transpose: [0 1 2] is not an order", func(g *graph.Graph, x n) any { return graph.Transpose(x, 0, 1, 2) }},
		{"Transpose: [] is not an order", func(g *graph.Graph, x n) any { return graph.Transpose(x) }},
		{"Transpose: operand 1 is nil", func(g *graph.Graph, x n) any { return graph.Transpose(nil) }},
		{"Gather: the operand of shape []", func(g *graph.Graph, x n) any { return graph.Gather(g.Scalar(1), g.Ints(0)) }},
		{"Gather: the index is F32, not I64", func(g *graph.Graph, x n) any { return graph.Gather(x, x) }},
		{"GatherRows: the index has shape [2], not [N,1]", func(g *graph.Graph, x n) any { return graph.GatherRows(x, g.Ints(0, 1)) }},
		{"Slice: the start is F32, not I64", func(g *graph.Graph, x n) any { return graph.Slice(x, g.Scalar(0), g.Ints(1), 0, "M") }},
		{"Slice: the end has shape [2], not [1]", func(g *graph.Graph, x n) any { return graph.Slice(x, g.Ints(0), g.Ints(1, 2), 0, "M") }},
		{"Slice: no axis 2", func(g *graph.Graph, x n) any { return graph.Slice(x, g.Ints(0), g.Ints(1), 2, 1) }},
		{"not a letter or a product of letters", func(g *graph.Graph, x n) any { return graph.Slice(x, g.Ints(0), g.Ints(1), 0, "4*M") }},
		{"a size must be an int, a letter or a Dim, not float64", func(g *graph.Graph, x n) any { return graph.Slice(x, g.Ints(0), g.Ints(1), 0, 1.5) }},
		{"Pad: operand 2 is nil", func(g *graph.Graph, x n) any { return graph.Pad(x, nil, g.Ints(1), 1, dims(7)[0]) }},
		{"Pad: after is F32, not I64", func(g *graph.Graph, x n) any { return graph.Pad(x, g.Ints(1), g.Scalar(1), 1, dims(7)[0]) }},
		{"size 0 is not positive", func(g *graph.Graph, x n) any { return graph.Pad(x, g.Ints(1), g.Ints(1), 1, graph.Dim{}) }},
		{"PadLast: [N,6] to 5", func(g *graph.Graph, x n) any { return graph.PadLast(x, 5) }},
		{"PadLast: axis 0 of the operand, of shape [N], must have a fixed size", func(g *graph.Graph, x n) any { return graph.PadLast(g.Float("y", "N"), 5) }},
		{"PadLast: the operand of shape []", func(g *graph.Graph, x n) any { return graph.PadLast(g.Scalar(1), 5) }},
		{"Concat: no parts", func(g *graph.Graph, x n) any { return graph.Concat(0) }},
		{"Concat: axis 0 of part 1, of shape [N,6], must have a fixed size", func(g *graph.Graph, x n) any { return graph.Concat(0, x, x) }},
		{"Concat: part 2 of shape [M,6] does not fit [N,6] but for axis 1", func(g *graph.Graph, x n) any { return graph.Concat(1, x, g.Float("y", "M", 6)) }},
		{"Concat: element types F32 and I64 differ", func(g *graph.Graph, x n) any { return graph.Concat(0, g.Float("y", 1), g.Ints(1)) }},
		{"Concat: no axis 1 in [6]", func(g *graph.Graph, x n) any { return graph.Concat(1, x, g.Float("y", 6)) }},
		{"Split: sizes [3 2] do not add up to axis 1 of [N,6]", func(g *graph.Graph, x n) any { return graph.Split(x, 1, 3, 2)[0] }},
		{"Split: sizes [2 3] do not add up to axis 0 of [N,6]", func(g *graph.Graph, x n) any { return graph.Split(x, 0, 2, 3)[0] }},
		{"Split: sizes [7 -1]", func(g *graph.Graph, x n) any { return graph.Split(x, 1, 7, -1)[0] }},
		{"RMSNorm: the weight has shape [5], not [6]", func(g *graph.Graph, x n) any { return graph.RMSNorm(x, g.Float("w", 5), 1e-6) }},
		{"RMSNorm: axis 0 of the operand, of shape [N], must have a fixed size", func(g *graph.Graph, x n) any {
			return graph.RMSNorm(g.Float("y", "N"), g.Float("w", "N"), 1e-6)
		}},
		{"SwiGLU: up has shape [6], not [N,6]", func(g *graph.Graph, x n) any { return graph.SwiGLU(x, g.Float("y", 6)) }},
		{"Rotary: [N,6] is not made of 2 heads of 4 or more", func(g *graph.Graph, x n) any {
			return graph.Rotary(x, g.Input("pos", models.I64, dims("N", 1)), g.Float("cos", "P", 2), g.Float("sin", "P", 2), 2)
		}},
		{"Rotary: pos has shape [1,N], not [N,1]", func(g *graph.Graph, x n) any {
			return graph.Rotary(x, g.Input("pos", models.I64, dims(1, "N")), g.Float("cos", "P", 3), g.Float("sin", "P", 3), 1)
		}},
		{"Unpack: operand 2 is nil", func(g *graph.Graph, x n) any { return (&graph.Packing{}).Unpack(x) }},
		{"Unpack: tokens [N,6,1] and rows", func(g *graph.Graph, x n) any {
			return (&graph.Packing{Rows: g.Input("rows", models.I64, dims("B", "T"))}).Unpack(g.Float("y", "N", 6, 1))
		}},
		{"Pack: [N,6] is not laid out as rows [B,T]", func(g *graph.Graph, x n) any {
			return (&graph.Packing{Rows: g.Input("rows", models.I64, dims("B", "T")), Tokens: g.Input("tokens", models.I64, dims("N"))}).Pack(x)
		}},
		{"Pack: the gradient needs Valid", func(g *graph.Graph, x n) any {
			p := graph.Packing{Rows: g.Input("rows", models.I64, dims("B", "T")), Tokens: g.Input("tokens", models.I64, dims("N"))}
			y := p.Pack(p.Unpack(x))
			return graph.Gradient([]n{y}, []n{x}, []n{x})[0]
		}},
		{"Unpack: the gradient needs Copies", func(g *graph.Graph, x n) any {
			y := (&graph.Packing{Rows: g.Input("rows", models.I64, dims("B", "T"))}).Unpack(x)
			return graph.Gradient([]n{y}, []n{y}, []n{x})[0]
		}},
		{"Unpack: copies [M,J] and copied [M,J] are not", func(g *graph.Graph, x n) any {
			p := graph.Packing{Rows: g.Input("rows", models.I64, dims("B", "T")), Copies: g.Input("copies", models.I64, dims("M", "J")), Copied: g.Float("copied", "M", "J")}
			y := p.Unpack(x)
			return graph.Gradient([]n{y}, []n{y}, []n{x})[0]
		}},
		{"CausalAttention: operand 1 is nil", func(g *graph.Graph, x n) any {
			return graph.CausalAttention(nil, x, x, x, nil, graph.Attention{Heads: 1, KVHeads: 1, Blocks: 1})
		}},
		{"CausalAttention: 3 heads, 2 key heads", func(g *graph.Graph, x n) any {
			return graph.CausalAttention(x, x, x, x, nil, graph.Attention{Heads: 3, KVHeads: 2, Blocks: 1})
		}},
		{"CausalAttention: 0 heads", func(g *graph.Graph, x n) any {
			return graph.CausalAttention(x, x, x, x, nil, graph.Attention{Heads: 0, KVHeads: 0, Blocks: 1})
		}},
		{"CausalAttention: q of shape [N,6] is not [B,T,H*K]", func(g *graph.Graph, x n) any {
			return graph.CausalAttention(x, x, x, x, nil, graph.Attention{Heads: 2, KVHeads: 1, Blocks: 1})
		}},
		{"CausalAttention: the mask has shape [N,6], not [T,T]", func(g *graph.Graph, x n) any {
			q := g.Float("q", "B", "T", 8)
			return graph.CausalAttention(q, q, q, x, nil, graph.Attention{Heads: 2, KVHeads: 2, Blocks: 1})
		}},
		{"CausalAttention: k has shape [B,T,8], not [B,T,4]", func(g *graph.Graph, x n) any {
			q := g.Float("q", "B", "T", 8)
			return graph.CausalAttention(q, q, q, x, nil, graph.Attention{Heads: 2, KVHeads: 1, Blocks: 1})
		}},
		{"CausalAttention: 3 blocks need bounds", func(g *graph.Graph, x n) any {
			q, m := g.Float("q", "B", "T", 8), g.Float("m", "T", "T")
			return graph.CausalAttention(q, q, q, m, nil, graph.Attention{Heads: 2, KVHeads: 2, Blocks: 3})
		}},
		{"CausalAttention: bounds has shape [3], not [4]", func(g *graph.Graph, x n) any {
			q, m := g.Float("q", "B", "T", 8), g.Float("m", "T", "T")
			return graph.CausalAttention(q, q, q, m, g.Ints(0, 1, 2), graph.Attention{Heads: 2, KVHeads: 2, Blocks: 3})
		}},
		{"GroupQueryAttention: operand 2 is nil", func(g *graph.Graph, x n) any {
			y, _ := graph.GroupQueryAttention(x, graph.Cache{}, x, x, nil, nil, graph.Attention{Heads: 2, KVHeads: 1})
			return y
		}},
		{"GroupQueryAttention: the cache has shape [B,1,S,3], not [B,2,S,3]", func(g *graph.Graph, x n) any {
			k := g.Float("k", "B", 1, "S", 3)
			y, _ := graph.GroupQueryAttention(g.Float("qkv", "B", 1, 18), graph.Cache{K: k, V: k}, x, x, nil, nil, graph.Attention{Heads: 2, KVHeads: 2})
			return y
		}},
		{"Rows: [N,6] has no row for each of ids [B,T]", func(g *graph.Graph, x n) any { return graph.Rows(x, g.Float("ids", "B", "T")) }},

		{"Gradient: 1 outputs and 0 seeds", func(g *graph.Graph, x n) any { return graph.Gradient([]n{x}, nil, []n{x})[0] }},
		{"Gradient: operand 2 is nil", func(g *graph.Graph, x n) any { return graph.Gradient([]n{x}, []n{nil}, []n{x})[0] }},
		{"Gradient: output F32 [N,6] and seed I64 [1] differ", func(g *graph.Graph, x n) any { return graph.Gradient([]n{x}, []n{g.Ints(1)}, []n{x})[0] }},
		{"Gradient: Abs (value 1) has no gradient", func(g *graph.Graph, x n) any { return graph.Gradient([]n{graph.Abs(x)}, []n{x}, []n{x})[0] }},
		{"ReduceMean: the gradient needs a fixed size, not N", func(g *graph.Graph, x n) any {
			y := graph.ReduceMean(x, 0)
			return graph.Gradient([]n{y}, []n{y}, []n{x})[0]
		}},
		{"AddTo: no gradient to add", func(g *graph.Graph, x n) any { return graph.AddTo(x, nil) }},
		{"AddTo: the gradient has shape [6], not [N,6]", func(g *graph.Graph, x n) any { return graph.AddTo(x, g.Float("d", 6)) }},
		{"Stash: F32 [N,6] and F32 [6] differ", func(g *graph.Graph, x n) any { y := graph.Exp(x); y.Stash(g.Float("s", 6)); return y }},
		{"Stash: \"\" is not an input", func(g *graph.Graph, x n) any { y := graph.Exp(x); y.Stash(y); return y }},
		{"Stash: \"x\" is not an input, or what it holds is not computed", func(g *graph.Graph, x n) any { x.Stash(x); return graph.Exp(x) }},

		{`input "x" is declared twice`, func(g *graph.Graph, x n) any { return graph.Exp(g.Float("x", 1)) }},
		{`input "%1": a name`, func(g *graph.Graph, x n) any { return graph.Exp(g.Float("%1", 1)) }},
		{`input "": a name`, func(g *graph.Graph, x n) any { return graph.Exp(g.Float("", 1)) }},
		{`input "s": element type DType(8)`, func(g *graph.Graph, x n) any { return g.Input("s", 8, dims(1)) }},
		{"size 0 is not positive", func(g *graph.Graph, x n) any { return g.Float("y", 0) }},
		{"size -3 is not positive", func(g *graph.Graph, x n) any { return g.Input("y", models.F32, graph.Shape{{N: -3}}) }},
		{`output "y" is nil`, func(g *graph.Graph, x n) any { return (n)(nil) }},
		{`output "y" is of another graph`, func(g *graph.Graph, x n) any { return new(graph.Graph).Float("y", 6) }},
		{`output "x" has the name of an input or another output`, func(g *graph.Graph, x n) any { g.Output("x", graph.Exp(x)); return x }},
		{`output "y" has the name of an input or another output`, func(g *graph.Graph, x n) any { g.Output("y", graph.Exp(x)); return x }},
		{`output "%y": a name`, func(g *graph.Graph, x n) any { g.Output("%y", graph.Exp(x)); return x }},
	} {
		_, err := graph.Build("test", func(g *graph.Graph) {
			y := tt.f(g, g.Float("x", "N", 6))
			g.Output("y", y.(n))
		})
		if err == nil || !strings.HasPrefix(err.Error(), "graph: test: ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v\nwant  %s", err, tt.want)
		}
	}
	if _, err := graph.Build("empty", func(g *graph.Graph) {}); err == nil || err.Error() != "graph: empty: no outputs" {
		t.Errorf("error %v", err)
	}
}

// TestBuildPassesOtherPanics: Build does not hide a panic of the caller's own code.
func TestBuildPassesOtherPanics(t *testing.T) {
	defer func() {
		if r := recover(); r != "mine" {
			t.Errorf("recovered %v", r)
		}
	}()
	graph.Build("test", func(*graph.Graph) { panic("mine") })
}

// TestAliases: an output may go onto an input's buffer only where all readers
// of the input come before it.
func TestAliases(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		f          func(g *graph.Graph, p, q *graph.Node)
	}{
		{"reader is the writer", "", func(g *graph.Graph, p, q *graph.Node) { g.OutputOnto("p1", graph.Add(p, q), "p") }},
		{"readers come before", "", func(g *graph.Graph, p, q *graph.Node) {
			g.OutputOnto("p1", graph.Add(graph.Mul(p, q), graph.Exp(p)), "p")
		}},
		{"no reader", "", func(g *graph.Graph, p, q *graph.Node) { g.OutputOnto("p1", graph.Exp(q), "p") }},
		{"unused reader", "", func(g *graph.Graph, p, q *graph.Node) {
			graph.Exp(p)
			g.OutputOnto("p1", graph.Add(p, q), "p")
		}},
		{"one of several results", "", func(g *graph.Graph, p, q *graph.Node) {
			parts := graph.Split(graph.Concat(0, p, q), 0, 6, 6)
			g.OutputOnto("p1", parts[1], "p")
		}},
		{"another output reads", `output "p1" would overwrite input "p" before Exp (value 2) reads it`, func(g *graph.Graph, p, q *graph.Node) {
			g.Output("e", graph.Exp(p))
			g.OutputOnto("p1", graph.Add(p, q), "p")
		}},
		{"reads before, by an order", "", func(g *graph.Graph, p, q *graph.Node) {
			e := graph.Exp(graph.Reshape(p, 2, 3))
			g.Output("e", e)
			g.OutputOnto("p1", graph.Add(p, graph.After(q, e)), "p")
		}},
		{"another reader than the one before", `before Neg`, func(g *graph.Graph, p, q *graph.Node) {
			e := graph.Exp(p)
			g.Output("e", graph.Mul(e, graph.Neg(p)))
			g.OutputOnto("p1", graph.Add(p, graph.After(q, e)), "p")
		}},
		{"reads through a view", `before Exp (value 4) reads it`, func(g *graph.Graph, p, q *graph.Node) {
			view := graph.Reshape(p, 2, 3)
			g.Output("e", graph.Exp(view))
			g.OutputOnto("p1", graph.Add(graph.Reshape(view, 6), q), "p")
		}},
		{"reads a stash", `before Mul`, func(g *graph.Graph, p, q *graph.Node) {
			h := graph.Exp(q)
			h.Stash(p)
			g.Output("e", graph.Mul(h, h))
			g.OutputOnto("p1", graph.Add(p, q), "p")
		}},
		{"two onto one", `outputs "p1" and "p2" go onto one input, "p"`, func(g *graph.Graph, p, q *graph.Node) {
			g.OutputOnto("p1", graph.Exp(q), "p")
			g.OutputOnto("p2", graph.Neg(q), "p")
		}},
		{"no such input", `output "p1": no input "r"`, func(g *graph.Graph, p, q *graph.Node) { g.OutputOnto("p1", graph.Add(p, q), "r") }},
		{"another shape", `output "p1" is F32 [3], its input "p" is F32 [6]`, func(g *graph.Graph, p, q *graph.Node) {
			g.OutputOnto("p1", graph.Split(p, 0, 3, 3)[0], "p")
		}},
	} {
		p, err := graph.Build("test", func(g *graph.Graph) { tt.f(g, g.Float("p", 6), g.Float("q", 6)) })
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want == "" && p.Alias["p1"] != "p":
			t.Errorf("%s: aliases %v", tt.name, p.Alias)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: error %v, want %s", tt.name, err, tt.want)
		}
	}
}

// TestUnusedPartsAreLeftOut: Build writes only the nodes that the outputs need; all inputs stay.
func TestUnusedPartsAreLeftOut(t *testing.T) {
	p, err := graph.Build("unused", func(g *graph.Graph) {
		x, w := g.Float("x", "N", 3), g.Float("w", 4, 3)
		graph.Mul(graph.Linear(x, w, nil), g.Scalar(7))
		y := graph.Exp(x)
		graph.Gradient([]*graph.Node{y}, []*graph.Node{x}, []*graph.Node{x})
		g.Output("y", y)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Nodes) != 1 || len(p.Constants) != 0 || len(p.Inputs) != 2 {
		t.Errorf("%d nodes, %d constants, %d inputs; want 1, 0, 2", len(p.Nodes), len(p.Constants), len(p.Inputs))
	}
}

// TestBuildIsDeterministic: the same calls give the same bytes.
func TestBuildIsDeterministic(t *testing.T) {
	for _, c := range graphtest.Cases() {
		a, err := c.Forward()
		if err != nil {
			t.Fatal(err)
		}
		b, _ := c.Forward()
		if !bytes.Equal(a.ONNX().Encode(), b.ONNX().Encode()) {
			t.Errorf("%s: two builds differ", c.Name)
		}
	}
}

// TestPorts: names, types, shapes and aliases as declared.
func TestPorts(t *testing.T) {
	p, err := graph.Build("ports", func(g *graph.Graph) {
		x := g.Input("x", models.I32, graph.Dims("T", "B", 2))
		v := g.Float("v", "n")
		g.Output("y", graph.Reshape(x, -1, 4))
		g.OutputOnto("v1", graph.Add(v, g.Scalar(0)), "v")
		g.Output("same", graph.Reshape(x, 0, 0, 0))
	})
	if err == nil || !strings.Contains(err.Error(), "Reshape: [T,B,2] to [-1 4]") {
		t.Errorf("error %v", err) // Build cannot know that B*T*2/4 is whole.
	}
	p, err = graph.Build("ports", func(g *graph.Graph) {
		x := g.Input("x", models.I32, graph.Dims("T", "B", 8))
		v := g.Float("v", "n")
		g.Output("y", graph.Reshape(x, -1, 4))
		g.OutputOnto("v1", graph.Add(v, g.Scalar(0)), "v")
		g.Output("x1", x)
		g.Output("x2", x)
	})
	if err != nil {
		t.Fatal(err)
	}
	want := "ports [x I32 [T B 8] v F32 [n]] [y I32 [2*B*T 4] v1 F32 [n] x1 I32 [T B 8] x2 I32 [T B 8]] map[v1:v]"
	ports := func(list []models.Port) (all []string) {
		for _, x := range list {
			all = append(all, fmt.Sprint(x.Name, " ", x.DType, " ", x.Shape))
		}
		return all
	}
	if got := fmt.Sprint(p.Name, " ", ports(p.Inputs), " ", ports(p.Outputs), " ", p.Alias); got != want {
		t.Errorf("ports %s\nwant  %s", got, want)
	}
	x := graphtest.Int32(make([]int, 48), 2, 3, 8)
	x.Data[5] = 7
	out := run(t, graphtest.Loaded(t, p, nil), map[string]graphtest.Tensor{"x": x, "v": graphtest.Zeros(4)})
	for _, name := range []string{"x1", "x2"} {
		if !slices.Equal(out[name].Data, x.Data) {
			t.Errorf("%s is not x", name)
		}
	}
}

// TestConstantsAreShared: equal constants are written once.
func TestConstantsAreShared(t *testing.T) {
	p, err := graph.Build("constants", func(g *graph.Graph) {
		x := g.Float("x", "N")
		y := graph.Add(graph.Mul(x, g.Scalar(2)), graph.Add(g.Scalar(2), g.Scalar(3)))
		g.Output("y", graph.Mul(y, graph.Cast(graph.Mul(g.Double(2), g.Double(2)), models.F32)))
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(p.Constants); n != 3 {
		t.Errorf("%d constants, want 3: 2, 3 and 2 in float64", n)
	}
}

func TestNodes(t *testing.T) {
	_, err := graph.Build("elem", func(g *graph.Graph) {
		x := g.Float("x", "N")
		if x.Elem() != models.F32 || x.Name() != "x" || x.Graph() != g || x.Shape().String() != "[N]" {
			t.Errorf("%v %v %v", x.Elem(), x.Name(), x.Shape())
		}
		g.Output("y", x)
	})
	if err != nil {
		t.Fatal(err)
	}
}
