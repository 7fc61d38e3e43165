package policy

import (
	"maps"
	"math"
	"slices"

	"onering/objectives"
	"onering/objectives/means"
)

// groupLoss returns the loss over the G groups of b, in place of that over tokens, and
// unless w is nil sets w to its derivative. Empty responses are left out.
func (o *Policy) groupLoss(b objectives.Batch, w [][]float64) float64 {
	groups, loss, penalties := map[int][]int{}, 0.0, o.penaltyScales(b)
	for i, t := range b.Trajectories {
		groups[t.Group] = groups[t.Group] // a group of empty responses counts, too
		if len(t.LogProb) > 0 {
			groups[t.Group] = append(groups[t.Group], i)
		}
	}
	rule, share := targetLoss, 1/float64(len(groups)) // each group counts the same
	if o.List == "margin" {
		rule = marginLoss
	}
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		value, slopes := rule(b, groups[g], o.ListTemperature)
		loss += share * value
		for k, i := range groups[g] {
			for j := 0; w != nil && j < len(w[i]); j++ {
				w[i][j] = share * slopes[k]
			}
		}
	}
	for i, t := range b.Trajectories {
		loss += o.Penalty(t, penalties[i])
		if w != nil {
			o.AddPenalty(t, penalties[i], w[i])
		}
	}
	return loss
}

// targetLoss is TPO's loss of a group (D82), with its derivative by each log-prob of a response, for the responses of b whose
// numbers are in live:
//
//	-sum_i q_i log p_i,  p = softmax(sum logp),  q = softmax(sum old logp + u/list_temperature)
//
// over its responses, with u the rewards standardized by the population's deviation; 0 where
// that is below 1e-6.
func targetLoss(b objectives.Batch, live []int, temperature float64) (loss float64, slopes []float64) {
	p, q, rewards := make([]float64, len(live)), make([]float64, len(live)), make([]float64, len(live))
	for k, i := range live {
		t := &b.Trajectories[i]
		for j, logp := range t.LogProb {
			p[k] += logp
			q[k] += t.OldLogProb[j]
		}
		rewards[k] = t.Reward
	}
	u, square := objectives.Centered(rewards), 0.0
	for _, v := range u {
		square += v * v / float64(len(u))
	}
	for k := 0; k < len(u) && math.Sqrt(square) > 1e-6; k++ {
		q[k] += u[k] / math.Sqrt(square) / temperature
	}
	logSoftmax(p)
	logSoftmax(q)
	for k := range p {
		loss -= math.Exp(q[k]) * p[k]
		p[k] = math.Exp(p[k]) - math.Exp(q[k])
	}
	return loss, p // now p - q
}

// marginLoss is REAL's loss of a group (D81), with its derivatives as targetLoss has them:
//
//	log(1 + sum_(A <= 0) e^s) + log(1 + sum_(A > 0) e^-s),  s = mean d / list_temperature
//
// and 0 for a group in which all advantages are above 0, or none.
func marginLoss(b objectives.Batch, live []int, temperature float64) (loss float64, slopes []float64) {
	slopes = make([]float64, len(live))
	for _, sign := range []float64{-1, 1} {
		logits, of := []float64{0}, []int{} // e^0 is the 1 in the logarithm; of has the places in live of this sign
		for k, i := range live {
			if t := &b.Trajectories[i]; (t.Advantage > 0) == (sign > 0) {
				logits, of = append(logits, -sign*t.MeanLogRatio()/temperature), append(of, k)
			}
		}
		if len(of) == 0 || len(of) == len(live) {
			return 0, make([]float64, len(live))
		}
		logSoftmax(logits)
		loss -= logits[0] // which is now -log(1 + the sum)
		for m, k := range of {
			slopes[k] = -sign * math.Exp(logits[m+1]) / temperature / float64(len(b.Trajectories[live[k]].LogProb))
		}
	}
	return loss, slopes
}

// logSoftmax subtracts log sum e^x from x.
func logSoftmax(x []float64) {
	if len(x) == 0 {
		return
	}
	sum := means.LogPowerMean(x, 1, nil) + math.Log(float64(len(x)))
	for k := range x {
		x[k] -= sum
	}
}
