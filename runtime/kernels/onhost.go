package kernels

import (
	"bytes"
	"math"
	"slices"
	"strings"

	"onering/models"
	"onering/models/onnx"
	"onering/models/ports"
)

// hostFirst are tried before rules, and hostRules after them: the stock library has no product
// of bfloat16 on the host, so every one is ours, and so is attention over the cache. A rule has
// nodes "Op inputs -> outputs; ...", the operator of ours that replaces them, and a condition.
var hostFirst = []rule{
	{"NT a b -> y; Wide x -> a; Wide e -> b", "Logits x e -> y", narrow("e")},
	{"ReduceSum m ... -> y; Mul a b -> m; Wide x -> a; Wide g -> b; Gather e at -> g", "RowDots x e at -> y", narrow("e")},
}

var hostRules = []rule{
	{"Reshape i _ -> y; GroupQueryAttention h _ _ keys values before total -> i k v", "Attend h before total keys values -> y k v", attends(0, 0)},
	{"NT x w c -> y", "Product x w c -> y", narrow("x")},
	{"NN x w c -> y", "Product x w c -> y", untransposed},
	{"NN x w -> y", "Product x w -> y", untransposed},
}

// unpacked are the patterns of a matrix that is held in int8 and NF4 with scales. floatsUnpacked and
// shortsUnpacked are tried after them, in graphs of float32 and of bfloat16.
var (
	unpacked = []rule{
		{"Reshape s _ -> w; Mul a b -> s; Reshape c _ -> a; Wide q -> c; Reshape k _ -> b", "FloatUnpack q k -> w", isNarrowMatrix(models.I8)},
		{"Reshape s _ -> w; Mul a b -> s; Reshape c _ -> a; Gather _ i -> c; Cast q -> i; Reshape k _ -> b", "FloatUnpack q k -> w", isNarrowMatrix(models.U8)},
	}
	floatsUnpacked = []rule{{"Wide q -> w", "FloatUnpack q -> w", isNarrowMatrix(models.BF16, models.F16)}}
	shortsUnpacked = []rule{{"Narrow w -> v; FloatUnpack q k -> w", "Unpack q k -> v", nil}, {"Narrow q -> v", "Unpack q -> v", isNarrowMatrix(models.F16)}}
)

// floatSteps are the rules for decode steps in float32, and for prompts where our products are as fast for any number
// of rows: sums have one order however many rows and places there are.
var floatSteps = []rule{
	{"GroupQueryAttention h _ _ keys values before total cos sin -> i k v", "FloatAttend h before total keys values cos sin -> i k v", attends(1, 1)},
	{"GroupQueryAttention h _ _ keys values before total -> i k v", "FloatAttend h before total keys values -> i k v", attends(0, 0)},
	{"NT x w b -> y", "FloatProduct x w b -> y", isMatrix},
	{"NT x w -> y", "FloatProduct x w -> y", isMatrix},
}

// rowDependent are stock operators that may give a row other bits beside other rows.
var rowDependent = []string{"Gemm", "MatMul", "FusedMatMul", "GroupQueryAttention", "LinearAttention", "Scan", "Log"}

// Apart reports whether a row of a Program for prompts or decode steps has the same bits whatever is computed with it.
func (d *Device) Apart(p models.Program) bool {
	return d != nil && d.host && !slices.ContainsFunc(d.Fuse(p).Nodes, func(n onnx.Node) bool { return slices.Contains(rowDependent, n.Op) })
}

// isMatrix demands a matrix of the model as the second operand.
func isMatrix(g *fused, v map[string]string) ([]onnx.Attr, bool) {
	w := g.ports[v["w"]]
	return nil, w.Role == models.Parameter && w.DType == models.F32
}

// isNarrowMatrix demands a matrix of the model, of one of the types.
func isNarrowMatrix(types ...models.DType) condition {
	return func(g *fused, v map[string]string) ([]onnx.Attr, bool) {
		q := g.ports[v["q"]]
		return nil, q.Role == models.Parameter && slices.Contains(types, q.DType) && len(q.Shape) == 2
	}
}

// narrowReaders are our operators that take matrices in fewer bits as the model has them, from input 1 on: how many,
// and at which input their scales begin.
var narrowReaders = map[string]struct{ matrices, scales int }{
	"Product": {1, 3}, "ProductOnto": {1, 3}, "GateUp": {2, 3}, "FloatProduct": {1, 3}, "Logits": {1, 3}}

