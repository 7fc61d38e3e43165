package train

import (
	"encoding"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onering/models"
	"onering/models/adamw"
	"onering/models/qwen2"
	"onering/objectives"
	"onering/sampler"
	"onering/train/metrics"
)

// checkpointVersion is raised when an older state can no longer be read.
const checkpointVersion = 3

// A state is what a checkpoint holds besides the weights, the moments and,
// inside a round, the round. The order of problems, the sampler's draws and the
// shuffles all follow from the seeds and these counts.
type state struct {
	Version int `json:"version"`
	// Round counts the finished rounds, Step the optimizer steps.
	Round int `json:"round"`
	Step  int `json:"step"`
	// Inside says that the checkpoint lies between the sampling and the end of
	// round Round+1: state/round.gob holds that round.
	Inside bool `json:"inside_round"`
	// Evaluated says that the evaluation that may follow a round is done.
	Evaluated bool `json:"evaluated"`
	// Updates of the optimizer, for its bias correction; skipped steps have none.
	Updates int `json:"updates"`
	Skipped int `json:"skipped"`
	// MicroTokens is what train.micro_tokens has come down to where memory was
	// short: it moves the last bits of a sum.
	MicroTokens int `json:"micro_tokens"`
	// LossScale is where layers compute in float16.
	LossScale *adamw.LossScale `json:"loss_scale,omitempty"`
	Objective string           `json:"objective"`
	// ObjectiveState is what the objective remembers between steps, if anything.
	ObjectiveState string `json:"objective_state,omitempty"`
	// Metrics is the size of metrics.jsonl, Unsaved the lines after it that
	// could not be written.
	Metrics int64    `json:"metrics_bytes"`
	Unsaved []string `json:"unsaved_metrics,omitempty"`
	// Settings are those that decide the course of a run, and Problems tells
	// the training problems from others.
	Settings map[string]string `json:"settings"`
	Problems string            `json:"problems"`
	// Score is the mean pass@1 after the round, where it was evaluated.
	Score *float64 `json:"score,omitempty"`
	// Alarms is what the warnings compare later figures with.
	Alarms *metrics.AlarmState `json:"alarms,omitempty"`
}

// The files of a checkpoint's folder state/. AdamW's moments have the names of
// the parameters, and so have the exact weights, which are there where those of
// the folder are rounded to what config.json says.
const (
	exactWeights  = "weights.safetensors"
	stateDir      = "state"
	stateFile     = "state.json"
	roundFile     = "round.gob"
	firstMoments  = "exp_avg.safetensors"
	secondMoments = "exp_avg_sq.safetensors"
)

// A roundState is a round under way, every float to the bit.
type roundState struct {
	Rollouts     []Rollout
	Trajectories []objectives.Trajectory // without what the rollouts have
	Kept         []int
	Groups, Flat int
	// Updates by rollout, for the lines of rollouts/; none in older checkpoints.
	Updates []update

	Gap gap

	Stats sampler.Stats
	Steps []metrics.Record // of the steps that are done
}

// A snapshot is a consistent state of a run, ready to be written. Its weights
// may be the run's own or a copy of them.
type snapshot struct {
	state                  state
	round                  *roundState // nil between two rounds
	weights, first, second *models.Weights
	as                     models.DType // of the weights in the folder
	model                  qwen2.Config
	tokenizer              string
}

// snapshot takes the state without copying the weights.
func (t *Trainer) snapshot() (snapshot, error) {
	if err := t.env.Download(t.held()...); err != nil {
		return snapshot{}, fmt.Errorf("train: checkpoint: %w", err)
	}
	s := snapshot{
		state: state{
			Version: checkpointVersion, Round: t.round, Step: t.step, Inside: t.now != nil, Evaluated: t.evaluated,
			Updates: t.optimizer.Steps, Skipped: t.skipped, MicroTokens: t.microTokens, LossScale: t.lossScale, Objective: t.Config.Objective.Name,
			Metrics: t.folder.size, Unsaved: t.folder.unsaved, Settings: decisive(t.Config), Problems: t.problemsDigest,
			Score: t.score, Alarms: t.alarms.State(),
		},
		weights: t.Policy.Weights, first: t.optimizer.First, second: t.optimizer.Second,
		model: t.Policy.Model, tokenizer: t.Policy.Dir,
	}
	if m, ok := t.Objective.(encoding.TextMarshaler); ok {
		text, err := m.MarshalText()
		if err != nil {
			return s, fmt.Errorf("train: state of objective %q: %w", s.state.Objective, err)
		}
		s.state.ObjectiveState = string(text)
	}
	if t.now != nil {
		s.round = t.now.state()
	}
	return s, nil
}

