package runtime

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"onering/models"
	"onering/models/onnx"
)

// An array is an input or a result of an operator, as float64 whatever its type.
type array struct {
	name  string
	dtype models.DType
	shape []int64
	data  []float64
}

func (a array) size() int { return sizeOfShape(a.shape) }

func sizeOfShape(shape []int64) int {
	n := 1
	for _, d := range shape {
		n *= int(d)
	}
	return n
}

// encode returns the bytes of the elements, rounded to the type, and rounds data.
func (a *array) encode() []byte {
	raw := make([]byte, a.size()*a.dtype.Size())
	singles := make([]float32, a.size())
	for i, x := range a.data {
		singles[i] = float32(x)
	}
	switch a.dtype {
	case models.I8, models.U8:
		for i, x := range a.data {
			raw[i] = byte(int(x))
		}
		return raw
	case models.I32:
		for i, x := range a.data {
			*(*int32)(unsafe.Pointer(&raw[4*i])) = int32(x)
		}
		return raw
	case models.I64:
		for i, x := range a.data {
			*(*int64)(unsafe.Pointer(&raw[8*i])) = int64(x)
		}
		return raw
	case models.F32:
		copy(raw, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(singles))), len(raw)))
	default:
		models.Encode(raw, singles, a.dtype)
	}
	a.decode(raw)
	return raw
}

func (a *array) decode(raw []byte) {
	a.data = make([]float64, a.size())
	for i := range a.data {
		switch at := unsafe.Pointer(&raw[i*a.dtype.Size()]); a.dtype {
		case models.I64:
			a.data[i] = float64(*(*int64)(at))
		case models.F32:
			a.data[i] = float64(*(*float32)(at))
		case models.F16:
			a.data[i] = float64(models.F16ToFloat32(*(*uint16)(at)))
		case models.BF16:
			a.data[i] = float64(models.BF16ToFloat32(*(*uint16)(at)))
		}
	}
}

// runOp runs one operator of package kernels on a device. An output with the name of an
// input shares its memory. Inputs are rounded to their types, and results are set. An input without
// a name is left out.
func runOp(t *testing.T, env *Env, op string, attrs []onnx.Attr, in []*array, out []*array) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", op, err)
		}
	}
	p := models.Program{Name: op, Alias: map[string]string{}}
	node := onnx.Node{Op: op, Domain: "onering", Attrs: attrs}
	places := map[string]*Value{}
	for _, a := range in {
		if node.Inputs = append(node.Inputs, a.name); a.name == "" {
			continue
		}
		p.Inputs = append(p.Inputs, portOf(a.name, a.dtype, shapeText(a.shape)...))
		raw := a.encode()
		if len(a.shape) == 0 && a.dtype == models.I32 { // on the host
			v, err := NewValue([]int32{int32(a.data[0])})
			must(err)
			defer v.Close()
			places[a.name] = v
			continue
		}
		b := env.buffer(a.dtype)
		v, err := b.resize(a.shape...)
		must(err)
		defer b.close()
		must(env.memory.Upload(v.data, unsafe.Pointer(unsafe.SliceData(raw)), len(raw)))
		places[a.name] = v
	}
	for _, a := range out {
		name := a.name + ".out"
		p.Outputs = append(p.Outputs, portOf(name, a.dtype, shapeText(a.shape)...))
		node.Outputs = append(node.Outputs, name)
		if v, ok := places[a.name]; ok {
			p.Alias[name], places[name] = a.name, v
			continue
		}
		b := env.buffer(a.dtype)
		v, err := b.resize(a.shape...)
		must(err)
		defer b.close()
		places[name] = v
	}
	p.Nodes = []onnx.Node{node}
	binding, err := loadBinding(env, p)
	must(err)
	defer closeSessions(binding)
	b := binding.begin()
	for _, a := range in {
		if a.name != "" {
			b.in(a.name, places[a.name], nil)
		}
	}
	for _, a := range out {
		b.out(a.name+".out", places[a.name+".out"], nil)
	}
	must(b.run())
	for _, a := range out {
		raw := make([]byte, a.size()*a.dtype.Size())
		must(env.memory.Download(unsafe.Pointer(unsafe.SliceData(raw)), places[a.name+".out"].data, len(raw)))
		a.decode(raw)
	}
}

