package rundir

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"onering/internal/files"
	"onering/models"
	"onering/train/metrics"
)

func open(t *testing.T, dir string, resume bool) *Folder {
	t.Helper()
	f, err := Open(dir, resume)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A folder with a run in it is opened only to resume, and an empty folder only to begin.
// Two processes, or two Folders, cannot have one folder open at once.
func TestOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := Open(dir, true); err == nil || !strings.Contains(err.Error(), "no run to resume") {
		t.Errorf("resuming nothing: %v", err)
	}
	f := open(t, dir, false)
	if _, err := Open(dir, false); err == nil || !strings.Contains(err.Error(), "is not empty: resume it with --resume") {
		t.Errorf("a second run: %v", err)
	}
	if _, err := Open(dir, true); !errors.Is(err, errLocked) {
		t.Errorf("a folder in use: %v", err)
	}
	f.Close()
	open(t, dir, true)
}

// TestTidy: half-written files of a killed process are removed, and a checkpoint that it
// was replacing is restored.
func TestTidy(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	open(t, dir, false).Close()
	checkpoint := CheckpointDir(dir, 3)
	for _, path := range []string{hidden(checkpoint, replacedSuffix), hidden(CheckpointDir(dir, 4), ".tmp-new"), filepath.Join(dir, rolloutsDir, ".round-00001.jsonl.tmp-1")} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir, true)
	entries, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
	left, _ := filepath.Glob(filepath.Join(dir, "*", ".*"))
	if !slices.Equal(entries, []string{checkpoint}) || len(left) > 0 {
		t.Errorf("%v and %v are left", entries, left)
	}
}

// Rewind keeps the lines up to a checkpoint, and writes the lines before it that are
// missing.
func TestRewind(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "run"), false)
	add := func(n int) error { return f.Append(metrics.Record{}.With("step", n)) }
	if err := add(1); err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left")
	files.Fault = func(op, _ string) error { return full }
	err := add(2)
	files.Fault = nil
	if !errors.Is(err, full) {
		t.Fatalf("error %v", err)
	}
	s := State{Metrics: f.size, Unsaved: f.unsaved}
	if err := add(3); err != nil {
		t.Fatal(err)
	}
	steps := func() (out string) {
		for line := range strings.Lines(read(t, f.metrics.Name())) {
			out += line[len(`{"step":`):][:1]
		}
		return out
	}
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	if err := f.Rewind(s, logger); err != nil || steps() != "12" || log.Len() != 0 {
		t.Errorf("steps %s, error %v, log %q", steps(), err, log.String())
	}
	s.Metrics += 1000
	if err := f.Rewind(s, logger); err != nil || !strings.HasPrefix(steps(), "12") || !strings.Contains(log.String(), "has lost lines") {
		t.Errorf("steps %s, error %v, log %q", steps(), err, log.String())
	}
	if runtime.GOOS == "windows" { // systems on which open files cannot be removed
		return
	}
	os.RemoveAll(f.Dir)
	if err := add(4); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "the run folder has gone") {
		t.Errorf("a removed folder: %v", err)
	}
}

// snapshotOf makes a tiny snapshot of a step.
func snapshotOf(t *testing.T, step int, score float64) Snapshot {
	t.Helper()
	layout, err := models.NewLayout([]models.Fused{models.Plain("w", 4)})
	if err != nil {
		t.Fatal(err)
	}
	weights := func() *models.Weights {
		w := newWeights(t, layout)
		for i := range w.Data {
			w.Data[i] = float32(step + i)
		}
		return w
	}
	return Snapshot{
		State:   State{Step: step, MicroTokens: 64, Score: &score},
		Weights: weights(), Optimizer: map[string]*models.Weights{"exp_avg": weights()},
		SaveModel: func(dir string, w *models.Weights, dtype models.DType, extra func(*files.Draft) error) error {
			return files.WriteFolder(dir, func(d *files.Draft) error {
				if err := models.WriteModel(d.WriteFile, dtype, w.Tensors(), 1<<20); err != nil {
					return err
				}
				return extra(d)
			})
		},
	}
}

// A deviceOf holds weights on a device, and counts their elements that the host has.
type deviceOf struct {
	held      map[*models.Weights][]float32
	has, most int
	fails     error
}

func (d *deviceOf) Fetch(w *models.Weights, from, to int) error {
	copy(w.Data[from:to], d.held[w][from:to])
	d.has += to - from
	d.most = max(d.most, d.has)
	return d.fails
}

