package rundir

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/train/metrics"
)

// TestWritten: the newest checkpoint shows each change of a file that the run had written,
// and what came after it is not compared. A resumed run loses no whole line before it.
func TestWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	put(configFile, "[output]\ndir = \"run\"\n")
	put(logFile, "one\ntwo\n")
	f := open(t, dir, false)
	if err := f.ReadConfig(); err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		if err := f.Append(metrics.Record{}.With("step", n)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		gradesFile: "{\"round\":0}\n", "rollouts/round-00001.jsonl": "{\"reward\":0}\n{\"reward\":1}\n",
		"evaluations/round-00001-s.jsonl": "{}\n", "rollouts/round-00002.jsonl": "{\"reward\":0}\n",
	} {
		put(name, text)
	}
	s := &Saver{Folder: f, CheckMemory: func(int64) error { return nil }, Log: slog.New(slog.DiscardHandler)}
	snap := snapshotOf(t, 4, 0)
	snap.State.Round, snap.State.Evaluated = 1, true
	if err := s.Write(snap); err != nil {
		t.Fatal(err)
	}
	if err := f.Append(metrics.Record{}.With("step", 4)); err != nil {
		t.Fatal(err)
	}
	put(logFile, "one\ntwo\nthree\n")
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	lines := slices.Collect(strings.Lines(read(metricsFile)))
	replace := func(old, new string) func(string) string {
		return func(text string) string { return strings.Replace(text, old, new, 1) }
	}
	remove := func(string) string { return "" }
	for _, tt := range []struct {
		what, name string
		change     func(text string) string
		want       string // "" if the change is not seen
	}{
		{"nothing", metricsFile, replace("", ""), ""},
		{"a line removed", metricsFile, replace(lines[1], ""), "it was changed: "},
		{"lines removed", metricsFile, replace(lines[1]+lines[2], ""), " bytes are missing that the newest checkpoint counts"},
		{"a line doubled", metricsFile, replace(lines[1], lines[1]+lines[1]), "it was changed: "},
		{"lines exchanged", metricsFile, replace(lines[1]+lines[2], lines[2]+lines[1]), "it was changed: "},
		{"a line edited", metricsFile, replace(`"step":2`, `"step":3000000`), "it was changed: "},
		{"a last line doubled", metricsFile, replace(lines[4], lines[4]+lines[4]), "line 6: the line before it again"},
		{"a later line removed", metricsFile, replace(lines[4], ""), ""},
		{"metrics gone", metricsFile, remove, "it is missing"},
		{"a reward edited", "rollouts/round-00001.jsonl", replace(`"reward":0`, `"reward":1`), "it was changed: "},
		{"a line of rollouts removed", "rollouts/round-00001.jsonl", replace("{\"reward\":0}\n", ""), " bytes are missing"},
		{"a line of rollouts added", "rollouts/round-00001.jsonl", replace("", "{}\n"), "it was changed: "},
		{"rollouts gone", "rollouts/round-00001.jsonl", remove, "it is missing"},
		{"rollouts of a round under way", "rollouts/round-00002.jsonl", remove, ""},
		{"an evaluation gone", "evaluations/round-00001-s.jsonl", remove, "it is missing"},
		{"a grade edited", gradesFile, replace("0", "1"), "it was changed: "},
		{"the configuration edited", configFile, replace("run", "own"), "it was changed: "},
		{"the log edited", logFile, replace("one", "1ne"), "it was changed: "},
		{"the log edited later", logFile, replace("three", "3"), ""},
	} {
		was := read(tt.name)
		if text := tt.change(was); text == "" {
			os.Remove(filepath.Join(dir, filepath.FromSlash(tt.name)))
		} else {
			put(tt.name, text)
		}
		var found []string
		if err := f.Check(func(path string, err error) {
			if err != nil {
				found = append(found, path+": "+err.Error())
			}
		}); err != nil {
			t.Fatal(err)
		}
		if tt.want == "" && found != nil || tt.want != "" && (len(found) != 1 || !strings.Contains(found[0], filepath.Base(tt.name)) || !strings.Contains(found[0], tt.want)) {
			t.Errorf("%s: %q, want %q", tt.what, found, tt.want)
		}
		put(tt.name, was)
	}
	f.Close()

	put(metricsFile, strings.Join(slices.Delete(slices.Clone(lines), 1, 2), ""))
	f = open(t, dir, true)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	state, err := ReadState(CheckpointDir(dir, 4))
	if err := errors.Join(err, f.Remember(CheckpointDir(dir, 4), logger), f.Rewind(state, logger)); err != nil {
		t.Fatal(err)
	}
	records := 0
	if err := f.Records(func(map[string]any) { records++ }); err != nil || records < 3 || !strings.Contains(log.String(), "is not what the checkpoint counts") {
		t.Errorf("resumed after a line was removed: %d records, %v, log %q", records, err, log.String())
	}
	if text := read(metricsFile + ".damaged"); !strings.HasSuffix(text, lines[4]) {
		t.Errorf("the file as it was: %q", text)
	}
}