// readNarrow has those of our operators that can (narrowReaders) read matrices in fewer bits, and their scales, in place
// of the results of an Unpack. In graphs of float32 a Gemm by such a matrix transposed becomes a FloatProduct; the stock
// library is as fast for the others, which gradients have.
func (g *fused) readNarrow() {
	g.index()
	unpack := func(name string) (n onnx.Node, ok bool) { // the Unpack that computes a value, if one does
		i, ok := g.madeBy[name]
		return g.Nodes[i], ok && strings.HasSuffix(kindOf(g.Nodes[i], ""), "Unpack")
	}
	for i, n := range g.Nodes {
		if kindOf(n, "NT") == "NT" {
			if _, held := unpack(n.Inputs[1]); !held || g.narrow != models.Invalid {
				continue
			}
			n = onnx.Node{Op: "FloatProduct", Domain: domain, Name: n.Name, Inputs: n.Inputs, Outputs: n.Outputs}
		}
		reads, ok := narrowReaders[kindOf(n, "")] // "": only the names of operators of ours matter, not which Gemm it is
		for k := 1; ok && k <= reads.matrices; k++ {
			w, held := unpack(n.Inputs[k])
			if !held {
				break
			}
			scale := reads.scales + k - 1                                                               // the input for its scales
			n.Inputs = append(slices.Clone(n.Inputs), make([]string, max(0, scale+1-len(n.Inputs)))...) // "" is an omitted input
			n.Inputs[k] = w.Inputs[0]
			if len(w.Inputs) > 1 { // 16 bits have no scales
				n.Inputs[scale] = w.Inputs[1]
			}
		}
		for ok && n.Inputs[len(n.Inputs)-1] == "" { // omitted inputs at the end
			n.Inputs = n.Inputs[:len(n.Inputs)-1]
		}
		g.Nodes[i] = n
	}
	g.prune()
}

// hostVariants are rules for the host, made from the text of the devices' rules: the two for CausalAttention and its
// gradient get the mask as an input, from which the operator learns a window, and each a second rule, for scores s that
// are capped by cap*tanh(s/cap).
func hostVariants(rules []rule) (list []rule) {
	const scores = "=MaskedSoftmax s mask -> a; =Reshape b _ -> s" // in the gradient's rule; without = in the other
	const capped = "=MaskedSoftmax m mask -> a; =Mul th c -> m; =Tanh dc -> th; =Div s c -> dc; =Reshape b _ -> s"
	const slope = "Mul g sl -> ds; Reshape s1 _ -> sl; Sub _ s2 -> s1; =Mul th th -> s2; SoftmaxGrad p dp d -> g"
	for _, r := range rules {
		if !strings.HasPrefix(r.to, "CausalAttention") {
			list = append(list, r)
			continue
		}
		r.to = strings.Replace(r.to, " ->", " mask ->", 1)
		list = append(list, r)
		r.from = strings.Replace(r.from, scores, capped, 1)                                                           // only in the gradient's rule
		r.from = strings.Replace(r.from, strings.ReplaceAll(scores, "=", ""), strings.ReplaceAll(capped, "=", ""), 1) // only in the other
		r.from = strings.Replace(r.from, "SoftmaxGrad p dp d -> ds", slope, 1)                                        // the cap's slope, 1 - tanh^2
		list = append(list, r)
	}
	return list
}

// untransposed demands a product of 16 bits with the second operand as it is, [in,out], which our operator calls turned.
func untransposed(g *fused, v map[string]string) ([]onnx.Attr, bool) {
	return []onnx.Attr{{Name: "turned", Value: int64(1)}}, isNarrow(g.typeOf(v["x"]))
}

// fuseOnHost is fuseAll for the host. Graphs of bfloat16 get our operators, and float32 around stock ones that lack
// the type. In graphs of float32 these are only products by matrices in fewer bits and, where our kernels are faster,
// those of decode steps (floatSteps), and of prompts if that is so for any number of rows (math.MaxInt). Graphs of float16
// stay as they are.
func (d *Device) fuseOnHost(p models.Program) models.Program {
	narrow, steps := narrowType(p), []rule(nil) // the graph's 16-bit type, Invalid in float32; rules for a Decoder's Programs
	if d.FloatRows() > 0 && (strings.HasPrefix(p.Name, "decode") || strings.HasPrefix(p.Name, "sample.") || p.Name == "prefill" && d.FloatRows() == math.MaxInt) {
		steps = floatSteps
	}
	list := slices.Concat(unpacked, shortsUnpacked, hostFirst, hostVariants(rules), hostRules)
	switch {
	case narrow == models.Invalid && slices.ContainsFunc(p.Inputs, func(in models.Port) bool { return in.Role == models.Parameter && in.DType != models.F32 }):
		list = slices.Concat(unpacked, floatsUnpacked, steps)
	case narrow == models.Invalid && steps != nil:
		list = steps
	case narrow != models.BF16: // float16, or float32 without anything of ours
		return p
	case p.Name == "head.backward":
		list = slices.Concat(hostFirst, headRules, hostRules)
	}
	g := open(p)
	g.anyWidth = true
	for _, r := range list {
		g.apply(r)
	}
	g.readNarrow()
	if narrow == models.Invalid {
		return g.Program
	}
	g.chooseOnHost()
	g.widen()
	g.prune()
	return g.Program
}

