package cmd

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/models"
)

// TestGraphsInPython holds bench/drive.py, which trains with the exported graphs in
// Python's ONNX Runtime alone, to the results of generate, score, weights and step for
// the same numbers, for each family and for an adapter.
func TestGraphsInPython(t *testing.T) {
	python := os.Getenv("ONERING_PYTHON")
	if python == "" {
		python = "python3"
	}
	if text, err := exec.Command(python, "-c", "import numpy, onnxruntime").CombinedOutput(); err != nil {
		t.Skipf("%s lacks numpy or onnxruntime, so bench/drive.py was not tried (pip install numpy onnxruntime; ONERING_PYTHON names another Python): %s", python, text)
	}
	if !libraryFound() {
		t.Skip("no ONNX Runtime library: run onering doctor")
	}
	embedded := filepath.Join("..", "data", "arithmetic", "model")
	t.Run("qwen2", func(t *testing.T) { drive(t, python, embedded, false) })
	t.Run("adapter", func(t *testing.T) { drive(t, python, embedded, true) })
	for family := range families {
		t.Run(family, func(t *testing.T) {
			model := filepath.Join(t.TempDir(), "model")
			commandLine(t, "", "init", "--config", familyFolder(t, family), "--seed", "3", "--out", model)
			drive(t, python, model, false)
		})
	}
}

// A driven is one line of the batch.jsonl that bench/drive.py writes.
type driven struct {
	Prompt    []int32   `json:"prompt_ids"`
	Response  []int32   `json:"response_ids"`
	Uniforms  []float64 `json:"uniforms"`
	Reward    float64   `json:"reward"`
	Advantage float64   `json:"advantage"`
	Old       []float64 `json:"old_logp"`
	LogP      []float64 `json:"logp"`
	Entropy   []float64 `json:"entropy"`
	Weights   []float64 `json:"weights"`
}

