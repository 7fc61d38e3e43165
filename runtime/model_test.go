package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/models"
	_ "onering/models/all"
	"onering/models/decoder"
	"onering/models/lora"
	"onering/models/optim/adamw"
	"onering/models/qwen2"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/sampler"
)

// goldens returns the folders with PyTorch's numbers for small random models of
// each family: logits, log-probs, gradients, AdamW steps and generations.
func goldens(t *testing.T) []string {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join("..", "models", "testdata", "torch", "*", "golden.json"))
	check(t, err)
	if len(folders) < 7 {
		t.Fatalf("golden models %q, want at least seven", folders)
	}
	for i, file := range folders {
		folders[i] = filepath.Dir(file)
	}
	return folders
}

// allGoldens returns the folders in ../shared too, if it exists, and the adapters' folders.
func allGoldens(t *testing.T) []string {
	t.Helper()
	folders := goldens(t)
	more, err := filepath.Glob(filepath.Join("..", "..", "shared", "goldens", "model", "*", "golden.json"))
	check(t, err)
	families, err := filepath.Glob(filepath.Join("..", "..", "shared", "goldens", "families", "*", "golden.json"))
	check(t, err)
	more = append(more, slices.DeleteFunc(families, func(file string) bool {
		config, err := os.ReadFile(filepath.Join(filepath.Dir(file), "hf", "config.json"))
		check(t, err)
		_, err = models.ParseConfig(config, nil)
		return err != nil // TestFamilies of models/all says which are not supported
	})...)
	adapters, err := filepath.Glob(filepath.Join("..", "..", "shared", "goldens", "lora", "*", "golden.json"))
	check(t, err)
	for _, file := range append(more, adapters...) {
		dir := filepath.Dir(file)
		if !slices.ContainsFunc(folders, func(have string) bool { return filepath.Base(have) == filepath.Base(dir) }) {
			folders = append(folders, dir)
		}
	}
	return folders
}

// goldensOn returns all golden folders on the CPU and with CUDA. A stand-in runs on the
// CPU's kernels: it gets few folders, an adapter's among them, or all with ONERING_LONG.
func goldensOn(t *testing.T, env *runtime.Env) []string {
	t.Helper()
	if strings.HasPrefix(env.Device(), "stand-in") {
		return fewGoldens(t)
	}
	return allGoldens(t)
}

// fewGoldens returns the folders of two families and of an adapter; with ONERING_LONG, all.
func fewGoldens(t *testing.T) []string {
	t.Helper()
	return unlessLong(allGoldens(t), "tied", "headdim-all", "llama_small")
}

// unlessLong returns the folders that have one of the names; with ONERING_LONG, all.
func unlessLong(dirs []string, names ...string) []string {
	if os.Getenv("ONERING_LONG") != "" {
		return dirs
	}
	return slices.DeleteFunc(dirs, func(dir string) bool { return !slices.Contains(names, filepath.Base(dir)) })
}

type golden struct {
	Config struct {
		Base string // for an adapter, the golden folder of its model
	} `json:"config"`
	Batch struct {
		Lengths       []int       `json:"lengths"`
		PromptLengths []int       `json:"prompt_lengths"`
		LogP          [][]float64 `json:"logp_f64"`
		Entropy       [][]float64 `json:"entropy_f64"`
		Cool          [][]float64 `json:"logp_T0.7_f64"`
	} `json:"batch"`
	AdamW map[string]struct {
		WeightDecay float64 `json:"weight_decay"`
		F32, F64    struct {
			Norm []float64 `json:"grad_norm_before_clip"`
		}
	} `json:"adamw"`
	Greedy struct {
		Max  int `json:"max_new_tokens"`
		Rows []struct {
			Prompt, Tokens []int32
			Finish         string
		} `json:"rows"`
	} `json:"greedy"`
	Sampled struct {
		Runs []struct {
			Temperature float64 `json:"temperature"`
			Rows        []struct {
				Prompt, Tokens []int32
				Uniforms       []float32
				T1             []float64 `json:"logp_T1"`
				Cool           []float64 `json:"logp_T0.7"`
			} `json:"rows"`
		} `json:"runs"`
	} `json:"sampled"`
}

// model is a golden folder opened.
type model struct {
	golden
	dir       string
	arch      decoder.Architecture
	eos       []int32
	weights   *models.Weights
	ring      *runtime.Ring
	sequences []runtime.Sequence
	w         [3][][]float64
}

