package kernels

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"onering/models"
	"onering/models/onnx"
	"onering/models/ports"
)

// A rule replaces some nodes of a graph by one of ours. from are nodes "Op inputs -> outputs", in which each name
// stands for the same value everywhere, "_" for any one, and a node may have more inputs than stated if these end
// with "...". Intermediate values may have no other uses. A node with = before its name may have some, and is removed
// once nothing reads its results. Wide and Narrow are casts to float32 and to 16 bits, and NT, TN and NN products
// Gemm, with T for a transposed operand.
type rule struct {
	from, to string
	where    func(g *fused, v map[string]string) (attrs []onnx.Attr, ok bool)
}

// domain is the domain of our operators.
const domain = "onering"

// perHead is the part of attention's patterns that brings operands into one head per matrix.
const perHead = `=FusedMatMul qs ks -> b; =Reshape qt _ -> qs; =Transpose qr -> qt; =Reshape qw qd -> qr; =Wide q -> qw;
	=Transpose kr -> ks; =Reshape kw kd -> kr; =Wide k -> kw; =Transpose vr -> vs; =Reshape vw _ -> vr; =Wide v -> vw`

// outerOnto is the pattern of a matrix's gradient that is added to the running one.
var outerOnto = rule{"Add s c -> y; Wide p -> c; TN d x -> p", "OuterOnto d x s -> y", narrow("x")}

// rules are tried in order, each everywhere. Later rules may match the results of earlier ones.
var rules = []rule{
	{"Add s c -> y; Wide p -> c; NT x w -> p", "ProductOnto x w s -> y", narrow("x")},
	outerOnto,
	{"Narrow a -> y; Reshape b _ -> a; RotaryEmbedding c pos cos t -> b; Neg sin -> t; Reshape d _ -> c; Wide x -> d", "Turn x pos cos sin -> y", turns(-1)},
	{"Narrow a -> y; Reshape b _ -> a; RotaryEmbedding c pos cos sin -> b; Reshape d _ -> c; Wide x -> d", "Turn x pos cos sin -> y", turns(1)},
	{"Mul g m -> y; Narrow valid -> m; Gather x at -> g", "Rows x at valid -> y", rowsOf("g")},
	{"Gather x at -> y", "Rows x at -> y", rowsOf("y")},
	{"Mul a u -> y; QuickGelu g -> a", "SwiGLU g u -> y", eights("g")},
	{"SwiGLU g u -> y; NT h v -> g; NT h w -> u", "GateUp h v w -> y", nil},
	{"Narrow n -> y; RMSNormalization x w -> n", "Norm x w -> y", epsilonOf("n")},
	{"Mul e c -> p; Mul d u -> e; Add y b -> c; Mul s a -> b; Sub _ y -> a; Mul g s -> y; Sigmoid g -> s; Mul d y -> q", "SwiGLUGrad g u d -> p q", eights("g")},
	{`Add t j -> y; Mul r i -> j; Sub dn h -> i; Mul n f -> h; ReduceMean e _ -> f; Mul dn n -> e; Mul gf w -> dn; Wide g -> gf;
		Mul x r -> n; Reciprocal d -> r; Sqrt c -> d; Add b eps -> c; ReduceMean a _ -> b; Mul x x -> a;
		Squeeze v _ -> dw; Reshape u _ -> v; Slice q ... -> u; TN p l -> q; Expand _ o -> p; Concat m _ -> o; Shape l -> m; Reshape k _ -> l; Mul gf n -> k`,
		"NormGrad x w g t -> y dw", epsilonBeside("eps")},
	{"Reshape i _ -> y; GroupQueryAttention h _ _ keys values before total -> i k v; Reshape g _ -> h; Narrow f -> g; Concat e b -> f; Reshape d _ -> e; RotaryEmbedding c pos cos sin -> d; Reshape a _ -> c; Split w _ -> a b; Wide qkv -> w",
		"Attend qkv before total keys values cos sin -> y k v", attends(1, 0)},
	{"Reshape i _ -> y; GroupQueryAttention h _ _ keys values before total -> i k v; Reshape g _ -> h; Narrow f -> g; Concat a b -> f; Split w _ -> a b; Wide qkv -> w",
		"Attend qkv before total keys values -> y k v", attends(0, 0)},
	{"Softmax a -> p; Add s mask -> a", "MaskedSoftmax s mask -> p", masks("mask")},
	{"Mul p b -> s; Sub dp d -> b", "SoftmaxGrad p dp d -> s", scores("dp")},
	{`SoftmaxGrad p dp d -> ds; FusedMatMul do vs -> dp; Reshape d1 _ -> d; ReduceSum od _ -> d1; Mul dh oh -> od; Reshape dh _ -> do;
		Transpose dr -> dh; Reshape dw _ -> dr; Wide dy -> dw; Transpose or -> oh; Reshape ow _ -> or; Wide o -> ow;
		FusedMatMul ds ks -> q1; Reshape q1 _ -> q2; Transpose q2 -> q3; Reshape q3 _ -> q4; Narrow q4 -> dq;
		FusedMatMul ds qs -> k1; Transpose k1 -> k2; Reshape k2 _ -> k3; Narrow k3 -> dk;
		FusedMatMul p do -> v1; Transpose v1 -> v2; Reshape v2 _ -> v3; Narrow v3 -> dv; =Reshape a _ -> p; =MaskedSoftmax s mask -> a; =Reshape b _ -> s; ` + perHead,
		"CausalAttentionGrad q k v o dy -> dq dk dv", causal},
	{"Narrow y1 -> y; Reshape y2 _ -> y1; Transpose y3 -> y2; Reshape y4 _ -> y3; MatMul p vs -> y4; Reshape a _ -> p; MaskedSoftmax s mask -> a; Reshape b _ -> s; " + perHead,
		"CausalAttention q k v -> y", causal},
	{"NT x w b -> y", "Product x w b -> y", biased},
	{"NT x w -> y", "Product x w -> y", narrow("x")},
}

