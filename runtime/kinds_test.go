package runtime

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"onering/models"
	"onering/models/onnx"
	hostkernels "onering/runtime/kernels/host"
)

// kinds returns the kinds of kernels that this processor has, plain C first.
func kinds(t *testing.T) (list []string) {
	t.Helper()
	for _, kind := range []string{"plain", "avx2", "avx512"} {
		if hostkernels.Use(kind) == nil {
			list = append(list, kind)
		}
	}
	t.Cleanup(func() { hostkernels.Choose() })
	return list
}

// strange are numbers at which kinds could differ: subnormal ones, the ends of the range, numbers
// whose products or sums leave it, and what is not a number.
var strange = []float64{0, math.Copysign(0, -1), 1e-40, -1e-40, 9.2e-41, 1.1754944e-38, -1.18e-38, 3e-20, -2.5e-20, 1.2e-19, 3.3895e38, -3.3895e38, 1.8e19, -1.9e19, 1, -1, math.Inf(1), math.Inf(-1), math.NaN()}

// sameBits compares two results; any NaN is as good as another.
func sameBits(a, b []float64) int {
	for i := range a {
		if math.Float64bits(a[i]) != math.Float64bits(b[i]) && !(math.IsNaN(a[i]) && math.IsNaN(b[i])) {
			return i
		}
	}
	return -1
}

