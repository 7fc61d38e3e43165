package runtime_test

import (
	"math"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"unsafe"

	"onering/models"
	"onering/models/onnx"
	"onering/runtime"
	"onering/runtime/runtimetest"
)

// one is a graph of one node, with the given attributes.
func one(op string, in []models.Port, out models.Port, attrs ...onnx.Attr) models.Program {
	n := onnx.Node{Op: op, Outputs: []string{out.Name}, Attrs: attrs}
	for _, p := range in {
		n.Inputs = append(n.Inputs, p.Name)
	}
	return program(op, []onnx.Node{n}, in, []models.Port{out})
}

func port(name string, d models.DType, shape ...string) models.Port {
	return models.Port{Name: name, DType: d, Shape: shape}
}

// same copies a tensor through Identity and returns the output.
func same[T runtime.Element](t *testing.T, e *runtime.Env, d models.DType, in []T, port0 []string, shape ...int64) []T {
	t.Helper()
	out := make([]T, len(in))
	r := bind(t, e, one("Identity", []models.Port{port("x", d, port0...)}, port("y", d, port0...)),
		map[string]*runtime.Value{"x": value(t, in, shape...)}, map[string]*runtime.Value{"y": value(t, out, shape...)})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	return out
}

func equal[T comparable](t *testing.T, got, want []T) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("element %d: got %v, want %v", i, got[i], want[i])
		}
	}
}

func TestElementTypes(t *testing.T) {
	e := runtimetest.Test(t)
	n := []string{"N"}
	equal(t, same(t, e, models.F32, []float32{1.5, -2, math.MaxFloat32}, n, 3), []float32{1.5, -2, math.MaxFloat32})
	equal(t, same(t, e, models.F64, []float64{math.Pi, -1e300}, n, 2), []float64{math.Pi, -1e300})
	equal(t, same(t, e, models.I64, []int64{math.MinInt64, 7}, n, 2), []int64{math.MinInt64, 7})
	equal(t, same(t, e, models.I32, []int32{math.MaxInt32, -7}, n, 2), []int32{math.MaxInt32, -7})
	equal(t, same(t, e, models.U8, []uint8{0, 255}, n, 2), []uint8{0, 255})
	equal(t, same(t, e, models.Bool, []bool{true, false, true}, n, 3), []bool{true, false, true})
}

// TestHalves reads bfloat16 as bytes and casts to float32.
func TestHalves(t *testing.T) {
	e := runtimetest.Test(t)
	half := []uint16{0x3fc0, 0xc000, 0x4049} // 1.5, -2, 3.140625
	x := must(runtime.NewTensor(models.BF16, unsafe.Slice((*byte)(unsafe.Pointer(&half[0])), 6), 3))(t)
	defer x.Close()
	y := make([]float32, 3)
	r := bind(t, e, one("Cast", []models.Port{port("x", models.BF16, "N")}, f32("y", "N"), onnx.Attr{Name: "to", Value: int64(models.F32)}),
		map[string]*runtime.Value{"x": x}, map[string]*runtime.Value{"y": value(t, y, 3)})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	equal(t, y, []float32{1.5, -2, 3.140625})
}

// TestScalarsAndEmpty runs tensors with no dimensions and with no elements.
func TestScalarsAndEmpty(t *testing.T) {
	e := runtimetest.Test(t)
	equal(t, same(t, e, models.F32, []float32{42}, nil), []float32{42})
	equal(t, same(t, e, models.F32, []float32{}, []string{"N", "3"}, 0, 3), nil)
	equal(t, same[float32](t, e, models.F32, nil, []string{"N", "3"}, 0, 3), nil)
	// An empty tensor and one with elements.
	y := make([]float32, 2)
	r := bind(t, e, one("Concat", []models.Port{f32("a", "A"), f32("b", "B")}, f32("y", "N"), onnx.Attr{Name: "axis", Value: int64(0)}),
		map[string]*runtime.Value{"a": value[float32](t, nil, 0), "b": value(t, []float32{1, 2}, 2)}, map[string]*runtime.Value{"y": value(t, y, 2)})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	equal(t, y, []float32{1, 2})
}