func shapeText(shape []int64) (text []string) {
	for _, d := range shape {
		text = append(text, fmt.Sprint(d))
	}
	return text
}

// onKernels runs a test on a device with kernels: a GPU, or the CPU with kernels compiled
// from their source. h is a type of 16 bits, unit the distance of its numbers just above
// 1, and suffix ends the names of operators in it.
func onKernels(t *testing.T, test func(t *testing.T, env *Env, h models.DType, unit float64, suffix string, random func(name string, d models.DType, shape ...int64) *array)) {
	for _, env := range []*Env{openOn(t, devices[0]), openOn(t, "stand-in-kernels")} {
		onKernelsOf(t, env, test)
		if env.memory.Kernels.Squaring() {
			return
		}
	}
}

func onKernelsOf(t *testing.T, env *Env, test func(t *testing.T, env *Env, h models.DType, unit float64, suffix string, random func(name string, d models.DType, shape ...int64) *array)) {
	for suffix, h := range map[string]models.DType{"BFloat16": models.BF16, "Float16": models.F16} {
		if env.memory == host && h != models.BF16 {
			continue
		}
		t.Run(env.Device()+"/"+suffix, func(t *testing.T) {
			r := rand.New(rand.NewPCG(5, 6))
			unit := map[models.DType]float64{models.BF16: 0x1p-7, models.F16: 0x1p-10}[h]
			test(t, env, h, unit, suffix, func(name string, d models.DType, shape ...int64) *array {
				a := &array{name: name, dtype: d, shape: shape, data: make([]float64, sizeOfShape(shape))}
				for i := range a.data {
					a.data[i] = r.NormFloat64()
				}
				return a
			})
		})
	}
}

// near compares a result with the expected one, by error relative to scale and the type's
// half unit.
func near(t *testing.T, what string, got *array, want []float64, unit float64) {
	t.Helper()
	worst, at := 0.0, 0
	for i, x := range want {
		if e := math.Abs(got.data[i]-x) / (0.01 + math.Abs(x)); !(e <= worst) {
			worst, at = e, i
		}
	}
	if tolerance := map[bool]float64{true: 5e-5, false: 0.6 * unit}[got.dtype == models.F32]; !(worst <= tolerance) {
		t.Errorf("%s[%d] = %v, want %v", what, at, got.data[at], want[at])
	}
}

func silu(x float64) float64 { return x / (1 + math.Exp(-x)) }

// TestKernels compares the operators with float64.
func TestKernels(t *testing.T) {
	onKernels(t, func(t *testing.T, env *Env, h models.DType, unit float64, suffix string, random func(string, models.DType, ...int64) *array) {
		f, eps := models.F32, []onnx.Attr{{Name: "epsilon", Value: float32(1e-5)}}
		result := func(d models.DType, shape ...int64) *array { return random(fmt.Sprint("y", rand.Int()), d, shape...) }
		for _, size := range [][2]int64{{1, 4}, {3, 64}, {5, 1536}, {2, 3584}} {
			n, d := int(size[0]), int(size[1])
			x, w, dy, onto := random("x", f, size[:]...), random("w", f, size[1]), random("dy", h, size[:]...), random("onto", f, size[:]...)
			y, dx, dw := result(h, size[:]...), result(f, size[:]...), result(f, size[1])
			runOp(t, env, "Norm"+suffix, eps, []*array{x, w}, []*array{y})
			runOp(t, env, "NormGrad"+suffix, eps, []*array{x, w, dy, onto}, []*array{dx, dw})
			wantY, wantX, wantW := make([]float64, n*d), make([]float64, n*d), make([]float64, d)
			for i := range n {
				square, dot := 0.0, 0.0
				for j := range d {
					square += x.data[i*d+j] * x.data[i*d+j]
					dot += dy.data[i*d+j] * w.data[j] * x.data[i*d+j]
				}
				r := 1 / math.Sqrt(square/float64(d)+float64(float32(1e-5)))
				for j := range d {
					k := i*d + j
					wantY[k] = x.data[k] * r * w.data[j]
					wantX[k] = onto.data[k] + r*(dy.data[k]*w.data[j]-x.data[k]*r*r*dot/float64(d))
					wantW[j] += dy.data[k] * x.data[k] * r
				}
			}
			near(t, "norm", y, wantY, unit)
			near(t, "dx of norm", dx, wantX, unit)
			near(t, "dw of norm", dw, wantW, unit)
		}
		for _, size := range [][2]int64{{1, 8}, {3, 72}, {7, 896}} {
			gate, up, dy := random("gate", h, size[:]...), random("up", h, size[:]...), random("dy", h, size[:]...)
			y, dg, du := result(h, size[:]...), result(h, size[:]...), result(h, size[:]...)
			runOp(t, env, "SwiGLU"+suffix, nil, []*array{gate, up}, []*array{y})
			runOp(t, env, "SwiGLUGrad"+suffix, nil, []*array{gate, up, dy}, []*array{dg, du})
			var wantY, wantG, wantU []float64
			for i, g := range gate.data {
				s := 1 / (1 + math.Exp(-g))
				wantY = append(wantY, silu(g)*up.data[i])
				wantG = append(wantG, dy.data[i]*up.data[i]*s*(1+g*(1-s)))
				wantU = append(wantU, dy.data[i]*silu(g))
			}
			near(t, "swiglu", y, wantY, unit)
			near(t, "dgate", dg, wantG, unit)
			near(t, "dup", du, wantU, unit)
		}
		testProducts(t, env, h, unit, suffix, random)
		testSoftmax(t, env, random)
		testHead(t, env, h, unit, suffix, random)
		testRows(t, env, h, unit, suffix, random)
	})
}

