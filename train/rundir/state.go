package rundir

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"

	"onering/internal/files"
	"onering/internal/strict"
	"onering/models/lora"
	"onering/train/doctor"
)

// stateVersion is raised when a state.json of an older version can no longer be read.
const stateVersion = 3

// The files of a checkpoint's folder state/, besides one for each name in the optimizer's state. The file of
// exact weights exists only if those of the Hugging Face folder are rounded to 16 bits.
const (
	stateDir     = "state"
	stateFile    = "state.json"
	roundFile    = "round.gob"
	exactWeights = "weights.safetensors"
)

// A State is state.json of a checkpoint: all that resuming needs besides the
// weights, the moments and, inside a round, the Round. The order of problems, the
// sampler's draws and the shuffles all follow from the seeds and these counts.
type State struct {
	Version int `json:"version"` // set when the checkpoint is written
	// Round counts the finished rounds, Step the optimizer steps.
	Round int `json:"round"`
	Step  int `json:"step"`
	// Inside says that the checkpoint lies between the sampling and the end of
	// round Round+1; it then holds a Round.
	Inside bool `json:"inside_round"`
	// Evaluated says that the evaluation after round Round, if any, is done.
	Evaluated bool `json:"evaluated"`
	// Updates counts the optimizer's updates, for its bias correction. Skipped
	// counts the steps that were left out because of NaN or infinities.
	Updates int `json:"updates"`
	Skipped int `json:"skipped"`
	// MicroTokens is train.micro_tokens, or less if memory was short. It decides the
	// order of sums, and so their last bits.
	MicroTokens int `json:"micro_tokens"`
	// LossScale is nil unless layers compute in float16.
	LossScale *LossScale `json:"loss_scale,omitempty"`
	Objective string     `json:"objective"`
	// ObjectiveState is the objective's state between steps, if it has any.
	ObjectiveState string `json:"objective_state,omitempty"`
	// Metrics is the size of metrics.jsonl, Unsaved the lines after it that could
	// not be written. Both are set when the checkpoint is written.
	Metrics int64    `json:"metrics_bytes"`
	Unsaved []string `json:"unsaved_metrics,omitempty"`
	// Settings are the settings that decide the course of a run, by key. Problems is a
	// digest of the training problems.
	Settings map[string]string `json:"settings"`
	Problems string            `json:"problems"`
	// ScheduleSince counts the rounds that were finished when their number was last
	// changed; ScheduleDone is the share of the run's schedules at that time.
	ScheduleSince float64 `json:"schedule_since,omitempty"`
	ScheduleDone  float64 `json:"schedule_done,omitempty"`
	// Order is what was measured about the problems, if their order depends on it.
	Order string `json:"order,omitempty"`
	// Score is the mean pass@1 after round Round, if it was evaluated.
	Score *float64 `json:"score,omitempty"`
	// Alarms has the figures with which warnings compare later figures.
	Alarms *doctor.State `json:"alarms,omitempty"`
	// Base is the model of the checkpoint's adapter; nil if the checkpoint is a complete model.
	Base *lora.Base `json:"base,omitempty"`
}

// A LossScale is the factor of losses before they are differentiated in float16, and the
// number of steps since it last changed.
type LossScale struct {
	Scale float64 `json:"scale"`
	Clean int     `json:"clean"`
}

// ReadState reads the state of a checkpoint.
func ReadState(checkpoint string) (s State, err error) {
	path := stateJSON(checkpoint)
	text, err := files.ReadIn(path, lora.MaxState)
	if err != nil {
		return s, fmt.Errorf("train: resume: %w", err)
	}
	if err := strict.JSON(text, &s); err != nil {
		return s, fmt.Errorf("train: resume: %s: %w", path, err)
	}
	if s.Version != stateVersion {
		return s, fmt.Errorf("train: resume: %s is of version %d; this program reads version %d", path, s.Version, stateVersion)
	}
	if s.Round < 0 || s.Step < 0 || s.Updates < 0 || s.Metrics < 0 || s.MicroTokens < 1 {
		return s, fmt.Errorf("train: resume: %s holds a negative count", path)
	}
	if s.LossScale != nil && (!(s.LossScale.Scale >= 1) || s.LossScale.Scale > math.MaxFloat32 || s.LossScale.Clean < 0) {
		return s, fmt.Errorf("train: resume: %s holds a loss scale of %g after %d steps", path, s.LossScale.Scale, s.LossScale.Clean)
	}
	return s, nil
}

func stateJSON(checkpoint string) string { return filepath.Join(checkpoint, stateDir, stateFile) }

// write writes state.json of a checkpoint.
func (s State) write(put files.Put) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("train: checkpoint: %w", err)
	}
	return put(stateJSON(""), files.Content(append(text, '\n')))
}
