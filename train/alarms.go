package train

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
)

// alarms warn, with figures, of what makes a run go wrong without an error. Each
// looks at figures that are in metrics.jsonl as well, and speaks again only when
// what it saw has passed or grown. What they remember is in every checkpoint, so
// that a resumed run warns as one that was never stopped.
type alarms struct {
	log *slog.Logger
	alarmState
}

// An alarmState is what the alarms remember.
type alarmState struct {
	Losses Exact `json:"losses"` // of the newest steps
	Flat   int   `json:"flat"`   // rounds in a row whose groups all have equal rewards

	Rounds int   `json:"rounds"` // seen
	First  Exact `json:"first"`  // means over the first rounds, by figure
	Warned Exact `json:"warned"` // at which the last warning was given, by figure
}

// The figures of a round that are compared with those of the first rounds.
const (
	figureEntropy = iota
	figureLength
	figureCut
	figures
)

func newAlarms(log *slog.Logger) alarms {
	return alarms{log, alarmState{First: make(Exact, figures), Warned: Exact{figureEntropy: inf, figureLength: 0, figureCut: 0}}}
}

// state is what a checkpoint keeps; nothing in it changes later.
func (a *alarms) state() *alarmState {
	s := a.alarmState
	s.Losses, s.First, s.Warned = slices.Clone(s.Losses), slices.Clone(s.First), slices.Clone(s.Warned)
	return &s
}

// restore goes on from a checkpoint's state; one of an older version has none.
func (a *alarms) restore(s *alarmState) error {
	switch {
	case s == nil:
		return nil
	case len(s.First) != figures || len(s.Warned) != figures || len(s.Losses) > lossWindow || s.Flat < 0 || s.Rounds < 0:
		return fmt.Errorf("the state of the warnings has %d, %d and %d figures, %d rounds", len(s.Losses), len(s.First), len(s.Warned), s.Rounds)
	}
	a.alarmState = *s
	return nil
}

const (
	// lossWindow is how many steps a loss is compared with.
	lossWindow = 64
	// lossSpread is how many of their standard deviations (by the median of
	// the deviations, which a spike does not move) it may be off, and lossRecord
	// how often their largest deviation: of a few trajectories with rewards of 0
	// and 1, most losses are the same and the median of the deviations is nothing.
	lossSpread = 20
	lossRecord = 4
	// lossNothing is the size below which a loss is rounding: that of a step
	// whose groups all have equal rewards. Beside such any other would be a jump.
	lossNothing = 1e-6
	// flatRounds in a row of equal rewards are worth a warning.
	flatRounds = 3
	// baseRounds are those that later ones are compared with.
	baseRounds = 3
	// entropyShare of the first rounds' entropy is a collapse, where it costs
	// something: see collapsed.
	entropyShare = 0.1
	// lengthFactor of the first rounds' length is a blow-up.
	lengthFactor = 2
	// cutRise is how much the share of truncated responses may rise.
	cutRise = 0.25
)

// step looks at an optimizer step.
func (a *alarms) step(r Record) {
	loss := r.Float("loss")
	if nonfinite(loss) || math.Abs(loss) < lossNothing {
		return
	}
	if len(a.Losses) >= lossWindow/4 {
		middle, spread, largest := medianSpread(a.Losses)
		if off := math.Abs(loss - middle); spread > 0 && off > lossSpread*spread && off > lossRecord*largest {
			a.log.Warn("the loss has jumped", "step", r.Get("step"), "loss", loss, "median", middle, "deviations", math.Round(off/spread), "grad_norm", r.Float("grad_norm"))
		}
	}
	if len(a.Losses) == lossWindow {
		a.Losses = append(a.Losses[:0], a.Losses[1:]...)
	}
	a.Losses = append(a.Losses, loss)
}

// round looks at a finished round.
func (a *alarms) round(r Record) {
	n := r.Get("round")
	entropy, length, cut := r.Float("entropy"), r.Float("response_length/mean"), r.Float("truncated_share")

	if a.Flat++; r.Float("frac_reward_zero_std") < 1 {
		a.Flat = 0
	}
	if a.Flat > 0 && a.Flat%flatRounds == 0 {
		a.log.Warn("all responses to each problem earn the same: nothing is learned", "round", n, "rounds_in_a_row", a.Flat, "reward", r.Float("reward"))
	}

	a.Rounds++
	if a.Rounds <= baseRounds {
		for i, x := range [figures]float64{figureEntropy: entropy, figureLength: length, figureCut: cut} {
			a.First[i] += x / baseRounds
		}
		return
	}
	reward, equal := r.Float("reward"), r.Float("frac_reward_zero_std")
	if collapsed(entropy, a.First[figureEntropy], reward, equal) && entropy < a.Warned[figureEntropy]/2 {
		a.Warned[figureEntropy] = entropy
		a.log.Warn("the entropy has collapsed before the problems are solved: responses hardly vary, and more problems are failed by all of theirs than are learned from",
			"round", n, "entropy", entropy, "first_rounds", a.First[figureEntropy], "reward", reward, "frac_reward_zero_std", equal)
	}
	if length > lengthFactor*a.First[figureLength] && length > lengthFactor*a.Warned[figureLength] {
		a.Warned[figureLength] = length
		a.log.Warn("responses have grown long", "round", n, "tokens", length, "first_rounds", a.First[figureLength], "truncated_share", cut)
	}
	if cut > a.First[figureCut]+cutRise && cut > a.Warned[figureCut]+cutRise {
		a.Warned[figureCut] = cut
		a.log.Warn("more responses are truncated, which earn nothing", "round", n, "truncated_share", cut, "first_rounds", a.First[figureCut], "tokens", length)
	}
}

// collapsed says whether the policy has become certain of its answers too
// early. That the entropy falls is no harm by itself: it does in every run that
// succeeds, since a policy that knows the answer has none left. The harm is that
// responses to one problem no longer differ in reward, so that nothing is
// learned from it, while it is failed. A round tells: rewards are 0 or 1 (but for
// an objective's penalty on length), so no more than the share "reward" of its
// problems can be those that every response solves. The other groups of equal rewards, equal - reward of all at
// the least, are failed by every response; and 1 - equal are learned from.
func collapsed(entropy, first, reward, equal float64) bool {
	return entropy < entropyShare*first && equal-reward > 1-equal
}

// medianSpread returns the median, a standard deviation by the median absolute
// deviation, and the largest deviation.
func medianSpread(x []float64) (middle, spread, largest float64) {
	middle = median(x)
	deviations := make([]float64, len(x))
	for i, v := range x {
		deviations[i] = math.Abs(v - middle)
	}
	return middle, 1.4826 * median(deviations), slices.Max(deviations)
}

func median(x []float64) float64 {
	sorted := slices.Sorted(slices.Values(x))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