// floatOnly lists operators that exist only in float32; names of others end with their type.
var floatOnly = map[string]bool{"MaskedSoftmax": true, "SoftmaxGrad": true, "HeadGrad": true, "FloatUnpack": true, "FloatAttend": true, "FloatProduct": true}

// headRules are the rules for the head's gradient, where each row has one place in at.
var headRules = []rule{
	{"Narrow y -> n; ScatterND d at own -> y; Mul e m -> d; Exp l -> e; Neg w -> m; Sub x z -> l", "HeadGradShort x z w at own -> n", nil},
	outerOnto,
	{"Add s c -> y; Wide p -> c; NN x w -> p", "ProductOnto x w s -> y", func(g *fused, v map[string]string) ([]onnx.Attr, bool) {
		_, ok := narrow("x")(g, v)
		return []onnx.Attr{{Name: "turned", Value: int64(1)}}, ok
	}},
	{"ScatterND d at own -> y; Mul e n -> d; Exp l -> e; Neg w -> n; Sub x z -> l", "HeadGrad x z w at own -> y", nil},
}

// headOperators are graphs in which one operator computes everything after the logits: "Op inputs -> outputs", by
// the names of the graph's ports; the logits come before the inputs.
var headOperators = map[string]string{
	"sample.draw":   "Choose " + ports.InverseTemperature + " " + ports.Uniforms + " -> " + ports.NextTokens + " " + ports.LogProb + " " + ports.Entropy,
	"sample.greedy": "Choose " + ports.InverseTemperature + " -> " + ports.NextTokens + " " + ports.LogProb + " " + ports.Entropy,
	"head.forward":  "HeadSums " + ports.LogSumExp + " " + ports.MeanLogit + " -> " + ports.LogSumExpOut + " " + ports.MeanLogitOut,
}

// fuseAll returns p with our operators in place of groups of nodes, or of slower nodes.
// They round less, since intermediate values are not rounded to 16 bits.
func fuseAll(p models.Program) models.Program {
	if op, ok := headOperators[p.Name]; ok {
		return withHead(p, op)
	}
	if p.Name == "head.backward" {
		return fuse(p, headRules)
	}
	if narrowType(p) == models.Invalid {
		return p
	}
	return fuse(p, rules)
}

// fuse applies rules to a graph.
func fuse(p models.Program, rules []rule) models.Program {
	g := open(p)
	for _, r := range rules {
		g.apply(r)
	}
	g.prune()
	return g.Program
}

// open prepares a graph for rules.
func open(p models.Program) *fused {
	g := &fused{Program: p, narrow: narrowType(p), ports: map[string]models.Port{}}
	g.Nodes = slices.Clone(p.Nodes)
	for _, port := range slices.Concat(p.Inputs, p.Outputs) {
		g.ports[port.Name] = port
	}
	return g
}

