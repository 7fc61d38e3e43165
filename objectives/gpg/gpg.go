// Package gpg is Group Policy Gradient (arXiv:2504.02546): REINFORCE with a group
// baseline, and nothing else (D23):
//
//	L = -alpha/T sum_i A_i sum_t LogProb_t
//
// with centered advantages and T the tokens of the batch. There is no ratio and no
// clip; old log-probs do not matter. The weight of a token is -alpha A_i / T. The
// paper's F_norm is 1.
//
// rescale = true compensates for groups that teach nothing: alpha = N / (N - N'), where
// N' responses are in groups whose rewards are all equal. Without rescale, or
// if all responses are in such groups, alpha = 1.
//
// Degenerate cases: an empty response adds nothing but counts in N; a batch without
// tokens has loss 0; a group with equal rewards, or of one response, has zero
// advantages.
package gpg

import "onering/objectives"

// A gpg is the objective "gpg".
type gpg struct {
	objectives.Shared
	// Rescale turns alpha on. Default false.
	Rescale bool `toml:"rescale"`
}

func init() {
	objectives.Register("gpg", func() objectives.Objective {
		return &gpg{Shared: objectives.Defaults("centered")}
	})
}

// alpha returns the factor that compensates for degenerate groups.
func (o *gpg) alpha(b objectives.Batch) float64 {
	n, dead := len(b.Trajectories), 0
	for _, t := range b.Trajectories {
		if t.Degenerate {
			dead++
		}
	}
	if !o.Rescale || dead == n {
		return 1
	}
	return float64(n) / float64(n-dead)
}

// Loss implements objectives.Objective; nothing is detached.
func (o *gpg) Loss(b, _ objectives.Batch) float64 {
	loss, alpha, each := 0.0, o.alpha(b), 1/float64(b.Tokens())
	for _, t := range b.Trajectories {
		for j, logp := range t.LogProb {
			loss -= alpha * t.AdvantageAt(j) * each * logp
		}
		loss += o.Penalty(t, each)
	}
	return loss
}

// Weights implements objectives.Objective.
func (o *gpg) Weights(b objectives.Batch, w [][]float64) {
	alpha, each := o.alpha(b), 1/float64(b.Tokens())
	for i, t := range b.Trajectories {
		row := w[i]
		for j := range row {
			row[j] = -alpha * t.AdvantageAt(j) * each
		}
		o.AddPenalty(t, each, row)
	}
}

// TokenScale implements objectives.TokenScaler.
func (o *gpg) TokenScale(b objectives.Batch, _ int) float64 { return 1 / float64(b.Tokens()) }

// EntropyWeights implements objectives.EntropyWeigher.
func (o *gpg) EntropyWeights(b objectives.Batch, v [][]float64) {
	for i := range v {
		o.FillEntropy(1/float64(b.Tokens()), v[i])
	}
}
