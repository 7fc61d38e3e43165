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

// TestFloatAttend: attention of a new token in float32 is that of float64, with windows, caps and one head of
// keys, and has the same bits in every kind of kernels, in a cache with more room, and in a row alone.
func TestFloatAttend(t *testing.T) {
	env := openOn(t, "cpu")
	list := kinds(t)
	r := rand.New(rand.NewPCG(11, 12))
	random := func(name string, shape ...int64) *array {
		a := &array{name: name, dtype: models.F32, shape: shape, data: make([]float64, sizeOfShape(shape))}
		for i := range a.data {
			a.data[i] = r.NormFloat64()
		}
		a.encode() // rounds them
		return a
	}
	for _, c := range []attending{
		{3, 12, 2, 64, 300, true, 0, 0}, {3, 4, 4, 16, 40, false, 0, 0}, {3, 7, 1, 80, 270, true, 0, 0}, {3, 6, 2, 20, 130, true, 0, 3},
		{3, 8, 2, 10, 90, false, 17, 0}, {3, 4, 1, 128, 700, true, 64, 5}, {3, 16, 1, 24, 2100, true, 0, 0},
	} {
		width, all := int64(c.width), int64(c.heads+2*c.groups)*int64(c.width)
		qkv, keys, values := random("qkv", 3, all), random("keys", 3, int64(c.groups), int64(c.capacity), width), random("values", 3, int64(c.groups), int64(c.capacity), width)
		cos, sin := random("cos", int64(c.capacity), width/2), random("sin", int64(c.capacity), width/2)
		before := []float64{float64(c.capacity - 1), 0, float64(c.capacity / 3)}
		// run attends in some rows, of a cache with more room than they need.
		run := func(kind string, more, from, to int) []float64 {
			t.Helper()
			if err := hostkernels.Use(kind); err != nil {
				t.Fatal(err)
			}
			rows, room := int64(to-from), int64(c.capacity+more)
			roomy := func(x *array) *array {
				y := &array{name: x.name, dtype: x.dtype, shape: []int64{rows, int64(c.groups), room, width}, data: make([]float64, int(rows)*c.groups*int(room*width))}
				for i := range int(rows) * c.groups {
					copy(y.data[i*int(room*width):], x.data[(from*c.groups+i)*c.capacity*c.width:(from*c.groups+i+1)*c.capacity*c.width])
				}
				return y
			}
			k, v, some := roomy(keys), roomy(values), before[from:to]
			in := []*array{
				{name: "qkv", dtype: models.F32, shape: []int64{rows, all}, data: qkv.data[from*int(all) : to*int(all)]},
				{name: "before", dtype: models.I32, shape: []int64{rows}, data: some}, {name: "total", dtype: models.I32, data: []float64{slices.Max(some) + 1}}, k, v,
			}
			attrs := []onnx.Attr{{Name: "heads", Value: int64(c.heads)}, {Name: "groups", Value: int64(c.groups)}, {Name: "scale", Value: float32(1 / math.Sqrt(float64(width)))},
				{Name: "window", Value: int64(c.window)}, {Name: "cap", Value: float32(c.cap)}}
			if c.turned {
				in, attrs = append(in, cos, sin), append(attrs, onnx.Attr{Name: "turned", Value: int64(1)})
			}
			out := &array{name: "out", dtype: models.F32, shape: []int64{rows, int64(c.heads) * width}}
			runOp(t, env, "FloatAttend", attrs, in, []*array{out, k, v})
			for i := range int(rows) { // what the operator put into the cache follows the row's result
				for g := range c.groups {
					at := ((i*c.groups+g)*int(room) + int(some[i])) * c.width
					out.data = append(out.data, append(slices.Clone(k.data[at:at+c.width]), v.data[at:at+c.width]...)...)
				}
			}
			return out.data
		}
		k, v := slices.Clone(keys.data), slices.Clone(values.data)
		want := c.attend(models.F32, qkv.data, before, k, v, cos.data, sin.data)
		for i := range c.rows {
			for g := range c.groups {
				at := ((i*c.groups+g)*c.capacity + int(before[i])) * c.width
				want = append(want, append(slices.Clone(k[at:at+c.width]), v[at:at+c.width]...)...)
			}
		}
		got, own, cached := run("plain", 0, 0, 3), c.heads*c.width, 2*c.groups*c.width
		near(t, fmt.Sprint("attention of ", c), &array{dtype: models.F32, data: got}, want, 0)
		for _, kind := range list {
			if at := sameBits(run(kind, 37, 0, 3), got); at >= 0 {
				t.Errorf("%+v by %s, in a cache with more room: other bits at %d than in plain C", c, kind, at)
			}
			for i := range c.rows {
				alone := append(slices.Clone(got[i*own:(i+1)*own]), got[c.rows*own+i*cached:c.rows*own+(i+1)*cached]...)
				if at := sameBits(run(kind, 5, i, i+1), alone); at >= 0 {
					t.Errorf("%+v by %s: row %d alone has other bits at %d than among others", c, kind, i, at)
				}
			}
		}
	}
}