func open(t *testing.T, env *runtime.Env, dir string) *model {
	t.Helper()
	m := &model{dir: dir}
	base := dir
	data, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	check(t, err)
	check(t, json.Unmarshal(data, &m.golden))
	if m.Config.Base != "" {
		base = filepath.Join(dir, "..", "..", m.Config.Base)
	}
	loaded, weights, err := models.Load(filepath.Join(base, "hf"))
	check(t, err)
	m.arch.Shape, m.eos, m.weights = loaded.Design.(decoder.Shape), loaded.EOS, weights
	t.Cleanup(func() { m.weights.Close() })
	m.arch.Provider = env.Provider() // on a stand-in CUDA
	m.ring = runtime.NewRing(m.arch, m.weights)
	t.Cleanup(m.ring.Close)
	if base != dir {
		m.adapt(t, loaded)
	}

	f, err := models.OpenSafetensors(filepath.Join(base, "batch.safetensors"))
	check(t, err)
	defer f.Close()
	ids, err := f.ReadInt64("input_ids")
	check(t, err)
	info, _ := f.Info("w")
	w := make([]float32, info.Shape[0]*info.Shape[1]*info.Shape[2])
	check(t, f.ReadFloat32("w", w, 0))
	T := int(info.Shape[2])
	for i, n := range m.Batch.Lengths {
		var tokens []int32
		for _, id := range ids[i*T : i*T+n] {
			tokens = append(tokens, int32(id))
		}
		prompt := m.Batch.PromptLengths[i]
		m.sequences = append(m.sequences, runtime.NewSequence(tokens[:prompt], tokens[prompt:]))
		for step := range m.w {
			var row []float64
			for t := prompt; t < n; t++ {
				row = append(row, float64(w[(step*len(m.Batch.Lengths)+i)*T+t]))
			}
			m.w[step] = append(m.w[step], row)
		}
	}
	return m
}

// adapt puts the golden folder's adapter beside the model.
func (m *model) adapt(t *testing.T, of models.Model) {
	t.Helper()
	a, err := lora.Read(filepath.Join(m.dir, "adapter"), of)
	check(t, err)
	w, err := a.Load(filepath.Join(m.dir, "adapter"))
	check(t, err)
	t.Cleanup(func() { w.Close() })
	m.arch.Adapter = &a.Adapter
	check(t, m.ring.Adapt(m.arch, w))
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// qwen2Of is a Qwen2 of these sizes for float32.
func qwen2Of(sizes models.Sizes) decoder.Architecture {
	return decoder.Architecture{Shape: qwen2.New(sizes)}
}

// randomWeights returns random weights of a model.
func randomWeights(t testing.TB, a decoder.Architecture, seed uint64) *models.Weights {
	t.Helper()
	m, err := models.NewModel(a.Shape)
	check(t, err)
	m.InitRange = 0.2
	w, err := m.Init(seed)
	check(t, err)
	t.Cleanup(func() { w.Close() })
	return w
}

// madeUpRing returns a Ring over random weights of a model, and closes it when the test ends.
func madeUpRing(t testing.TB, a decoder.Architecture, seed uint64) (*models.Weights, *runtime.Ring) {
	t.Helper()
	w := randomWeights(t, a, seed)
	ring := runtime.NewRing(a, w)
	t.Cleanup(ring.Close)
	return w, ring
}

// near compares two ragged tables.
func near(t *testing.T, what string, got [][]float32, want [][]float64, tolerance float64) {
	t.Helper()
	worst := 0.0
	for i := range want {
		if len(got[i]) != len(want[i]) {
			t.Fatalf("%s of row %d: %d values, want %d", what, i, len(got[i]), len(want[i]))
		}
		for j := range want[i] {
			worst = max(worst, math.Abs(float64(got[i][j])-want[i][j]))
		}
	}
	if !(worst <= tolerance) {
		t.Errorf("%s: largest difference %.2g, want at most %.2g", what, worst, tolerance)
	}
	t.Logf("%s: largest difference %.2g", what, worst)
}

// learners are the ways of computing the same log-probs and gradients.
var learners = []runtime.LearnerOptions{
	{HeadRows: 100},
	{StashBytes: 32 << 10, HeadRows: 64, BlockTokens: 8}, // some layers of some goldens
	{StashBytes: everything, HeadRows: 64},
}

// everything is more than the activations of any pass here.
const everything = 1 << 40

// onDevices runs a test on the CPU, or with the build tag cuda on a GPU, and on the stand-in
// for a device, which has the graphs of CUDA.
func onDevices(t *testing.T, test func(t *testing.T, env *runtime.Env)) {
	env := runtimetest.Test(t)
	t.Run(env.Device(), func(t *testing.T) { test(t, env) })
	t.Run("stand-in-cuda", func(t *testing.T) { test(t, runtime.OpenStandIn(t, env, "stand-in-cuda")) })
}

// inTypes runs a test of random weights on the CPU, or on a GPU in each type that it has,
// and on a stand-in. set adapts an Architecture to the type and device.
func inTypes(t *testing.T, test func(t *testing.T, env *runtime.Env, set func(*decoder.Architecture))) {
	onDevices(t, func(t *testing.T, env *runtime.Env) {
		compute := []models.Compute{{Type: models.F32}}
		if strings.HasPrefix(env.Device(), "cuda") {
			compute = []models.Compute{{Type: models.F32, Provider: models.CUDA}, {Type: models.F16}, {Type: models.BF16}}
		}
		for _, c := range compute {
			t.Run(c.Type.String(), func(t *testing.T) { test(t, env, func(a *decoder.Architecture) { a.Compute = c }) })
		}
	})
}

func TestGoldenLogProbs(t *testing.T) { onDevices(t, testLogProbs) }

func testLogProbs(t *testing.T, env *runtime.Env) {
	for _, dir := range goldensOn(t, env) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			m := open(t, env, dir)
			for _, o := range learners {
				l, err := env.NewLearner(m.ring, o)
				check(t, err)
				defer l.Close()
				p, err := l.Forward(m.sequences, 1, false)
				check(t, err)
				near(t, "log-probs", p.LogProb, m.Batch.LogP, 1e-4)
				near(t, "entropies", p.Entropy, m.Batch.Entropy, 1e-4)
				p.Release()
				p, err = l.Forward(m.sequences, 0.7, false)
				check(t, err)
				near(t, "log-probs at 0.7", p.LogProb, m.Batch.Cool, 1e-4)
				p.Release()
			}
		})
	}
}

