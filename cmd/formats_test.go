package cmd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFormats opens run folders that earlier versions wrote (testdata/formats/make made
// them). The test checks each folder, makes its report and resumes it to the end. It
// evaluates runs of onering train and of onering sft.
func TestFormats(t *testing.T) {
	if !libraryFound() {
		t.Skip("no ONNX Runtime library: run onering doctor")
	}
	home := t.TempDir()
	if err := os.CopyFS(home, os.DirFS("testdata/formats")); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), "onering")
	if err := os.Symlink(self, bin); err != nil { // Called by this name, the test binary is the program onering.
		t.Skip(err)
	}
	runs, _ := filepath.Glob(filepath.Join(home, "*", "*", "run.toml"))
	if len(runs) != 7 {
		t.Fatalf("only %v", runs)
	}
	for _, file := range runs {
		dir, _ := filepath.Rel(home, filepath.Dir(file))
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			onering := func(args ...string) string {
				t.Helper()
				c := exec.Command(bin, args...)
				c.Dir, c.Env = home, append(os.Environ(), "ONERING_OFFLINE=1")
				out, err := c.CombinedOutput()
				if err != nil {
					t.Fatalf("onering %s: %v\n%s", strings.Join(args, " "), err, out)
				}
				return string(out)
			}
			if out := onering("check", dir); strings.Count(out, ": ok\n") < 2 {
				t.Errorf("checked %s", out)
			}
			onering("report", dir, "-q", "-o", filepath.Join(t.TempDir(), "report.html"))
			command, last := "train", "checkpoints/step-000004/state/SHA256SUMS"
			if filepath.Base(dir) == "sft" {
				command, last = "sft", "model.safetensors"
			}
			if out := onering(command, "--resume", "--out", dir, "--report=false"); !strings.Contains(out, "resuming") || !strings.Contains(out, "step=1") {
				t.Errorf("resumed with %s", out)
			}
			if _, err := os.Stat(filepath.Join(home, dir, last)); err != nil {
				t.Error(err)
			}
			onering("check", dir)
			if command == "sft" {
				onering("eval", "--model", dir, "--suite", "problems.jsonl", "--max-tokens", "4", "-q")
			}
		})
	}
}
