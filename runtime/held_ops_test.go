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

// heldMatrix makes a random matrix [n,k] as it is held in a type, its scales (without a name where
// there are none), and its numbers in float32.
func heldMatrix(r *rand.Rand, name string, d models.DType, n, k int64) (q, scales, numbers *array) {
	q, scales = &array{name: name, dtype: d, shape: []int64{n, k}}, &array{}
	numbers = &array{name: name, dtype: models.F32, shape: []int64{n, k}}
	block := int64(models.BlockOf(d))
	if block == 0 {
		for range n * k {
			q.data = append(q.data, r.NormFloat64()*math.Exp2(float64(-r.IntN(20)))) // subnormal ones, too
		}
		q.encode()
		numbers.data = slices.Clone(q.data)
		return q, scales, numbers
	}
	scales = &array{name: name + ".scale", dtype: models.F32, shape: []int64{n, k / block}}
	for range n * k / block {
		scales.data = append(scales.data, r.Float64()/50)
	}
	scales.encode()
	pairs := models.NF4Pairs()
	for i := int64(0); i < n*k; i++ {
		scale := float32(scales.data[i/block])
		if d == models.I8 {
			q.data = append(q.data, float64(r.IntN(255)-127))
			numbers.data = append(numbers.data, float64(float32(q.data[i])*scale))
			continue
		}
		if i%2 == 0 {
			q.data = append(q.data, float64(r.IntN(256)))
		}
		numbers.data = append(numbers.data, float64(pairs[2*int64(q.data[i/2])+i%2]*scale))
	}
	if d == models.NF4 {
		q.dtype, q.shape = models.U8, []int64{n, k / 2}
	}
	return q, scales, numbers
}

// TestHeldProducts: products by matrices that are held in fewer bits have the bits of those by the
// same numbers in bfloat16, and in float32, by a matrix of float32, too, are right; every kind of
// kernels has the same bits, and so has a row alone.
func TestHeldProducts(t *testing.T) {
	env := openOn(t, "cpu")
	list := kinds(t)
	r := rand.New(rand.NewPCG(9, 10))
	random := func(name string, d models.DType, shape ...int64) *array {
		a := &array{name: name, dtype: d, shape: shape, data: make([]float64, sizeOfShape(shape))}
		for i := range a.data {
			a.data[i] = r.NormFloat64()
		}
		return a
	}
	run := func(kind, op string, turned bool, out *array, in ...*array) []float64 {
		t.Helper()
		if err := hostkernels.Use(kind); err != nil {
			t.Fatal(err)
		}
		var attrs []onnx.Attr
		if turned {
			attrs = []onnx.Attr{{Name: "turned", Value: int64(1)}}
		}
		runOp(t, env, op, attrs, in, []*array{out})
		return slices.Clone(out.data)
	}
	// same runs an operator in all kinds.
	same := func(op string, turned bool, want []float64, out *array, in ...*array) {
		t.Helper()
		for _, kind := range list {
			got := run(kind, op, turned, out, in...)
			if want == nil {
				want = got
			}
			if at := sameBits(want, got); at >= 0 {
				t.Errorf("%s of %v and %v by %s: %v at %d, want %v", op, in[0].shape, in[1].shape, kind, got[at], at, want[at])
			}
		}
	}
	h, f, none := models.BF16, models.F32, &array{}
	for _, d := range []models.DType{models.F32, models.I8, models.NF4, models.F16, models.BF16} {
		sizes := [][3]int64{{1, 3, 64}, {1, 70, 1088}, {5, 16, 2304}, {8, 33, 128}, {70, 130, 1024}}
		if d == models.F32 { // whose rows are not blocks
			sizes = append(sizes, [3]int64{1, 5, 3}, [3]int64{9, 21, 77}, [3]int64{3, 40, 1031})
		}
		for _, s := range sizes {
			m, n, k := s[0], s[1], s[2]
			what := fmt.Sprintf("%v %v", d, s)
			q, scales, numbers := heldMatrix(r, "w", d, n, k)
			x, sum, c := random("x", f, m, k), random("sum", f, m, n), random("c", f, n)
			for _, plus := range []*array{none, c, sum} {
				y := random("y", f, m, n)
				same("FloatProduct", false, nil, y, x, q, plus, scales)
				got := y.data
				for i := range got {
					want := 0.0
					if plus.name != "" {
						want = plus.data[i%len(plus.data)]
					}
					for j := range k {
						want += x.data[int64(i)/n*k+j] * numbers.data[int64(i)%n*k+j]
					}
					if off := math.Abs(got[i] - want); !(off < 3e-6*math.Sqrt(float64(k))) {
						t.Fatalf("%s: %v at %d, want %v", what, got[i], i, want)
					}
				}
				alone := random("y", f, 1, n)
				if plus != sum {
					run("", "FloatProduct", false, alone, &array{name: "x", dtype: f, shape: []int64{1, k}, data: x.data[:k]}, q, plus, scales)
					if at := sameBits(alone.data, got[:n]); at >= 0 {
						t.Errorf("%s: the first row alone has %v at %d, want %v", what, alone.data[at], at, got[at])
					}
				}
			}
			if d == f {
				continue // nothing is held in fewer bits
			}
			held := slices.DeleteFunc([]*array{q, scales}, func(a *array) bool { return a.name == "" })
			same("FloatUnpack", false, numbers.data, random("y", f, n, k), held...)
			if d == models.BF16 {
				continue // what is held in the type of the products needs nothing
			}
			x.dtype, c.dtype, numbers.dtype = h, h, h
			want := func(op string, turned bool, out *array, in ...*array) []float64 {
				return run("", op, turned, out, in...)
			}
			y := random("y", h, m, n)
			numbers.encode() // rounds them
			same("UnpackBFloat16", false, numbers.data, random("y", h, n, k), held...)
			same("ProductBFloat16", false, want("ProductBFloat16", false, y, x, numbers, c), y, x, q, c, scales)
			same("ProductBFloat16", false, want("ProductBFloat16", false, y, x, numbers), y, x, q, none, scales)
			wide := random("y", f, m, n)
			same("ProductOntoBFloat16", false, want("ProductOntoBFloat16", false, wide, x, numbers, sum), wide, x, q, sum, scales)
			v, vScales, vNumbers := heldMatrix(r, "v", d, n, k)
			vNumbers.dtype = h
			same("GateUpBFloat16", false, want("GateUpBFloat16", false, y, x, numbers, vNumbers), y, x, q, v, scales, vScales)
			dy, dx := random("x", h, m, n), random("y", h, m, k)
			same("ProductBFloat16", true, want("ProductBFloat16", true, dx, dy, numbers), dx, dy, q, none, scales)
		}
	}
}
