//go:build webgpu

package runtime_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
	"onering/models/graph"
	"onering/models/optim/adamw"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/sampler"
)

func init() { provider = models.WebGPU }

// TestWebGPUNodes lists, by ONNX Runtime's own profile, which provider ran each node of
// each kind of graph, for the models of goldensOn. Every node must run on WebGPU: a node
// on the CPU would copy its operands there and back in each run. (Every session asks ONNX
// Runtime for an error where a node has no kernel; this test would also see copies that
// it adds.)
func TestWebGPUNodes(t *testing.T) {
	device := runtimetest.Test(t).Device() // skips without the provider
	t.Run(device, testWebGPUNodes)
}

func testWebGPUNodes(t *testing.T) {
	kinds := map[string]bool{}
	for _, dir := range goldensOn(t, runtimetest.Test(t)) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			prefix := filepath.Join(t.TempDir(), "profile")
			env, err := runtime.Open(t.Context(), runtime.Options{Device: "webgpu", Profile: prefix})
			check(t, err)
			t.Cleanup(func() { // This runs after the ring that open makes is closed.
				check(t, env.Close())
				for program, providers := range nodesOf(t, prefix) {
					kinds[program] = true
					t.Logf("%s: %v", program, providers)
					for provider, ops := range providers {
						if provider != "WebGpuExecutionProvider" || slices.ContainsFunc(ops, isCopy) {
							t.Errorf("%s: %s ran %v", program, provider, ops)
						}
					}
				}
			})
			m := open(t, env, dir)
			runAll(t, env, dir, m)
			if env.CheckFloat16() == nil {
				runAll(t, env, dir, m.half(t, env))
			}
		})
	}
	for _, kind := range []string{
		"prefill", "decode", "sample.draw", "sample.greedy", "sample.candidates",
		"layer.forward", "layer.backward", "norm.forward", "norm.backward", "head.forward", "head.target", "head.backward",
		"rows.gather", "rows.add", "rows.pair", "adamw", "norm2", "moves.copy", "moves.within", "moves.clear",
	} {
		if !kinds[kind] {
			t.Errorf("no graph %q was run; those that were are %v", kind, kinds)
		}
	}
}

// half returns the model computing in float16, with its present weights.
func (m *model) half(t *testing.T, env *runtime.Env) *model {
	t.Helper()
	check(t, env.Download(m.weights))
	adapter := m.ring.Adapter
	if adapter != nil {
		check(t, env.Download(adapter))
	}
	h := *m
	h.arch.Type = models.F16
	ring, err := runtime.NewRing(h.arch, h.weights)
	check(t, err)
	t.Cleanup(ring.Close)
	if h.ring = ring; adapter != nil {
		check(t, ring.Adapt(h.arch, adapter))
	}
	return &h
}

// runAll runs every kind of graph of a model; most models run two of the sampling graphs,
// which are the same for all models.
func runAll(t *testing.T, env *runtime.Env, dir string, m *model) {
	for i, o := range ways(env, dir, learners, learners[0], learners[3]) {
		o.EntropyGradient = i%2 == 1
		l, err := env.NewLearner(m.ring, o)
		check(t, err)
		p, err := l.Forward(m.sequences, 0.8, true)
		check(t, err)
		check(t, p.Backward(m.w[0], nil))
		p.Release()
		if i == 0 {
			opt, err := env.NewOptimizer(m.ring, l.Gradients, adamw.Default(), runtime.OptimizerOptions{})
			check(t, err)
			_, err = clipAndUpdate(opt, 1e-3)
			check(t, err)
			opt.Close()
		}
		l.Close()
	}
	d, err := env.NewDecoder(m.ring, 3, 64)
	check(t, err)
	defer d.Close()
	var prompts [][]int32
	for _, r := range m.Greedy.Rows[:2] {
		prompts = append(prompts, r.Prompt)
	}
	samplings := []sampler.Sampling{sampler.Plain(4), sampler.Greedy(4), {MaxNewTokens: 4, Temperature: 1, TopP: 0.9, MinP: 0.1}}
	for _, s := range ways(env, dir, samplings, samplings[0], samplings[2]) {
		prefixes, err := d.Prefill(prompts)
		check(t, err)
		rows := rowsOf([]int{2, 0, 1}, []int{prefixes[0], prefixes[1], prefixes[0]}, 0.1, 0.5, 0.9)
		for i := range rows {
			rows[i].Way = s
		}
		check(t, d.Begin(rows))
		for _, x := range prefixes {
			d.Drop(x)
		}
		check(t, d.Step(fed(rows)))
		d.Free(2) // The last row moves into the place of the ended row.
		check(t, d.Step(fed(rows[1:])))
		d.Free(0)
		d.Free(1)
	}
}

