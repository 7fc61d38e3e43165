package train

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"

	"onering/eval"
	"onering/reward"
	"onering/sampler"
	"onering/train/learn"
	"onering/train/metrics"
	"onering/train/rundir"
)

// Of several ranks each samples and grades the responses to its share of the problems,
// and gets those of the others: from then on all have the same round, and compute the
// same advantages and batches. The Stepper deals each batch to them again.

// mine says whether a problem, by its number, is this rank's to sample. Neighbours, which
// may be equally hard, go to different ranks.
func (r *roller) mine(problem int) bool {
	return problem%r.ranks.Size() == r.ranks.Rank()%r.ranks.Size()
}

// count is how many of n problems are this rank's.
func (r *roller) count(n int) (own int) {
	for i := range n {
		if r.mine(i) {
			own++
		}
	}
	return own
}

// sampled is what a rank has sampled of a round.
type sampled struct {
	Rollouts []graded // in order
	Stats    sampler.Stats
}

// graded is what another rank does not know of a rollout.
type graded struct {
	Response         []int32
	LogProb, Entropy []float64
	Text             string
	Score            reward.Score
	Truncated        bool
}

// gather completes a round, of which each rank has sampled its share.
func (r *roller) gather(rollouts []rollout, stats *sampler.Stats) error {
	if r.ranks.Size() == 1 {
		return nil
	}
	own := sampled{Stats: *stats}
	for _, x := range rollouts {
		if r.mine(x.Problem) {
			own.Rollouts = append(own.Rollouts, graded{x.Response, x.LogProb, x.Entropy, x.Text, x.Score, x.Truncated})
		}
	}
	all, err := gatherAll(r, own)
	if err != nil {
		return err
	}
	for i := range rollouts {
		x, from := &rollouts[i], rollouts[i].Problem%len(all)
		if len(all[from].Rollouts) == 0 {
			return fmt.Errorf("train: rank %d has sampled too few responses", from)
		}
		y := all[from].Rollouts[0]
		all[from].Rollouts = all[from].Rollouts[1:]
		x.Response, x.LogProb, x.Entropy, x.Text, x.Score, x.Truncated = y.Response, y.LogProb, y.Entropy, y.Text, y.Score, y.Truncated
	}
	*stats = sampler.Stats{}
	for _, x := range all {
		stats.Responses += x.Stats.Responses
		stats.Tokens += x.Stats.Tokens
		stats.Steps += x.Stats.Steps
		stats.Prefills += x.Stats.Prefills
		stats.Prompts += x.Stats.Prompts
		stats.PrefillTokens += x.Stats.PrefillTokens
		stats.Slots = max(stats.Slots, x.Stats.Slots)
		stats.SlotSteps += x.Stats.SlotSteps
	}
	return nil
}

// gatherAll returns what each rank gives, by rank.
func gatherAll[T any](r *roller, own T) ([]T, error) {
	var b bytes.Buffer
	if err := r.ranks.AgreeOn(gob.NewEncoder(&b).Encode(own)); err != nil {
		return nil, err
	}
	texts, err := r.ranks.Gather(b.Bytes())
	if err != nil {
		return nil, err
	}
	all := make([]T, len(texts))
	for rank, text := range texts {
		if err := gob.NewDecoder(bytes.NewReader(text)).Decode(&all[rank]); err != nil {
			return nil, fmt.Errorf("train: what rank %d has sent: %w", rank, err)
		}
	}
	return all, nil
}

// evaluated is what a rank has sampled of an evaluation.
type evaluated struct {
	Responses []eval.Response
	Ungraded  *eval.UngradedError
}

// gatherResponses gives all ranks the responses that each has added in an evaluation that
// ended with an error, or with nil.
func (r *roller) gatherResponses(err error, added []eval.Response, to *eval.Responses) error {
	if r.ranks.Size() == 1 {
		return err
	}
	own := evaluated{Responses: added}
	if errors.As(err, &own.Ungraded) {
		err = nil
	}
	if err := r.ranks.AgreeOn(errors.Join(err, r.grades.Exchange())); err != nil {
		return err
	}
	all, err := gatherAll(r, own)
	if err != nil {
		return err
	}
	var ungraded *eval.UngradedError
	for rank, x := range all {
		if x.Ungraded != nil && ungraded == nil {
			ungraded = x.Ungraded
		} else if x.Ungraded != nil {
			ungraded.Count += x.Ungraded.Count
		}
		if rank == r.ranks.Rank() {
			continue
		}
		for _, response := range x.Responses {
			if err := to.Add(response); err != nil {
				return err
			}
		}
	}
	if ungraded != nil {
		return ungraded
	}
	return nil
}