func (d *deviceOf) Drop(w *models.Weights, from, to int) {
	for i := from; i < to; i++ {
		if !math.IsNaN(float64(w.Data[i])) {
			d.has--
		}
		w.Data[i] = float32(math.NaN())
	}
}

// onDevice makes a snapshot whose weights and state, in tensors of n elements, only a
// device has.
func onDevice(t *testing.T, layout *models.Layout) (Snapshot, *deviceOf) {
	t.Helper()
	d := &deviceOf{held: map[*models.Weights][]float32{}}
	snap := snapshotOf(t, 1, 0)
	snap.Device = d
	for i, to := range []func(*models.Weights){
		func(w *models.Weights) { snap.Weights = w },
		func(w *models.Weights) { snap.Optimizer["exp_avg"] = w },
		func(w *models.Weights) { snap.Optimizer["exp_avg_sq"] = w },
	} {
		w := newWeights(t, layout)
		for j := range w.Data {
			w.Data[j] = float32(i*layout.Size + j)
		}
		d.held[w] = slices.Clone(w.Data)
		d.Drop(w, 0, len(w.Data))
		to(w)
	}
	return snap, d
}

func newWeights(t *testing.T, layout *models.Layout) *models.Weights {
	t.Helper()
	w, err := models.NewWeights(layout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// TestCopies: another number of copies takes the place of those there are.
func TestCopies(t *testing.T) {
	layout, err := models.NewLayout([]models.Fused{models.Plain("w", 4)})
	if err != nil {
		t.Fatal(err)
	}
	s := &Saver{CheckMemory: func(int64) error { return nil }}
	defer s.closeCopies()
	for _, n := range []int{2, 3, 1} {
		if err := s.makeCopies(layout, n); err != nil || len(s.copies) != n {
			t.Fatalf("%d copies, %v, want %d", len(s.copies), err, n)
		}
	}
}

// TestSaverOfDevice: weights and state on a device are written as if the host had them.
// The host has one tensor of them at once, beside the copies of a checkpoint written during
// training.
func TestSaverOfDevice(t *testing.T) {
	const a, b = 1024, 3072 // no padding
	layout, err := models.NewLayout([]models.Fused{models.Plain("a", a), models.Plain("b", b)})
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, filepath.Join(t.TempDir(), "run"), false)
	s := &Saver{Folder: f, CheckMemory: func(int64) error { return nil }, Log: slog.New(slog.DiscardHandler)}
	defer s.Close()
	snap, d := onDevice(t, layout)
	for step, tt := range []struct {
		write func(Snapshot) error
		most  int
	}{{s.Background, b}, {s.Write, b}, {s.Background, b}, {s.Background, b}} {
		d.has, d.most = 0, 0
		snap.State.Step = step + 1
		if err := errors.Join(tt.write(snap), s.Wait()); err != nil {
			t.Fatal(err)
		}
		if d.has != 0 || d.most != tt.most {
			t.Errorf("checkpoint %d: the host had %d elements at once, want %d, and %d were left", step+1, d.most, tt.most, d.has)
		}
		dir := CheckpointDir(f.Dir, step+1)
		w := newWeights(t, layout)
		state := map[string]*models.Weights{"exp_avg": newWeights(t, layout), "exp_avg_sq": newWeights(t, layout)}
		if err := errors.Join(w.LoadFile(filepath.Join(dir, "model.safetensors")), LoadOptimizer(dir, state)); err != nil {
			t.Fatal(err)
		}
		same := slices.Equal(w.Data, d.held[snap.Weights])
		for name, w := range state {
			same = same && slices.Equal(w.Data, d.held[snap.Optimizer[name]])
		}
		if !same {
			t.Errorf("checkpoint %d is not what the device holds", step+1)
		}
	}
	d.fails = errors.New("the device is lost")
	snap.State.Step = 9
	for _, write := range []func(Snapshot) error{s.Background, s.Write} {
		if err := errors.Join(write(snap), s.Wait()); !errors.Is(err, d.fails) {
			t.Errorf("a lost device: %v", err)
		}
	}
	if left, _ := filepath.Glob(CheckpointDir(f.Dir, 9) + "*"); len(left) > 0 {
		t.Errorf("a lost device leaves %v", left)
	}
}

// The last and the best checkpoints are kept. If the newest checkpoint is damaged, the
// previous one is used, and reads back correctly.
func TestSaver(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "run"), false)
	log := slog.New(slog.DiscardHandler)
	s := &Saver{Folder: f, KeepLast: 2, KeepBest: 1, CheckMemory: func(int64) error { return nil }, Log: log}
	defer s.Close()
	for step, score := range []float64{0.1, 0.9, 0.2, 0.3, 0.4} {
		if want := step < 2; s.Among(score) != want {
			t.Errorf("score %v after %d others: among the best is %v", score, step, !want)
		}
		write := s.Background
		if step%2 == 0 {
			write = s.Write
		}
		if err := errors.Join(write(snapshotOf(t, step, score)), s.Wait()); err != nil {
			t.Fatal(err)
		}
	}
	dirs, err := checkpoints(f.Dir)
	if want := []string{CheckpointDir(f.Dir, 1), CheckpointDir(f.Dir, 3), CheckpointDir(f.Dir, 4)}; err != nil || !slices.Equal(dirs, want) {
		t.Fatalf("checkpoints %v, want %v, error %v", dirs, want, err)
	}
	if err := os.WriteFile(stateJSON(dirs[2]), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	dir, err := f.NewestCheckpoint(log)
	if err != nil || dir != dirs[1] {
		t.Fatalf("checkpoint %s, error %v", dir, err)
	}
	got, want := snapshotOf(t, 0, 0), snapshotOf(t, 3, 0)
	if err := errors.Join(got.Weights.LoadFile(filepath.Join(dir, "model.safetensors")), LoadOptimizer(dir, got.Optimizer)); err != nil {
		t.Fatal(err)
	}
	if a, b := fmt.Sprint(got.Weights.Data[:4], got.Optimizer["exp_avg"].Data[:4]), fmt.Sprint(want.Weights.Data[:4], want.Optimizer["exp_avg"].Data[:4]); a != b {
		t.Errorf("read %s, wrote %s", a, b)
	}
	if st, err := ReadState(dir); err != nil || st.Step != 3 || *st.Score != 0.3 || st.Version != stateVersion {
		t.Errorf("state %+v, error %v", st, err)
	}
	// A checkpoint of the same step replaces the one that is there.
	if err := s.Write(snapshotOf(t, 3, 0.5)); err != nil {
		t.Fatal(err)
	}
	if st, err := ReadState(dir); err != nil || *st.Score != 0.5 {
		t.Errorf("state %+v, error %v", st, err)
	}
}