func testProducts(t *testing.T, env *Env, h models.DType, unit float64, suffix string, random func(string, models.DType, ...int64) *array) {
	const n, in, out = 5, 48, 24
	x, w, w2, b, sum, dy, grad := random("x", h, n, in), random("w", h, out, in), random("w2", h, out, in), random("b", h, out), random("sum", models.F32, n, out), random("dy", h, n, out), random("grad", models.F32, out, in)
	y, z, both := random("y", h, n, out), random("z", models.F32, n, out), random("both", h, n, out)
	runOp(t, env, "Product"+suffix, nil, []*array{x, w, b}, []*array{y})
	runOp(t, env, "ProductOnto"+suffix, nil, []*array{x, w, sum}, []*array{z})
	runOp(t, env, "GateUp"+suffix, nil, []*array{x, w, w2}, []*array{both})
	before := append([]float64{}, grad.data...)
	for i := range before {
		before[i] = float64(float32(before[i]))
	}
	runOp(t, env, "OuterOnto"+suffix, nil, []*array{dy, x, grad}, []*array{grad}) // in its place
	dot := func(a, b []float64) (s float64) {
		for i := range a {
			s += a[i] * b[i]
		}
		return s
	}
	round := func(v float64) float64 {
		a := &array{dtype: h, shape: []int64{1}, data: []float64{v}}
		a.encode()
		return a.data[0]
	}
	var wantY, wantZ, wantBoth, wantGrad []float64
	for i := range n {
		for j := range out {
			row := x.data[i*in : (i+1)*in]
			p := dot(row, w.data[j*in:(j+1)*in])
			wantY, wantZ = append(wantY, p+b.data[j]), append(wantZ, p+sum.data[i*out+j])
			wantBoth = append(wantBoth, silu(round(p))*round(dot(row, w2.data[j*in:(j+1)*in])))
		}
	}
	for j := range out {
		for k := range in {
			s := before[j*in+k]
			for i := range n {
				s += dy.data[i*out+j] * x.data[i*in+k]
			}
			wantGrad = append(wantGrad, s)
		}
	}
	near(t, "product", y, wantY, unit)
	near(t, "product onto", z, wantZ, unit)
	near(t, "gate and up", both, wantBoth, 4*unit) // Their products may be rounded to the other side.
	near(t, "outer onto", grad, wantGrad, unit)
}

