package live

import (
	"os"
	"path/filepath"
	"testing"

	"onering/train/metrics"
	"onering/train/rl"
)

// roundCounter counts the rounds that it is told about.
type roundCounter struct {
	rl.Observer
	rounds int
}

func (n *roundCounter) Round(metrics.Record) { n.rounds++ }

// TestReporter checks that the event files are written after each round and the page
// at the end, and that nothing is written before the first round.
func TestReporter(t *testing.T) {
	dir := t.TempDir()
	n := &roundCounter{}
	r := NewReporter(dir, n)
	r.Finish()
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Fatalf("without a round there are files: %v, %v", files, err)
	}
	line := `{"kind":"round","round":1,"step":1,"reward":0.5}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte(line), 0o666); err != nil {
		t.Fatal(err)
	}
	r.Round(metrics.Record{})
	if n.rounds != 1 {
		t.Errorf("%d rounds were passed on, want 1", n.rounds)
	}
	if files, err := os.ReadDir(filepath.Join(dir, "tensorboard")); err != nil || len(files) == 0 {
		t.Errorf("no event files after the round: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "report.html")); err == nil {
		t.Error("the page is written every round")
	}
	r.Finish()
	if _, err := os.Stat(filepath.Join(dir, "report.html")); err != nil {
		t.Errorf("no page at the end: %v", err)
	}
}

// TestReporterFails checks that the run continues if the report cannot be written.
func TestReporterFails(t *testing.T) {
	n := &roundCounter{}
	r := NewReporter(filepath.Join(t.TempDir(), "none"), n)
	r.Round(metrics.Record{})
	r.Finish()
	if n.rounds != 1 || !r.warned {
		t.Errorf("%d rounds passed on, warned %v", n.rounds, r.warned)
	}
}