// prune removes nodes whose results are not read, and those that only such nodes read.
func (g *fused) prune() {
	g.index()
	first := len(g.Nodes) // of the nodes that stay, which move to the end of the list
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := g.Nodes[i]
		if slices.ContainsFunc(n.Outputs, func(out string) bool { return g.uses[out] > 0 }) {
			first--
			g.Nodes[first] = n
			continue
		}
		for _, in := range n.Inputs { // made by earlier nodes, which the loop visits later
			g.uses[in]--
		}
	}
	g.Nodes = g.Nodes[first:]
}

// mostTokens is the largest number of logits for the kernel that chooses a token.
const mostTokens = 1 << 18

// withHead returns a graph with op, such as "Choose temperature uniforms -> tokens logp entropy", on the logits and these
// inputs in place of all nodes after the product that makes the logits. The graph stays as it is if the product is not of
// its first input, or the vocabulary is too large for the kernel.
func withHead(p models.Program, op string) models.Program {
	const logitsOp = "NT" // the hidden states times the head's matrix, transposed
	head := slices.IndexFunc(p.Nodes, func(n onnx.Node) bool { return kindOf(n, logitsOp) == logitsOp })
	if head < 0 || p.Nodes[head].Inputs[0] != p.Inputs[0].Name { // or the operands of the product are swapped
		return p
	}
	for _, in := range p.Inputs {
		if in.Name == p.Nodes[head].Inputs[1] { // the head's matrix [V,D]
			if v, err := strconv.Atoi(in.Shape[0]); err == nil && v > mostTokens {
				return p
			}
		}
	}
	words := strings.Fields(op)
	arrow := slices.Index(words, "->")
	p.Nodes = []onnx.Node{p.Nodes[head], {Op: words[0], Domain: domain, Inputs: append([]string{p.Nodes[head].Outputs[0]}, words[1:arrow]...),
		Outputs: words[arrow+1:]}}
	p.Constants = nil
	return p
}

// A fused is a graph while rules change it.
type fused struct {
	models.Program
	narrow   models.DType // the graph's 16-bit type
	anyWidth bool         // whether operators take rows of any width, as the host's do
	ports    map[string]models.Port
	madeBy   map[string]int // the number of the node that computes a value
	uses     map[string]int // how many inputs and graph outputs use a value
}

// index computes madeBy and uses again.
func (g *fused) index() {
	g.madeBy, g.uses = map[string]int{}, map[string]int{}
	for i, n := range g.Nodes {
		for _, out := range n.Outputs {
			g.madeBy[out] = i
		}
		for _, in := range n.Inputs {
			g.uses[in]++
		}
	}
	for _, out := range g.Outputs {
		g.uses[out.Name]++
	}
}

// apply applies a rule wherever it holds, such as {from: "SwiGLU g u -> y; NT h v -> g; NT h w -> u", to: "GateUp h v w
// -> y"}: it replaces nodes that match from, one for each "Op inputs -> outputs", by the operator of to on the values
// that the names stand for. Its attributes are those of the rule's condition, which may also refuse a match.
func (g *fused) apply(r rule) {
	g.index()
	var pattern [][]string
	for text := range strings.SplitSeq(r.from, ";") {
		pattern = append(pattern, strings.Fields(text))
	}
	to := strings.Fields(r.to)
	replaced := map[int]bool{}
	for i := range g.Nodes {
		m := &match{g: g, values: map[string]string{}, nodes: map[int]bool{}}
		if replaced[i] || !m.matchNode(pattern[0], i) || !m.matchRest(pattern[1:]) || m.overlaps(replaced) || !m.selfContained(to) {
			continue
		}
		node := onnx.Node{Domain: domain, Name: g.Nodes[i].Name}
		if r.where != nil {
			var ok bool
			if node.Attrs, ok = r.where(g, m.values); !ok {
				continue
			}
		}
		node.Op = to[0]
		if !floatOnly[to[0]] {
			node.Op += map[models.DType]string{models.BF16: "BFloat16", models.F16: "Float16"}[g.narrow]
		}
		arrow := slices.Index(to, "->")
		for _, name := range to[1:arrow] {
			node.Inputs = append(node.Inputs, m.values[name])
		}
		for _, name := range to[arrow+1:] {
			node.Outputs = append(node.Outputs, m.values[name])
		}
		last := i
		for n := range m.nodes {
			replaced[n] = true
			last = max(last, n)
		}
		delete(replaced, last) // the operator takes the place of the last, where all inputs exist already
		g.Nodes[last] = node
	}
	rest := g.Nodes[:0]
	for i, n := range g.Nodes {
		if !replaced[i] {
			rest = append(rest, n)
		}
	}
	g.Nodes = inOrder(rest) // a node between the replaced ones may read a result that now comes later
}