// testRows tests heads that are turned, and back, and rows that are gathered.
func testRows(t *testing.T, env *Env, h models.DType, unit float64, suffix string, random func(string, models.DType, ...int64) *array) {
	const n, heads, width, places = 5, 3, 32, 7
	x, pos, cos, sin := random("x", h, n, heads*width), random("pos", models.I64, n, 1), random("cos", models.F32, places, width/2), random("sin", models.F32, places, width/2)
	at, valid := random("at", models.I64, 2, 3), random("valid", models.F32, 2, 3, 1)
	for i := range pos.data {
		pos.data[i] = float64(i * 3 % places)
	}
	for i := range at.data {
		at.data[i], valid.data[i] = float64(i*2%n), float64(min(i%3, 1))
	}
	for _, sign := range []int64{1, -1} {
		y := random("y", h, n, heads*width)
		runOp(t, env, "Turn"+suffix, []onnx.Attr{{Name: "turned", Value: sign}}, []*array{x, pos, cos, sin}, []*array{y})
		want := make([]float64, len(x.data))
		for i := range want {
			angle, first := int(pos.data[i/(heads*width)])*width/2+i%(width/2), i%width < width/2
			other, s := i+width/2, -float64(sign)*sin.data[angle]
			if !first {
				other, s = i-width/2, -s
			}
			want[i] = x.data[i]*cos.data[angle] + x.data[other]*s
		}
		near(t, "turned heads", y, want, unit)
	}
	for _, in := range [][]*array{{x, at}, {x, at, valid}} {
		y, want := random("y", h, 2, 3, heads*width), []float64{}
		runOp(t, env, "Rows"+suffix, nil, in, []*array{y})
		for i, row := range at.data {
			for j := range heads * width {
				v := x.data[int(row)*heads*width+j]
				if len(in) == 3 {
					v *= valid.data[i]
				}
				want = append(want, v)
			}
		}
		near(t, "rows", y, want, unit)
	}
}

func testSoftmax(t *testing.T, env *Env, random func(string, models.DType, ...int64) *array) {
	for _, size := range []int64{3, 130, 9000} {
		t0 := min(size, 3)
		s, mask, dp := random("s", models.F32, 2, t0, size), random("mask", models.F32, t0, size), random("dp", models.F32, 2, t0, size)
		for i := range mask.data {
			mask.data[i] = 0
			if j := i % int(size); j > i/int(size) && j%3 != 0 {
				mask.data[i] = -math.MaxFloat32
			}
		}
		p, ds, d := random("p", models.F32, 2, t0, size), random("ds", models.F32, 2, t0, size), random("d", models.F32, 2, t0, 1)
		q := &array{name: "q", dtype: models.F32, shape: p.shape}
		runOp(t, env, "MaskedSoftmax", nil, []*array{s, mask}, []*array{q})
		want := make([]float64, len(s.data))
		for row := range 2 * int(t0) {
			sum := 0.0
			for pass := range 2 {
				for j := range int(size) {
					e := math.Exp(s.data[row*int(size)+j])
					if mask.data[row%int(t0)*int(size)+j] < 0 {
						e = 0
					}
					if pass == 0 {
						sum += e
					} else {
						want[row*int(size)+j] = e / sum
					}
				}
			}
		}
		near(t, "softmax", q, want, 0)
		p.data = want
		runOp(t, env, "SoftmaxGrad", nil, []*array{p, dp, d}, []*array{ds})
		for i, x := range p.data {
			want[i] = x * (dp.data[i] - d.data[i/int(size)])
		}
		near(t, "gradient of softmax", ds, want, 0)
	}
}