func TestGoldenGradients(t *testing.T) { onDevices(t, testGradients) }

func testGradients(t *testing.T, env *runtime.Env) {
	type way struct {
		runtime.LearnerOptions
		keep bool
	}
	var all []way
	for _, o := range learners {
		all = append(all, way{o, true}, way{o, false})
	}
	for _, dir := range goldensOn(t, env) {
		for _, o := range all {
			t.Run(fmt.Sprintf("%s/stash%d/keep=%t", filepath.Base(dir), o.StashBytes, o.keep), func(t *testing.T) {
				m := open(t, env, dir)
				l, err := env.NewLearner(m.ring, o.LearnerOptions)
				check(t, err)
				defer l.Close()
				// There are two micro-batches, and both go forward before the first goes backward.
				var passes []*runtime.Pass
				for _, part := range [][]runtime.Sequence{m.sequences[:2], m.sequences[2:]} {
					p, err := l.Forward(part, 1, o.keep)
					check(t, err)
					defer p.Release()
					passes = append(passes, p)
				}
				check(t, passes[0].Backward(m.w[0][:2], nil))
				check(t, passes[1].Backward(m.w[0][2:], nil))
				check(t, env.Download(l.Gradients))
				compareTensors(t, filepath.Join(dir, "grads.safetensors"), l.Gradients, func(name string, got, want []float32) {
					largest, worst := 0.0, 0.0
					for i := range want {
						largest = max(largest, math.Abs(float64(want[i])))
						worst = max(worst, math.Abs(float64(got[i])-float64(want[i])))
					}
					most := 2e-5
					if isFamily(dir) {
						most = 5e-5 // the suggestion of the goldens' README
					}
					if !(worst <= most*largest) {
						t.Errorf("gradient of %s: largest difference %.2g of %.2g", name, worst, largest)
					}
				})
			})
		}
	}
}

// isFamily says whether a golden folder is one of goldens/families, whose gradients are those of
// float64.
func isFamily(dir string) bool { return filepath.Base(filepath.Dir(dir)) == "families" }

// compareTensors calls f with every tensor of a file and the arena's values for it.
func compareTensors(t *testing.T, path string, w *models.Weights, f func(name string, got, want []float32)) {
	t.Helper()
	file, err := models.OpenSafetensors(path)
	check(t, err)
	defer file.Close()
	if got, want := len(file.Names()), len(w.Layout.Names()); got != want {
		t.Fatalf("%s has %d tensors, the model %d", path, got, want)
	}
	for _, name := range file.Names() {
		got, _, ok := w.View(name)
		if !ok {
			t.Fatalf("the model has no tensor %q", name)
		}
		want := make([]float32, len(got))
		check(t, file.ReadFloat32(name, want, 0))
		f(name, got, want)
	}
}