// inOrder sorts nodes so that each follows the nodes of its inputs, and otherwise keeps their order: a new node, in
// the place of the last node that it replaces, may compute values for earlier ones.
func inOrder(nodes []onnx.Node) []onnx.Node {
	made := map[string]int{}
	for i, n := range nodes {
		for _, out := range n.Outputs {
			made[out] = i
		}
	}
	sorted, done := make([]onnx.Node, 0, len(nodes)), make([]bool, len(nodes))
	var add func(i int)
	add = func(i int) {
		if done[i] {
			return
		}
		done[i] = true
		for _, in := range nodes[i].Inputs {
			if from, ok := made[in]; ok {
				add(from)
			}
		}
		sorted = append(sorted, nodes[i])
	}
	for i := range nodes {
		add(i)
	}
	return sorted
}

// A match maps the names of a rule to values at one place of a graph.
type match struct {
	g      *fused
	values map[string]string
	nodes  map[int]bool // the nodes that the rule replaces, by number
}

// matchRest matches the further nodes of a pattern, by trying all nodes for each; a failure takes its names and nodes
// back. A node whose first output has a value already can only be the one that makes it.
func (m *match) matchRest(pattern [][]string) bool {
	if len(pattern) == 0 {
		return true
	}
	p := pattern[0]
	try := func(i int) bool {
		before := maps.Clone(m.values)
		if !m.nodes[i] && m.matchNode(p, i) {
			if m.matchRest(pattern[1:]) {
				return true
			}
			delete(m.nodes, i)
		}
		m.values = before
		return false
	}
	if name, known := m.values[p[slices.Index(p, "->")+1]]; known { // by the pattern's first output
		i, made := m.g.madeBy[name]
		return made && try(i)
	}
	for i := range m.g.Nodes {
		if try(i) {
			return true
		}
	}
	return false
}

// matchNode matches node i with one node of a pattern, "Op inputs -> outputs". A node with = before Op is not replaced.
func (m *match) matchNode(p []string, i int) bool {
	n, arrow := m.g.Nodes[i], slices.Index(p, "->")
	op, shared := strings.CutPrefix(p[0], "=") // perhaps read elsewhere, so it stays
	if kindOf(n, op) != op {
		return false
	}
	in, out := p[1:arrow], p[arrow+1:]
	inputs := n.Inputs
	if len(in) > 1 && in[len(in)-1] == "..." { // further inputs match anything
		if in = in[:len(in)-1]; len(inputs) > len(in) {
			inputs = inputs[:len(in)]
		}
	}
	if !m.bindNames(in, inputs) || !m.bindNames(out, n.Outputs) {
		return false
	}
	if !shared {
		m.nodes[i] = true
	}
	return true
}

// bindNames notes the values that names of a pattern stand for; it reports false if a name stands for another one
// already. The name _ fits all.
func (m *match) bindNames(names, values []string) bool {
	if len(names) != len(values) {
		return false
	}
	for i, name := range names {
		if name == "_" {
			continue
		}
		if known, ok := m.values[name]; ok && known != values[i] {
			return false
		}
		m.values[name] = values[i]
	}
	return true
}

func (m *match) overlaps(replaced map[int]bool) bool {
	for i := range m.nodes {
		if replaced[i] {
			return true
		}
	}
	return false
}

// selfContained reports whether the values that the replaced nodes compute are results, which the rule's right side
// to names, or are used only by these nodes.
func (m *match) selfContained(to []string) bool {
	results := map[string]bool{}
	for _, name := range to[slices.Index(to, "->")+1:] {
		results[m.values[name]] = true
	}
	within := map[string]int{}
	for i := range m.nodes {
		for _, in := range m.g.Nodes[i].Inputs {
			within[in]++
		}
	}
	for i := range m.nodes {
		for _, out := range m.g.Nodes[i].Outputs {
			if !results[out] && m.g.uses[out] != within[out] {
				return false
			}
		}
	}
	return true
}

