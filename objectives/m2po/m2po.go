// Package m2po is Second-Moment Trust Policy Optimization (Prosperity before Collapse,
// arXiv:2510.01161), for rollouts that are far off policy. Ratios are not clipped; tokens
// with the largest log-ratios are masked until the second moment of the others is small,
//
//	L = -1/T sum_i sum_t M_t r_t A_i
//
// Candidates are the tokens whose ratio has moved where their advantage pushes it
// (A d > 0). Those of the largest d^2 have M = 0, as many as it takes for the mean of
// d^2 over the remaining candidates to be at most m2 (0.04). Advantages are
// standardized. The weight of a token is -M_t r_t A_i / T.
//
// Implementations differ. This is Algorithm 1 as third parties implement it. The
// authors' code (Infini-AI-Lab/M2PO) makes bounds for PPO's clip of the ratio from
// the budget, the largest tau for which the mean of min(d^2, tau^2) over all candidates
// is at most m2, no narrower than [0.7, 1.5]: a token that is cut still counts tau^2, so
// more are cut than here, but for those within the bounds. AReaL takes all tokens as
// candidates, whatever their advantage.
//
// Degenerate cases: an empty response adds nothing; a batch without tokens has loss 0;
// a group with equal rewards, or of one response, has zero advantages.
package m2po

import (
	"math"
	"slices"

	"onering/objectives"
)

// A m2PO is the objective "m2po".
type m2PO struct {
	objectives.TokenSum
	// M2 is the largest allowed mean of d^2 over candidates. Default 0.04.
	M2 float64 `toml:"m2" range:"[0,)"`
}

func init() {
	objectives.Register("m2po", func() objectives.Objective {
		return &m2PO{TokenSum: objectives.NewTokenSum("standardized", "token-mean"), M2: 0.04}
	})
}

// WeighsApart says that the budget covers the whole batch; see objectives.Needs.
func (o *m2PO) WeighsApart() bool { return false }

// candidate returns d of token j and whether the token may be masked.
func candidate(t *objectives.Trajectory, j int) (d float64, ok bool) {
	d = t.LogProb[j] - t.OldLogProb[j]
	return d, d*t.AdvantageAt(j) > 0
}

// threshold returns the largest d^2 that is not masked.
func (o *m2PO) threshold(b objectives.Batch) float64 {
	var squares []float64
	for i := range b.Trajectories {
		for j := range b.Trajectories[i].LogProb {
			if d, ok := candidate(&b.Trajectories[i], j); ok {
				squares = append(squares, d*d)
			}
		}
	}
	slices.Sort(squares)
	// The mean of the k smallest rises with k: the last k within the budget counts.
	sum, largest := 0.0, 0.0
	for k, x := range squares {
		if sum += x; sum > o.M2*float64(k+1) {
			break
		}
		largest = x
	}
	return largest
}

// surrogate sets k to M r A, the mask times the ratio times the advantage.
func surrogate(t, at *objectives.Trajectory, k []float64, threshold float64) {
	for j, logp := range t.LogProb {
		k[j] = 0
		if a := t.AdvantageAt(j); a != 0 && !masked(at, j, threshold) {
			k[j] = a * math.Exp(logp-t.OldLogProb[j])
		}
	}
}

// masked says whether token j of a response of at is masked.
func masked(t *objectives.Trajectory, j int, threshold float64) bool {
	d, ok := candidate(t, j)
	return ok && d*d > threshold
}

// Loss implements objectives.Objective; the mask is detached.
func (o *m2PO) Loss(b, at objectives.Batch) float64 {
	threshold := o.threshold(at)
	return o.SumLoss(b, func(i int, v []float64) {
		surrogate(&b.Trajectories[i], &at.Trajectories[i], v, threshold)
	})
}

// Weights implements objectives.Objective.
func (o *m2PO) Weights(b objectives.Batch, w [][]float64) {
	threshold := o.threshold(b)
	o.SumWeights(b, w, func(i int, g []float64) {
		surrogate(&b.Trajectories[i], &b.Trajectories[i], g, threshold)
	})
}

// Diagnose implements objectives.Diagnoser.
func (o *m2PO) Diagnose(b objectives.Batch) []objectives.Diagnostics {
	threshold := o.threshold(b)
	return b.DiagnoseCut(func(t *objectives.Trajectory, j int) bool { return masked(t, j, threshold) })
}

var _ objectives.Diagnoser = (*m2PO)(nil)