func testHead(t *testing.T, env *Env, h models.DType, unit float64, suffix string, random func(string, models.DType, ...int64) *array) {
	for _, n := range []int64{1, 126, 5000} {
		const rows = 3
		x, z, u, w := random("x", models.F32, rows, n), random("z", models.F32, rows, 1), random("u", models.F32, rows, 1), random("w", models.F32, rows, 1)
		z.data[1] = -1e30 // nothing before
		at, own := random("at", models.I64, rows, 2), random("own", models.F32, rows)
		for i := range rows {
			at.data[2*i], at.data[2*i+1] = float64(i), float64(int64(i)*n/rows)
		}
		z1, u1, d := random("z1", models.F32, rows, 1), random("u1", models.F32, rows, 1), random("d", models.F32, rows, n)
		runOp(t, env, "HeadSums", nil, []*array{x, z, u}, []*array{z1, u1})
		var wantZ, wantU, wantD []float64
		for i := range rows {
			sum, weighted := math.Exp(z.data[i]), math.Exp(z.data[i])*u.data[i]
			for _, logit := range x.data[i*int(n) : (i+1)*int(n)] {
				sum += math.Exp(logit)
				weighted += math.Exp(logit) * logit
			}
			wantZ, wantU = append(wantZ, math.Log(sum)), append(wantU, weighted/sum)
		}
		near(t, "log-sum-exp", z1, wantZ, 0)
		near(t, "mean logit", u1, wantU, 0)
		z.data[1] = 1
		runOp(t, env, "HeadGrad", nil, []*array{x, z, w, at, own}, []*array{d})
		short := random("short", h, rows, n)
		runOp(t, env, "HeadGradShort"+suffix, nil, []*array{x, z, w, at, own}, []*array{short})
		for i, logit := range x.data {
			row := i / int(n)
			y := -w.data[row] * math.Exp(logit-z.data[row])
			if i%int(n) == int(at.data[2*row+1]) {
				y += own.data[row]
			}
			wantD = append(wantD, y)
		}
		near(t, "gradient of logits", d, wantD, 0)
		near(t, "gradient of logits in 16 bits", short, wantD, unit)
	}
}

// TestAttend compares attention of a new token with float64: heads of several widths and
// groups, rows whose cache is in one split and in several, and the new key and value.
func TestAttend(t *testing.T) {
	onKernels(t, func(t *testing.T, env *Env, h models.DType, unit float64, suffix string, random func(string, models.DType, ...int64) *array) {
		for _, c := range []struct{ rows, heads, groups, width, capacity, turned int64 }{{3, 12, 2, 128, 600, 1}, {2, 7, 1, 64, 300, 1}, {2, 2, 2, 16, 40, 0}, {1, 16, 1, 80, 270, 1}} {
			all := (c.heads + 2*c.groups) * c.width
			qkv := random("qkv", h, c.rows, all)
			keys, values := random("keys", h, c.rows, c.groups, c.capacity, c.width), random("values", h, c.rows, c.groups, c.capacity, c.width)
			before, total := random("before", models.I32, c.rows), random("total", models.I32)
			for i := range before.data {
				before.data[i] = float64([]int64{c.capacity - 1, 0, c.capacity / 3}[i])
			}
			total.data[0] = float64(c.capacity)
			cos, sin := random("cos", models.F32, c.capacity, c.width/2), random("sin", models.F32, c.capacity, c.width/2)
			out := random("out", h, c.rows, c.heads*c.width)
			attrs := []onnx.Attr{{Name: "heads", Value: c.heads}, {Name: "groups", Value: c.groups}, {Name: "turned", Value: c.turned}, {Name: "scale", Value: float32(1 / math.Sqrt(float64(c.width)))}}
			for _, a := range []*array{keys, values} { // the keys and values before the step, rounded
				a.encode()
			}
			k, v := append([]float64{}, keys.data...), append([]float64{}, values.data...)
			runOp(t, env, "Attend"+suffix, attrs, []*array{qkv, before, total, keys, values, cos, sin}, []*array{out, keys, values})
			want := attending{int(c.rows), int(c.heads), int(c.groups), int(c.width), int(c.capacity), c.turned == 1, 0, 0}.attend(h, qkv.data, before.data, k, v, cos.data, sin.data)
			name := strings.Trim(fmt.Sprint(c), "{}")
			near(t, "attention of "+name, out, want, 2*unit)
			near(t, "keys of "+name, keys, k, unit)
			near(t, "values of "+name, values, v, unit)
		}
	})
}

// An attending has the sizes of attention over a cache; no window and no cap are 0.
type attending struct {
	rows, heads, groups, width, capacity int
	turned                               bool
	window                               int
	cap                                  float64
}