// kindOf returns the name of a node in patterns: that of our operators is without the type, and a cast is Wide (to
// float32) or Narrow (to 16 bits). like is the name that the pattern has: if that is NT, TN or NN, a Gemm without a scale
// is named so, by its own operands, with T for a transposed one; else it is Gemm.
func kindOf(n onnx.Node, like string) string {
	switch {
	case n.Domain == domain:
		return strings.TrimSuffix(strings.TrimSuffix(n.Op, "BFloat16"), "Float16")
	case n.Op == "Gemm" && (like == "NT" || like == "TN" || like == "NN"):
		flags := map[string]int64{}
		for _, a := range n.Attrs {
			if v, ok := a.Value.(int64); ok {
				flags[a.Name] = v
			} else {
				return n.Op // the product has a scale
			}
		}
		return map[int64]string{0: "N", 1: "T"}[flags["transA"]] + map[int64]string{0: "N", 1: "T"}[flags["transB"]]
	case n.Op == "Cast" && castTo(n) == models.F32:
		return "Wide"
	case isNarrow(castTo(n)):
		return "Narrow"
	}
	return n.Op
}

func castTo(n onnx.Node) models.DType {
	if n.Op == "Cast" {
		return models.DType(attr(n, "to"))
	}
	return models.Invalid
}

// attr returns an integer attribute of a node, 0 if it is absent.
func attr(n onnx.Node, name string) int64 {
	for _, a := range n.Attrs {
		if v, ok := a.Value.(int64); ok && a.Name == name {
			return v
		}
	}
	return 0
}

// narrowType returns the 16-bit type to which a graph casts; Invalid if there is none.
func narrowType(p models.Program) models.DType {
	for _, n := range p.Nodes {
		if d := castTo(n); isNarrow(d) {
			return d
		}
	}
	return models.Invalid
}

func isNarrow(d models.DType) bool { return d == models.BF16 || d == models.F16 }

// typeOf returns the type of a value, Invalid if that is unknown: that of a port or a cast, that of our operators'
// results, or else that of the node's first operand, which most operators of ONNX keep.
func (g *fused) typeOf(name string) models.DType {
	for {
		if p, ok := g.ports[name]; ok {
			return p.DType
		}
		i, ok := g.madeBy[name]
		if !ok || len(g.Nodes[i].Inputs) == 0 {
			return models.Invalid
		}
		if n := g.Nodes[i]; n.Op == "Cast" {
			return castTo(n)
		} else if n.Domain == domain {
			if op := kindOf(n, ""); strings.HasSuffix(op, "Onto") || floatOnly[op] || floatResults[op] { // Onto: added to a float32 operand
				return models.F32
			}
			return g.narrow
		} else {
			name = n.Inputs[0]
		}
	}
}

// floatResults are operators of ours on 16-bit operands with results in float32.
var floatResults = map[string]bool{"NormGrad": true, "Logits": true, "RowDots": true, "HeadSums": true}

// width returns the last dimension of a value if a port, a product or a constant states it, else 0. It goes back over
// operators that keep it.
func (g *fused) width(name string) int {
	for {
		if port, ok := g.ports[name]; ok {
			return lastOf(port.Shape, len(port.Shape)-1)
		}
		i, ok := g.madeBy[name]
		if !ok {
			return 0
		}
		n := g.Nodes[i]
		switch kind := kindOf(n, "NT"); {
		case kind == "NT" || strings.HasPrefix(kind, "Product"): // by a matrix [out,in]
			return lastOf(g.ports[n.Inputs[1]].Shape, 0)
		case kind == "Gemm" || kindOf(n, "NN") == "NN": // by a matrix [in,out]
			return lastOf(g.ports[n.Inputs[1]].Shape, 1)
		case kind == "Reshape":
			to := g.ints(n.Inputs[1])
			return max(0, int(slices.Concat([]int64{0}, to)[len(to)])) // its last size; 0 if it has none or that is -1
		case kind != "Turn" && kind != "CausalAttention" && kind != "CausalAttentionGrad" && kind != "Cast" && kind != "Narrow": // may change it
			return 0
		}
		name = n.Inputs[0]
	}
}

// lastOf returns size i of a shape if it is a number.
func lastOf(shape []string, i int) int {
	if i < 0 || i >= len(shape) {
		return 0
	}
	n, _ := strconv.Atoi(shape[i])
	return n
}

