package train

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"onering/models"
	"onering/train/metrics"
)

// A Folder is a run folder:
//
//	run.toml                      the resolved Config
//	metrics.jsonl                 one record per optimizer step, round and evaluation
//	rollouts/round-NNNNN.jsonl    what was sampled, with rewards and what training made of it
//	checkpoints/step-NNNNNN/      a Hugging Face folder, and state/ to resume from
//	failures/step-NNNNNN.json     batches that were not finite, for `onering replay`
//
// One process at a time has it open.
type Folder struct {
	Dir string

	metrics *os.File
	size    int64    // of metrics.jsonl, up to the last whole line
	unsaved []string // lines that could not be written
	config  []byte   // run.toml as it was found, for a rescue
	unlock  func()
}

// What a run folder has.
const (
	configFile     = "run.toml"
	metricsFile    = "metrics.jsonl"
	logFile        = "log.txt"
	lockFile       = ".lock"
	rolloutsDir    = "rollouts"
	checkpointsDir = "checkpoints"
	failuresDir    = "failures"
)

// openFolder makes the run folder, or opens it to resume. A folder that is
// there and not empty is never written over.
func openFolder(c Config, resume bool) (f *Folder, err error) {
	f = &Folder{Dir: c.Output.Dir}
	if f.Dir == "" {
		return nil, errors.New("train: output.dir is not set")
	}
	entries, err := os.ReadDir(f.Dir)
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("train: run folder: %w", err)
	case resume && len(entries) == 0:
		return nil, fmt.Errorf("train: there is no run to resume in %s", f.Dir)
	case !resume && slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return !slices.Contains([]string{configFile, logFile, lockFile}, e.Name()) && !models.Temporary(e.Name())
	}):
		return nil, fmt.Errorf("train: %s is not empty: resume it with --resume, or choose another folder with --out", f.Dir)
	}
	for _, dir := range []string{rolloutsDir, checkpointsDir} {
		if err := os.MkdirAll(filepath.Join(f.Dir, dir), 0o755); err != nil {
			return nil, fmt.Errorf("train: run folder: %w", err)
		}
	}
	if f.unlock, err = lock(filepath.Join(f.Dir, lockFile)); err != nil {
		return nil, fmt.Errorf("train: run folder %s: %w", f.Dir, err)
	}
	made := f // which a return of nil hides
	defer func() {
		if err != nil {
			made.Close()
		}
	}()
	if err := f.readConfig(); err != nil {
		return nil, err
	}
	f.metrics, err = os.OpenFile(filepath.Join(f.Dir, metricsFile), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("train: run folder: %w", err)
	}
	return f, f.tidy()
}

// readConfig keeps run.toml, if there is one, for a rescue.
func (f *Folder) readConfig() (err error) {
	if f.config, err = os.ReadFile(filepath.Join(f.Dir, configFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("train: run folder: %w", err)
	}
	return nil
}

// tidy removes what a killed process left half-written, and puts a checkpoint
// back that it was about to replace.
func (f *Folder) tidy() error {
	for _, dir := range []string{"", rolloutsDir, checkpointsDir, failuresDir} {
		dir = filepath.Join(f.Dir, dir)
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("train: run folder: %w", err)
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if name, ok := strings.CutSuffix(e.Name(), replaced); ok && !exists(filepath.Join(dir, name[1:])) {
				err = os.Rename(path, filepath.Join(dir, name[1:]))
			} else if ok || models.Temporary(e.Name()) {
				err = os.RemoveAll(path)
			}
			if err != nil {
				return fmt.Errorf("train: run folder: %w", err)
			}
		}
	}
	return nil
}

// replaced ends the hidden name of a checkpoint while another takes its place.
const replaced = ".replaced"

// append adds a record to metrics.jsonl, with the time of day. A line is there whole or not at all;
// one that cannot be written is kept for the rescue.
func (f *Folder) append(r metrics.Record) error {
	line, err := r.Line(time.Now())
	if err != nil {
		return err
	}
	if err = f.check(); err == nil {
		if err = models.Ask("append", f.metrics.Name()); err == nil {
			_, err = f.metrics.Write(line)
		}
	}
	if err != nil {
		f.unsaved = append(f.unsaved, string(line))
		// What is left of half a line goes when the run is resumed, if not now.
		f.metrics.Truncate(f.size)
		return fmt.Errorf("train: writing metrics: %w", err)
	}
	f.size += int64(len(line))
	return nil
}

// check finds out whether the folder is still the one that was opened: a file
// that was removed can be written to for hours.
func (f *Folder) check() error {
	open, err := f.metrics.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(f.metrics.Name())
	if err != nil {
		return fmt.Errorf("the run folder has gone: %w", err)
	}
	if !os.SameFile(open, there) {
		return fmt.Errorf("%s is another file than the run opened: something else writes to the run folder", f.metrics.Name())
	}
	return nil
}