func TestGoldenAdamW(t *testing.T) { onDevices(t, testAdamW) }

func testAdamW(t *testing.T, env *runtime.Env) {
	for _, dir := range goldensOn(t, env) {
		for _, name := range []string{"wd0", "wd01"} {
			t.Run(filepath.Base(dir)+"/"+name, func(t *testing.T) {
				path := filepath.Join(dir, "adamw_"+name+".safetensors")
				if _, err := os.Stat(path); err != nil {
					t.Skip("the goldens leave this file out")
				}
				m := open(t, env, dir)
				l, err := env.NewLearner(m.ring, runtime.LearnerOptions{})
				check(t, err)
				defer l.Close()
				want := m.AdamW[name]
				settings := adamw.Default()
				settings.WeightDecay = want.WeightDecay
				o, err := env.NewOptimizer(m.ring, l.Gradients, settings)
				check(t, err)
				defer o.Close()
				for step := range 3 {
					l.ZeroGradients()
					p, err := l.Forward(m.sequences, 1, true)
					check(t, err)
					check(t, p.Backward(m.w[step], nil))
					p.Release()
					norm, err := clipAndUpdate(o, 1e-2)
					check(t, err)
					// PyTorch's own steps in float32 drift from those in float64.
					most := 1e-5
					if isFamily(dir) {
						most = 5e-5
					}
					if step > 0 && strings.HasPrefix(filepath.Base(dir), "qwen3_5") {
						most = 1e-3 // its norms and its delta rule meet short vectors
					}
					if w := want.F64.Norm[step]; math.Abs(norm-w) > most*w+math.Abs(want.F32.Norm[step]-w) {
						t.Errorf("step %d: gradient norm %v, want %v", step, norm, w)
					}
				}
				check(t, env.Download(m.ring.Trained()))
				n, far := 0, 0
				compareTensors(t, path, m.ring.Trained(), func(name string, got, want []float32) {
					for i := range want {
						n++
						switch d := math.Abs(float64(got[i]) - float64(want[i])); {
						case !(d <= 5e-3):
							t.Errorf("%s[%d] is off by %.2g", name, i, d)
						case d > 1e-4:
							far++
						}
					}
				})
				if far*200 > n {
					t.Errorf("%d of %d weights are off by more than 1e-4, want at most 0.5 %%", far, n)
				}
			})
		}
	}
}

func TestGoldenGenerations(t *testing.T) { onDevices(t, testGenerations) }

func testGenerations(t *testing.T, env *runtime.Env) {
	for _, dir := range goldensOn(t, env) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			m := open(t, env, dir)
			for _, slots := range []int{1, 3, 8} {
				d, err := env.NewDecoder(m.ring, slots, 64)
				check(t, err)
				var reqs []sampler.Request
				for i, r := range m.Greedy.Rows {
					reqs = append(reqs, sampler.Request{Prompt: r.Prompt, ID: uint64(i), Samples: 1})
				}
				opts := sampler.Options{Sampling: sampler.Greedy(m.Greedy.Max), EOS: m.eos}
				got, _, err := sampler.Sample(context.Background(), d, opts, reqs, nil)
				check(t, err)
				for i, r := range m.Greedy.Rows {
					if !slices.Equal(got[i].IDs, r.Tokens) {
						t.Errorf("%d slots: greedy row %d: %v, want %v", slots, i, got[i].IDs, r.Tokens)
					}
				}
				opts.Greedy = false
				for _, run := range m.Sampled.Runs {
					opts.Temperature = run.Temperature
					var logps [][]float32
					var want [][]float64
					for i, r := range run.Rows {
						reqs[i] = sampler.Request{Prompt: r.Prompt, ID: uint64(i), Samples: 1, Uniforms: [][]float32{r.Uniforms}}
					}
					got, _, err := sampler.Sample(context.Background(), d, opts, reqs, nil)
					check(t, err)
					for i, r := range run.Rows {
						if !slices.Equal(got[i].IDs, r.Tokens) {
							t.Errorf("%d slots, T %g: row %d: %v, want %v", slots, run.Temperature, i, got[i].IDs, r.Tokens)
						}
						logps = append(logps, got[i].LogProb)
						want = append(want, r.T1)
						if run.Temperature != 1 {
							want[i] = r.Cool
						}
					}
					near(t, "sampled log-probs", logps, want, 1e-4)
				}
				d.Close()
			}
		})
	}
}
