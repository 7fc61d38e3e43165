package rl

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onering/data"
	"onering/models"
	"onering/policy"
	ort "onering/runtime"
	"onering/runtime/runtimetest"
)

// stepOnce does the same as `onering step` with a batch, and returns the report and the
// gradients in the file that --grads names.
func stepOnce(t *testing.T, dtype string, change func(*Step)) (report stepReport, gradients []float32, err error) {
	t.Helper()
	env := runtimetest.Test(t)
	policy, err := policy.Open(env, policy.Options{Path: data.Arithmetic, DType: dtype})
	if err != nil {
		t.Fatal(err)
	}
	defer policy.Close()
	r := rand.New(rand.NewPCG(1, 2))
	o := NewStep()
	for range 24 {
		tokens := make([]int32, 8+r.IntN(30))
		for i := range tokens {
			tokens[i] = int32(r.IntN(15))
		}
		w := make([]float64, len(tokens)-4)
		for i := range w {
			w[i] = r.NormFloat64() / 1e7 // These gradients are too small for float16 without a loss scale.
		}
		s := ort.NewSequence(tokens[:4], tokens[4:])
		o.batch.Sequences, o.batch.Weights = append(o.batch.Sequences, s), append(o.batch.Weights, w)
	}
	dir := t.TempDir()
	o.Out, o.Grads = filepath.Join(dir, "out"), filepath.Join(dir, "grads")
	change(o)
	if report, err = o.Take(context.Background(), policy); err != nil {
		if _, missing := os.Stat(o.Out); !errors.Is(missing, fs.ErrNotExist) {
			t.Errorf("a step that failed has written %s: %v", o.Out, missing)
		}
		return report, nil, err
	}
	if _, err := os.Stat(filepath.Join(o.Out, "state", "exp_avg.safetensors")); err != nil {
		t.Error(err)
	}
	f, err := models.OpenSafetensors(o.Grads)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, name := range f.Names() {
		info, _ := f.Info(name)
		n := 1
		for _, d := range info.Shape {
			n *= d
		}
		data := make([]float32, n)
		if err := f.ReadFloat32(name, data, 0); err != nil {
			t.Fatal(err)
		}
		gradients = append(gradients, data...)
	}
	return report, gradients, nil
}

// sameStep wants the figures of two steps to be equal within rounding.
func sameStep(t *testing.T, name string, got, want stepReport, g, wantG []float32, off float64) {
	t.Helper()
	if math.Abs(got.Loss-want.Loss) > off*math.Abs(want.Loss) || math.Abs(got.GradNorm-want.GradNorm) > off*want.GradNorm || got.Tokens != want.Tokens {
		t.Errorf("%s: %+v, want %+v", name, got, want)
	}
	d, norm := 0.0, 0.0
	for i := range wantG {
		d += (float64(g[i]) - float64(wantG[i])) * (float64(g[i]) - float64(wantG[i]))
		norm += float64(wantG[i]) * float64(wantG[i])
	}
	if !(d <= off*off*norm) || norm == 0 {
		t.Errorf("%s: gradients are %.2g of their norm off", name, math.Sqrt(d/norm))
	}
}

// If memory runs out the batch is computed again in smaller micro-batches; if
// micro-batches cannot be smaller, no file is written.
func TestStepMemoryEnds(t *testing.T) {
	want, wantG, err := stepOnce(t, "float32", func(*Step) {})
	if err != nil {
		t.Fatal(err)
	}
	noMemory := errors.New("bad allocation")
	var log bytes.Buffer
	got, g, err := stepOnce(t, "float32", func(o *Step) {
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		o.BeforePass = func(tokens int) error {
			if tokens > 200 {
				return noMemory
			}
			return nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	sameStep(t, "small micro-batches", got, want, g, wantG, 1e-5)
	if !strings.Contains(log.String(), "micro-batches are halved") {
		t.Errorf("log:\n%s", &log)
	}
	if _, _, err := stepOnce(t, "float32", func(o *Step) { o.BeforePass = func(int) error { return noMemory } }); !errors.Is(err, noMemory) {
		t.Errorf("error %v", err)
	}
}

// In float16 the loss is scaled: the written gradients and the norm do not contain the
// scale, and gradients too small for float16 are not lost.
func TestStepFloat16(t *testing.T) {
	want, wantG, err := stepOnce(t, "float32", func(*Step) {})
	if err != nil {
		t.Fatal(err)
	}
	got, g, err := stepOnce(t, "float16", func(*Step) {})
	if err != nil {
		t.Fatal(err)
	}
	sameStep(t, "float16", got, want, g, wantG, 0.05)
}