// A condition decides whether a rule applies, and returns its operator's attributes. v maps a rule's names to the
// graph's values.
type condition = func(g *fused, v map[string]string) ([]onnx.Attr, bool)

// narrow demands a value of 16 bits.
func narrow(name string) condition {
	return func(g *fused, v map[string]string) ([]onnx.Attr, bool) {
		return nil, isNarrow(g.typeOf(v[name]))
	}
}

// biased demands a product of 16 bits with a bias: the third operand may be a matrix, too,
// onto which an adapter's product is added.
func biased(g *fused, v map[string]string) ([]onnx.Attr, bool) {
	return nil, len(g.ports[v["b"]].Shape) == 1 && isNarrow(g.typeOf(v["x"]))
}

// eights demands a value of 16 bits whose rows a kernel can read eight elements at a time.
// The host's kernels take any width (g.anyWidth).
func eights(name string) condition {
	return func(g *fused, v map[string]string) ([]onnx.Attr, bool) {
		_, ok := narrow(name)(g, v)
		w := g.width(v[name])
		return nil, ok && (g.anyWidth || w > 0 && w%8 == 0)
	}
}

// turns demands a rotary embedding of 16 bits that turns whole heads, on a device of a width that is a multiple of
// 16. sign is -1 if they are turned back.
func turns(sign int64) condition {
	return func(g *fused, v map[string]string) ([]onnx.Attr, bool) {
		_, ok := narrow("x")(g, v)
		half := lastOf(g.ports[v["cos"]].Shape, 1)
		return []onnx.Attr{{Name: "turned", Value: sign}}, ok && !has(g.Nodes[g.madeBy[v["b"]]], "rotary_embedding_dim") && half > 0 && (g.anyWidth || half%8 == 0)
	}
}

// has reports whether a node has one of the attributes.
func has(n onnx.Node, names ...string) bool {
	return slices.ContainsFunc(n.Attrs, func(a onnx.Attr) bool { return slices.Contains(names, a.Name) })
}

// rowsOf demands that a value's node takes rows that eights accepts.
func rowsOf(name string) condition {
	return func(g *fused, v map[string]string) ([]onnx.Attr, bool) {
		_, ok := eights("x")(g, v)
		return nil, ok && g.typeOf(v["x"]) == g.narrow && attr(g.Nodes[g.madeBy[v[name]]], "axis") == 0
	}
}

// masks demands the mask of a layer, [T,T], or a part of it.
func masks(name string) condition {
	return func(g *fused, v map[string]string) ([]onnx.Attr, bool) {
		mask := v[name]
		for {
			i, made := g.madeBy[mask]
			if !made || g.Nodes[i].Op != "Slice" {
				break
			}
			mask = g.Nodes[i].Inputs[0]
		}
		return nil, (mask == ports.Mask || g.anyWidth && mask == ports.Band) && len(g.ports[mask].Shape) == 2
	}
}

// scores demands the gradient of attention's weights: a product in float32.
func scores(name string) condition {
	return func(g *fused, v map[string]string) ([]onnx.Attr, bool) {
		i, ok := g.madeBy[v[name]]
		return nil, ok && g.Nodes[i].Op == "FusedMatMul"
	}
}

// epsilonOf reads the attribute epsilon of the node that computes a value.
func epsilonOf(name string) condition {
	return func(g *fused, v map[string]string) ([]onnx.Attr, bool) {
		for _, a := range g.Nodes[g.madeBy[v[name]]].Attrs {
			if a.Name == "epsilon" {
				return []onnx.Attr{a}, true
			}
		}
		return nil, false
	}
}

// epsilonBeside reads a constant of one float32 as the attribute epsilon.
func epsilonBeside(name string) condition {
	return func(g *fused, v map[string]string) ([]onnx.Attr, bool) {
		x, ok := g.number(v[name])
		return []onnx.Attr{{Name: "epsilon", Value: x}}, ok
	}
}

