package graphtest

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"onering/models"
)

//go:embed check.py
var script string

// Loaded loads a Program that was just built. An error of either ends the test.
func Loaded(t testing.TB, p models.Program, err error) *Graph {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	g, err := Load(p)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Check passes Programs through the official ONNX checker and its strict shape inference, and compares the outputs'
// stated shapes with those inferred. It needs a Python with the onnx package, named by the environment variable
// ONERING_PYTHON or else python3, and skips the test without one.
func Check(t *testing.T, programs ...models.Program) {
	t.Helper()
	python, err := interpreter()
	if err != nil {
		t.Skip(err)
	}
	for _, problem := range check(t, python, programs) {
		t.Error(problem)
	}
}

func interpreter() (string, error) {
	python := os.Getenv("ONERING_PYTHON")
	if python == "" {
		python = "python3"
	}
	if out, err := exec.Command(python, "-c", "import onnx").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s can't import onnx, and ONERING_PYTHON names no other interpreter: %v: %s", python, err, out)
	}
	return python, nil
}

// check runs the script over the Programs' files and returns how it ended and the lines that it wrote, if it failed.
func check(t *testing.T, python string, programs []models.Program) (problems []string) {
	dir := t.TempDir()
	args := []string{"-"} // the script comes from the standard input
	for i, p := range programs {
		path := filepath.Join(dir, fmt.Sprintf("%04d.onnx", i))
		if err := os.WriteFile(path, p.ONNX().Encode(), 0o666); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	run := exec.Command(python, args...)
	run.Stdin = strings.NewReader(script)
	out, err := run.CombinedOutput()
	if err == nil {
		return nil
	}
	problems = []string{err.Error()}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		for i, p := range programs {
			line = strings.ReplaceAll(line, args[i+1], p.Name)
		}
		problems = append(problems, line)
	}
	return problems
}
