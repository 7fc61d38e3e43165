package train

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onering/models"
)

// A Folder is a run folder:
//
//	run.toml                      the resolved Config
//	metrics.jsonl                 one record per optimizer step, round and evaluation
//	rollouts/round-NNNNN.jsonl    what was sampled, with rewards
//	checkpoints/step-NNNNNN/      a Hugging Face folder, and state/ to resume from
type Folder struct {
	Dir     string
	metrics *os.File
}

// openFolder makes the run folder, or opens it to resume. A folder that is
// there and not empty is never written over.
func openFolder(c Config, resume bool) (*Folder, error) {
	f := &Folder{Dir: c.Output.Dir}
	if f.Dir == "" {
		return nil, errors.New("train: output.dir is not set")
	}
	entries, err := os.ReadDir(f.Dir)
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("train: run folder: %w", err)
	case resume && len(entries) == 0:
		return nil, fmt.Errorf("train: there is no run to resume in %s", f.Dir)
	case !resume && slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() != "run.toml" && e.Name() != "log.txt" }):
		return nil, fmt.Errorf("train: %s is not empty: resume it with --resume, or choose another folder with --out", f.Dir)
	}
	if err := os.MkdirAll(filepath.Join(f.Dir, "rollouts"), 0o755); err != nil {
		return nil, fmt.Errorf("train: run folder: %w", err)
	}
	f.metrics, err = os.OpenFile(filepath.Join(f.Dir, "metrics.jsonl"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("train: run folder: %w", err)
	}
	return f, nil
}

// Close closes the folder's open file.
func (f *Folder) Close() error { return f.metrics.Close() }

// rolloutLine is one line of a rollouts file.
type rolloutLine struct {
	Problem   string    `json:"problem"`
	Sample    int       `json:"sample"`
	Prompt    string    `json:"prompt"`
	Response  string    `json:"response"`
	Answers   []string  `json:"answers"`
	Answer    string    `json:"answer"`
	Reason    string    `json:"reason,omitempty"`
	Reward    float64   `json:"reward"`
	Advantage float64   `json:"advantage"`
	Truncated bool      `json:"truncated,omitempty"`
	IDs       []int32   `json:"ids"`
	LogP      []Rounded `json:"logp"`
}

// A Rounded float is written with five digits: enough to read a log-prob.
type Rounded float64

// MarshalJSON writes five significant digits.
func (r Rounded) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%.5g", float64(r)), nil }

func (f *Folder) writeRollouts(n int, problems []Problem, rollouts []Rollout, r *round) error {
	path := filepath.Join(f.Dir, "rollouts", fmt.Sprintf("round-%05d.jsonl", n))
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
			}
			for _, p := range x.LogProb {
				line.LogP = append(line.LogP, Rounded(p))
			}
			if err := enc.Encode(line); err != nil {
				return err
			}
		}
		return nil
	})
}

// rewind drops from metrics.jsonl what was written after a step, so that a
// resumed run writes it once.
func (f *Folder) rewind(step, round int) error {
	if _, err := f.metrics.Seek(0, io.SeekStart); err != nil {
		return err
	}
	in := bufio.NewReader(f.metrics)
	keep := int64(0)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			break // a line without an end was being written when the run died
		}
		if err != nil {
			return err
		}
		var at struct{ Step, Round int }
		if json.Unmarshal(line, &at) != nil || at.Step > step || at.Round > round {
			break
		}
		keep += int64(len(line))
	}
	return f.metrics.Truncate(keep)
}

// lastCheckpoint returns the newest checkpoint folder.
func (f *Folder) lastCheckpoint() (string, error) {
	entries, err := os.ReadDir(filepath.Join(f.Dir, "checkpoints"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	for _, e := range slices.Backward(entries) {
		if e.IsDir() && strings.HasPrefix(e.Name(), "step-") {
			return filepath.Join(f.Dir, "checkpoints", e.Name()), nil
		}
	}
	return "", fmt.Errorf("train: %s has no checkpoint to resume from", f.Dir)
}