// attend is attention in float64 with heads rounded to a type; it puts the new keys and values.
func (a attending) attend(h models.DType, qkv, before, keys, values, cos, sin []float64) (out []float64) {
	rows, heads, groups, width, capacity, turned := a.rows, a.heads, a.groups, a.width, a.capacity, a.turned
	turn := func(head []float64, at int) []float64 {
		y := append([]float64{}, head...)
		for i := range width / 2 {
			if c, s := cos[at*width/2+i], sin[at*width/2+i]; turned {
				y[i], y[i+width/2] = head[i]*c-head[i+width/2]*s, head[i+width/2]*c+head[i]*s
			}
		}
		a := &array{dtype: h, shape: []int64{int64(width)}, data: y}
		a.encode()
		return a.data
	}
	for b := range rows {
		pos, row := int(before[b]), qkv[b*(heads+2*groups)*width:]
		for g := range groups {
			at := (b*groups+g)*capacity*width + pos*width
			copy(keys[at:at+width], turn(row[(heads+g)*width:(heads+g+1)*width], pos))
			copy(values[at:at+width], row[(heads+groups+g)*width:(heads+groups+g+1)*width])
		}
		for q := range heads {
			head, first := turn(row[q*width:(q+1)*width], pos), (b*groups+q/(heads/groups))*capacity*width
			sum, o := 0.0, make([]float64, width)
			for j := range pos + 1 {
				if a.window > 0 && j <= pos-a.window {
					continue
				}
				score := 0.0
				for i, x := range head {
					score += x * keys[first+j*width+i]
				}
				if score /= math.Sqrt(float64(width)); a.cap > 0 {
					score = a.cap * math.Tanh(score/a.cap)
				}
				e := math.Exp(score)
				sum += e
				for i := range o {
					o[i] += e * values[first+j*width+i]
				}
			}
			for _, x := range o {
				out = append(out, x/sum)
			}
		}
	}
	return out
}

// TestCausal compares causal attention of whole sequences, and its gradient, with float64:
// heads of several widths and groups, one tile and several, with and without a rest.
func TestCausal(t *testing.T) {
	onKernels(t, func(t *testing.T, env *Env, h models.DType, unit float64, suffix string, random func(string, models.DType, ...int64) *array) {
		for _, c := range []struct{ rows, tokens, heads, groups, width int64 }{{2, 8, 2, 1, 16}, {1, 136, 3, 1, 64}, {1, 72, 2, 2, 128}, {1, 40, 1, 1, 72}} {
			wide, slim := c.heads*c.width, c.groups*c.width
			q, k, v, dy := random("q", h, c.rows, c.tokens, wide), random("k", h, c.rows, c.tokens, slim), random("v", h, c.rows, c.tokens, slim), random("dy", h, c.rows, c.tokens, wide)
			o, dq, dk, dv := random("o", h, c.rows, c.tokens, wide), random("dq", h, c.rows, c.tokens, wide), random("dk", h, c.rows, c.tokens, slim), random("dv", h, c.rows, c.tokens, slim)
			for i := range q.data {
				q.data[i] *= 2 // so that some weights are near 1
			}
			attrs := []onnx.Attr{{Name: "heads", Value: c.heads}, {Name: "groups", Value: c.groups}, {Name: "scale", Value: float32(1 / math.Sqrt(float64(c.width)))}}
			runOp(t, env, "CausalAttention"+suffix, attrs, []*array{q, k, v}, []*array{o})
			want := causal(int(c.rows), int(c.tokens), int(c.heads), int(c.groups), int(c.width), q.data, k.data, v.data, nil, nil)
			name := strings.Trim(fmt.Sprint(c), "{}")
			near(t, "attention of "+name, o, want[0], unit)
			runOp(t, env, "CausalAttentionGrad"+suffix, attrs, []*array{q, k, v, o, dy}, []*array{dq, dk, dv})
			want = causal(int(c.rows), int(c.tokens), int(c.heads), int(c.groups), int(c.width), q.data, k.data, v.data, o.data, dy.data)
			for i, got := range []*array{dq, dk, dv} { // The gradient's terms are rounded, so errors are relative to the largest.
				worst, most := 0.0, 0.0
				for j, x := range want[1+i] {
					worst, most = max(worst, math.Abs(got.data[j]-x)), max(most, math.Abs(x))
				}
				if !(worst <= unit*most) {
					t.Errorf("%s of %s: error %v of %v", got.name, name, worst, most)
				}
			}
		}
	})
}

