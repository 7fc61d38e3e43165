//go:build unix

package cmd

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"onering/runtime/runtimetest"
)

// TestMain makes the test binary a program that a launcher starts with several ranks.
type launcher struct {
	t      *testing.T
	folder string // with links to the test binary, which TestMain runs by its name
	env    []string
}

// newLauncher skips the test where Open MPI or ONNX Runtime is missing.
func newLauncher(t *testing.T) launcher {
	t.Helper()
	if version, err := exec.Command("mpirun", "--version").Output(); err != nil || !strings.Contains(string(version), "Open MPI") {
		t.Skipf("mpirun of Open MPI cannot be run: %v", err)
	}
	if !libraryFound() {
		t.Skip("no ONNX Runtime library: run onering doctor")
	}
	l := launcher{t, t.TempDir(), append(program().Env, "ONERING_RUNTIME_THREADS=1")}
	for _, name := range []string{"onering", "weighed"} {
		if err := os.Symlink(os.Args[0], filepath.Join(l.folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// command starts a program of the folder with n ranks; 1 is without a launcher.
func (l launcher) command(n int, name string, args ...string) *exec.Cmd {
	name = filepath.Join(l.folder, name)
	c := exec.Command(name, args...)
	if n > 1 {
		c = exec.Command("mpirun", append([]string{"--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", strconv.Itoa(n), name}, args...)...)
	}
	c.Env = l.env
	return c
}

// run returns what n ranks of onering print.
func (l launcher) run(n int, stdin string, args ...string) (stdout string) {
	l.t.Helper()
	c := l.command(n, "onering", args...)
	var out, errs bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(stdin), &out, &errs
	if err := c.Run(); err != nil {
		l.t.Fatalf("%d ranks of onering %s: %v\n%s%s", n, strings.Join(args, " "), err, &out, &errs)
	}
	return out.String()
}

// generate and eval print the same bytes with any number of ranks, also with prompts that
// cannot be read and with more ranks than problems.
func TestRanksPrintTheSame(t *testing.T) {
	l := newLauncher(t)
	var prompts strings.Builder
	for _, text := range []string{"41+1=", "7+38=", "not a sum", "900-1=", "5+5=", "12+13="} {
		prompts.WriteString(`{"prompt":"` + text + `"}` + "\n")
	}
	suite := filepath.Join(t.TempDir(), "held.jsonl")
	if err := os.WriteFile(suite, []byte(l.run(1, "", "data", "arithmetic", "-n", "3", "--held-out")), 0o666); err != nil {
		t.Fatal(err)
	}
	var generated, report, lines []string
	for _, n := range []int{1, 2, 4} {
		c := l.command(n, "onering", "generate", "--model", "builtin:arithmetic", "-q", "-n", "3", "--slots", "4", "--seed", "5", "--max-tokens", "20", "--invariant")
		c.Stdin = strings.NewReader(prompts.String())
		out, err := c.Output()
		if err == nil || strings.Count(string(out), "\n") != 16 || !strings.Contains(string(out), `"error":`) {
			t.Errorf("%d ranks: want an error for the third prompt beside 15 lines: %v\n%s", n, err, out)
		}
		generated = append(generated, string(out))
		file := filepath.Join(t.TempDir(), "out.jsonl")
		report = append(report, l.run(n, "", "eval", "--model", "builtin:arithmetic", "--template", "no", "--suite", suite, "--samples", "3", "--max-tokens", "20", "--json", "-q", "--out", file))
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sorted := slices.Sorted(strings.Lines(string(text)))
		lines = append(lines, strings.Join(sorted, ""))
	}
	for i, all := range [][]string{generated, report, lines} {
		if all[1] != all[0] || all[2] != all[0] {
			t.Errorf("%s depends on the number of ranks:\n%s", []string{"generate", "eval", "eval --out"}[i], strings.Join(all, "\n\n"))
		}
	}
}

// A mistake that all ranks find, before or after they have connected, is printed once.
func TestRanksSayItOnce(t *testing.T) {
	l := newLauncher(t)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"train", "--set", "nonsense=1"}, "stands outside the sections"},
		{[]string{"train", "--config", "-"}, "--config -: only the first"},
		{[]string{"train", "--ranks", "4"}, "--ranks goes with --dry-run"},
		{[]string{"train", "--dry-run", "--ranks", "4"}, "a launcher has started 3 ranks"},
		{[]string{"sft", "--model", "builtin:arithmetic", "--data", "none.jsonl", "--out", filepath.Join(t.TempDir(), "out")}, "none.jsonl"},
		{[]string{"bench", "--config", "x"}, "runs in one process"},
		{[]string{"generate", "--model", "builtin:arithmetic", ":", "-n", "1", filepath.Join(l.folder, "onering"), "eval", "--model", "builtin:arithmetic", "--suite", "arithmetic"}, "rank 3 has another command than rank 0: onering eval, not onering generate"},
	} {
		out, err := l.command(3, "onering", tt.args...).CombinedOutput()
		if n := strings.Count(string(out), tt.want); err == nil || n != 1 {
			t.Errorf("%v: %q is said %d times: %v\n%s", tt.args, tt.want, n, err, out)
		}
	}
}

// startTraining starts a command that trains in a folder, and waits for three steps. The
// buffer receives its stderr.
func startTraining(t *testing.T, c *exec.Cmd, dir string) *bytes.Buffer {
	t.Helper()
	var errs bytes.Buffer
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); steps(dir) < 3; time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("no steps after a minute")
		}
	}
	return &errs
}

