package modeltest

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
	"onering/models/ports"
)

// A reference is the part of golden.json that Golden reads.
type reference struct {
	Params map[string][]int `json:"params"`
	Batch  struct {
		Lengths       []int       `json:"lengths"`
		PromptLengths []int       `json:"prompt_lengths"`
		LogP          [][]float64 `json:"logp_f64"`
		Entropy       [][]float64 `json:"entropy_f64"`
	} `json:"batch"`
}

// Golden compares a model with PyTorch's numbers for it, in a folder such as those of models/testdata/torch: the
// names and shapes of the tensors and of the gradients, the saved folder, logits, log-probs and entropies. The graphs
// run in float64, so log-probs and entropies must be those of a float64 reference to 1e-5, since rotary frequencies
// and epsilon are in float32.
func Golden(t *testing.T, dir string) {
	t.Helper()
	text := must(os.ReadFile(filepath.Join(dir, "golden.json")))(t)
	var want reference
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	from := filepath.Join(dir, "hf")
	m, w := must2(models.Load(from))(t)
	defer w.Close()
	t.Run("tensors", func(t *testing.T) { goldenTensors(t, dir, want, w) })
	t.Run("save", func(t *testing.T) { goldenSave(t, from, m, w) })
	t.Run("numbers", func(t *testing.T) { goldenNumbers(t, dir, want, m, w) })
}

func goldenTensors(t testing.TB, dir string, want reference, w *models.Weights) {
	if len(want.Params) != len(w.Layout.Names()) {
		t.Errorf("%d tensors, want %d", len(w.Layout.Names()), len(want.Params))
	}
	for _, tensor := range w.Tensors() {
		if !slices.Equal(tensor.Shape, want.Params[tensor.Name]) {
			t.Errorf("%s has shape %v, want %v", tensor.Name, tensor.Shape, want.Params[tensor.Name])
		}
	}
	f := must(models.OpenSafetensors(filepath.Join(dir, "grads.safetensors")))(t)
	defer f.Close()
	if err := w.Layout.Check(f); err != nil {
		t.Error(err)
	}
}

// goldenSave saves the folder that transformers wrote and compares the files.
func goldenSave(t testing.TB, from string, m models.Model, w *models.Weights) {
	dir := filepath.Join(t.TempDir(), "out")
	if err := m.Save(dir, w, models.SaveOptions{Tokenizer: from}); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"config.json", "generation_config.json"} {
		want := must(os.ReadFile(filepath.Join(from, file)))(t)
		if got, err := os.ReadFile(filepath.Join(dir, file)); string(got) != string(want) {
			t.Errorf("%s changed: %v\n%s", file, err, got)
		}
	}
	_, back := must2(models.Load(dir))(t)
	defer back.Close()
	if !slices.Equal(back.Data, w.Data) {
		t.Error("the weights differ after Save")
	}
}

// goldenNumbers computes the batch of the folder and compares the logits of all tokens, and the log-probs and entropies
// of those behind the prompts.
func goldenNumbers(t testing.TB, dir string, want reference, m models.Model, w *models.Weights) {
	f := must(models.OpenSafetensors(filepath.Join(dir, "batch.safetensors")))(t)
	defer f.Close()
	ids := must(f.ReadInt64("input_ids"))(t)
	T := len(ids) / len(want.Batch.Lengths)
	var sequences [][]int
	for row, n := range want.Batch.Lengths {
		var s []int
		for _, id := range ids[row*T : row*T+n] {
			s = append(s, int(id))
		}
		sequences = append(sequences, s)
	}
	a := must(m.Architecture(models.Compute{}))(t)
	model := interpret(a, w)
	forward, _, _ := must3(a.Head(models.HeadForm{Full: true}))(t)
	n := model.forward(t, sequences, oneBlock)
	all := model.run(t, forward, "", tensors{ports.Normed: n, ports.HeadSlice: model.weights[model.Geometry.Head],
		ports.InverseTemperature: graphtest.Floats([]float64{1}),
		ports.LogSumExp:          graphtest.Zeros(n.Dims[0], 1), ports.MeanLogit: graphtest.Zeros(n.Dims[0], 1)})[ports.Logits]
	logits := make([][][]float64, len(sequences))
	at := 0
	for row, s := range sequences {
		for range s {
			logits[row] = append(logits[row], all.Row(at))
			at++
		}
	}
	compareLogits(t, f, logits)
	worst := 0.0
	for row, s := range sequences {
		prompt := want.Batch.PromptLengths[row]
		for i, logp := range want.Batch.LogP[row] {
			all := logSoftmax(logits[row][prompt+i-1]) // the token before predicts token i of the response
			entropy := 0.0
			for _, l := range all {
				entropy -= math.Exp(l) * l
			}
			worst = max(worst, math.Abs(all[s[prompt+i]]-logp), math.Abs(entropy-want.Batch.Entropy[row][i]))
		}
	}
	if !(worst <= 1e-5) {
		t.Errorf("log-probs and entropies are up to %.2g off those of a float64 reference", worst)
	}
}

// compareLogits compares the logits of the rows in the file with PyTorch's logits in float32.
func compareLogits(t testing.TB, f *models.File, logits [][][]float64) {
	t.Helper()
	rows := must(f.ReadInt64("logits_rows"))(t)
	info, _ := f.Info("logits") // [R,T,V]
	T, V := info.Shape[1], info.Shape[2]
	want := make([]float32, len(rows)*T*V)
	if err := f.ReadFloat32("logits", want, 0); err != nil {
		t.Fatal(err)
	}
	worst := 0.0
	for i, row := range rows {
		for p, values := range logits[row] {
			for id, v := range values {
				worst = max(worst, math.Abs(v-float64(want[(i*T+p)*V+id])))
			}
		}
	}
	if !(worst <= 1e-4) {
		t.Errorf("logits are up to %.2g off PyTorch's", worst)
	}
}

// logSoftmax returns the log-probs of logits.
func logSoftmax(logits []float64) []float64 {
	total, top := 0.0, math.Inf(-1)
	for _, v := range logits {
		top = max(top, v)
	}
	for _, v := range logits {
		total += math.Exp(v - top)
	}
	out := make([]float64, len(logits))
	for i, v := range logits {
		out[i] = v - top - math.Log(total)
	}
	return out
}
