package cmd

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"onering/train/rl"
)

// TestCalculator: the example learns to call a calculator in the first of two turns.
func TestCalculator(t *testing.T) {
	if !libraryFound() {
		t.Skip("no ONNX Runtime library: run onering doctor")
	}
	if testing.Short() {
		t.Skip("trains for some seconds")
	}
	c := program("train", "--config", filepath.Join("..", "examples", "calculator", "run.toml"), "--set", "model.path="+filepath.Join("..", "examples", "calculator", "model"),
		"--set", "train.rounds=10", "--out", filepath.Join(t.TempDir(), "run"), "--json")
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &said)
	}
	var s rl.Summary
	if err := json.Unmarshal(c.Stdout.(*bytes.Buffer).Bytes(), &s); err != nil || len(s.Suites) != 1 {
		t.Fatalf("%v: %s", err, c.Stdout)
	}
	if x := s.Suites[0]; *x.Before > 0.3 || x.After < 0.8 || s.LogPGap > 1e-4 {
		t.Errorf("from %v to %v, the gap is %g", *x.Before, x.After, s.LogPGap)
	}
}