// drive takes two steps in Python, and the same two steps with the program.
func drive(t *testing.T, python, model string, adapted bool) {
	const samples = 6
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	from, trained := []string{"--model", model}, model
	python3 := func(args ...string) {
		t.Helper()
		if text, err := exec.Command(python, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", args[0], err, text)
		}
	}
	var also []string
	off := 1e-5 // of log-probs
	if adapted {
		off = 2e-4 // its numbers are large, and the program adds the products of prompts in another order
		trained = at("adapter")
		m, err := models.ReadConfig(model)
		if err == nil {
			err = newAdapter(m, model, trained)
		}
		if err != nil {
			t.Fatal(err)
		}
		also = []string{"--adapter", trained}
	}
	commandLine(t, "", slices.Concat([]string{"export", "--out", at("graphs")}, from, also)...)
	problems := ""
	for _, prompt := range []string{"[3,4,11,12,11,7,7,14]", "[5]", "[9,8,13,3]"} { // The model wrote these answers, so some responses are right in part.
		answer := parseLines[struct{ IDs []int32 }](t, commandLine(t, `{"prompt_ids":`+prompt+`}`, append([]string{"generate", "--max-tokens", "6", "--temperature", "0.8"}, slices.Concat(from, also)...)...))[0]
		text, _ := json.Marshal(answer.IDs)
		problems += fmt.Sprintf(`{"prompt_ids":%s,"answer_ids":%s}`+"\n", prompt, text)
	}
	if err := os.WriteFile(at("problems.jsonl"), []byte(problems), 0o666); err != nil {
		t.Fatal(err)
	}
	python3(slices.Concat([]string{filepath.Join("..", "bench", "drive.py"), "--graphs", at("graphs"), "--rounds", "1", "--steps", "2", "--prompts", "3",
		"--samples", fmt.Sprint(samples), "--micro", "5", "--max-tokens", "6", "--temperature", "0.8", "--lr", "0.01", "--trace", at("trace"), at("problems.jsonl")}, from, also)...)

	for step := 1; step <= 2; step++ {
		trace, stepped := at(fmt.Sprintf("trace/step-%d", step)), at(fmt.Sprintf("stepped-%d", step))
		batch, err := os.ReadFile(filepath.Join(trace, "batch.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		lines := parseLines[driven](t, string(batch))
		with := func(command ...string) []string {
			command = append(command, from...)
			if adapted {
				command = append(command, "--adapter", trained)
			}
			return append(command, "--temperature", "0.8")
		}
		if step == 1 { // In later rounds the weights differ from those that sampled.
			sameSamples(t, lines, with("generate", "--max-tokens", "6"), off)
		}
		sameLogProbs(t, lines, commandLine(t, string(batch), with("score")...), off)
		sameWeights(t, lines, samples)
		command := with("step", "--lr", "0.01", "--grads", stepped+".grads", "--out", stepped)
		if step > 1 {
			command = append(command, "--state", filepath.Join(trained, "state"))
		}
		commandLine(t, string(batch), command...)
		sameTensors(t, filepath.Join(trace, "grads.safetensors"), stepped+".grads", 1e-5)
		file := "model.safetensors"
		if adapted {
			file = "adapter_model.safetensors"
		} else {
			from[1] = stepped
		}
		trained = stepped
		// AdamW makes a full step of a gradient that is nearly zero, so rounding matters
		// here; the next step begins with Python's weights.
		sameTensors(t, filepath.Join(trace, "trained.safetensors"), filepath.Join(stepped, file), 1e-3)
		if err := os.Rename(filepath.Join(trace, "trained.safetensors"), filepath.Join(stepped, file)); err != nil {
			t.Fatal(err)
		}
	}
	if exec.Command(python, "-c", "import onnx").Run() != nil {
		t.Logf("%s lacks onnx: the graphs were not checked with its checker", python)
		return
	}
	python3("-c", `import glob, onnx, sys
for path in glob.glob(sys.argv[1] + "/*.onnx"):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert model.doc_string and model.graph.doc_string, path
    for port in [*model.graph.input, *model.graph.output]:
        assert port.doc_string, (path, port.name)`, at("graphs"))
}

// parseLines returns the JSON objects of a text.
func parseLines[T any](t *testing.T, text string) (out []T) {
	t.Helper()
	for in := json.NewDecoder(strings.NewReader(text)); ; {
		var x T
		if err := in.Decode(&x); err == io.EOF {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, x)
	}
}

// near wants two numbers to be equal within off.
func near(t *testing.T, what string, got, want []float64, off float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d in Python, %d here", what, len(got), len(want))
	}
	for i := range got {
		if !(math.Abs(got[i]-want[i]) <= off) {
			t.Errorf("%s [%d]: %v in Python, %v here", what, i, got[i], want[i])
		}
	}
}

// sameSamples wants generate, with the same uniforms, to draw the same tokens.
func sameSamples(t *testing.T, lines []driven, command []string, off float64) {
	t.Helper()
	var in strings.Builder
	for _, x := range lines {
		json.NewEncoder(&in).Encode(map[string]any{"prompt_ids": x.Prompt, "uniforms": x.Uniforms})
	}
	type sample struct {
		IDs  []int32
		LogP []float64
	}
	for i, want := range parseLines[sample](t, commandLine(t, in.String(), command...)) {
		if !slices.Equal(lines[i].Response, want.IDs) {
			t.Errorf("response %d: %v in Python, %v here", i, lines[i].Response, want.IDs)
			continue
		}
		near(t, "the sampler's log-probs", lines[i].Old, want.LogP, off)
	}
}

func sameLogProbs(t *testing.T, lines []driven, scored string, off float64) {
	t.Helper()
	for i, want := range parseLines[driven](t, scored) {
		near(t, "log-probs", lines[i].LogP, want.LogP, off)
		near(t, "entropies", lines[i].Entropy, want.Entropy, off)
	}
}

// sameWeights wants GRPO's advantages and weights, which must not all be zero.
func sameWeights(t *testing.T, lines []driven, samples int) {
	t.Helper()
	var in struct {
		Groups [][]map[string]any `json:"groups"`
	}
	for group := range slices.Chunk(lines, samples) {
		var rows []map[string]any
		for _, x := range group {
			rows = append(rows, map[string]any{"reward": x.Reward, "logp": x.LogP, "old_logp": x.Old})
		}
		in.Groups = append(in.Groups, rows)
	}
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out struct{ Groups [][]driven }
	if err := json.Unmarshal([]byte(commandLine(t, string(text), "weights", "--objective", "grpo")), &out); err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for i, want := range slices.Concat(out.Groups...) {
		near(t, "weights", lines[i].Weights, want.Weights, 1e-9)
		near(t, "advantage", []float64{lines[i].Advantage}, []float64{want.Advantage}, 1e-9)
		for _, w := range want.Weights {
			sum += math.Abs(w)
		}
	}
	if sum == 0 {
		t.Error("all weights are 0: nothing was compared")
	}
}

// sameTensors wants the tensors of two files to be equal within a share of the norm of
// each.
func sameTensors(t *testing.T, got, want string, off float64) {
	t.Helper()
	there, here := tensorsOf(t, got), tensorsOf(t, want)
	if len(there) != len(here) {
		t.Fatalf("%d tensors in Python, %d here", len(there), len(here))
	}
	for name, y := range here {
		x, norm, diff := there[name], 0.0, 0.0
		if len(x) != len(y) {
			t.Fatalf("%s: %d elements in Python, %d here", name, len(x), len(y))
		}
		for i := range y {
			norm, diff = math.Hypot(norm, float64(y[i])), math.Hypot(diff, float64(x[i]-y[i]))
		}
		if !(diff <= off*norm) {
			t.Errorf("%s: %g off, of %g", name, diff, norm)
		}
	}
}

func tensorsOf(t *testing.T, path string) map[string][]float32 {
	t.Helper()
	f, err := models.OpenSafetensors(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string][]float32{}
	for _, name := range f.Names() {
		info, _ := f.Info(name)
		n := 1
		for _, d := range info.Shape {
			n *= d
		}
		out[name] = make([]float32, n)
		if err := f.ReadFloat32(name, out[name], 0); err != nil {
			t.Fatal(err)
		}
	}
	return out
}