// chooseOnHost puts one operator in the place of all that follows the logits, perhaps capped; see headOperators. The
// likeliest tokens are found by stock operators, with the log-sum-exp of ours: their log-probs are at most 0, and the
// entropy is at least 0.
func (g *fused) chooseOnHost() {
	last := slices.IndexFunc(g.Nodes, func(n onnx.Node) bool { return kindOf(n, "") == "Logits" }) // the last node that stays
	op, ok := headOperators[g.Name]                                                                // "Op inputs -> outputs"
	if last < 0 || !ok && g.Name != "sample.candidates" {
		return
	}
	logits := g.Nodes[last].Outputs[0]
	for { // follow a cap, c*tanh(x/c), which stays: logits are then its results
		next := slices.DeleteFunc(slices.Clone(g.Nodes), func(n onnx.Node) bool { return !slices.Contains(n.Inputs, logits) })
		if len(next) != 1 || next[0].Op != "Tanh" && next[0].Op != "Mul" {
			break
		}
		logits = next[0].Outputs[0]
		last = slices.IndexFunc(g.Nodes, func(n onnx.Node) bool { return slices.Contains(n.Outputs, logits) })
	}
	g.Nodes = slices.Clone(g.Nodes[:last+1])
	const stock = "" // ONNX's domain
	add := func(op, domain string, in, out []string) {
		g.Nodes = append(g.Nodes, onnx.Node{Op: op, Domain: domain, Inputs: in, Outputs: out})
	}
	if ok {
		words := strings.Fields(op)
		arrow := slices.Index(words, "->")
		add(words[0], domain, append([]string{logits}, words[1:arrow]...), words[arrow+1:])
		return
	}
	g.Constants = append(slices.Clone(g.Constants), onnx.Tensor{Name: "%zero", Type: models.F32, Raw: make([]byte, 4)},
		onnx.Tensor{Name: "%flat", Type: models.I64, Dims: []int64{1}, Raw: bytes.Repeat([]byte{0xff}, 8)}) // -1
	add("HeadSums", domain, []string{logits}, []string{"%sum", "%mean"})
	add("TopK", stock, []string{logits, ports.TopK}, []string{"%top", ports.Candidates})
	add("Sub", stock, []string{"%top", "%sum"}, []string{"%logp"})
	add("Min", stock, []string{"%logp", "%zero"}, []string{ports.LogProb})
	add("Sub", stock, []string{"%sum", "%mean"}, []string{"%entropies"})
	add("Max", stock, []string{"%entropies", "%zero"}, []string{"%entropy"})
	add("Reshape", stock, []string{"%entropy", "%flat"}, []string{ports.Entropy})
}

// movesAnyType are the operators that move numbers of any type, which the stock library has for
// bfloat16 on the host, too.
var movesAnyType = map[string]bool{"Cast": true, "Reshape": true, "Transpose": true, "Gather": true, "Concat": true, "Slice": true,
	"Squeeze": true, "Unsqueeze": true, "Expand": true, "Shape": true, "Split": true}

// widen has stock operators on bfloat16 compute in float32, except those that the library has in bfloat16: it casts
// their bfloat16 inputs before, and all outputs back after: in our graphs none of these operators has results of
// another type.
func (g *fused) widen() {
	g.index()
	var nodes []onnx.Node
	cast := func(from, to string, d models.DType) {
		nodes = append(nodes, onnx.Node{Op: "Cast", Inputs: []string{from}, Outputs: []string{to}, Attrs: []onnx.Attr{{Name: "to", Value: int64(d)}}})
	}
	for _, n := range g.Nodes {
		if n.Domain == domain || movesAnyType[n.Op] || n.Op == "GroupQueryAttention" ||
			!slices.ContainsFunc(n.Inputs, func(in string) bool { return in != "" && g.typeOf(in) == models.BF16 }) {
			nodes = append(nodes, n)
			continue
		}
		n.Inputs, n.Outputs = slices.Clone(n.Inputs), slices.Clone(n.Outputs)
		for i, in := range n.Inputs {
			if in != "" && g.typeOf(in) == models.BF16 {
				n.Inputs[i] = in + "/wide/" + n.Outputs[0]
				cast(in, n.Inputs[i], models.F32)
			}
		}
		outs := slices.Clone(n.Outputs)
		for i := range outs {
			n.Outputs[i] += "/wide"
		}
		nodes = append(nodes, n)
		for i, out := range outs {
			cast(n.Outputs[i], out, models.BF16)
		}
	}
	g.Nodes = nodes
	g.index()
}
