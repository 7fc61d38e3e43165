package cmd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// onering runs a command line in this process.
func onering(args ...string) (code int, stderr string) {
	var out, err bytes.Buffer
	code = run(args, strings.NewReader(""), &out, &err)
	return code, err.String()
}

// TestPreflight: what would end a run before it samples also ends its dry run: missing and
// damaged data, templates that name no column, programs that are not there, a folder in use.
func TestPreflight(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const row = `{"problem":"1+1=","answer":"2"}` + "\n"
	good, bad, unanswered := write("good.jsonl", row), write("bad.jsonl", row+`{"problem":`), write("unanswered.jsonl", row+`{"problem":"1"}`+"\n"+`{"problem":"2"}`+"\n")
	of := func(path string, more ...string) []string {
		return append([]string{"model.path=builtin:arithmetic", "model.template=no", "data.train=" + path}, more...)
	}
	for _, x := range []struct {
		sets []string
		want string // "" passes
	}{
		{nil, ""},
		{of(good), ""},
		{of(good, "eval.suites="+good), ""},
		{of(bad), "line 2"},
		{of(filepath.Join(dir, "none.jsonl")), "no such file"},
		{of(unanswered), "2 of the 3 rows"},
		{of(good, "model.template={problem} {nope}"), "{nope}"},
		{of(good, "eval.suites="+bad), "eval.suites"},
		{of(good, "eval.suites="+filepath.Join(dir, "none.jsonl")), "eval.suites"},
		{of(good, "data.curriculum=level"), "level"},
		{of(good, "rollout.max_prompt_tokens=1"), "rollout.max_prompt_tokens"},
		{[]string{"reward.name=command", `reward.command=["no-such-program"]`}, "no-such-program"},
		{[]string{"reward.name=command", `reward.command=["sh","nosuch.sh"]`}, "nosuch.sh"},
		{[]string{`reward.use=[{name="math"},{name="command",command=["no-such-program"]}]`}, "no-such-program"},
		{[]string{"environment.name=command", `environment.command=["no-such-program"]`}, "no-such-program"},
		{[]string{"environment.name=mcp", `environment.command=["no-such-program"]`}, "no-such-program"},
		{[]string{"environment.name=program", `environment.command=["no-such-program"]`}, "no-such-program"},
		{[]string{"environment.name=program"}, "--serve"},
		{[]string{`output.sink=["no-such-program"]`}, "no-such-program"},
		{[]string{"output.dir=" + dir}, "is not empty"},
	} {
		args := []string{"train", "--dry-run", "-q"}
		for _, s := range x.sets {
			args = append(args, "--set", s)
		}
		code, stderr := onering(args...)
		if (code == 0) != (x.want == "") || !strings.Contains(stderr, x.want) {
			t.Errorf("%v: exit code %d, want %q\n%s", x.sets, code, x.want, stderr)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
		t.Errorf("the dry runs wrote something: %v %v", entries, err)
	}
}

// TestIdleSettings: a setting without effect is warned of once, with its place. One of an
// adapter that is not trained is refused on the command line, and so is --lora beside
// lora.on=false.
func TestIdleSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.toml")
	if err := os.WriteFile(file, []byte("[optimizer]\nfloor = 0.1\n[lora]\nrank = 4\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"--set", "optimizer.floor=0.1"}, 0, []string{"setting=optimizer.floor", "optimizer.schedule is not constant"}},
		{[]string{"--set", "optimizer.floor=0.1", "--set", "optimizer.schedule=linear"}, 0, nil},
		{[]string{"--set", "train.keep_last=2"}, 0, []string{"setting=train.keep_last", "train.save_every is not 0 or train.save_steps is not 0"}},
		{[]string{"--set", "train.keep_last=2", "--set", "train.save_steps=4"}, 0, nil},
		{[]string{"--set", "environment.max_turns=3"}, 0, []string{"environment.name is not single"}},
		{[]string{"--set", "eval.suites=", "--set", "eval.samples=4"}, 0, []string{"eval.suites is not empty"}},
		{[]string{"--objective", "grpo", "--set", "objective.constant_length=99"}, 0, []string{"objective.aggregate is constant"}},
		{[]string{"--config", file, "--set", "model.path=builtin:arithmetic", "--set", "model.template=no", "--set", "data.train=builtin:arithmetic"}, 0,
			[]string{"run.toml:2", "setting=lora.rank", "lora.on is true"}},
		{[]string{"--set", "lora.rank=4"}, 2, []string{"--set lora.rank=4 has no effect", "--lora"}},
		{[]string{"--set", "lora.base_dtype=int8"}, 2, []string{"--set lora.base_dtype=int8: lora.base_dtype", "is for an adapter (lora.on)"}},
		{[]string{"--lora", "--set", "model.base_dtype=nf4", "--set", "model.dtype=bfloat16"}, 0, nil},
		{[]string{"--lora", "--set", "lora.rank=4"}, 0, nil},
		{[]string{"--lora", "--set", "lora.on=false"}, 2, []string{"--lora", "--set lora.on=false"}},
		{[]string{"--api-key-env", "HOME"}, 2, []string{"--api-key-env"}},
	} {
		code, stderr := onering(append([]string{"train", "--dry-run", "-q"}, x.args...)...)
		if warned := strings.Count(stderr, "a setting has no effect"); code != x.code || x.want == nil && warned > 0 || x.code == 0 && x.want != nil && warned == 0 {
			t.Errorf("%v: exit code %d\n%s", x.args, code, stderr)
		}
		for _, want := range x.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("%v: want %q in\n%s", x.args, want, stderr)
			}
		}
	}
}

