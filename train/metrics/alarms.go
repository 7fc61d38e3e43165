package metrics

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
)

// Alarms warn, with figures, of what makes a run go wrong without an error. Each
// looks at figures that are in metrics.jsonl as well, and warns again only after
// its figure was in order again or has become much worse. Every checkpoint holds
// their state, so a resumed run warns as one that was never stopped.
type Alarms struct {
	log   *slog.Logger
	state AlarmState
}

// An AlarmState is the state of Alarms.
type AlarmState struct {
	Losses Exact `json:"losses"` // losses of the newest steps
	Flat   int   `json:"flat"`   // number of rounds in a row that taught nothing

	Rounds int   `json:"rounds"` // number of rounds seen
	First  Exact `json:"first"`  // means over the first rounds, by figure
	Warned Exact `json:"warned"` // the value at the last warning, by figure

	Failing bool `json:"failing,omitempty"` // most episodes of the newest round failed
}

// Figures of a round that are compared with those of the first rounds.
const (
	figureEntropy = iota
	figureLength
	figureTruncated
	figures
)

const (
	// lossWindow is the number of earlier steps that a loss is compared with.
	lossWindow = 64
	// A loss has jumped if its distance from their median is more than lossSpread
	// standard deviations and more than lossRecord times the largest distance
	// among them. The standard deviation is estimated from the median of the
	// distances, which a single jump does not move. The second condition is for
	// small batches with rewards of 0 and 1: there most losses are the same, so
	// that the median of the distances is close to 0.
	lossSpread = 20
	lossRecord = 4
	// Losses smaller than lossNothing are left out: a step whose groups all have
	// equal rewards has nothing but a rounding error for a loss, and any other
	// loss would look like a jump beside it.
	lossNothing = 1e-6
	// flatRounds is the number of rounds in a row that teach nothing which gives rise to a
	// warning. The first round of a run does alone.
	flatRounds = 3
	// baseRounds is the number of first rounds that later ones are compared with.
	baseRounds = 3
	// An entropy below entropyShare of that of the first rounds is a collapse if
	// the condition of collapsed holds as well.
	entropyShare = 0.1
	// Responses lengthFactor times as long as in the first rounds are too long.
	lengthFactor = 2
	// The share of truncated responses may rise by truncatedRise.
	truncatedRise = 0.25
	// An environment may fail in failedShare of a round's episodes.
	failedShare = 0.5
)

// NewAlarms returns Alarms that have seen nothing yet and write to log.
func NewAlarms(log *slog.Logger) *Alarms {
	return &Alarms{log, AlarmState{
		First:  make(Exact, figures),
		Warned: Exact{figureEntropy: math.Inf(1), figureLength: 0, figureTruncated: 0},
	}}
}

// State returns a copy of the alarms' state.
func (a *Alarms) State() *AlarmState {
	s := a.state
	s.Losses, s.First, s.Warned = slices.Clone(s.Losses), slices.Clone(s.First), slices.Clone(s.Warned)
	return &s
}

// Restore makes the alarms remember s, the state in a checkpoint.
func (a *Alarms) Restore(s *AlarmState) error {
	switch {
	case s == nil:
		return errors.New("it has no state of the warnings")
	case len(s.First) != figures || len(s.Warned) != figures || len(s.Losses) > lossWindow || s.Flat < 0 || s.Rounds < 0:
		return fmt.Errorf("the state of the warnings has %d, %d and %d figures, %d rounds", len(s.Losses), len(s.First), len(s.Warned), s.Rounds)
	}
	a.state = *s
	return nil
}

// Look looks at a record of metrics.jsonl. flat is, of a round, the share of the problems
// from whose responses no step learns anything.
func (a *Alarms) Look(r Record, flat float64) {
	switch r.Get("kind") {
	case "step":
		a.step(r)
	case "round":
		a.round(r, flat)
	}
}

