package house

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// rooms says which packages of ours each package may import. It is a policy: fix code
// that breaks it, not the table. A pattern "x/*" stands for the folders directly in x. A
// folder that is not listed may not hold Go files.
var rooms = []struct {
	path  string
	allow string
}{
	{"cmd", "runs policy objectives objectives/objectivetest objectives/policy internal/bench internal/cli internal/files serve serve/openai train train/* report report/* eval data runtime models models/hub internal/scaffold sampler verifier tokenize reward internal/settings internal/peers"},
	{"cmd/onering", "cmd"},
	{"runs", ""},

	{"tokenize", "internal/ordered internal/files internal/settings tokenize/jinja"},
	{"tokenize/jinja", "internal/ordered"},
	{"tokenize/tools", "tokenize internal/grammar"},
	{"internal/house", ""},
	{"internal/strict", "internal/settings"},
	{"internal/grammar", "internal/ordered internal/strict"},
	{"internal/settings", ""},
	{"internal/files", ""},
	{"internal/cli", "internal/files"},
	{"internal/process", "internal/files internal/settings"},
	{"internal/remote", "internal/process internal/settings"},
	{"internal/registry", "internal/settings"},
	{"internal/stat", ""},
	{"internal/peers", ""},
	{"internal/ordered", ""},
	{"sampler", "internal/settings"},
	{"verifier", "verifier/internal/*"},
	{"verifier/internal/*", "verifier/internal/*"},

	{"objectives/means", ""},
	{"objectives", "objectives/means internal/registry internal/settings internal/strict"},
	{"objectives/all", "objectives/*"},
	{"objectives/objectivetest", "objectives internal/registry"},
	{"internal/scaffold", "internal/files"},
	{"objectives/policy", "objectives objectives/means internal/settings"},
	{"objectives/command", "objectives internal/process internal/remote"},
	{"objectives/*", "objectives objectives/means objectives/policy"},

	{"models", "internal/ordered internal/files internal/registry models/onnx"},
	{"models/onnx", ""},
	{"models/ports", ""},
	{"models/graph", "models models/onnx"}, // models: for its Program, which Build returns
	{"internal/graphtest", "models models/graph models/onnx"},
	{"models/optim/*", "models models/graph models/onnx models/ports"},
	{"models/export", "internal/files models models/optim/adamw"},
	{"models/hub", "internal/files internal/remote models"}, // models: for the names of a tokenizer's files
	{"models/decoder", "models models/graph models/onnx models/ports"},
	{"models/lora", "internal/ordered internal/files internal/settings models"},
	{"models/all", "models/* models/optim/*"},
	{"models/modeltest", "internal/files models internal/graphtest models/onnx models/ports"},
	{"models/*", "models models/decoder"}, // the families

	{"runtime", "models models/onnx models/ports runtime/kernels runtime/kernels/host runtime/nccl runtime/provision runtime/internal/tiles sampler internal/settings"},
	{"runtime/kernels", "models models/onnx models/ports"},
	{"runtime/kernels/host", "runtime/kernels"},
	{"runtime/cuda/kernels", "runtime/kernels"},
	{"runtime/cuda/kernels/onhost", "runtime/kernels runtime/cuda/kernels"},
	{"runtime/cuda", "internal/files models runtime runtime/kernels runtime/cuda/kernels runtime/nccl runtime/provision"},
	{"runtime/internal/tiles", "models models/onnx"},
	{"runtime/provision", "internal/files internal/remote"},
	{"runtime/mpi", ""},
	{"runtime/nccl", ""},
	{"runtime/runtimetest", "runtime runtime/cuda runtime/cuda/kernels/onhost runtime/nccl runtime/provision models"},
	{"data", "internal/ordered internal/files internal/settings tokenize verifier"},
	{"examples/rewards/unittests", ""},

	{"reward", "data environment internal/registry sampler internal/settings"}, // sampler: for the Grader, which scores responses while others are sampled
	{"reward/all", "reward/*"},
	{"reward/rewardtest", "reward data internal/registry internal/settings"},
	{"reward/external", "reward data internal/process internal/remote"},
	{"reward/command", "reward reward/external internal/process internal/remote internal/settings"},
	{"reward/http", "reward reward/external data internal/process internal/remote internal/settings"},
	{"reward/math", "reward internal/settings verifier"},
	{"reward/texts", "internal/settings"},
	{"reward/*", "reward reward/texts data internal/settings"},

	{"environment", "data tokenize tokenize/tools internal/process internal/registry internal/settings sampler"}, // sampler: for the Player, which answers turns while others are sampled
	{"environment/all", "environment/*"},
	{"environment/environmenttest", "environment data tokenize internal/registry internal/settings"},
	{"environment/*", "environment data tokenize internal/process internal/remote internal/settings"},

	{"policy", "internal/files models models/all models/export models/lora data runtime runtime/cuda runtime/provision sampler tokenize internal/settings"},
	{"eval", "internal/files internal/stat models data environment reward sampler internal/settings"}, // models: for its atomic files

	{"train", "policy runtime train/doctor runtime/provision models models/lora internal/memory internal/settings train/learn train/metrics train/ranks train/rundir"},
	{"train/rl", "train train/streams train/doctor policy train/ranks internal/files internal/bench/limits train/learn internal/memory train/metrics train/rundir runtime runtime/provision models models/optim/adamw models/lora eval data environment environment/all objectives objectives/means objectives/all sampler tokenize reward reward/all internal/settings"},
	{"internal/bench/limits", "models models/graph runtime train/metrics"},
	{"internal/bench", "train/rl policy train internal/bench/limits train/learn internal/memory internal/stat train/metrics train/rundir runtime models sampler"},
	{"train/learn", "runtime models models/optim/adamw train/metrics internal/settings"},
	{"internal/memory", ""},
	{"train/metrics", ""},
	{"train/doctor", "data internal/stat train/metrics verifier"},
	{"train/rundir", "models/lora internal/files train/doctor train/metrics models sampler"},
	{"train/ranks", "models runtime runtime/mpi train/learn"},
	{"train/streams", "train/sft train/learn objectives policy runtime sampler tokenize internal/settings"},
	{"train/sft", "train/doctor policy internal/files train train/ranks train/learn train/metrics train/rundir runtime models models/optim/adamw data tokenize internal/settings"},

	{"serve", "environment internal/process sampler serve/openai train/doctor train/metrics"},
	{"serve/openai", "sampler internal/grammar internal/settings tokenize tokenize/tools"},

	{"report", "internal/settings train/rundir train/metrics internal/cli internal/files internal/stat objectives objectives/means tokenize data models"}, // for ESS, texts, the embedded tokenizer and atomic files
	{"report/sweep", "internal/files internal/settings internal/stat report"},
}