// TestCheck: a changed file of a checkpoint or a cut file of lines is named, and the
// other files pass the check.
func TestCheck(t *testing.T) {
	root := t.TempDir()
	f := open(t, filepath.Join(root, "run"), false)
	check := func() (bad []string) {
		t.Helper()
		err := f.Check(func(path string, err error) {
			if err != nil {
				name, _ := filepath.Rel(f.Dir, path)
				bad = append(bad, filepath.ToSlash(name)+": "+err.Error())
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return bad
	}
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(f.Dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o777)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Check(func(string, error) {}); err == nil || !strings.Contains(err.Error(), "is not a run folder") {
		t.Errorf("without run.toml: %v", err)
	}
	const line = `{"kind": "step"}` + "\n"
	put(configFile, "")
	put(metricsFile, line+line)
	put("rollouts/round-00001.jsonl", "{}\n")
	for step := range 2 {
		err := files.WriteFolder(CheckpointDir(f.Dir, step), func(d *files.Draft) error {
			s := State{Version: stateVersion, Step: step, MicroTokens: 1, Metrics: int64(len(line) * 2)}
			return errors.Join(d.WriteFile("config.json", files.Content("{}")), s.write(d.WriteFile), writeSums(d))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if bad := check(); bad != nil {
		t.Errorf("a sound run: %q", bad)
	}
	put("checkpoints/step-000000/config.json", "{ ")
	put("rollouts/round-00001.jsonl", "{}\n{\n")
	put(metricsFile, line)
	bad := check()
	for i, want := range []string{"checkpoints/step-000000: config.json is damaged", "metrics.jsonl: 17 bytes are missing", "rollouts/round-00001.jsonl: "} {
		if len(bad) != 3 || !strings.HasPrefix(bad[i], want) {
			t.Fatalf("%q, want %s", bad, want)
		}
	}
}