// step looks at the record of an optimizer step.
func (a *Alarms) step(r Record) {
	s := &a.state
	loss := r.Float("loss")
	if nonfinite(loss) || math.Abs(loss) < lossNothing {
		return
	}
	if len(s.Losses) >= lossWindow/4 {
		middle, deviation, largest := medianDeviation(s.Losses)
		if off := math.Abs(loss - middle); deviation > 0 && off > lossSpread*deviation && off > lossRecord*largest {
			a.log.Warn("the loss has jumped", "step", r.Get("step"), "loss", loss, "median", middle, "deviations", math.Round(off/deviation), "grad_norm", r.Float("grad_norm"))
		}
	}
	if len(s.Losses) == lossWindow {
		s.Losses = append(s.Losses[:0], s.Losses[1:]...)
	}
	s.Losses = append(s.Losses, loss)
}

// round looks at the record of a finished round.
func (a *Alarms) round(r Record, flat float64) {
	s, n := &a.state, r.Get("round")
	reward := r.Float("reward")
	entropy, length, truncated := r.Float("entropy"), r.Float("response_length/mean"), r.Float("truncated_share")

	s.Flat++
	if flat < 1 {
		s.Flat = 0
	}
	if s.Flat > 0 && (s.Rounds == 0 || s.Flat%flatRounds == 0) {
		a.log.Warn("nothing is learned from the rewards: no response has an advantage, or the objective keeps none of those that have", "round", n, "rounds_in_a_row", s.Flat,
			"reward", reward, "frac_reward_zero_std", r.Float("frac_reward_zero_std"), "groups_kept", r.Float("groups_kept"))
	}

	share := r.Float("environment/failed_share")
	if share > failedShare && !s.Failing {
		a.log.Warn("the environment fails in most episodes, and these have no grade", "round", n, "failed", r.Get("environment/failed"), "share", share, "commonest_reason", r.Get("environment/reason"))
	}
	s.Failing = share > failedShare

	s.Rounds++
	if s.Rounds <= baseRounds {
		for i, x := range [figures]float64{figureEntropy: entropy, figureLength: length, figureTruncated: truncated} {
			s.First[i] += x / baseRounds
		}
		return
	}
	if collapsed(entropy, s.First[figureEntropy], reward, flat) && entropy < s.Warned[figureEntropy]/2 {
		s.Warned[figureEntropy] = entropy
		a.log.Warn("the entropy has collapsed before the problems are solved: responses hardly vary, and more problems are failed by all of their responses than are learned from",
			"round", n, "entropy", entropy, "first_rounds", s.First[figureEntropy], "reward", reward, "frac_reward_zero_std", r.Float("frac_reward_zero_std"))
	}
	if length > lengthFactor*s.First[figureLength] && length > lengthFactor*s.Warned[figureLength] {
		s.Warned[figureLength] = length
		a.log.Warn("responses have grown long", "round", n, "tokens", length, "first_rounds", s.First[figureLength], "truncated_share", truncated)
	}
	if truncated > s.First[figureTruncated]+truncatedRise && truncated > s.Warned[figureTruncated]+truncatedRise {
		s.Warned[figureTruncated] = truncated
		a.log.Warn("more responses are truncated", "round", n, "truncated_share", truncated, "first_rounds", s.First[figureTruncated], "tokens", length)
	}
}

// collapsed says whether the policy has become certain of its answers too early.
//
// A low entropy alone is no harm: in every run that succeeds it falls, since a
// policy that knows the answer is certain of it. The harm is that all responses to
// a problem that is not solved are alike, so that nothing can be learned from it.
//
// Rewards are 0 or 1 (but for an objective's penalty on length). Of all problems, the
// share flat teaches nothing, since all responses earn the same, and at most the share
// reward is solved by every response. So at least flat - reward are failed by every
// response, and 1 - flat are learned from.
func collapsed(entropy, first, reward, flat float64) bool {
	return entropy < entropyShare*first && flat-reward > 1-flat
}

// medianDeviation returns the median, the standard deviation of normally distributed
// numbers with the same median distance from it, and the largest distance.
func medianDeviation(x []float64) (middle, deviation, largest float64) {
	middle = median(x)
	distances := make([]float64, len(x))
	for i, v := range x {
		distances[i] = math.Abs(v - middle)
	}
	return middle, 1.4826 * median(distances), slices.Max(distances)
}

func median(x []float64) float64 {
	sorted := slices.Sorted(slices.Values(x))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