// attends demands attention over a cache by GroupQueryAttention, whose attributes become those of ours. turned says
// whether our operator turns queries and keys (rotary embedding), and rotary what do_rotary of the node must be, 0 or 1.
// In the rules i names the node's result, keys its cache, and d the result of a RotaryEmbedding before it. A device's
// kernels take one new token of each row, and up to 16 heads that share keys, of up to 128 elements, a multiple of 8;
// the host's take any.
func attends(turned, rotary int64) condition {
	return func(g *fused, v map[string]string) ([]onnx.Attr, bool) {
		ids := slices.IndexFunc(g.Inputs, func(p models.Port) bool { return p.Name == ports.TokenIDs }) // [rows, new tokens]
		cache := g.ports[v["keys"]].Shape
		if ids < 0 || len(g.Inputs[ids].Shape) != 2 || g.Inputs[ids].Shape[1] != "1" && !g.anyWidth || len(cache) != 4 {
			return nil, false
		}
		n := g.Nodes[g.madeBy[v["i"]]]
		heads, groups := attr(n, "num_heads"), attr(n, "kv_num_heads")
		width, err := strconv.ParseInt(cache[3], 10, 64)
		fits := g.anyWidth || width%8 == 0 && width <= 128 && groups != 0 && heads/groups <= 16
		turnsPart := turned == 1 && has(g.Nodes[g.madeBy[v["d"]]], "rotary_embedding_dim") // of each head, which ours cannot
		// other attributes would change the result
		known := map[string]bool{"num_heads": true, "kv_num_heads": true, "scale": true, "do_rotary": true, "local_window_size": g.anyWidth, "softcap": g.anyWidth}
		if err != nil || !fits || turnsPart || attr(n, "do_rotary") != rotary || slices.ContainsFunc(n.Attrs, func(a onnx.Attr) bool { return !known[a.Name] }) {
			return nil, false
		}
		attrs := []onnx.Attr{{Name: "heads", Value: heads}, {Name: "groups", Value: groups}, {Name: "turned", Value: turned}}
		for _, a := range n.Attrs {
			if ours := map[string]string{"scale": "scale", "local_window_size": "window", "softcap": "cap"}[a.Name]; ours != "" {
				attrs = append(attrs, onnx.Attr{Name: ours, Value: a.Value})
			}
		}
		return attrs, slices.ContainsFunc(attrs, isScale) // our operator has no default
	}
}

// causal demands causal attention over whole sequences, by the rule's names: qd and kd are the shapes [B,T,heads,width]
// to which queries and keys are reshaped, mask is the layer's, b is the product with the scale, and c, if the rule has
// it, a cap. A device's kernels take heads of up to 128 elements, a multiple of 8.
func causal(g *fused, v map[string]string) ([]onnx.Attr, bool) {
	q, k := g.ints(v["qd"]), g.ints(v["kd"])
	if _, ok := masks("mask")(g, v); !ok || len(q) != 4 || len(k) != 4 || q[3] != k[3] ||
		!g.anyWidth && (q[3]%8 != 0 || q[3] > 128) || k[2] == 0 || q[2]%k[2] != 0 {
		return nil, false
	}
	attrs := []onnx.Attr{{Name: "heads", Value: q[2]}, {Name: "groups", Value: k[2]}}
	for _, a := range g.Nodes[g.madeBy[v["b"]]].Attrs {
		if a.Name == "alpha" {
			attrs = append(attrs, onnx.Attr{Name: "scale", Value: a.Value})
		}
	}
	if c, ok := g.number(v["c"]); ok {
		attrs = append(attrs, onnx.Attr{Name: "cap", Value: c})
	}
	return attrs, slices.ContainsFunc(attrs, isScale) // our operator has no default
}

func isScale(a onnx.Attr) bool { return a.Name == "scale" }

// number returns a constant of one float32.
func (g *fused) number(name string) (x float32, ok bool) {
	for _, c := range g.Constants {
		if c.Name == name && c.Type == models.F32 && len(c.Raw) == 4 {
			return math.Float32frombits(binary.LittleEndian.Uint32(c.Raw)), true
		}
	}
	return 0, false
}

// ints returns the numbers of an int64 constant.
func (g *fused) ints(name string) (list []int64) {
	for _, c := range g.Constants {
		if c.Name == name && c.Type == models.I64 {
			for raw := c.Raw; len(raw) >= 8; raw = raw[8:] {
				list = append(list, int64(binary.LittleEndian.Uint64(raw)))
			}
		}
	}
	return list
}

// Whole reports whether one kernel computes the attention of a layer's Program, with all queries
// in one block and without storing scores.
func (d *Device) Whole(p models.Program) bool {
	return slices.ContainsFunc(d.Fuse(p).Nodes, func(n onnx.Node) bool { return kindOf(n, "") == "CausalAttention" })
}
