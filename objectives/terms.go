package objectives

import "math"

// TermStats returns the shares of the gradient that the KL penalty and the entropy bonus have,
// if o has them: term_share/kl and term_share/entropy; and coefficients that adapt, by their keys. w is the result of Weights for b.
//
// A weight reaches the logits of a token times 1 - p, where p is the token's probability, and
// the derivative of the entropy has about the size of the entropy.
func TermStats(o Objective, b Batch, w [][]float64) (stats []Stat) {
	s, ok := o.(hasShared)
	if !ok || s.settings().KLBeta == 0 && !s.settings().WeighsEntropy() && s.settings().KLTarget == 0 {
		return nil
	}
	x := s.settings()
	beta, bonus := x.beta(), x.bonus()
	kl, entropy, rest := 0.0, 0.0, 0.0
	for i, t := range b.Trajectories {
		c := tokenScale(o, b, i)
		for j, logp := range t.LogProb {
			pull := 0.0 // the penalty's part of the weight
			if beta != 0 {
				_, slope := x.klTerm(&t, j)
				pull = c * beta * slope
			}
			kl += math.Abs(pull) * -math.Expm1(logp) // times 1 - p
			rest += math.Abs(w[i][j]-pull) * -math.Expm1(logp)
			if bonus != 0 {
				entropy += math.Abs(c*bonus) * t.Entropy[j]
			}
		}
	}
	if x.KLBeta != 0 {
		stats = append(stats, Stat{"term_share/kl", kl / (kl + entropy + rest)})
	}
	for _, k := range []struct {
		name        string
		target, now float64
	}{{"kl_beta", x.KLTarget * beta, beta}, {"kl_reward", x.KLTarget * x.reward(), x.reward()}, {"entropy_bonus", x.EntropyTarget, bonus}} {
		if k.target != 0 { // it adapts
			stats = append(stats, Stat{k.name, k.now})
		}
	}
	if x.WeighsEntropy() {
		stats = append(stats, Stat{"term_share/entropy", entropy / (kl + entropy + rest)})
	}
	return stats
}