// held are what a checkpoint holds of the run's weights and moments, which may lie
// on a device.
func (t *Trainer) held() []*models.Weights {
	return []*models.Weights{t.Policy.Weights, t.optimizer.First, t.optimizer.Second}
}

// folderType is the type of the folder's weights: that of the model's config where
// it is one of 16 bits that can hold them, which those of a run that diverges
// may be too large for.
func (s snapshot) folderType() models.DType {
	if d := s.model.DType; (d == models.F16 || d == models.BF16) && models.Holds(d, s.weights.Data) {
		return d
	}
	return models.F32
}

// write makes dir a checkpoint: a Hugging Face folder, whose state/ holds what
// resuming needs. It appears whole or not at all; one that is there stays until
// it does.
func (s snapshot) write(dir string) error {
	fresh := dir
	if exists(dir) {
		fresh = filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".tmp-new")
		if err := os.RemoveAll(fresh); err != nil {
			return fmt.Errorf("train: checkpoint: %w", err)
		}
	}
	s.as = s.folderType()
	err := qwen2.Save(fresh, s.model, s.weights, qwen2.SaveOptions{DType: s.as, Tokenizer: s.tokenizer, Extra: s.writeState})
	if err != nil || fresh == dir {
		return err
	}
	// Should the process die between the two renames, tidy undoes the first.
	old := filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+replaced)
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("train: checkpoint: %w", err)
	}
	if err := models.Rename(dir, old); err != nil {
		return fmt.Errorf("train: checkpoint: %w", err)
	}
	if err := models.Rename(fresh, dir); err != nil {
		return errors.Join(fmt.Errorf("train: checkpoint: %w", err), os.Rename(old, dir))
	}
	return os.RemoveAll(old)
}