// TestGreedyFlags: a filter of tokens beside greedy decoding is warned of.
func TestGreedyFlags(t *testing.T) {
	if !libraryFound() {
		t.Skip("no ONNX Runtime library: run onering doctor")
	}
	rows := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(rows, []byte(`{"prompt":"1+1="}`+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[string]string{"--temperature=0 --top-p=0.5": "setting=--top-p", "--greedy --top-k=5": "setting=--top-k", "--greedy --top-k=0 --temperature=0.5": "setting=--top-k", "--top-k=5": "", "--greedy": ""} {
		code, stderr := onering(append([]string{"generate", "--model=builtin:arithmetic", "--template=no", "--max-tokens=2", "-q", rows}, strings.Fields(flags)...)...)
		if code != 0 || (want == "") != !strings.Contains(stderr, "no effect on greedy decoding") || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d\n%s", flags, code, stderr)
		}
	}
}

// TestForeignFlags: a flag of another trainer is answered with the flag of the command, in
// hyphens or underscores.
func TestForeignFlags(t *testing.T) {
	for foreign, own := range map[string]string{
		"learning-rate": "lr", "num-train-epochs": "epochs", "per_device_train_batch_size": "batch-size", "max-seq-length": "max-tokens", "save_total_limit": "keep-last",
		"lr-scheduler-type": "schedule", "output-dir": "out", "model_name_or_path": "model", "gradient-accumulation-steps": "micro-tokens", "bf16": "compute", "use-peft": "lora",
		"lora-r": "lora-rank", "warmup-ratio": "warmup", "dataset-name": "data", "batch_size": "batch-size", "weight_decay": "weight-decay", "adam_beta2": "beta2",
	} {
		if _, stderr := onering("sft", "--"+foreign, "1"); !strings.Contains(stderr, " is --"+own) {
			t.Errorf("sft --%s, want --%s: %s", foreign, own, stderr)
		}
	}
	for _, x := range [][3]string{
		{"train", "learning-rate", "--lr:"}, {"train", "output_dir", "--out:"}, {"train", "epochs", "--set train.epochs"}, {"generate", "max_new_tokens", "--max-tokens"},
		{"eval", "num-samples", "--samples:"}, {"serve", "model-name-or-path", "--model:"}, {"merge", "output-dir", "--out:"},
		{"eval", "data", "--suite:"}, {"eval", "tasks", "--suite:"}, {"eval", "batch_size", "--slots:"}, {"eval", "model_args", "--model:"}, {"eval", "output_path", "--out:"},
		{"eval", "num-generations", "--samples:"}, {"eval", "apply_chat_template", "--template:"}, {"eval", "num_fewshot", "without examples"}, {"eval", "answer-key", "--answer:"},
		{"generate", "data", "it has no flag, as in onering generate"}, {"generate", "output", "standard output"}, {"generate", "n", "--samples:"},
		{"generate", "lora-path", "--adapter:"}, {"grade", "data", "as in onering grade [FILE]"}, {"grade", "gold", "found by their names"},
		{"verify", "input", "as in onering verify [FILE]"}, {"serve", "dataset", "no data are read"}, {"serve", "port", "--addr:"}, {"serve", "max-model-len", "--context:"},
		{"serve", "served-model-name", "--name:"}, {"serve", "tensor-parallel-size", "mpirun"}, {"serve", "chat-template", "--template:"}, {"serve", "max-num-seqs", "--slots:"},
		{"chat", "system-prompt", "--system:"}, {"train", "port", "unknown flag: --port"}, {"train", "suite", "--set eval.suites"}, {"sft", "val-set-size", "--held-out:"},
	} {
		if _, stderr := onering(x[0], "--"+x[1], "1"); !strings.Contains(stderr, x[2]) {
			t.Errorf("%s --%s, want %s: %s", x[0], x[1], x[2], stderr)
		}
	}
	if _, stderr := onering("sft", "--model_name_or_path=m", "--dataset_name", "d", "--bf16", "--out", "o"); strings.Count(stderr, "; here it is --") != 3 {
		t.Errorf("not all unknown flags are answered at once: %s", stderr)
	}
	if _, stderr := onering("serve", "DIR"); !strings.Contains(stderr, "a model is named with --model DIR") {
		t.Error(stderr)
	}
}