// SIGUSR1 to mpirun stops all ranks in order, with a checkpoint that another number of
// ranks resumes.
func TestRanksSignal(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for some seconds")
	}
	l := newLauncher(t)
	dir := filepath.Join(t.TempDir(), "run")
	settings := []string{"train", "-q", "--json", "--report=false", "--out", dir}
	for _, s := range []string{"rollout.prompts_per_round=8", "rollout.samples_per_prompt=4", "train.batch_size=16", "train.save_minutes=0", "eval.suites="} {
		settings = append(settings, "--set", s)
	}
	c := l.command(2, "onering", append(settings, "--set", "train.rounds=1000")...)
	errs := startTraining(t, c, dir)
	c.Process.Signal(syscall.SIGUSR1)
	err := c.Wait()
	if code := c.ProcessState.ExitCode(); code != 128+int(syscall.SIGUSR1) || strings.Count(errs.String(), "stopped; to continue") != 1 {
		t.Errorf("exit code %d, %v\n%s", code, err, errs)
	}
	s := lastState(t, dir)
	if s.Step != steps(dir) {
		t.Errorf("the checkpoint is of step %d of %d", s.Step, steps(dir))
	}
	l.run(3, "", append(settings, "--set", "train.rounds="+strconv.Itoa(s.Step/2+2), "--resume")...)
	if n := steps(dir); n <= s.Step {
		t.Errorf("%d steps after %d", n, s.Step)
	}
}

// Ranks that are processes, whose devices send to each other by NCCL, end with the
// weights of a run by MPI, and the log says how they were linked. If one rank hangs, the
// other stops waiting, names it, and saves its own state.
func TestRanksByNCCL(t *testing.T) {
	if os.Getenv("ONERING_LONG") == "" {
		t.Skip("trains for half a minute: set ONERING_LONG=1")
	}
	l := newLauncher(t)
	runtimetest.NCCL(t, "..")
	library := "ONERING_NCCL=" + os.Getenv("ONERING_NCCL")
	arguments := func(dir string, rounds int, more ...string) []string {
		a := []string{"train", "-q", "--json", "--report=false", "--out", dir}
		for _, s := range append(more, "runtime.device=stand-in", "rollout.prompts_per_round=8", "rollout.samples_per_prompt=4", "train.batch_size=16", "eval.suites=", "distributed.timeout=3", fmt.Sprint("train.rounds=", rounds)) {
			a = append(a, "--set", s)
		}
		return a
	}
	base := l.env
	weights := map[string]string{}
	for how, env := range map[string]string{"nccl 2.27.3": library, "mpi: rank 0: a stand-in has no NCCL but that of ONERING_NCCL": "ONERING_NCCL="} {
		dir := filepath.Join(t.TempDir(), "run")
		l.env = append(slices.Clone(base), env)
		l.run(3, "", arguments(dir, 3, "distributed.shard=optimizer")...)
		log, _ := os.ReadFile(filepath.Join(dir, "log.txt"))
		if !strings.Contains(string(log), how) {
			t.Errorf("the log does not say %q:\n%s", how, log)
		}
		files, _ := filepath.Glob(filepath.Join(dir, "checkpoints", "*", "model.safetensors"))
		text, err := os.ReadFile(files[len(files)-1])
		if err != nil {
			t.Fatal(err)
		}
		weights[string(text)] = how
	}
	if len(weights) != 1 {
		t.Error("the weights are others than by MPI")
	}

	l.env = append(slices.Clone(base), library)
	dir := filepath.Join(t.TempDir(), "run")
	c := l.command(2, "onering", arguments(dir, 1000, "train.save_minutes=0")...)
	errs := startTraining(t, c, dir)
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", c.Process.Pid, c.Process.Pid))
	ranks := strings.Fields(string(children))
	if len(ranks) != 2 {
		t.Fatalf("mpirun has the children %q", ranks)
	}
	second, _ := strconv.Atoi(ranks[1])
	syscall.Kill(second, syscall.SIGSTOP)
	began := time.Now()
	err := c.Wait()
	if err == nil || time.Since(began) > 30*time.Second || !strings.Contains(errs.String(), "has given no sign of life for 3s") {
		t.Errorf("ended after %v with %v:\n%s", time.Since(began), err, errs)
	}
	if s := lastState(t, dir); s.Step < 2 {
		t.Errorf("the checkpoint is of step %d of %d", s.Step, steps(dir))
	}
}
