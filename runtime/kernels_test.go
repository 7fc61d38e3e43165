package runtime

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"onering/models"
	"onering/models/decoder"
	"onering/models/optim/adamw"
)

// TestUpdateByKernel: a device's kernel updates weights, moments and the 16-bit copy to the
// same bits as the graph, and sums the same squares up to rounding.
func TestUpdateByKernel(t *testing.T) {
	env := openOn(t, devices[0])
	if !env.memory.Kernels.Squaring() {
		env = openOn(t, "stand-in-kernels")
	}
	for _, d := range []models.DType{models.F32, models.F16, models.BF16} {
		if d == models.BF16 && !env.memory.gpu() {
			continue // The graph's cast is the GPU's.
		}
		sizes := models.Sizes{Hidden: 24, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 16, FFN: 40, Vocab: 37, MaxPositions: 16}
		arch := decoder.Architecture{Shape: decoder.Shape{Sizes: sizes, RopeTheta: 100, RMSEps: 1e-3, Names: decoder.LlamaNames}, Compute: models.Compute{Type: d, Provider: models.CUDA}}
		kernels := env.memory.Kernels
		var found [2][][]float32
		var norms [2]float64
		for i := range 2 {
			if i == 1 {
				env.memory.Kernels = nil
			}
			found[i], norms[i] = updated(t, env, arch)
		}
		env.memory.Kernels = kernels
		if x, y := norms[0], norms[1]; !(x > 0) || x/y < 1-1e-6 || x/y > 1+1e-6 {
			t.Errorf("%v: norms %v and %v", d, x, y)
		}
		for i := range found[0] {
			if !slices.Equal(found[0][i], found[1][i]) {
				t.Errorf("%v: array %d differs", d, i)
			}
		}
	}
}

// updated returns weights and moments after three updates by random gradients, and the norm.
func updated(t *testing.T, env *Env, arch models.Architecture) ([][]float32, float64) {
	r := rand.New(rand.NewPCG(3, 4))
	random := func(w *models.Weights) {
		for i := range w.Data {
			w.Data[i] = float32(r.NormFloat64())
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w, err := models.NewWeights(arch.Layout())
	must(err)
	random(w)
	ring := NewRing(arch, w)
	defer ring.Close()
	g, err := models.NewWeights(arch.Layout())
	must(err)
	random(g)
	a, err := env.newUploadedArena(g)
	must(err)
	defer a.close()
	o, err := env.NewOptimizer(ring, g, &adamw.AdamW{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1})
	must(err)
	defer o.Close()
	for range 3 {
		must(o.Update(1e-2, 0.7))
	}
	norm, err := o.GradNorm()
	must(err)
	must(env.Download(w, o.State["exp_avg"], o.State["exp_avg_sq"]))
	all := [][]float32{w.Data, o.State["exp_avg"].Data, o.State["exp_avg_sq"].Data}
	for i := range all {
		all[i] = slices.Clone(all[i])
	}
	if c := ring.trained().roundedCopy; c.size() > 0 {
		raw := make([]float32, (c.bytes()+3)/4)
		must(env.memory.Download(unsafe.Pointer(unsafe.SliceData(raw)), c.at, c.bytes()))
		all = append(all, raw)
	}
	return all, norm
}
