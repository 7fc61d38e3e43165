package objectives

import (
	"errors"
	"math"
)

// RatioClip is PPO's clipped surrogate, token by token (D21). With r = e^d it is
//
//	-min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)
//
// and the tokens of a batch are summed with the weights that Aggregate names:
//
//	sequence-mean  1/(N n)   each response counts the same
//	token-mean     1/T       each token of the batch counts the same
//	constant       1/(N L)   as token-mean, with a constant L in place of the mean length
//
// grpo, drgrpo and dapo are this objective with different defaults.
type RatioClip struct {
	Shared
	RatioBound
	// Aggregate is sequence-mean, token-mean or constant.
	Aggregate string `toml:"aggregate"`
	// ConstantLength is L. Default 3000, the response limit of the paper's recipe.
	ConstantLength float64 `toml:"constant_length"`
}

// Validate implements Validator.
func (o *RatioClip) Validate() error {
	return errors.Join(
		o.Shared.Validate(),
		o.RatioBound.Validate(),
		OneOf("aggregate", o.Aggregate, "sequence-mean", "token-mean", "constant"),
		Within("constant_length", o.ConstantLength, 1, math.MaxFloat64),
	)
}

// tokenScale returns how much each token of a response of n tokens counts in a
// batch of count responses and total tokens. It is infinite if there are no tokens.
func (o *RatioClip) tokenScale(n, count, total int) float64 {
	switch o.Aggregate {
	case "token-mean":
		return 1 / float64(total)
	case "constant":
		return 1 / (float64(count) * o.ConstantLength)
	}
	return 1 / (float64(count) * float64(n))
}

// Loss implements Objective; nothing is detached.
func (o *RatioClip) Loss(b, _ Batch) float64 {
	loss, total := 0.0, b.Tokens()
	for _, t := range b.Trajectories {
		c := o.tokenScale(len(t.LogProb), len(b.Trajectories), total)
		if t.Advantage != 0 {
			for j, logp := range t.LogProb {
				r, _ := o.Bound(math.Exp(logp-t.OldLogProb[j]), t.Advantage)
				loss -= r * (t.Advantage * c)
			}
		}
		loss += o.Penalty(t, c)
	}
	return loss
}

// Weights implements Objective.
func (o *RatioClip) Weights(b Batch, w [][]float64) {
	total := b.Tokens()
	for i, t := range b.Trajectories {
		c := o.tokenScale(len(t.LogProb), len(b.Trajectories), total)
		clear(w[i])
		if t.Advantage != 0 {
			for j, logp := range t.LogProb {
				if r, cut := o.Bound(math.Exp(logp-t.OldLogProb[j]), t.Advantage); !cut {
					w[i][j] = -r * (t.Advantage * c)
				}
			}
		}
		o.AddPenalty(t, c, w[i])
	}
}

// EntropyWeights implements EntropyWeigher.
func (o *RatioClip) EntropyWeights(b Batch, v [][]float64) {
	total := b.Tokens()
	for i := range v {
		o.FillEntropy(o.tokenScale(len(v[i]), len(b.Trajectories), total), v[i])
	}
}

// Diagnose implements Diagnoser.
func (o *RatioClip) Diagnose(b Batch) []Diagnostics {
	all := make([]Diagnostics, len(b.Trajectories))
	for i, t := range b.Trajectories {
		cut := 0
		for j, logp := range t.LogProb {
			if _, c := o.Bound(math.Exp(logp-t.OldLogProb[j]), t.Advantage); c {
				cut++
			}
		}
		all[i] = Diagnostics{Advantage: t.Advantage, Clipped: Fraction(cut, len(t.LogProb))}
	}
	return all
}
