package runtime_test

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"

	"onering/models"
	"onering/models/onnx"
	"onering/runtime"
	"onering/runtime/runtimetest"
)

// wantError fails unless err contains all of want.
func wantError(t *testing.T, err error, want ...string) {
	t.Helper()
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error %v, want %q in it", err, w)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	e := runtimetest.Test(t)
	good := gemm()
	for _, c := range []struct {
		change func(p *models.Program)
		want   string
	}{
		{func(p *models.Program) { p.Nodes = nil }, "has no graph"},
		{func(p *models.Program) { p.Inputs = p.Inputs[:2] }, "loading its graph"},
		{func(p *models.Program) { p.Outputs = []models.Port{f32("z", "M", "O")} }, "loading its graph"},
		{func(p *models.Program) {
			p.Inputs = []models.Port{f32("x", "M", "I"), f32("w", "O", "I"), port("c", models.F64, "M", "O")}
		}, "loading its graph"},
		{func(p *models.Program) { p.Alias = map[string]string{"y": "q"} }, `alias of an input "q"`},
		{func(p *models.Program) { p.Alias = map[string]string{"q": "c"} }, `alias of an output "q"`},
		{func(p *models.Program) { *p = one("NoSuchOp", p.Inputs[:1], p.Outputs[0]) }, "NoSuchOp"},
	} {
		p := good
		c.change(&p)
		p.Name = "tested"
		s, err := e.Load(p)
		if err == nil {
			s.Close()
		}
		wantError(t, err, `runtime: program "tested"`, c.want)
	}
}

func TestBindErrors(t *testing.T) {
	e := runtimetest.Test(t)
	p := gemm()
	p.Inputs[2].Shape[1], p.Outputs[0].Shape[1] = "O", "3" // y[M,3]
	s := must(e.Load(p))(t)
	defer s.Close()
	b := must(s.NewBinding())(t)
	buffer := make([]float32, 100)
	closed := must(runtime.NewValue(buffer[:6], 2, 3))(t)
	closed.Close()
	closed.Close()

	wantError(t, b.Input("q", value(t, buffer[:6], 2, 3)), `program "gemm" has no input "q", only "x", "w", "c"`)
	wantError(t, b.Output("x", value(t, buffer[:6], 2, 3)), `program "gemm" has no output "x", only "y"`)
	wantError(t, b.Input("x", value(t, make([]float64, 6), 2, 3)), `program "gemm": input "x": has type F32, the value F64`)
	wantError(t, b.Input("x", value(t, buffer[:6], 6)), `input "x": has shape [M I], the value [6]`)
	wantError(t, b.Output("y", value(t, buffer[:8], 2, 4)), `output "y": has shape [M 3], the value [2 4]`)
	wantError(t, b.Input("x", nil), `input "x": the value is already closed`)
	if err := b.Input("x", closed); !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("a closed value: %v", err)
	}

	set := func(side func(string, *runtime.Value) error, name string, data []float32, shape ...int64) *runtime.Value {
		t.Helper()
		v := value(t, data, shape...)
		if err := side(name, v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	set(b.Input, "x", buffer[:4], 2, 2)
	w := set(b.Input, "w", buffer[4:10], 3, 2)
	wantError(t, b.Run(), `program "gemm": input "c": nothing is bound to it`)
	c := set(b.Input, "c", buffer[10:16], 2, 3)
	wantError(t, b.Run(), "no output is bound")
	set(b.Output, "y", buffer[10:16], 2, 3)
	if err := b.Run(); err != nil { // in place, through another Value of the same memory
		t.Fatal(err)
	}
	set(b.Output, "y", buffer[13:19], 2, 3)
	wantError(t, b.Run(), `output "y": overlaps input "c" but is not the same memory`)
	set(b.Output, "y", buffer[7:13], 2, 3)
	wantError(t, b.Run(), `output "y": shares memory with input "w", which this program does not update in place`)
	set(b.Output, "y", buffer[20:26], 2, 3)
	if err := b.Run(); err != nil {
		t.Fatal(err)
	}
	set(b.Input, "x", buffer[30:40], 2, 5)
	wantError(t, b.Run(), `dimension I is 2, but 5 in input "x"`)
	set(b.Input, "x", buffer[30:34], 2, 2)
	w.Close()
	wantError(t, b.Run(), `input "w": its value was closed`)
	set(b.Input, "w", buffer[40:46], 3, 2)
	if err := b.Run(); err != nil {
		t.Fatal(err)
	}
	_ = c
	b.Close()
	b.Close()
	if err := b.Run(); !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("Run of a closed binding: %v", err)
	}
	if err := b.Input("c", c); !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("Input of a closed binding: %v", err)
	}
	b2 := must(s.NewBinding())(t)
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if err := b2.Run(); !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("Run of a closed session: %v", err)
	}
	if _, err := s.NewBinding(); !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("NewBinding of a closed session: %v", err)
	}
}

