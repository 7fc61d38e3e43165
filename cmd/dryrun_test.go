//go:build linux

package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"onering/data"
	"onering/runtime"
	"onering/train/rl"
)

// The figures of `train --dry-run` for the run without a run file are those that the run
// takes, as the system counts them.
func TestDryRunMeasured(t *testing.T) {
	measureRun(t, 0.9, 1.1, "--set", "train.rounds=4")
}

// TestDryRunAdapterMeasured: so are those of an adapter.
func TestDryRunAdapterMeasured(t *testing.T) {
	if os.Getenv("ONERING_LONG") == "" {
		t.Skip("trains for half a minute: set ONERING_LONG=1")
	}
	measureRun(t, 0.97, 1.25, besideNF4(wideModel(t), 64, 16, 6)...) // some responses end before, and prompts this long are mostly shared
}

// TestDryRunLargeMeasured: and of an adapter of a model of a gigabyte.
func TestDryRunLargeMeasured(t *testing.T) {
	if os.Getenv("ONERING_LONG") == "" {
		t.Skip("makes a model of a gigabyte: set ONERING_LONG=1")
	}
	half := filepath.Join(t.TempDir(), "half")
	config, tokenizer := filepath.Join("..", "bench", "qwen2.5-0.5b"), filepath.Join("..", "data", "arithmetic", "model")
	if c := program("init", "--config", config, "--tokenizer", tokenizer, "--dtype", "bfloat16", "--out", half, "-q"); c.Run() != nil {
		t.Fatal(c.Stderr)
	}
	if measured := measureRun(t, 0.97, 1.15, besideNF4(half, 4, 8, 128)...); measured > 4e9 {
		t.Errorf("an adapter of the 0.5B shape beside a base in NF4 takes %.2f GB, want at most 4", float64(measured)/1e9)
	}
}

