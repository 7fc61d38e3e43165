package cmd

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/models"
)

// The exported graphs pass the ONNX checker and give, run by Python's ONNX
// Runtime alone, the numbers that score, step and generate give.
func TestExportedGraphsInPython(t *testing.T) {
	python := os.Getenv("ONERING_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import onnx, onnxruntime, numpy, safetensors").Run(); err != nil {
		t.Skipf("%s lacks onnx, onnxruntime, numpy or safetensors (ONERING_PYTHON names another): %v", python, err)
	}
	dir := t.TempDir()
	model := filepath.Join("..", "..", "runtime", "train", "arithmetic", "model")
	onering := func(stdin string, args ...string) []byte {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if code := run(args, strings.NewReader(stdin), &stdout, &stderr); code != 0 {
			t.Fatalf("onering %s: exit code %d: %s", strings.Join(args, " "), code, &stderr)
		}
		return stdout.Bytes()
	}
	batch := `{"prompt_ids":[3,4,11,12,11,7,7,14],"response_ids":[16,17,18,1],"weights":[0.5,-1,0.25,2]}
{"prompt_ids":[5],"response_ids":[6,7,8,9,10,2,1],"weights":[1,1,-1,0,0.5,-0.5,0.1]}
{"prompt_ids":[9,8,13,3],"response_ids":[4],"weights":[-0.7]}
`
	graphs := filepath.Join(dir, "graphs")
	onering("", "export", "--model", model, "--out", graphs)
	command := exec.Command(python, filepath.Join("testdata", "exported.py"), graphs, model)
	command.Stdin = strings.NewReader(batch)
	command.Stderr = os.Stderr
	text, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	type line struct{ LogP, Entropy []float64 }
	var there struct {
		Lines  []line
		Greedy []int32
		Grads  map[string][]float64
	}
	if err := json.Unmarshal(text, &there); err != nil {
		t.Fatal(err)
	}

	scored := json.NewDecoder(bytes.NewReader(onering(batch, "score", "--model", model)))
	for i, got := range there.Lines {
		var want line
		if err := scored.Decode(&want); err != nil {
			t.Fatal(err)
		}
		for j := range want.LogP {
			if d := math.Abs(got.LogP[j] - want.LogP[j]); !(d < 1e-5) {
				t.Errorf("line %d: log-prob %d: %v in Python, %v here", i+1, j, got.LogP[j], want.LogP[j])
			}
			if d := math.Abs(got.Entropy[j] - want.Entropy[j]); !(d < 1e-5) {
				t.Errorf("line %d: entropy %d: %v in Python, %v here", i+1, j, got.Entropy[j], want.Entropy[j])
			}
		}
	}

	path := filepath.Join(dir, "grads.safetensors")
	onering(batch, "step", "--model", model, "--dry-run", "--grads", path)
	f, err := models.OpenSafetensors(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, want := len(there.Grads), len(f.Names()); got != want {
		t.Fatalf("%d gradients in Python, %d here", got, want)
	}
	for _, name := range f.Names() {
		info, _ := f.Info(name)
		n := 1
		for _, s := range info.Shape {
			n *= int(s)
		}
		want := make([]float32, n)
		if err := f.ReadFloat32(name, want, 0); err != nil {
			t.Fatal(err)
		}
		norm := 0.0
		for _, x := range want {
			norm += float64(x) * float64(x)
		}
		norm = math.Sqrt(norm)
		got := there.Grads[name]
		if math.Abs(got[0]-norm) > 1e-5*norm {
			t.Errorf("gradient of %s: norm %v in Python, %v here", name, got[0], norm)
		}
		for i, x := range got[1:] {
			if math.Abs(x-float64(want[i])) > 1e-5*norm {
				t.Errorf("gradient of %s[%d]: %v in Python, %v here", name, i, x, want[i])
			}
		}
	}

	var generated struct{ IDs []int32 }
	out := onering(`{"prompt_ids":[3,4,11,12,11,7,7,14]}`, "generate", "--model", model, "--greedy", "--max-tokens", "8")
	if err := json.Unmarshal(out, &generated); err != nil {
		t.Fatal(err)
	}
	if n := len(generated.IDs); !slices.Equal(generated.IDs, there.Greedy[:n]) {
		t.Errorf("greedy tokens %v in Python, %v here", there.Greedy, generated.IDs)
	}
}
