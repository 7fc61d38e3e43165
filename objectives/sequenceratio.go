package objectives

import (
	"math"

	"onering/objectives/means"
)

// SequenceRatio is the surrogate of objectives that have one ratio r_i for a whole
// response (gmpo, gspo, pmpo):
//
//	L = -1/N sum_i A_i r_i
//
// plus the penalties of Shared, each token counting 1/(N n). The weight of a token
// is -A_i/N r_i dlog(r_i)/dLogProb_t. An objective embeds SequenceRatio, computes
// its ratio, and passes it to SequenceLoss and SequenceWeights. Responses
// that are empty or have no advantage have no ratio and are skipped.
type SequenceRatio struct{ Shared }

// WeighsWhole says that a response has one advantage; see Needs.
func (SequenceRatio) WeighsWhole() bool { return true }

// SequenceLoss returns L. ratio returns r_i of response i of b.
func (o SequenceRatio) SequenceLoss(b Batch, ratio func(i int) float64) float64 {
	loss, count := 0.0, float64(len(b.Trajectories))
	for i, t := range b.Trajectories {
		n := len(t.LogProb)
		if n == 0 {
			continue
		}
		if t.Advantage != 0 {
			loss -= t.Advantage / count * ratio(i)
		}
		loss += o.Penalty(t, 1/(count*float64(n)))
	}
	return loss
}

// SequenceWeights sets w to dL/dLogProb. gradient returns r_i of response i of b and
// sets g[t] to the derivative of log r_i with respect to LogProb_t.
func (o SequenceRatio) SequenceWeights(b Batch, w [][]float64, gradient func(i int, g []float64) (ratio float64)) {
	count := float64(len(b.Trajectories))
	for i, t := range b.Trajectories {
		n := len(t.LogProb)
		if n == 0 {
			continue
		}
		if t.Advantage == 0 {
			clear(w[i])
		} else {
			scale := -t.Advantage / count * gradient(i, w[i])
			for j, g := range w[i] {
				if g != 0 { // otherwise an infinite ratio times 0 would give NaN
					w[i][j] = scale * g
				}
			}
		}
		o.AddPenalty(t, 1/(count*float64(n)), w[i])
	}
}

// LogRatio returns the sum of the log-ratios d of a response.
func (t *Trajectory) LogRatio() float64 {
	sum := 0.0
	for j, logp := range t.LogProb {
		sum += logp - t.OldLogProb[j]
	}
	return sum
}

// MeanLogRatio returns the mean of the log-ratios d of a response, 0 if it is empty.
func (t *Trajectory) MeanLogRatio() float64 {
	if len(t.LogProb) == 0 {
		return 0
	}
	return t.LogRatio() / float64(len(t.LogProb))
}

// ClippedMean is a SequenceRatio whose ratio is a power mean of the tokens' ratios,
// clipped in the log domain. gmpo (order 0) and pmpo share it.
type ClippedMean struct {
	SequenceRatio
	LogClip
	// Norm is mean (default), sum or count-times.
	Norm string `toml:"norm" choice:"mean sum count-times"`
}

// DefaultClippedMean returns the default settings with the given kind of advantage.
func DefaultClippedMean(advantage string) ClippedMean {
	return ClippedMean{SequenceRatio{Defaults(advantage)}, LogClip{Clip: 0.4, ClipMode: "token", ClipForm: "pessimistic"}, "mean"}
}

// LogMean returns the logarithm of the mean of order p of the ratios e^z in the
// chosen norm (D14). Unless g is nil it sets g to the derivative with respect to z.
// z must not be empty. Norm "sum" is undefined at p = 0.
//
//	mean         (1/n sum e^(p z))^(1/p)
//	sum          (sum e^(p z))^(1/p)
//	count-times  n times the mean
func (o ClippedMean) LogMean(z []float64, p float64, g []float64) float64 {
	l, n := means.LogPowerMean(z, p, g), float64(len(z))
	switch o.Norm {
	case "sum":
		return l + math.Log(n)/p
	case "count-times":
		return l + math.Log(n)
	}
	return l
}