// TestFloatAttendPrompt: the tokens of a part of a prompt have the bits that they have one by one, in every kind of kernels.
func TestFloatAttendPrompt(t *testing.T) {
	env := openOn(t, "cpu")
	r := rand.New(rand.NewPCG(13, 14))
	const before, tokens = 37, 101
	for _, kind := range kinds(t) {
		for _, c := range []attending{{1, 6, 2, 64, 140, true, 0, 0}, {1, 3, 1, 20, 140, false, 40, 0}, {1, 4, 4, 10, 150, true, 0, 3}} {
			if err := hostkernels.Use(kind); err != nil {
				t.Fatal(err)
			}
			random := func(name string, shape ...int64) *array {
				a := &array{name: name, dtype: models.F32, shape: shape, data: make([]float64, sizeOfShape(shape))}
				for i := range a.data {
					a.data[i] = r.NormFloat64()
				}
				a.encode()
				return a
			}
			width, all := int64(c.width), int64(c.heads+2*c.groups)*int64(c.width)
			qkv, keys, values := random("qkv", tokens, all), random("keys", 1, int64(c.groups), int64(c.capacity), width), random("values", 1, int64(c.groups), int64(c.capacity), width)
			cos, sin := random("cos", int64(c.capacity), width/2), random("sin", int64(c.capacity), width/2)
			attrs := []onnx.Attr{{Name: "heads", Value: int64(c.heads)}, {Name: "groups", Value: int64(c.groups)}, {Name: "scale", Value: float32(1 / math.Sqrt(float64(width)))},
				{Name: "window", Value: int64(c.window)}, {Name: "cap", Value: float32(c.cap)}}
			if c.turned {
				attrs = append(attrs, onnx.Attr{Name: "turned", Value: int64(1)})
			}
			// run computes so many tokens at a time.
			run := func(at int) (all []float64) {
				k, v := *keys, *values
				k.data, v.data = slices.Clone(keys.data), slices.Clone(values.data)
				for from := 0; from < tokens; from += at {
					n, wide := min(at, tokens-from), len(qkv.data)/tokens
					last := float64(before + from + n - 1)
					in := []*array{
						{name: "qkv", dtype: models.F32, shape: []int64{int64(n), int64(wide)}, data: qkv.data[from*wide : (from+n)*wide]},
						{name: "before", dtype: models.I32, shape: []int64{1}, data: []float64{last}}, {name: "total", dtype: models.I32, data: []float64{last + 1}}, &k, &v,
					}
					if c.turned {
						in = append(in, cos, sin)
					}
					out := &array{name: "out", dtype: models.F32, shape: []int64{int64(n), int64(c.heads) * width}}
					runOp(t, env, "FloatAttend", attrs, in, []*array{out, &k, &v})
					all = append(all, out.data...)
				}
				return slices.Concat(all, k.data, v.data)
			}
			want := run(1)
			for _, at := range []int{2, 49, tokens} {
				if i := sameBits(run(at), want); i >= 0 {
					t.Errorf("%+v by %s, %d tokens at a time: other bits at %d than one by one", c, kind, at, i)
				}
			}
		}
	}
}