// measureRun compares the peak that train --dry-run estimates with that of the run, and returns the latter in bytes.
// Their ratio must be from least to most.
func measureRun(t *testing.T, least, most float64, args ...string) (measured int64) {
	t.Helper()
	switch {
	case testing.Short():
		t.Skip("trains for some seconds")
	case !libraryFound():
		t.Skip("no ONNX Runtime library: run onering doctor")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// TestMain makes the test binary the program where it is called by its name.
	onering := func(more ...string) (stdout []byte, peak int64) {
		c := exec.Command(self)
		c.Args = slices.Concat([]string{"onering", "train", "-q"}, args, more)
		stdout, err := c.Output()
		if err != nil {
			t.Fatalf("%v: %v", c.Args, err)
		}
		return stdout, c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	}
	text, _ := onering("--dry-run", "--json")
	var e rl.MemoryEstimate
	if err := json.Unmarshal(text, &e); err != nil {
		t.Fatal(err)
	}
	_, measured = onering("--out", filepath.Join(t.TempDir(), "run"))
	ratio := float64(e.Peak) / float64(measured)
	t.Logf("estimated %.1f MB, measured %.1f MB: %.3f", float64(e.Peak)/1e6, float64(measured)/1e6, ratio)
	if ratio < least || ratio > most {
		t.Errorf("the estimate is %.3f of what was measured, want %g to %g", ratio, least, most)
	}
	return measured
}

// besideNF4 returns the flags of a run that trains an adapter beside a base in NF4, with kl_beta so that every response
// has a gradient.
func besideNF4(model string, prompts, samples, tokens int) (args []string) {
	for _, s := range []string{"lora.on=true", "model.base_dtype=nf4", "model.dtype=bfloat16", "model.path=" + model, "model.template=no", "data.train=" + data.Arithmetic, "eval.suites=",
		"train.rounds=1", "rollout.max_prompt_tokens=9", "objective.kl_beta=0.05", fmt.Sprint("train.batch_size=", prompts*samples),
		fmt.Sprint("rollout.prompts_per_round=", prompts), fmt.Sprint("rollout.samples_per_prompt=", samples), fmt.Sprint("rollout.max_new_tokens=", tokens)} {
		args = append(args, "--set", s)
	}
	return args
}

// TestForeseen: a dry run refuses a run for which the device that auto chooses has too little
// memory.
func TestForeseen(t *testing.T) {
	c := newRoot()
	c.SetContext(t.Context())
	for device, want := range map[string]string{"cpu": "cpu", "cuda:3": "cuda:3"} {
		config := rl.Default()
		config.Runtime.Device = device
		if got, err := foreseenDevice(c, config.Runtime, config.LoRA, config.Model.DType); err != nil || got != want {
			t.Errorf("%s: %q, %v", device, got, err)
		}
	}
	config := rl.Default()
	config.Runtime.Device = "auto"
	if got, err := foreseenDevice(c, config.Runtime, config.LoRA, config.Model.DType); err != nil || got == "auto" || !runtime.IsDevice(got) {
		t.Errorf("auto: %q, %v", got, err)
	}
}

// TestAutoTypes: validation passes types with device auto; where auto turns out to be a
// device without these types, the command refuses them before it opens a model.
func TestAutoTypes(t *testing.T) {
	for _, x := range []struct{ device, dtype, base, want string }{
		{"cpu", "float32", "int8", ""},
		{"cpu", "bfloat16", "nf4", ""},
		{"cpu", "float16", "int8", `lora.base_dtype = "int8": goes with model.dtype float32 or bfloat16`},
		{"cpu", "bfloat16", "float32", ""},
		{"cuda:0", "float32", "float32", ""},
		{"cuda:0", "bfloat16", "float32", ""},
		{"cuda:0", "float32", "int8", `auto is cuda:0 on this machine, and lora.base_dtype = "int8": is for the CPU`},
	} {
		err := checkAuto(x.device, x.base, x.dtype)
		if err == nil && x.want != "" || err != nil && (x.want == "" || !isUsage(err) || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%+v: %v", x, err)
		}
	}
	c := newRoot()
	c.SetContext(t.Context())
	device, _, err := runtime.Options{Device: "auto"}.Foresee(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if device == "cpu" {
		return // which has every type
	}
	config := rl.Default()
	config.Runtime.Device, config.LoRA.On, config.LoRA.BaseDType = "auto", true, "int8"
	_, err = foreseenDevice(c, config.Runtime, config.LoRA, config.Model.DType)
	_, opening := (&resolved{Config: config}).open(c, nil)
	for _, err := range []error{err, opening} {
		if err == nil || !strings.Contains(err.Error(), "the device auto is "+device) {
			t.Errorf("%s: %v", device, err)
		}
	}
}

func init() { programs["weighed"] = weighed }

// weighed runs the onering beside it and writes the most memory that it took, in bytes,
// into the file $WEIGHED.RANK.
func weighed() {
	c := exec.Command(filepath.Join(filepath.Dir(os.Args[0]), "onering"), os.Args[1:]...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	err := c.Run()
	peak := c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	file := os.Getenv("WEIGHED") + "." + os.Getenv("OMPI_COMM_WORLD_RANK")
	if err = errors.Join(err, os.WriteFile(file, fmt.Append(nil, peak), 0o666)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The figures of `train --dry-run` for two ranks are what each takes and sends: with all
// moments and with half of them, with a checkpoint after a round and inside one, with
// responses of the longest length. With a model of 24 million parameters most of the
// memory is estimated exactly.
func TestDryRunRanksMeasured(t *testing.T) {
	if os.Getenv("ONERING_LONG") == "" {
		t.Skip("trains six times in several processes: set ONERING_LONG=1")
	}
	l := newLauncher(t)
	model := wideModel(t)
	settings := func(shard string, batch, steps int) (args []string) {
		for _, s := range []string{
			"model.path=" + model, "model.template=no", "data.train=" + data.Arithmetic, "eval.suites=", "distributed.shard=" + shard,
			"train.rounds=1", fmt.Sprint("train.batch_size=", batch), fmt.Sprint("train.save_steps=", steps), "rollout.prompts_per_round=8", "rollout.samples_per_prompt=4",
			"rollout.max_prompt_tokens=9", "rollout.max_new_tokens=6", "reward.name=length", "reward.kind=linear", "reward.target=2", "reward.max_length=8",
		} {
			args = append(args, "--set", s)
		}
		return append(args, "-q", "--json")
	}
	var peaks []int64
	for _, run := range []struct {
		shard        string
		batch, steps int // the first of two steps between two checkpoints of a round
	}{{"none", 32, 0}, {"optimizer", 32, 0}, {"optimizer", 16, 1}} {
		shard, settings := run.shard, settings(run.shard, run.batch, run.steps)
		var e, planned rl.MemoryEstimate
		for n, into := range map[int]*rl.MemoryEstimate{1: &planned, 2: &e} {
			args := append([]string{"train", "--dry-run"}, settings...)
			if n == 1 {
				args = append(args, "--ranks", "2")
			}
			if err := json.Unmarshal([]byte(l.run(n, "", args...)), into); err != nil {
				t.Fatal(err)
			}
		}
		if e.Ranks != 2 || e.OnHost != 2 || planned.OnHost != 1 || planned.Peak != e.Peak || planned.Sent != e.Sent {
			t.Errorf("%s: two ranks find %+v, a plan for two %+v", shard, e, planned)
		}
		dir := filepath.Join(t.TempDir(), "run")
		c := l.command(2, "weighed", append(append([]string{"train"}, settings...), "--report=false", "--out", dir)...)
		c.Env = append(c.Env, "WEIGHED="+dir)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		first := max(e.Peak, e.Writing)
		if run.steps > 0 { // The checkpoint is written while the next step is taken.
			first += e.Copy
		}
		for rank, want := range []int64{first, e.Peak} {
			text, err := os.ReadFile(fmt.Sprint(dir, ".", rank))
			if err != nil {
				t.Fatal(err)
			}
			var measured int64
			fmt.Sscan(string(text), &measured)
			ratio := float64(want) / float64(measured)
			t.Logf("%s: rank %d: estimated %.1f MB, measured %.1f MB: %.3f", shard, rank, float64(want)/1e6, float64(measured)/1e6, ratio)
			// With sequences this short the estimates of activations and of the program are too
			// high.
			if ratio < 0.97 || ratio > 1.15 {
				t.Errorf("%s: rank %d: the estimate is %.3f of what was measured, want 0.97 to 1.15", shard, rank, ratio)
			}
			peaks = append(peaks, measured)
		}
		records, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
		if sent := fmt.Sprintf(`"ranks/sent_bytes":%d,`, e.Sent); err != nil || !strings.Contains(string(records), sent) {
			t.Errorf("%s: want %s in the records: %v", shard, sent, err)
		}
	}
	// Half of the moments makes a fifth of the memory of rank 1.
	if saved := peaks[1] - peaks[3]; saved < 80e6 || saved > 110e6 {
		t.Errorf("rank 1 takes %.1f MB less with half of the moments, of %.1f MB; all: %v", float64(saved)/1e6, float64(peaks[1])/1e6, peaks)
	}
}

// wideModel writes a model of 24 million random parameters with the embedded one's
// tokenizer.
func wideModel(t *testing.T) (dir string) {
	t.Helper()
	embedded := filepath.Join("..", "data", "arithmetic", "model")
	text, err := os.ReadFile(filepath.Join(embedded, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]int{"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4} {
		config[key] = value
	}
	file := filepath.Join(t.TempDir(), "config.json")
	if text, err = json.Marshal(config); err == nil {
		err = os.WriteFile(file, text, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "wide")
	if c := program("init", "--config", file, "--tokenizer", embedded, "--out", dir, "-q"); c.Run() != nil {
		t.Fatal(c.Stderr)
	}
	return dir
}
