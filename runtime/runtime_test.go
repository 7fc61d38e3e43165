package runtime_test

import (
	"slices"
	"testing"

	"onering/models"
	"onering/models/onnx"
	"onering/runtime"
	"onering/runtime/runtimetest"
)

var elemTypes = map[models.DType]models.DType{
	models.F32: models.F32, models.F64: models.F64, models.I64: models.I64, models.I32: models.I32,
	models.U8: models.U8, models.Bool: models.Bool, models.F16: models.F16, models.BF16: models.BF16,
}

// program makes a Program of nodes and ports.
func program(name string, nodes []onnx.Node, in, out []models.Port) models.Program {
	return models.Program{Name: name, Nodes: nodes, Inputs: in, Outputs: out}
}

func f32(name string, shape ...string) models.Port {
	return models.Port{Name: name, DType: models.F32, Shape: shape}
}

// gemm is Y[M,O] = X[M,I] W[O,I]^T + C[M,O], with Y an alias of C.
func gemm() models.Program {
	p := program("gemm", []onnx.Node{{Op: "Gemm", Inputs: []string{"x", "w", "c"}, Outputs: []string{"y"},
		Attrs: []onnx.Attr{{Name: "transB", Value: int64(1)}}}},
		[]models.Port{f32("x", "M", "I"), f32("w", "O", "I"), f32("c", "M", "O")}, []models.Port{f32("y", "M", "O")})
	p.Alias = map[string]string{"y": "c"}
	return p
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func value[T runtime.Element](t testing.TB, data []T, shape ...int64) *runtime.Value {
	t.Helper()
	v := must(runtime.NewValue(data, shape...))(t)
	t.Cleanup(v.Close)
	return v
}

// bind loads p and binds the values, given by name, to its ports.
func bind(t testing.TB, e *runtime.Env, p models.Program, in, out map[string]*runtime.Value) *runtime.Binding {
	t.Helper()
	s := must(e.Load(p))(t)
	t.Cleanup(func() { s.Close() })
	b := must(s.NewBinding())(t)
	for name, v := range in {
		if err := b.Input(name, v); err != nil {
			t.Fatal(err)
		}
	}
	for name, v := range out {
		if err := b.Output(name, v); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func TestRunAccumulatesInPlace(t *testing.T) {
	e := runtimetest.Test(t)
	x, w, c := []float32{1, 2, 3, 4}, []float32{1, 0, 1, 1, 2, 0}, []float32{10, 20, 30, 40, 50, 60}
	cv := value(t, c, 2, 3)
	b := bind(t, e, gemm(), map[string]*runtime.Value{"x": value(t, x, 2, 2), "w": value(t, w, 3, 2), "c": cv}, map[string]*runtime.Value{"y": cv})
	for range 2 {
		if err := b.Run(); err != nil {
			t.Fatal(err)
		}
	}
	// x w^T is [[1 3 2] [3 7 6]]; two runs add it twice.
	if want := []float32{12, 26, 34, 46, 64, 72}; !slices.Equal(c, want) {
		t.Errorf("c = %v, want %v", c, want)
	}
}

// clipAndUpdate takes an update at a learning rate with the gradients clipped to a norm of 1 and
// returns the norm before.
func clipAndUpdate(o *runtime.Optimizer, rate float64) (norm float64, err error) {
	if norm, err = o.GradNorm(); err != nil {
		return 0, err
	}
	return norm, o.Update(rate, min(1, 1/(norm+1e-6)))
}