// A found is the newest checkpoint of a run; Dir is empty where there is none.
type found struct {
	Dir   string
	State rundir.State
	Round *rundir.Round // that it lies inside, or nil
}

// newest reads the newest checkpoint on the first rank, and returns it on all: the others
// may have no folder of the run.
func newest(r *roller, folder *rundir.Folder, log *slog.Logger) (f found, err error) {
	group := r.ranks
	if group.First() {
		f, err = readNewest(folder, log)
	}
	if err := group.AgreeOn(err); err != nil || group.Size() == 1 {
		return f, err
	}
	all, err := gatherAll(r, f)
	if err != nil {
		return f, err
	}
	return all[0], nil
}

func readNewest(folder *rundir.Folder, log *slog.Logger) (f found, err error) {
	if f.Dir, err = folder.NewestCheckpoint(log); err != nil || f.Dir == "" {
		return f, err
	}
	if f.State, err = rundir.ReadState(f.Dir); err == nil && f.State.Inside {
		f.Round, err = rundir.ReadRound(f.Dir)
	}
	return f, err
}

// checkSame ends the run unless all ranks have the same program, settings, problems and
// weights.
func (t *Trainer) checkSame() error {
	group := t.learner.ranks
	if group.Size() == 1 {
		return nil
	}
	program := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		program = digest(info.String())
	}
	c := t.Config
	settings := fmt.Sprintf("%v %+v %+v %+v", c.Train, c.Eval, c.Distributed, c.Optimizer)
	for _, key := range slices.Sorted(maps.Keys(decisive(c))) {
		settings += "\n" + key + "=" + decisive(c)[key]
	}
	for _, x := range []struct{ thing, text string }{
		{"program", program}, {"configuration", digest(settings)}, {"set of problems", t.roller.digest}, {"model", t.learner.fingerprint(true)},
	} {
		if err := group.Same(x.thing, x.text); err != nil {
			return err
		}
	}
	trained := t.learner.policy.Ring.Trained()
	t.log.Info("ranks train together", "ranks", group.Size(), "shard", c.Distributed.Shard,
		"bytes_sent_per_step", t.learner.predicted(), "parameters", trained.Parameters())
	return nil
}

func digest(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:16] }

// fingerprint is a digest of the weights that are trained or, with all, of all.
func (l *learner) fingerprint(all bool) string {
	if all {
		return l.policy.Fingerprint()
	}
	return checksum(l.policy.Ring.Trained())
}

// checkWeights ends the run unless all ranks have the same weights, where
// distributed.check_every says that it is time to look.
func (t *Trainer) checkWeights() error {
	l, every := t.learner, t.Config.Distributed.CheckEvery
	if l.ranks.Size() == 1 || every == 0 || t.at.Step%every != 0 {
		return nil
	}
	w := l.policy.Ring.Trained()
	if err := l.ranks.AgreeOn(l.env.Download(w)); err != nil {
		return err
	}
	text := l.fingerprint(false)
	l.env.Forget(w)
	if err := l.ranks.Same("digest of the weights", text); err != nil {
		return &learn.UpdateError{Err: fmt.Errorf("train: after step %d: %w", t.at.Step, err)}
	}
	return nil
}

// predicted is how many bytes this rank sends in a step.
func (l *learner) predicted() int64 {
	var bounds []int
	if b := l.stepper.Optimizer().Bounds(); len(b) > 2 {
		bounds = b
	}
	return l.ranks.Volume(len(l.policy.Ring.Trained().Data), bounds)
}

// volume is how many bytes of gradients and weights this rank has sent since it had sent
// so many, and how many a step should take.
func (l *learner) volume(sent int64) metrics.Record {
	if l.ranks.Size() == 1 {
		return nil
	}
	return metrics.Record{}.With("ranks/sent_bytes", l.ranks.Sent()-sent).With("ranks/predicted_bytes", l.predicted())
}