// writeState fills state/ of the checkpoint that is being written, the list of
// sums last.
func (s snapshot) writeState(tmp string) error {
	dir := filepath.Join(tmp, stateDir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("train: checkpoint: %w", err)
	}
	text, err := json.MarshalIndent(s.state, "", "  ")
	if err != nil {
		return fmt.Errorf("train: checkpoint: %w", err)
	}
	err = models.WriteFile(filepath.Join(dir, stateFile), func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
	if err != nil {
		return err
	}
	if s.round != nil {
		err := models.WriteFile(filepath.Join(dir, roundFile), func(w io.Writer) error { return gob.NewEncoder(w).Encode(s.round) })
		if err != nil {
			return err
		}
	}
	files := map[string]*models.Weights{firstMoments: s.first, secondMoments: s.second}
	if s.as != models.F32 {
		files[exactWeights] = s.weights
	}
	for name, w := range files {
		if err := models.WriteSafetensors(filepath.Join(dir, name), models.F32, w.Tensors(), nil); err != nil {
			return err
		}
	}
	return writeSums(tmp)
}

// readState reads the state of a checkpoint.
func readState(dir string) (s state, err error) {
	path := filepath.Join(dir, stateDir, stateFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return s, fmt.Errorf("train: resume: %w", err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("train: resume: %s: %w", path, err)
	}
	if s.Version != checkpointVersion {
		return s, fmt.Errorf("train: resume: %s is of version %d; this program reads version %d", path, s.Version, checkpointVersion)
	}
	if s.Round < 0 || s.Step < 0 || s.Updates < 0 || s.Metrics < 0 || s.MicroTokens < 1 {
		return s, fmt.Errorf("train: resume: %s holds a negative count", path)
	}
	if s.LossScale != nil && (!(s.LossScale.Scale >= 1) || s.LossScale.Scale > math.MaxFloat32 || s.LossScale.Clean < 0) {
		return s, fmt.Errorf("train: resume: %s holds a loss scale of %g after %d steps", path, s.LossScale.Scale, s.LossScale.Clean)
	}
	return s, nil
}

// restore brings the run to its newest whole checkpoint; to its beginning where
// it has none yet.
func (t *Trainer) restore() error {
	dir, err := t.wholeCheckpoint()
	if err != nil {
		return err
	}
	if dir == "" {
		t.log.Info("there is no checkpoint yet: the run begins again", "folder", t.folder.Dir)
		_, err := t.folder.rewind(0, nil)
		return err
	}
	s, err := readState(dir)
	if err != nil {
		return err
	}
	if err := t.checkState(s, dir); err != nil {
		return err
	}
	if s.ObjectiveState != "" {
		m, ok := t.Objective.(encoding.TextUnmarshaler)
		if !ok {
			return fmt.Errorf("train: resume: %s holds a state that objective %q cannot read", dir, s.Objective)
		}
		if err := m.UnmarshalText([]byte(s.ObjectiveState)); err != nil {
			return fmt.Errorf("train: resume: state of objective %q: %w", s.Objective, err)
		}
	}
	if err := t.Policy.LoadExact(dir); err != nil {
		return err
	}
	for name, w := range map[string]*models.Weights{firstMoments: t.optimizer.First, secondMoments: t.optimizer.Second} {
		if err := loadTensors(filepath.Join(dir, stateDir, name), w); err != nil {
			return err
		}
	}
	if err := t.env.Upload(t.held()...); err != nil {
		return fmt.Errorf("train: resume: %w", err)
	}
	t.env.Forget(t.held()...)
	if err := t.alarms.Restore(s.Alarms); err != nil {
		return fmt.Errorf("train: resume: %s: %w", filepath.Join(dir, stateDir, stateFile), err)
	}
	t.round, t.step, t.evaluated, t.optimizer.Steps = s.Round, s.Step, s.Evaluated, s.Updates
	t.skipped, t.score, t.saved = s.Skipped, s.Score, position{s.Round, s.Step, s.Inside, s.Evaluated}
	if t.lossScale != nil && s.LossScale != nil {
		t.setLossScale(*s.LossScale)
	}
	if s.Settings["train.micro_tokens"] == decisive(t.Config)["train.micro_tokens"] {
		t.microTokens = s.MicroTokens
	}
	if s.Inside {
		if err := t.restoreRound(filepath.Join(dir, stateDir, roundFile)); err != nil {
			return err
		}
	}
	lost, err := t.folder.rewind(s.Metrics, s.Unsaved)
	if lost > 0 {
		t.log.Warn("metrics.jsonl has lost lines since the checkpoint", "bytes", lost)
	}
	if err != nil {
		return fmt.Errorf("train: resume: %w", err)
	}
	t.log.Info("resuming", "checkpoint", dir, "round", t.round, "step", t.step)
	return nil
}

// wholeCheckpoint finds the newest checkpoint that is as it was written, "" if
// there is none at all. Those that are not are named and set aside.
func (t *Trainer) wholeCheckpoint() (string, error) {
	dirs, err := t.folder.checkpoints()
	if err != nil {
		return "", err
	}
	var refused []string
	for i := len(dirs) - 1; i >= 0; i-- {
		err := verifySums(dirs[i])
		if err == nil {
			for _, bad := range refused {
				aside := bad + ".damaged"
				if err := errors.Join(os.RemoveAll(aside), os.Rename(bad, aside)); err != nil {
					return "", fmt.Errorf("train: resume: setting a damaged checkpoint aside: %w", err)
				}
			}
			return dirs[i], nil
		}
		refused = append(refused, dirs[i])
		t.log.Warn("a checkpoint is refused; the one before it is tried", "checkpoint", dirs[i], "reason", err)
		if i == 0 {
			return "", fmt.Errorf("train: resume: %s: %w; no other checkpoint is whole: restore one, or remove %s to begin again",
				dirs[i], err, filepath.Dir(dirs[i]))
		}
	}
	return "", nil
}

// LoadExact reads the weights of a checkpoint of the policy's shape as they were
// in training, to the bit. They are not yet on a device.
func (p *Policy) LoadExact(checkpoint string) error {
	if path := filepath.Join(checkpoint, stateDir, exactWeights); exists(path) {
		return loadTensors(path, p.Weights)
	}
	folder, err := models.OpenFolder(checkpoint)
	if err != nil {
		return err
	}
	defer folder.Close()
	return p.Weights.Load(folder)
}

func loadTensors(path string, w *models.Weights) error {
	f, err := models.OpenSafetensors(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return w.Load(f)
}

// checkState refuses a checkpoint of another run, and says which settings have
// changed since.
func (t *Trainer) checkState(s state, dir string) error {
	if s.Objective != t.Config.Objective.Name {
		return fmt.Errorf("train: resume: %s was trained with objective %q, not %q", dir, s.Objective, t.Config.Objective.Name)
	}
	changed := changedSettings(s.Settings, decisive(t.Config))
	if s.Problems != t.problemsDigest {
		changed = append(changed, "the problems of data.train are others")
	}
	if len(changed) == 0 {
		return nil
	}
	if s.Inside {
		for _, c := range changed {
			if shapesRound(c) {
				return fmt.Errorf("train: resume: %s lies inside round %d, and since then %s: that can change only between two rounds; set it back, or remove this checkpoint to resume from the one before", dir, s.Round+1, c)
			}
		}
	}
	t.log.Warn("settings have changed: the run goes another way than it would have", "changed", strings.Join(changed, "; "))
	return nil
}

// state takes what a checkpoint keeps of the round. Nothing in it changes
// later, so it may be written while training goes on.
func (r *underway) state() *roundState {
	s := &roundState{
		Rollouts: r.rollouts, Trajectories: make([]objectives.Trajectory, len(r.trajectories)), Kept: r.kept,
		Groups: r.groups, Flat: r.flat, Gap: r.gap,
		Stats: r.stats, Steps: r.steps[:len(r.steps):len(r.steps)], Updates: slices.Clone(r.updates),
	}
	for i, x := range r.trajectories {
		x.LogProb, x.Entropy = nil, nil // the rollout's
		if !r.rescored {
			x.OldLogProb = nil
		}
		s.Trajectories[i] = x
	}
	return s
}

// restoreRound reads the round under way.
func (t *Trainer) restoreRound(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("train: resume: %w", err)
	}
	defer f.Close()
	s, err := decodeRound(f)
	if err != nil {
		return fmt.Errorf("train: resume: %s: %w", path, err)
	}
	c := t.Config
	if want := c.Rollout.PromptsPerRound * c.Rollout.SamplesPerPrompt; len(s.Rollouts) != want {
		return fmt.Errorf("train: resume: %s holds %d rollouts, the run has %d a round", path, len(s.Rollouts), want)
	}
	t.now = &underway{
		round: &round{
			rollouts: s.Rollouts, trajectories: s.Trajectories, kept: s.Kept, groups: s.Groups, flat: s.Flat, updates: s.Updates,
			gap: s.Gap, rescored: c.Rollout.OldLogProb == "rescore",
		},
		stats: s.Stats, steps: s.Steps,
		problems: t.problems.Take(c.Data.Seed, t.round*c.Rollout.PromptsPerRound, c.Rollout.PromptsPerRound),
	}
	for i := range s.Rollouts {
		t.now.sequences = append(t.now.sequences, s.Rollouts[i].sequence())
	}
	t.now.batches = t.batches(t.now.kept)
	if len(s.Steps) > len(t.now.batches) {
		return fmt.Errorf("train: resume: %s says that %d of the round's %d steps are done", path, len(s.Steps), len(t.now.batches))
	}
	return nil
}

// decodeRound reads a roundState and checks that its parts fit together.
func decodeRound(r io.Reader) (*roundState, error) {
	var s roundState
	if err := gob.NewDecoder(r).Decode(&s); err != nil {
		return nil, err
	}
	if len(s.Trajectories) != len(s.Rollouts) || s.Groups < 1 || s.Flat < 0 {
		return nil, fmt.Errorf("%d trajectories of %d rollouts in %d groups", len(s.Trajectories), len(s.Rollouts), s.Groups)
	}
	for _, k := range s.Kept {
		if k < 0 || k >= len(s.Rollouts) {
			return nil, fmt.Errorf("rollout %d of %d", k, len(s.Rollouts))
		}
	}
	if s.Updates == nil {
		s.Updates = make([]update, len(s.Rollouts))
	}
	if len(s.Updates) != len(s.Rollouts) {
		return nil, fmt.Errorf("%d updates of %d rollouts", len(s.Updates), len(s.Rollouts))
	}
	for i := range s.Rollouts {
		x, y, u := &s.Rollouts[i], &s.Trajectories[i], &s.Updates[i]
		n := len(x.Response)
		if len(x.Prompt) == 0 || x.Problem < 0 || len(x.LogProb) != n || len(x.Entropy) != n ||
			len(y.RefLogProb) != 0 && len(y.RefLogProb) != n || len(y.OldLogProb) != 0 && len(y.OldLogProb) != n ||
			len(u.W) != len(u.Delta) || len(u.W) != 0 && len(u.W) != n {
			return nil, fmt.Errorf("rollout %d: its parts do not have the %d tokens of its response", i, n)
		}
		if x.Response == nil { // gob does not tell the two apart, but JSON does
			x.Response = []int32{}
		}
		y.LogProb, y.Entropy = x.LogProb, x.Entropy
		if y.OldLogProb == nil {
			y.OldLogProb = x.LogProb
		}
	}
	return &s, nil
}