// TestRunError checks that a failing Run names the program and its sizes, and
// that the binding works again afterwards.
func TestRunError(t *testing.T) {
	e := runtimetest.Test(t)
	if e.Device() != "cpu" {
		t.Skip("CUDA's Gather takes any index")
	}
	p := one("Gather", []models.Port{f32("x", "N"), port("i", models.I64, "I")}, f32("y", "I"))
	index, y := []int64{0, 9}, make([]float32, 2)
	r := bind(t, e, p, map[string]*runtime.Value{"x": value(t, []float32{5, 6, 7}, 3), "i": value(t, index, 2)}, map[string]*runtime.Value{"y": value(t, y, 2)})
	wantError(t, r.Run(), `runtime: program "Gather": run on N=3 I=2: `, "9")
	index[1] = 2
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	equal(t, y, []float32{5, 7})

	index[1] = 9
	fixed := one("Gather", []models.Port{f32("x", "3"), port("i", models.I64, "2")}, f32("y", "2"))
	r = bind(t, e, fixed, map[string]*runtime.Value{"x": value(t, []float32{5, 6, 7}, 3), "i": value(t, index, 2)}, map[string]*runtime.Value{"y": value(t, y, 2)})
	wantError(t, r.Run(), `runtime: program "Gather": run: `, "9")
}

// TestOutputsShareMemory refuses two outputs over the same memory.
func TestOutputsShareMemory(t *testing.T) {
	e := runtimetest.Test(t)
	p := program("two", []onnx.Node{{Op: "Neg", Inputs: []string{"x"}, Outputs: []string{"a"}}, {Op: "Abs", Inputs: []string{"x"}, Outputs: []string{"b"}}},
		[]models.Port{f32("x", "N")}, []models.Port{f32("a", "N"), f32("b", "N")})
	buffer := make([]float32, 4)
	in := map[string]*runtime.Value{"x": value(t, []float32{1, -2}, 2)}
	r := bind(t, e, p, in, map[string]*runtime.Value{"a": value(t, buffer[:2], 2), "b": value(t, buffer[1:3], 2)})
	wantError(t, r.Run(), `output "b": shares memory with output "a"`)
	// One output alone may use the memory.
	r = bind(t, e, p, in, map[string]*runtime.Value{"b": value(t, buffer[2:], 2)})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	equal(t, buffer, []float32{0, 0, 1, 2})
}

// TestSharedWeights binds one weight to two sessions: both see a change of the weight.
func TestSharedWeights(t *testing.T) {
	e := runtimetest.Test(t)
	weight := []float32{1, 1}
	w := value(t, weight, 2)
	ys := [2][]float32{make([]float32, 2), make([]float32, 2)}
	var rs []*runtime.Binding
	for _, y := range ys {
		rs = append(rs, bind(t, e, add(), map[string]*runtime.Value{"x": w, "y": value(t, []float32{10, 20}, 2)}, map[string]*runtime.Value{"z": value(t, y, 2)}))
	}
	for step := range 3 {
		for i, r := range rs {
			if err := r.Run(); err != nil {
				t.Fatal(err)
			}
			equal(t, ys[i], []float32{11 + float32(step), 21 + float32(step)})
		}
		weight[0]++
		weight[1]++
	}
}

// TestSameBits runs a threaded graph again, in a new session, and from several goroutines
// at once, and gets the same bits each time.
func TestSameBits(t *testing.T) {
	e := runtimetest.Test(t)
	const n, d, f = 33, 129, 513
	in := map[string]*runtime.Value{"x": value(t, noise(n*d, 1), n, d), "w1": value(t, noise(f*d, 0.1), f, d), "w2": value(t, noise(d*f, 0.1), d, f)}
	anew := must(runtime.Open(t.Context(), runtime.Options{Device: runtimetest.Device, Threads: e.Threads()}))(t) // e keeps its sessions
	t.Cleanup(func() { check(t, anew.Close()) })
	var want []float32
	for _, e := range []*runtime.Env{e, anew} {
		y := make([]float32, n*d)
		r := bind(t, e, ffn("ffn"), in, map[string]*runtime.Value{"y": value(t, y, n, d)})
		for range 3 {
			clear(y)
			if err := r.Run(); err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = append(want, y...)
			}
			equal(t, y, want)
		}
	}
	s := must(e.Load(ffn("ffn")))(t)
	defer s.Close()
	var wg sync.WaitGroup
	for range 4 {
		y := make([]float32, n*d)
		b := must(s.NewBinding())(t)
		for name, v := range in {
			if err := b.Input(name, v); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Output("y", value(t, y, n, d)); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for range 10 {
				if err := b.Run(); err != nil {
					t.Error(err)
					return
				}
				for i := range y {
					if y[i] != want[i] {
						t.Errorf("element %d: %v, alone %v", i, y[i], want[i])
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// TestSubnormals: subnormal numbers count as zero in every part of a tensor,
// whichever thread computes it. Go's own arithmetic keeps them.
func TestSubnormals(t *testing.T) {
	e := runtimetest.Test(t)
	const n = 1 << 20
	x, z := make([]float32, n), make([]float32, n)
	tiny := math.Float32frombits(1 << 20)
	for i := range x {
		x[i] = tiny
	}
	r := bind(t, e, add(), map[string]*runtime.Value{"x": value(t, x, n), "y": value(t, x, n)}, map[string]*runtime.Value{"z": value(t, z, n)})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	counts := map[float32]int{}
	for _, v := range z {
		counts[v]++
	}
	if len(counts) != 1 {
		t.Errorf("subnormals are treated in different ways: %v", counts)
	}
	if x[0]*2 == 0 {
		t.Error("Go's arithmetic has lost its subnormals")
	}
}