// testAllow lists what tests may import beyond their package's row.
var testAllow = map[string]string{
	"objectives":                 "objectives/*",
	"objectives/command":         "objectives/dapo objectives/objectivetest",
	"objectives/*":               "objectives/objectivetest",
	"objectives/policy":          "objectives/objectivetest",
	"objectives/objectivetest":   "objectives/*",
	"models":                     "models/*",
	"models/graph":               "internal/graphtest",
	"models/optim/*":             "internal/graphtest",
	"models/decoder":             "internal/graphtest models/llama models/optim/adamw",
	"models/all":                 "models models/modeltest",
	"models/export":              "models/all",
	"models/lora":                "models/all",
	"models/modeltest":           "models/llama models/decoder",
	"models/*":                   "models/modeltest",
	"runtime/kernels":            "models/all",
	"runtime":                    "runtime/runtimetest models/* models/optim/* internal/graphtest sampler", // sampler: for its Decoder
	"runtime/internal/tiles":     "models/optim/adamw models/graph",
	"train/ranks":                "runtime/runtimetest",
	"train":                      "data models/optim/adamw models/qwen2 runtime/runtimetest",
	"train/rl":                   "internal/bench runtime/runtimetest models/graph models/onnx models/qwen2 runtime/kernels/host",
	"cmd":                        "models/lora objectives runtime/runtimetest",
	"train/learn":                "runtime/runtimetest models/qwen2 train/ranks",
	"internal/bench/limits":      "models/all",
	"internal/bench":             "models/all runtime/runtimetest",
	"train/sft":                  "runtime/runtimetest models/qwen2",
	"train/streams":              "objectives/all",
	"policy":                     "models/qwen2 runtime/runtimetest",
	"eval":                       "policy reward/all models/qwen2 train runtime/runtimetest tokenize",
	"report/sweep":               "objectives",
	"reward":                     "reward/rewardtest",
	"reward/math":                "reward/rewardtest data",
	"reward/command":             "reward/rewardtest data",
	"reward/http":                "reward/rewardtest",
	"reward/*":                   "reward/rewardtest",
	"environment/all":            "environment internal/settings",
	"environment/*":              "environment/environmenttest internal/files",
	"examples/rewards/unittests": "reward reward/all reward/command reward/http data",
}

// everywhere are rooms that any package may import but those that they import themselves.
const everywhere = "internal/strict"

// cgo names the folders that may use cgo or load a library.
var cgo = []string{"runtime", "runtime/kernels", "runtime/kernels/host", "runtime/cuda", "runtime/cuda/kernels", "runtime/cuda/kernels/onhost", "runtime/nccl", "runtime/mpi", "runtime/internal/tiles"}

