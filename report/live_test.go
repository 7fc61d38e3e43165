package report

import (
	"os"
	"path/filepath"
	"testing"

	"onering/train/metrics"
)

// reporterOf returns the reporter that keeps the page of the run in a folder.
func reporterOf(dir string) *reporter {
	var l Live
	l.KeepPage(dir)
	return l.page
}

// TestReporter checks that the event files are written after each round and the page
// at the end, and that nothing is written before the first record.
func TestReporter(t *testing.T) {
	dir := t.TempDir()
	r := reporterOf(dir)
	r.Finish()
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Fatalf("without a record there are files: %v, %v", files, err)
	}
	line := `{"kind":"round","round":1,"step":1,"reward":0.5}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte(line), 0o666); err != nil {
		t.Fatal(err)
	}
	r.Record(metrics.Record{})
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
	r := reporterOf(filepath.Join(t.TempDir(), "none"))
	r.Record(metrics.Record{})
	r.Finish()
	if !r.warned {
		t.Error("the error was not logged")
	}
}
