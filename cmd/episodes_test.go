package cmd

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"onering/eval"
	"onering/train/rl"
)

// TestCalculator: the example learns to call a calculator in the first of two turns, and eval
// plays its environment.
func TestCalculator(t *testing.T) {
	if !libraryFound() {
		t.Skip("no ONNX Runtime library: run onering doctor")
	}
	if testing.Short() {
		t.Skip("trains for some seconds")
	}
	dir := filepath.Join(t.TempDir(), "run")
	c := program("train", "--config", filepath.Join("..", "examples", "calculator", "run.toml"), "--set", "model.path="+filepath.Join("..", "examples", "calculator", "model"),
		"--set", "train.rounds=10", "--out", dir, "--json")
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
	measure := func(args ...string) (of eval.Settings, pass1 float64) {
		var r eval.Report
		if err := json.Unmarshal([]byte(commandLine(t, "", append([]string{"eval", "--model", dir, "--json"}, args...)...)), &r); err != nil {
			t.Fatal(err)
		}
		return r.Settings, r.Suites[0].Pass1.Value
	}
	if of, got := measure(); got != s.Suites[0].After || !strings.Contains(of.Environment, "name=tools") {
		t.Errorf("eval finds %v in %q, training %v", got, of.Environment, s.Suites[0].After)
	}
	if of, got := measure("--limit", "64", "--set", "environment.name=single"); got > 0.3 || of.Environment != "" {
		t.Errorf("in single turns %v are right, in %q", got, of.Environment)
	}
	for _, args := range [][]string{{"generate"}, {"chat"}} {
		var stderr bytes.Buffer
		if code := run(append(args, "--model", dir), strings.NewReader(""), io.Discard, &stderr); strings.Count(stderr.String(), "the environment of the run is played by train and eval, not here") != 1 {
			t.Errorf("%s: exit code %d\n%s", args[0], code, &stderr)
		}
	}
}

// TestEpisodeRows: in an episode, score and step count only the policy's tokens, in the
// context of all tokens.
func TestEpisodeRows(t *testing.T) {
	if !libraryFound() {
		t.Skip("no ONNX Runtime library: run onering doctor")
	}
	const turns = `,"turns":[{"author":"policy","from":0,"to":3,"text":"a"},{"author":"environment","from":3,"to":5,"text":"b"},{"author":"policy","from":5,"to":6,"text":"c"}]`
	const pair = `{"prompt_ids":[3,12,4,14],"response_ids":[3,12,14,7,8,1]`
	type scored struct {
		LogP    []float64 `json:"logp"`
		Entropy []float64 `json:"entropy"`
	}
	var rows [2]scored
	for i, line := range strings.Split(strings.TrimSpace(commandLine(t, pair+"}\n"+pair+turns+"}\n", "score", "--model", "builtin:arithmetic")), "\n") {
		if err := json.Unmarshal([]byte(line), &rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i, x := range rows[0].LogP {
		want := scored{[]float64{x}, []float64{rows[0].Entropy[i]}}
		if i == 3 || i == 4 {
			want = scored{[]float64{0}, []float64{0}}
		}
		if len(rows[1].LogP) != 6 || math.Abs(rows[1].LogP[i]-want.LogP[0]) > 1e-5 || math.Abs(rows[1].Entropy[i]-want.Entropy[0]) > 1e-5 {
			t.Fatalf("token %d: of an episode %v, of the same response %v", i, rows[1], rows[0])
		}
	}

	step := func(row string) (loss, norm float64, tokens int) {
		var r struct {
			Loss     float64
			GradNorm float64 `json:"grad_norm"`
			Tokens   int
		}
		if err := json.Unmarshal([]byte(commandLine(t, row, "step", "--model", "builtin:arithmetic", "--dry-run")), &r); err != nil {
			t.Fatal(err)
		}
		return r.Loss, r.GradNorm, r.Tokens
	}
	loss, norm, _ := step(pair + `,"weights":[1,-2,3,0,0,-1]}`)
	gotLoss, gotNorm, tokens := step(pair + turns + `,"weights":[1,-2,3,0,0,-1]}`)
	if math.Abs(loss-gotLoss) > 1e-4 || math.Abs(norm-gotNorm) > 1e-4*norm || tokens != 4 {
		t.Errorf("loss %v and norm %v of %d tokens, want %v and %v", gotLoss, gotNorm, tokens, loss, norm)
	}
	for row, want := range map[string]string{
		pair + turns + `,"weights":[1,-2,3,0,0.5,-1]}`:                       "weights[4] = 0.5: the token is the environment's",
		pair + turns + `,"weights":[1,-2,3,-1]}`:                             "4 weights for 6 response tokens",
		`{"prompt":"1+1=","response":"1+1=22"` + turns + `,"weights":[1]}`:   `"turns" are parts of "response_ids"`,
		strings.Replace(pair, ",1]", ",1,1]", 1) + turns + `,"weights":[1]}`: "turns have 6 of the response's 7 tokens",
	} {
		var stderr bytes.Buffer
		if code := run([]string{"step", "--model", "builtin:arithmetic", "--dry-run", "-q"}, strings.NewReader(row), io.Discard, &stderr); code != 1 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit code %d, %s, want %q", row, code, &stderr, want)
		}
	}
}