// forbidden are package names that say nothing.
var forbidden = []string{"util", "utils", "common", "types", "helpers", "misc"}

func TestImports(t *testing.T) {
	for _, f := range load(t).files {
		for _, complaint := range check(f.path, f.syntax.Name.Name, f.imports()) {
			t.Error(complaint)
		}
	}
}

// TestUntrained: a command that only talks to a model imports no package of training.
func TestUntrained(t *testing.T) {
	h := load(t)
	needed := map[string]bool{}
	var need func(folder string)
	need = func(folder string) {
		if !needed[folder] {
			needed[folder] = true
			for name := range h.imports(folder) {
				need(name)
			}
		}
	}
	need("policy")
	need("serve/openai")
	for folder := range needed {
		if folder == "train" || strings.HasPrefix(folder, "train/") {
			t.Errorf("policy or serve/openai needs %s", folder)
		}
	}
	if !needed["models/onnx"] {
		t.Error("nothing that policy needs was followed")
	}
}

// check returns what is wrong with the imports of one file.
func check(file, name string, imports []string) (complaints []string) {
	folder := path.Dir(file)
	name = strings.TrimSuffix(name, "_test")
	for _, bad := range forbidden {
		if name == bad || path.Base(folder) == bad {
			complaints = append(complaints, file+": a package named "+bad+" says nothing about what is in it")
		}
	}
	// The first row that matches a folder counts, so named folders stand before patterns.
	row := slices.IndexFunc(rooms, func(r struct{ path, allow string }) bool { return matches(r.path, folder) })
	if row < 0 {
		return append(complaints, file+": folder "+folder+" is not in the table of rooms")
	}
	allowed := append(strings.Fields(rooms[row].allow), strings.Fields(everywhere)...)
	if strings.HasSuffix(file, "_test.go") {
		allowed = append(allowed, strings.Fields(testAllow[rooms[row].path])...)
	}
	for _, imported := range imports {
		if imported == "C" || strings.Contains(imported, "onnxruntime") || imported == "runtime/cgo" {
			if !slices.Contains(cgo, folder) {
				complaints = append(complaints, file+": only runtime may import "+imported)
			}
			continue
		}
		ours, ok := strings.CutPrefix(imported, "onering/")
		if !ok {
			continue // a path of the standard library, or of another module
		}
		ok = ours == folder || slices.ContainsFunc(allowed, func(pattern string) bool { return matches(pattern, ours) })
		if !ok {
			complaints = append(complaints, file+": "+folder+" may not import "+ours)
		}
	}
	return complaints
}

// matches reports whether a folder is the pattern or, for "x/*", directly in x.
func matches(pattern, folder string) bool {
	if parent, ok := strings.CutSuffix(pattern, "/*"); ok {
		return path.Dir(folder) == parent
	}
	return pattern == folder
}

// TestImportsRefuses: check can fail.
func TestImportsRefuses(t *testing.T) {
	for _, tt := range []struct {
		file, name, imported string
		want                 string // "" if fine
	}{
		{"sampler/a.go", "sampler", "onering/runtime", "sampler may not import runtime"},
		{"objectives/pmpo/a.go", "pmpo", "onering/objectives", ""},
		{"objectives/pmpo/a.go", "pmpo", "onering/objectives/grpo", "objectives/pmpo may not import objectives/grpo"},
		{"objectives/a.go", "objectives", "onering/objectives/all", "objectives may not import objectives/all"},
		{"objectives/a_test.go", "objectives_test", "onering/objectives/all", ""},
		{"train/a.go", "train", "onering/objectives/all", "train may not import objectives/all"},
		{"train/rl/a.go", "rl", "onering/objectives/all", ""},
		{"train/a.go", "train", "onering/cmd/onering", "train may not import cmd/onering"},
		{"objectives/pmpo/a.go", "pmpo", "onering/objectives/objectivetest", "objectives/pmpo may not import objectives/objectivetest"},
		{"objectives/pmpo/a_test.go", "pmpo_test", "onering/objectives/objectivetest", ""},
		{"models/graph/a.go", "graph", "onering/models/qwen2", "models/graph may not import models/qwen2"},
		{"sampler/a.go", "sampler", "C", "only runtime may import C"},
		{"runtime/a.go", "runtime", "C", ""},
		{"train/a.go", "train", "github.com/yalue/onnxruntime_go", "only runtime may import github.com/yalue/onnxruntime_go"},
		{"sampler/util/a.go", "util", "fmt", "a package named util says nothing"},
		{"elsewhere/a.go", "elsewhere", "fmt", "not in the table of rooms"},
	} {
		got := strings.Join(check(tt.file, tt.name, []string{tt.imported}), "\n")
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("check(%q imports %q) = %q, want %q", tt.file, tt.imported, got, tt.want)
		}
	}
}
