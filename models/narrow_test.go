package models_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/models"
	_ "onering/models/all"
)

const narrowConfig = `{"model_type": "qwen2", "hidden_size": 12, "intermediate_size": 14, "num_hidden_layers": 2, "num_attention_heads": 2,
	"num_key_value_heads": 1, "vocab_size": 23, "max_position_embeddings": 16, "tie_word_embeddings": false, "torch_dtype": "float32"}`

// saved writes a model with random weights, which change may change, and returns its
// folder and its weights.
func saved(t *testing.T, change func(w *models.Weights)) (string, *models.Weights) {
	t.Helper()
	return savedAs(t, narrowConfig, change)
}

// blockConfig is that of a model whose rows are whole blocks of int8.
var blockConfig = strings.NewReplacer(`"hidden_size": 12`, `"hidden_size": 64`, `"intermediate_size": 14`, `"intermediate_size": 96`).Replace(narrowConfig)

func savedAs(t *testing.T, config string, change func(w *models.Weights)) (string, *models.Weights) {
	t.Helper()
	m, err := models.ParseConfig([]byte(config), nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := m.Init(3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	change(w)
	dir := filepath.Join(t.TempDir(), "m")
	if err := m.Save(dir, w, models.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	return dir, w
}

// TestNarrow: for a base in 16 bits the layers' matrices are rounded and lie outside
// Data; everything else is unchanged.
func TestNarrow(t *testing.T) {
	dir, want := saved(t, func(w *models.Weights) {})
	for _, d := range []models.DType{models.BF16, models.F16} {
		_, w, err := models.LoadHeld(dir, models.Compute{Base: d})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		var all []float32
		w.Each(func(first int, part []float32) {
			if first != len(all) {
				t.Fatalf("%v: a portion begins at %d, want %d", d, first, len(all))
			}
			all = append(all, part...)
		})
		if len(all) != len(want.Data) {
			t.Fatalf("%v: %d elements, want %d", d, len(all), len(want.Data))
		}
		rounded := 0
		for _, x := range want.Tensors() {
			p, _ := w.Layout.Find(x.Name)
			narrow := strings.Contains(x.Name, ".layers.") && len(x.Shape) == 2
			if narrow {
				bytes := make([]byte, 2*len(x.Data))
				models.Encode(bytes, x.Data, d)
				if at := 2 * (p.Offset - w.Narrow.From); !slices.Equal(w.Narrow.Data[at:at+len(bytes)], bytes) {
					t.Errorf("%v: %s is not rounded", d, x.Name)
				}
				rounded++
			} else if !slices.Equal(all[p.Offset:p.Offset+p.Size], x.Data) {
				t.Errorf("%v: %s has changed", d, x.Name)
			}
			if _, _, ok := w.View(x.Name); ok == narrow {
				t.Errorf("%v: View(%s) is %t", d, x.Name, ok)
			}
			for i, v := range x.Data {
				if diff := float64(all[p.Offset+i] - v); diff > 0.004*0.1 || diff < -0.004*0.1 {
					t.Errorf("%v: %s is %g off at %d", d, x.Name, diff, i)
					break
				}
			}
			if name, i := w.Layout.NameOf(p.Offset + p.Size - 1); name != x.Name || i != p.Size-1 {
				t.Errorf("the last element of %s is called %s, %d", x.Name, name, i)
			}
		}
		if rounded != 14 {
			t.Errorf("%v: %d matrices are rounded, want 14", d, rounded)
		}
	}
}

// TestNarrowOverflow: a weight that float16 cannot hold is named.
func TestNarrowOverflow(t *testing.T) {
	const name = "model.layers.1.mlp.down_proj.weight"
	dir, _ := saved(t, func(w *models.Weights) { x, _, _ := w.View(name); x[7] = 7e4 })
	if _, _, err := models.LoadHeld(dir, models.Compute{Base: models.F16}); err == nil || !strings.Contains(err.Error(), name+`": element 7 is 70000, which F16 cannot hold`) {
		t.Errorf("error %v", err)
	}
	_, w, err := models.LoadHeld(dir, models.Compute{Base: models.BF16})
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, _, err := models.LoadHeld(dir, models.Compute{Base: models.BF16, Provider: models.CUDA}); err == nil {
		t.Error("a base in 16 bits on a GPU: no error")
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}

// TestInt8: each number of a base in int8 is a whole multiple of its block's scale, the
// largest multiple is 127, and the error is at most half of the scale.
func TestInt8(t *testing.T) {
	dir, want := savedAs(t, blockConfig, func(w *models.Weights) {
		x, _, _ := w.View("model.layers.1.mlp.down_proj.weight")
		clear(x[:models.BlockOf(models.I8)]) // a block without a scale
	})
	_, w, err := models.LoadHeld(dir, models.Compute{Base: models.I8})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	all := make([]float32, len(want.Data))
	w.Each(func(first int, part []float32) { copy(all[first:], part) })
	matrices := 0
	for _, x := range want.Tensors() {
		p, _ := w.Layout.Find(x.Name)
		got := all[p.Offset : p.Offset+p.Size]
		if !strings.Contains(x.Name, ".layers.") || len(x.Shape) != 2 {
			if !slices.Equal(got, x.Data) {
				t.Errorf("%s has changed", x.Name)
			}
			continue
		}
		matrices++
		scales := w.Narrow.ScalesOf(p)
		if len(scales) != p.Size/models.BlockOf(models.I8) {
			t.Fatalf("%s has %d scales", x.Name, len(scales))
		}
		for i, v := range x.Data {
			scale, q := scales[i/models.BlockOf(models.I8)], float32(int8(w.Narrow.Data[p.Offset+i-w.Narrow.From]))
			off := float64(got[i] - v)
			if got[i] != q*scale || q < -127 || math.Abs(off) > 0.5001*float64(scale) {
				t.Fatalf("%s: element %d is %g, held as %g * %g", x.Name, i, v, q, scale)
			}
		}
	}
	if matrices != 14 {
		t.Errorf("%d matrices, want 14", matrices)
	}
	bad, _ := savedAs(t, blockConfig, func(w *models.Weights) {
		x, _, _ := w.View("model.layers.0.mlp.up_proj.weight")
		x[3] = float32(math.Inf(1))
	})
	if _, _, err := models.LoadHeld(bad, models.Compute{Base: models.I8}); err == nil || !strings.Contains(err.Error(), "element 3 is +Inf, which I8 cannot hold") {
		t.Errorf("error %v", err)
	}
	odd, _ := saved(t, func(*models.Weights) {})
	if _, _, err := models.LoadHeld(odd, models.Compute{Base: models.I8}); err == nil || !strings.Contains(err.Error(), `those of "self_attn.qkv_proj" are 12: hold it in bfloat16`) {
		t.Errorf("error %v", err)
	}
}

// TestNF4: each number of a base in NF4 is the nearest of its block's, the largest of which is that
// of the weights.
func TestNF4(t *testing.T) {
	const zeros = "model.layers.1.mlp.down_proj.weight"
	config := strings.Replace(blockConfig, `96`, `128`, 1)
	dir, want := savedAs(t, config, func(w *models.Weights) {
		x, _, _ := w.View(zeros)
		clear(x[:64])
	})
	_, w, err := models.LoadHeld(dir, models.Compute{Base: models.NF4})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	all, pairs := make([]float32, len(want.Data)), models.NF4Pairs()
	w.Each(func(first int, part []float32) { copy(all[first:], part) })
	for _, x := range want.Tensors() {
		p, _ := w.Layout.Find(x.Name)
		got := all[p.Offset : p.Offset+p.Size]
		if !w.Narrow.Holds(p) {
			if !slices.Equal(got, x.Data) {
				t.Errorf("%s has changed", x.Name)
			}
			continue
		}
		d, shape, data := w.Narrow.Stored(p)
		if d != models.U8 || !slices.Equal(shape, []int{x.Shape[0], x.Shape[1] / 2}) || len(data) != p.Size/2 {
			t.Fatalf("%s is stored as %v %v in %d bytes", x.Name, d, shape, len(data))
		}
		scales := w.Narrow.ScalesOf(p)
		for i, v := range x.Data {
			scale := scales[i/64]
			if got[i] != pairs[2*int(data[i/2])+i%2]*scale {
				t.Fatalf("%s: element %d is %g, and not what its bits stand for", x.Name, i, got[i])
			}
			for k := range 16 {
				if other := pairs[2*k+1] * scale; math.Abs(float64(other-v)) < math.Abs(float64(got[i]-v))*(1-1e-6) {
					t.Fatalf("%s: element %d is %g, held as %g, and %g is nearer", x.Name, i, v, got[i], other)
				}
			}
		}
		if x.Name == zeros && (scales[0] != 0 || slices.Max(got[:64]) != 0 || slices.Min(got[:64]) != 0) {
			t.Errorf("a block of zeros has become %v", got[:64])
		}
	}
	odd, _ := savedAs(t, blockConfig, func(*models.Weights) {})
	if _, _, err := models.LoadHeld(odd, models.Compute{Base: models.NF4}); err == nil || !strings.Contains(err.Error(), `those of "mlp.down_proj" are 96: hold it in bfloat16`) {
		t.Errorf("error %v", err)
	}
}