// Close closes the folder's open file and lets another process have it.
func (f *Folder) Close() error {
	var err error
	if f.metrics != nil {
		err = f.metrics.Close()
	}
	f.unlock()
	return err
}

// rolloutLine is one line of a rollouts file. The file is written when its round
// is done: what a rollout's tokens weighed is known only after its optimizer step.
type rolloutLine struct {
	Problem   string   `json:"problem"`
	Sample    int      `json:"sample"`
	Prompt    string   `json:"prompt"`
	Response  string   `json:"response"`
	Answers   []string `json:"answers"`
	Answer    string   `json:"answer"`
	Reason    string   `json:"reason,omitempty"`
	Reward    float64  `json:"reward"`
	Advantage float64  `json:"advantage"`
	Truncated bool     `json:"truncated,omitempty"`
	IDs       []int32  `json:"ids"`
	// Per token of the response: log-prob when it was sampled; and of the newest
	// optimizer step that it was part of, if any, dLoss/dlogp and the log-prob
	// before that step less the old policy's.
	LogP  json.RawMessage `json:"logp"`
	W     json.RawMessage `json:"w,omitempty"`
	Delta json.RawMessage `json:"delta,omitempty"`
}

// rounded writes finite floats with five digits, enough to read them; nil of
// none, since a checkpoint does not tell none from nil.
func rounded[F float32 | float64](x []F) json.RawMessage {
	if len(x) == 0 {
		return nil
	}
	b := append(make([]byte, 0, 12*len(x)+2), '[')
	for i, v := range x {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(v), 'g', 5, 64)
	}
	return append(b, ']')
}

func (f *Folder) writeRollouts(n int, problems []Problem, rollouts []Rollout, r *round) error {
	path := filepath.Join(f.Dir, rolloutsDir, fmt.Sprintf("round-%05d.jsonl", n))
	return models.WriteFile(path, func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		for i := range rollouts {
			x := &rollouts[i]
			q := problems[x.Problem]
			line := rolloutLine{
				Problem: q.ID, Sample: x.Sample, Prompt: q.Text, Response: x.Text, Answers: q.Answers,
				Answer: x.Verdict.Answer, Reason: x.Verdict.Reason, Reward: r.trajectories[i].Reward,
				Advantage: r.trajectories[i].Advantage, Truncated: x.Truncated, IDs: x.Response,
				LogP: rounded(x.LogProb), W: rounded(r.updates[i].W), Delta: rounded(r.updates[i].Delta),
			}
			if err := enc.Encode(line); err != nil {
				return err
			}
		}
		return nil
	})
}

// rewind makes metrics.jsonl what it was when a checkpoint was written: size
// bytes, and the lines that could not be written then. So a resumed run writes
// every line once. lost is the bytes that are no longer there.
func (f *Folder) rewind(size int64, unsaved []string) (lost int64, err error) {
	info, err := f.metrics.Stat()
	if err != nil {
		return 0, err
	}
	if lost = size - info.Size(); lost > 0 {
		text := make([]byte, info.Size())
		if _, err := f.metrics.ReadAt(text, 0); err != nil && err != io.EOF {
			return 0, err
		}
		size = int64(bytes.LastIndexByte(text, '\n') + 1)
	}
	if err := models.Ask("truncate", f.metrics.Name()); err != nil {
		return 0, err
	}
	if err := f.metrics.Truncate(size); err != nil {
		return 0, err
	}
	f.size = size
	for _, line := range unsaved {
		if _, err := f.metrics.WriteString(line); err != nil {
			return 0, err
		}
		f.size += int64(len(line))
	}
	return max(0, lost), nil
}

// checkpoints lists the checkpoint folders, the oldest first.
func (f *Folder) checkpoints() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(f.Dir, checkpointsDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("train: run folder: %w", err)
	}
	var steps []int
	for _, e := range entries {
		if n, ok := stepOf(e.Name()); ok && e.IsDir() {
			steps = append(steps, n)
		}
	}
	slices.Sort(steps)
	var dirs []string
	for _, n := range steps {
		dirs = append(dirs, checkpointDir(f.Dir, n))
	}
	return dirs, nil
}

// checkpointDir returns where step n's checkpoint lies.
func checkpointDir(run string, step int) string {
	return filepath.Join(run, checkpointsDir, fmt.Sprintf("step-%06d", step))
}

// stepOf reads the step from a checkpoint folder's name.
func stepOf(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, "step-")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 0 && fmt.Sprintf("step-%06d", n) == name
}

// exists says whether there is a file or folder.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
