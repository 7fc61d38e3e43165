package runtime_test

import (
	"fmt"
	"testing"

	"onering/models"
	"onering/models/onnx"
	"onering/runtime"
	"onering/runtime/runtimetest"
)

// ffn is a feed-forward block, y = silu(x w1^T) w2^T.
func ffn(name string) models.Program {
	transB := []onnx.Attr{{Name: "transB", Value: int64(1)}}
	return program(name, []onnx.Node{
		{Op: "Gemm", Inputs: []string{"x", "w1"}, Outputs: []string{"a"}, Attrs: transB},
		{Op: "Sigmoid", Inputs: []string{"a"}, Outputs: []string{"s"}},
		{Op: "Mul", Inputs: []string{"a", "s"}, Outputs: []string{"m"}},
		{Op: "Gemm", Inputs: []string{"m", "w2"}, Outputs: []string{"y"}, Attrs: transB},
	}, []models.Port{f32("x", "N", "D"), f32("w1", "F", "D"), f32("w2", "D", "F")}, []models.Port{f32("y", "N", "D")})
}

// add is z = x + y.
func add() models.Program {
	return program("add", []onnx.Node{{Op: "Add", Inputs: []string{"x", "y"}, Outputs: []string{"z"}}},
		[]models.Port{f32("x", "N"), f32("y", "N")}, []models.Port{f32("z", "N")})
}

func noise(n int, scale float32) []float32 {
	v := make([]float32, n)
	state := uint32(1)
	for i := range v {
		state = state*1664525 + 1013904223
		v[i] = scale * (float32(state>>8)/(1<<24) - 0.5)
	}
	return v
}

func BenchmarkRunAdd(b *testing.B) {
	e := runtimetest.Test(b)
	x, y, z := value(b, noise(4, 1), 4), value(b, noise(4, 1), 4), value(b, noise(4, 1), 4)
	r := bind(b, e, add(), map[string]*runtime.Value{"x": x, "y": y}, map[string]*runtime.Value{"z": z})
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Run(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRebindAndRunAdd(b *testing.B) {
	e := runtimetest.Test(b)
	x, y, z := value(b, noise(4, 1), 4), value(b, noise(4, 1), 4), value(b, noise(4, 1), 4)
	r := bind(b, e, add(), map[string]*runtime.Value{"x": x, "y": y}, map[string]*runtime.Value{"z": z})
	b.ReportAllocs()
	for b.Loop() {
		x, y = y, x
		if err := r.Input("x", x); err != nil {
			b.Fatal(err)
		}
		if err := r.Run(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNewValue(b *testing.B) {
	runtimetest.Test(b)
	data := noise(64, 1)
	b.ReportAllocs()
	for b.Loop() {
		v, err := runtime.NewValue(data, 8, 8)
		if err != nil {
			b.Fatal(err)
		}
		v.Close()
	}
}

// BenchmarkSessions runs four sessions in turn, as a training pass does.
func BenchmarkSessions(b *testing.B) {
	for _, s := range []struct{ n, d, f int }{{16, 64, 128}, {32, 896, 4864}} {
		b.Run(fmt.Sprintf("N=%d,D=%d,F=%d", s.n, s.d, s.f), func(b *testing.B) {
			e := runtimetest.Test(b)
			x, w1, w2 := noise(s.n*s.d, 1), noise(s.f*s.d, 0.01), noise(s.d*s.f, 0.01)
			var rs []*runtime.Binding
			for range 4 {
				in := map[string]*runtime.Value{"x": value(b, x, int64(s.n), int64(s.d)), "w1": value(b, w1, int64(s.f), int64(s.d)), "w2": value(b, w2, int64(s.d), int64(s.f))}
				rs = append(rs, bind(b, e, ffn("ffn"), in, map[string]*runtime.Value{"y": value(b, make([]float32, len(x)), int64(s.n), int64(s.d))}))
			}
			i := 0
			for b.Loop() {
				if err := rs[i%4].Run(); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

// BenchmarkDenormals scales a large tensor of ordinary and of subnormal numbers.
func BenchmarkDenormals(b *testing.B) {
	p := program("scale", []onnx.Node{{Op: "Mul", Inputs: []string{"x", "y"}, Outputs: []string{"z"}}},
		[]models.Port{f32("x", "N"), f32("y", "1")}, []models.Port{f32("z", "N")})
	for _, scale := range []float32{1, 1e-39} {
		b.Run(fmt.Sprint(scale), func(b *testing.B) {
			e := runtimetest.Test(b)
			x := noise(1<<20, scale)
			r := bind(b, e, p, map[string]*runtime.Value{"x": value(b, x, 1<<20), "y": value(b, []float32{0.9}, 1)}, map[string]*runtime.Value{"z": value(b, make([]float32, 1<<20), 1<<20)})
			for b.Loop() {
				if err := r.Run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCopies copies between the host and a device; on the CPU it copies nothing.
// With ONERING_UNPINNED=1 a GPU copies without pinned memory.
func BenchmarkCopies(b *testing.B) {
	e := runtimetest.Test(b)
	for _, bytes := range []int{64 << 10, 1 << 20, 16 << 20, 256 << 20} {
		up, down := runtime.Copies(b, e, bytes)
		for _, c := range []struct {
			name string
			copy func() error
		}{{"up", up}, {"down", down}} {
			b.Run(fmt.Sprintf("%s/%d", c.name, bytes>>10), func(b *testing.B) {
				b.SetBytes(int64(bytes))
				for b.Loop() {
					if err := c.copy(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