// TestKinds: every kind of kernels computes the bits of plain C, and a row has the same bits alone
// and among others.
func TestKinds(t *testing.T) {
	env := openOn(t, "cpu")
	list := kinds(t)
	r := rand.New(rand.NewPCG(7, 8))
	for _, odd := range []bool{false, true} {
		random := func(name string, d models.DType, shape ...int64) *array {
			a := &array{name: name, dtype: d, shape: shape, data: make([]float64, sizeOfShape(shape))}
			for i := range a.data {
				if a.data[i] = r.NormFloat64(); odd && r.IntN(8) == 0 {
					a.data[i] = strange[r.IntN(len(strange)-3*r.IntN(2))]
				}
			}
			return a
		}
		h, f := models.BF16, models.F32
		index := func(name string, most int, shape ...int64) *array {
			a := random(name, models.I64, shape...)
			for i := range a.data {
				a.data[i] = float64(r.IntN(most))
			}
			return a
		}
		same := func(op string, attrs []onnx.Attr, in []*array, out ...*array) {
			t.Helper()
			var want [][]float64
			for i, kind := range list {
				if err := hostkernels.Use(kind); err != nil {
					t.Fatal(err)
				}
				runOp(t, env, op, attrs, in, out)
				for k, y := range out {
					if i == 0 {
						want = append(want, slices.Clone(y.data))
					} else if at := sameBits(want[k], y.data); at >= 0 {
						t.Errorf("%s of %v by %s: result %d at %d is %v, want %v", op, in[0].shape, kind, k, at, y.data[at], want[k][at])
					}
				}
			}
		}
		for _, m := range []int64{1, 5, 8, 70} {
			for _, s := range [][2]int64{{1, 2}, {16, 70}, {37, 1023}, {9, 2272}} {
				n, k := s[0], s[1]
				x, w, b, sum, back := random("x", h, m, k), random("w", h, n, k), random("b", h, n), random("sum", f, m, n), random("back", h, k, n)
				same("ProductBFloat16", nil, []*array{x, w, b}, random("y", h, m, n))
				same("ProductBFloat16", nil, []*array{x, w, random("c", h, m, n)}, random("y", h, m, n))
				same("LogitsBFloat16", nil, []*array{x, w}, random("y", f, m, n))
				same("ProductOntoBFloat16", nil, []*array{x, w, sum}, random("y", f, m, n))
				same("ProductBFloat16", []onnx.Attr{{Name: "turned", Value: int64(1)}}, []*array{x, back}, random("y", h, m, n))
				same("GateUpBFloat16", nil, []*array{x, w, random("v", h, n, k)}, random("y", h, m, n))
				same("OuterOntoBFloat16", nil, []*array{random("dy", h, m, n), random("x", h, m, k), random("g", f, n, k)}, random("y", f, n, k))
			}
		}
		for _, s := range [][2]int64{{1, 2}, {3, 10}, {21, 72}, {5, 1536}} {
			rows, d := s[0], s[1]
			eps := []onnx.Attr{{Name: "epsilon", Value: float32(1e-5)}}
			same("NormBFloat16", eps, []*array{random("x", f, rows, d), random("w", f, d)}, random("y", h, rows, d))
			same("NormGradBFloat16", eps, []*array{random("x", f, rows, d), random("w", f, d), random("dy", h, rows, d), random("onto", f, rows, d)}, random("dx", f, rows, d), random("dw", f, d))
			same("SwiGLUBFloat16", nil, []*array{random("g", h, rows, d), random("u", h, rows, d)}, random("y", h, rows, d))
			same("SwiGLUGradBFloat16", nil, []*array{random("g", h, rows, d), random("u", h, rows, d), random("dy", h, rows, d)}, random("dg", h, rows, d), random("du", h, rows, d))
			same("TurnBFloat16", []onnx.Attr{{Name: "turned", Value: int64(-1)}}, []*array{random("x", h, rows, 3*d), index("pos", 7, rows, 1), random("cos", f, 7, d/2), random("sin", f, 7, d/2)}, random("y", h, rows, 3*d))
			same("RowDotsBFloat16", nil, []*array{random("x", h, rows, d), random("e", h, 9, d), index("at", 9, rows)}, random("y", f, rows, 1))
		}
		for _, v := range []int64{5, 300, 20000} {
			logits := random("logits", f, 3, v)
			same("HeadSums", nil, []*array{logits, random("z", f, 3, 1), random("u", f, 3, 1)}, random("z1", f, 3, 1), random("u1", f, 3, 1))
			same("Choose", nil, []*array{logits, random("t", f), {name: "uniforms", dtype: f, shape: []int64{3}, data: []float64{0, 0.4, 0.9999999}}}, index("next", 2, 3), random("logp", f, 3), random("entropy", f, 3))
		}
		for _, s := range [][4]int64{{1, 4, 2, 16}, {7, 4, 4, 10}, {60, 6, 2, 64}, {100, 3, 1, 80}} {
			T, heads, groups, width := s[0], s[1], s[2], s[3]
			attrs := []onnx.Attr{{Name: "heads", Value: heads}, {Name: "groups", Value: groups}, {Name: "scale", Value: float32(0.3)}, {Name: "turned", Value: int64(1)}}
			q, k, v, o, dy := random("q", h, 2, T, heads*width), random("k", h, 2, T, groups*width), random("v", h, 2, T, groups*width), random("o", h, 2, T, heads*width), random("dy", h, 2, T, heads*width)
			same("CausalAttentionBFloat16", attrs, []*array{q, k, v}, random("y", h, 2, T, heads*width))
			same("CausalAttentionGradBFloat16", attrs, []*array{q, k, v, o, dy}, random("dq", h, 2, T, heads*width), random("dk", h, 2, T, groups*width), random("dv", h, 2, T, groups*width))
			total, before := &array{name: "total", dtype: models.I32, data: []float64{float64(T)}}, &array{name: "before", dtype: models.I32, shape: []int64{2}, data: []float64{float64(T - 1), float64(T - 1)}}
			keys, values := random("keys", h, 2, groups, T+3, width), random("values", h, 2, groups, T+3, width)
			same("AttendBFloat16", attrs, []*array{random("qkv", h, 2*T, (heads+2*groups)*width), before, total, keys, values, random("cos", f, T, width/2), random("sin", f, T, width/2)},
				random("y", h, 2*T, heads*width), &array{name: "keys", dtype: h, shape: keys.shape}, &array{name: "values", dtype: h, shape: values.shape})
		}
		if t.Failed() {
			t.Fatal(fmt.Sprintf("strange numbers: %v", odd))
		}
	}
}