// TestManyWorkgroups: kernels with more workgroups than one dimension of a dispatch allows
// (65,535) give right numbers, whether each row is a workgroup or each product of many.
func TestManyWorkgroups(t *testing.T) {
	e := runtimetest.Test(t)
	const rows = 65539
	r := rand.New(rand.NewPCG(1, 2))
	for name, c := range map[string]struct {
		dims []int
		of   func(x *graph.Node) *graph.Node
	}{
		"Softmax": {[]int{rows, 5}, graph.Softmax},
		"MatMul":  {[]int{rows, 1, 8}, func(x *graph.Node) *graph.Node { return graph.MatMul(graph.Reshape(x, 0, 8, 1), x, false, false, 1) }},
	} {
		p, err := graph.Build(name, func(g *graph.Graph) {
			g.Stock()
			sizes := []any{"R"}
			for _, n := range c.dims[1:] {
				sizes = append(sizes, n)
			}
			g.Output("y", c.of(g.Float("x", sizes...)))
		})
		g := graphtest.Loaded(t, p, err)
		want, got := runBoth(t, e, g, p, map[string]graphtest.Tensor{"x": graphtest.Normal(r, c.dims...)})
		wrong := 0
		for i, v := range want["y"].Data {
			if !(math.Abs(got["y"].Data[i]-v) <= 1e-5) {
				wrong++
			}
		}
		if wrong > 0 {
			t.Errorf("%s: %d of %d numbers are wrong", name, wrong, len(want["y"].Data))
		}
	}
}

// isCopy reports whether an operator is one that ONNX Runtime adds, which copies between
// the host and the device.
func isCopy(op string) bool { return strings.HasPrefix(op, "Memcpy") }

// nodesOf reads the profiles that begin with a prefix: for each program the operators
// by the provider that ran them.
func nodesOf(t *testing.T, prefix string) map[string]map[string][]string {
	t.Helper()
	files, err := filepath.Glob(prefix + "-*.json")
	check(t, err)
	name := regexp.MustCompile(`^` + regexp.QuoteMeta(prefix) + `-(.*)_\d{4}-\d{2}-\d{2}_.*\.json$`)
	nodes := map[string]map[string][]string{}
	for _, file := range files {
		program := name.FindStringSubmatch(file)
		data, err := os.ReadFile(file)
		check(t, err)
		var events []struct {
			Category string `json:"cat"`
			Args     struct {
				Provider string `json:"provider"`
				Op       string `json:"op_name"`
			} `json:"args"`
		}
		if program == nil || json.Unmarshal(data, &events) != nil {
			t.Fatalf("%s is no profile", file)
		}
		of := nodes[program[1]]
		if of == nil {
			of = map[string][]string{}
			nodes[program[1]] = of
		}
		for _, e := range events {
			if e.Category == "Node" && e.Args.Provider != "" && !slices.Contains(of[e.Args.Provider], e.Args.Op) {
				of[e.Args.Provider] = append(of[e.Args.Provider], e.Args.Op)
			}
		}
	}
	return nodes
}
