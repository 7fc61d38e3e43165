package train

import (
	"log/slog"
	"math"
	"slices"
)

// alarms warn, with figures, of what makes a run go wrong without an error. Each
// looks at figures that are in metrics.jsonl as well, and speaks again only when
// what it saw has passed or grown.
type alarms struct {
	log    *slog.Logger
	losses []float64 // of the newest steps
	flat   int       // rounds in a row whose groups all have equal rewards

	first   [3]float64 // entropy, length, truncated share of the first rounds
	rounds  int        // seen
	entropy float64    // at which the last warning was given
	length  float64
	cut     float64
}

func newAlarms(log *slog.Logger) alarms {
	return alarms{log: log, entropy: math.Inf(1)}
}

const (
	// lossWindow is how many steps a loss is compared with.
	lossWindow = 64
	// lossSpread is how many of their standard deviations (by the median of
	// the deviations, which a spike does not move) it may be off.
	lossSpread = 20
	// flatRounds in a row of equal rewards are worth a warning.
	flatRounds = 3
	// baseRounds are those that later ones are compared with.
	baseRounds = 3
	// entropyShare of the first rounds' entropy is a collapse.
	entropyShare = 0.1
	// lengthFactor of the first rounds' length is a blow-up.
	lengthFactor = 2
	// cutRise is how much the share of truncated responses may rise.
	cutRise = 0.25
)

// step looks at an optimizer step.
func (a *alarms) step(r Record) {
	loss := r.Float("loss")
	if nonfinite(loss) {
		return
	}
	if len(a.losses) >= lossWindow/4 {
		middle, spread := medianSpread(a.losses)
		if off := math.Abs(loss - middle); spread > 0 && off > lossSpread*spread {
			a.log.Warn("the loss has jumped", "step", r.Get("step"), "loss", loss, "median", middle, "deviations", math.Round(off/spread), "grad_norm", r.Float("grad_norm"))
		}
	}
	if len(a.losses) == lossWindow {
		a.losses = append(a.losses[:0], a.losses[1:]...)
	}
	a.losses = append(a.losses, loss)
}

// round looks at a finished round.
func (a *alarms) round(r Record) {
	n := r.Get("round")
	entropy, length, cut := r.Float("entropy"), r.Float("response_length/mean"), r.Float("truncated_share")

	if a.flat++; r.Float("frac_reward_zero_std") < 1 {
		a.flat = 0
	}
	if a.flat > 0 && a.flat%flatRounds == 0 {
		a.log.Warn("all responses to each problem earn the same: nothing is learned", "round", n, "rounds_in_a_row", a.flat, "reward", r.Float("reward"))
	}

	a.rounds++
	if a.rounds <= baseRounds {
		for i, x := range []float64{entropy, length, cut} {
			a.first[i] += x / baseRounds
		}
		return
	}
	if entropy < entropyShare*a.first[0] && entropy < a.entropy/2 {
		a.entropy = entropy
		a.log.Warn("the entropy has collapsed: responses hardly vary", "round", n, "entropy", entropy, "first_rounds", a.first[0])
	}
	if length > lengthFactor*a.first[1] && length > lengthFactor*a.length {
		a.length = length
		a.log.Warn("responses have grown long", "round", n, "tokens", length, "first_rounds", a.first[1], "truncated_share", cut)
	}
	if cut > a.first[2]+cutRise && cut > a.cut+cutRise {
		a.cut = cut
		a.log.Warn("more responses are truncated, which earn nothing", "round", n, "truncated_share", cut, "first_rounds", a.first[2], "tokens", length)
	}
}

// medianSpread returns the median and a standard deviation by the median
// absolute deviation.
func medianSpread(x []float64) (middle, spread float64) {
	middle = median(x)
	deviations := make([]float64, len(x))
	for i, v := range x {
		deviations[i] = math.Abs(v - middle)
	}
	return middle, 1.4826 * median(deviations)
}

func median(x []float64) float64 {
	sorted := slices.Sorted(slices.Values(x))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
