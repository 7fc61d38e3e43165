package rundir

import (
	"encoding/gob"
	"fmt"
	"io"
	"path/filepath"

	"onering/internal/files"
	"onering/sampler"
	"onering/train/metrics"
)

// roundVersion is raised when a round.gob of this version cannot be read by the version before.
const roundVersion = 1

// A Round is the state in a checkpoint of a round between its sampling and its end, with the bits of every
// float. Its types are the checkpoint's own: a field that is added to a type of the sampler or of objectives
// does not change checkpoints until it is added here.
//
// The file is a gob, in which fields go by name. Checkpoints written before rounds had a version were gobs of
// other types with fields of these names, so they read as a Round of version 0.
type Round struct {
	Version int // set when the checkpoint is written

	Rollouts     []Rollout
	Greedy       []Rollout    // by problem; nil unless the objective compares with them
	Trajectories []Trajectory // by rollout
	Kept         []int        // indices of rollouts that are trained on
	Groups, Flat int          // number of groups with rewards to compare, and of those with equal rewards
	Updates      []Update     // by rollout
	Gap          metrics.Gap
	Stats        sampler.Stats
	Steps        []metrics.Record // records of finished optimizer steps
}

// A Rollout is one response and its grade.
type Rollout struct {
	Problem, Sample  int // numbers of the problem in the round and of its response
	Prompt, Response []int32
	PromptText       string             // "" in checkpoints of older versions
	LogProb, Entropy []float64          // per token of the response, when it was sampled
	Kept             [][]int32          // per token the ids that the filters kept, or nil
	Observed         []sampler.Observed // tokens in the response that the policy did not sample
	Earned           []float64          // the environment's reward for each turn, NaN if there was none
	Teachers         [][]float64        // by teacher of a stream, the log-prob of each token
	Failed           bool               // why the environment could not continue
	Part             bool               // an earlier segment of an episode
	Text             string
	Verdict          Verdict
	Truncated        bool
	Reward           float64
	Components, Log  map[string]float64
}

// A Verdict is the reward's judgment of a response.
type Verdict struct {
	Answer, Reason string
	Right          string // see package reward
	Status         string // see package reward; "ok" stands for OK in older checkpoints
	Skip           bool   // the response was not graded
}

// A Trajectory has the figures that learning adds to a rollout.
type Trajectory struct {
	Reward, Advantage float64 // the reward as the objective shaped it
	TokenAdvantage    []float64
	// OldLogProb is nil if it is the rollout's LogProb.
	OldLogProb, RefLogProb []float64
	Truncated, Degenerate  bool
}

// An Update has the newest optimizer step's figures of a rollout's tokens: dLoss/dlogp
// and the log-prob minus the old policy's. Both are nil before its first step.
type Update struct {
	W, Delta []float32
}

// write writes round.gob of a checkpoint.
func (r Round) write(put files.Put) error {
	r.Version = roundVersion
	return put(roundGob(""), func(w io.Writer) error { return gob.NewEncoder(w).Encode(r) })
}

func roundGob(checkpoint string) string { return filepath.Join(checkpoint, stateDir, roundFile) }

// ReadRound reads the round that a checkpoint inside a round holds.
func ReadRound(checkpoint string) (*Round, error) {
	f, err := files.OpenIn(roundGob(checkpoint))
	if err != nil {
		return nil, fmt.Errorf("train: resume: %w", err)
	}
	defer f.Close()
	r, err := decodeRound(f)
	if err != nil {
		return nil, fmt.Errorf("train: resume: %s: %w", roundGob(checkpoint), err)
	}
	return r, nil
}

// decodeRound reads a Round and checks that its parts fit together.
func decodeRound(in io.Reader) (*Round, error) {
	var r Round
	if err := gob.NewDecoder(in).Decode(&r); err != nil {
		return nil, err
	}
	if r.Version < 0 || r.Version > roundVersion {
		return nil, fmt.Errorf("the round is of version %d; this program reads versions up to %d", r.Version, roundVersion)
	}
	n := len(r.Rollouts)
	if len(r.Trajectories) != n || len(r.Updates) != n || r.Groups < 1 || r.Flat < 0 {
		return nil, fmt.Errorf("%d trajectories and %d updates of %d rollouts in %d groups", len(r.Trajectories), len(r.Updates), n, r.Groups)
	}
	for _, k := range r.Kept {
		if k < 0 || k >= n {
			return nil, fmt.Errorf("rollout %d of %d", k, n)
		}
	}
	for i := range r.Rollouts {
		if !fits(&r.Rollouts[i], &r.Trajectories[i], &r.Updates[i]) {
			return nil, fmt.Errorf("rollout %d: its parts do not have the %d tokens of its response", i, len(r.Rollouts[i].Response))
		}
		if r.Rollouts[i].Response == nil { // a gob does not tell empty from nil, but JSON does
			r.Rollouts[i].Response = []int32{}
		}
	}
	for i := range r.Greedy { // nothing is learned from them
		if !fits(&r.Greedy[i], &Trajectory{}, &Update{}) {
			return nil, fmt.Errorf("greedy rollout %d: its parts do not have the %d tokens of its response", i, len(r.Greedy[i].Response))
		}
	}
	return &r, nil
}

// fits says whether the figures of a rollout have one value for each token of its response, or none if they may be
// absent, and whether what was observed lies in the response, in order.
func fits(x *Rollout, y *Trajectory, u *Update) bool {
	n := len(x.Response)
	optional := func(k int) bool { return k == 0 || k == n }
	for _, row := range x.Teachers {
		if len(row) != n {
			return false
		}
	}
	at := 0
	for _, o := range x.Observed { // before each of them is at least one sampled token
		if o.At <= at || o.At > n {
			return false
		}
		at = o.At
	}
	return len(x.Prompt) > 0 && x.Problem >= 0 && len(x.LogProb) == n && len(x.Entropy) == n &&
		optional(len(y.OldLogProb)) && optional(len(y.RefLogProb)) && optional(len(y.TokenAdvantage)) &&
		optional(len(x.Kept)) && optional(len(u.W)) && len(u.W) == len(u.Delta)
}