// causal is attention in float64, and, if o and dy are given, its gradients by q, k and v.
func causal(rows, tokens, heads, groups, width int, q, k, v, o, dy []float64) [4][]float64 {
	y := [4][]float64{make([]float64, len(q)), make([]float64, len(q)), make([]float64, len(k)), make([]float64, len(k))}
	scale := 1 / math.Sqrt(float64(width))
	dot := func(a []float64, i int, b []float64, j int) (sum float64) {
		for n := range width {
			sum += a[i+n] * b[j+n]
		}
		return sum
	}
	add := func(x float64, a []float64, i int, b []float64, j int) {
		for n := range width {
			a[i+n] += x * b[j+n]
		}
	}
	for b := range rows {
		for h := range heads {
			for t := range tokens {
				at := ((b*tokens+t)*heads + h) * width
				p, sum := make([]float64, t+1), 0.0
				key := func(u int) int { return ((b*tokens+u)*groups + h/(heads/groups)) * width }
				for u := range p {
					p[u] = math.Exp(scale * dot(q, at, k, key(u)))
					sum += p[u]
				}
				for u := range p {
					p[u] /= sum
					add(p[u], y[0], at, v, key(u))
					if dy == nil {
						continue
					}
					ds := scale * p[u] * (dot(dy, at, v, key(u)) - dot(dy, at, o, at))
					add(ds, y[1], at, k, key(u))
					add(ds, y[2], key(u), q, at)
					add(p[u], y[3], key(u), dy, at)
				}
			}
		}
	}
	return y
}

// TestChoose: tokens are drawn by the cumulative distribution, and the first likeliest one is
// chosen where there are no uniforms.
func TestChoose(t *testing.T) {
	onKernels(t, func(t *testing.T, env *Env, h models.DType, _ float64, suffix string, random func(string, models.DType, ...int64) *array) {
		if suffix != "Float16" {
			return // the operator is the same
		}
		for _, vocab := range []int64{5, 128, 1000, 40003} {
			const rows = 6
			logits, inverse, uniforms := random("logits", models.F32, rows, vocab), random("inverse", models.F32), random("uniforms", models.F32, rows)
			inverse.data[0] = 0.7
			copy(uniforms.data, []float64{0, 0.999999, 0.5, 0.25, 0.75, 0.1})
			for i := range logits.data {
				logits.data[i] *= 3
			}
			logits.data[vocab-1], logits.data[vocab-2] = 40, 40 // a tie in row 0
			for _, in := range [][]*array{{logits, inverse, uniforms}, {logits, inverse}} {
				next, logp, entropy := random("next", models.I64, rows), random("logp", models.F32, rows), random("entropy", models.F32, rows)
				runOp(t, env, "Choose", nil, in, []*array{next, logp, entropy})
				for b := range rows {
					checkChoice(t, logits.data[b*int(vocab):(b+1)*int(vocab)], inverse.data[0], uniforms.data[b], len(in) == 3, int(next.data[b]), logp.data[b], entropy.data[b])
				}
			}
		}
	})
}

func checkChoice(t *testing.T, logits []float64, inverse, uniform float64, draws bool, next int, logp, entropy float64) {
	t.Helper()
	if next < 0 || next >= len(logits) {
		t.Fatalf("token %d of %d", next, len(logits))
	}
	largest, best := math.Inf(-1), 0
	for i, x := range logits {
		if x*inverse > largest {
			largest, best = x*inverse, i
		}
	}
	var sum, weighted, before float64
	for i, x := range logits {
		e := math.Exp(x*inverse - largest)
		if i < next {
			before += e
		}
		sum += e
		weighted += e * (x*inverse - largest)
	}
	own := math.Exp(logits[next]*inverse - largest)
	if !draws && next != best {
		t.Errorf("token %d, want the likeliest, %d", next, best)
	}
	if target := uniform * sum; draws && (target < before-1e-5*sum || target > before+own+1e-5*sum) {
		t.Errorf("token %d for %v of %v: it has %v to %v", next, target, sum, before, before+own)
	}
	if want := logits[next]*inverse - largest - math.Log(sum); math.Abs(logp-want) > 2e-5*(1+math.Abs(want)) {
		t.Errorf("log-prob %v, want %v", logp, want)
	}
	if want := math.Log(sum) - weighted/sum; math.Abs(entropy-want) > 2e-5*(1+want) {
		t.Errorf("entropy %v, want %v", entropy, want)
	}
}