// TestViews runs on parts of one slice: a run changes only the part it writes.
func TestViews(t *testing.T) {
	e := runtimetest.Test(t)
	arena := []float32{1, 2, 3, 4, 5, 6, 7, 8}
	y := value(t, arena[4:6], 2)
	r := bind(t, e, add(), map[string]*runtime.Value{"x": value(t, arena[0:2], 2), "y": value(t, arena[2:4], 2)}, map[string]*runtime.Value{"z": y})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	equal(t, arena, []float32{1, 2, 3, 4, 4, 6, 7, 8})
	arena[0] = 10 // The next Run reads this: nothing was copied.
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	equal(t, arena, []float32{10, 2, 3, 4, 13, 6, 7, 8})
}

func TestValueErrors(t *testing.T) {
	runtimetest.Test(t)
	odd := make([]byte, 9)
	start := 0
	if uintptr(unsafe.Pointer(&odd[0]))%2 == 0 {
		start = 1
	}
	for _, c := range []struct {
		want string
		make func() (*runtime.Value, error)
	}{
		{"a F32 tensor of shape [2 3] takes 6 elements, not 5", func() (*runtime.Value, error) { return runtime.NewValue(make([]float32, 5), 2, 3) }},
		{"takes 1 elements, not 0", func() (*runtime.Value, error) { return runtime.NewValue([]int64{}) }},
		{"negative dimension", func() (*runtime.Value, error) { return runtime.NewValue(make([]float32, 6), -2, -3) }},
		{"too large", func() (*runtime.Value, error) { return runtime.NewValue([]float32{}, math.MaxInt64, 4) }},
		{"type invalid", func() (*runtime.Value, error) { return runtime.NewTensor(models.Invalid, nil, 0) }},
		{"multiple of 4 bytes", func() (*runtime.Value, error) { return runtime.NewTensor(models.F32, odd[start:start+4], 1) }},
	} {
		v, err := c.make()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, %v; want %q", v, err, c.want)
		}
	}
}

// TestForgottenValues leaves Values to the garbage collector, which must unpin their
// memory: Go panics if it is still pinned.
func TestForgottenValues(t *testing.T) {
	runtimetest.Test(t)
	for range 100 {
		must(runtime.NewValue(make([]float32, 1000), 1000))(t)
	}
	for range 3 {
		goruntime.GC()
	}
}

// TestBoundValuesLive drops all references to the Values except the Binding's.
func TestBoundValuesLive(t *testing.T) {
	e := runtimetest.Test(t)
	z := make([]float32, 1000)
	make1000 := func(x float32) *runtime.Value {
		data := make([]float32, 1000)
		for i := range data {
			data[i] = x
		}
		return must(runtime.NewValue(data, 1000))(t)
	}
	r := bind(t, e, add(), map[string]*runtime.Value{"x": make1000(1), "y": make1000(2)}, map[string]*runtime.Value{"z": value(t, z, 1000)})
	for range 3 {
		goruntime.GC()
		_ = make([]float32, 1<<16) // New allocations would reuse the memory of freed Values.
		if err := r.Run(); err != nil {
			t.Fatal(err)
		}
		for i := range z {
			if z[i] != 3 {
				t.Fatalf("z[%d] = %v, want 3", i, z[i])
			}
		}
	}
}

// TestMappedMemory runs on a mapped file, which is not Go's memory.
func TestMappedMemory(t *testing.T) {
	e := runtimetest.Test(t)
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40}, 0o644); err != nil { // 1, 2
		t.Fatal(err)
	}
	data := mapFile(t, path, 8)
	z := make([]float32, 2)
	x := must(runtime.NewTensor(models.F32, data, 2))(t)
	defer x.Close()
	r := bind(t, e, add(), map[string]*runtime.Value{"x": x, "y": x}, map[string]*runtime.Value{"z": value(t, z, 2)})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	equal(t, z, []float32{2, 4})
}
