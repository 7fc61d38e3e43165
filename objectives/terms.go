package objectives

import "math"

// TermStats returns the shares of the gradient that the KL penalty and the entropy bonus have,
// if o has them: term_share/kl and term_share/entropy. w is the result of Weights for b.
//
// A weight reaches the logits of a token times 1 - p, where p is the token's probability, and
// the derivative of the entropy has about the size of the entropy.
func TermStats(o Objective, b Batch, w [][]float64) (stats []Stat) {
	s, ok := o.(shares)
	if !ok || s.settings().KLBeta == 0 && s.settings().EntropyBonus == 0 {
		return nil
	}
	x := s.settings()
	kl, entropy, rest := 0.0, 0.0, 0.0
	for i, t := range b.Trajectories {
		c := tokenScale(o, b, i)
		for j, logp := range t.LogProb {
			pull := 0.0
			if x.KLBeta != 0 {
				pull = -c * x.KLBeta * math.Expm1(t.RefLogProb[j]-logp)
			}
			kl += math.Abs(pull) * -math.Expm1(logp)
			rest += math.Abs(w[i][j]-pull) * -math.Expm1(logp)
			if x.EntropyBonus != 0 {
				entropy += math.Abs(c*x.EntropyBonus) * t.Entropy[j]
			}
		}
	}
	if x.KLBeta != 0 {
		stats = append(stats, Stat{"term_share/kl", kl / (kl + entropy + rest)})
	}
	if x.EntropyBonus != 0 {
		stats = append(stats, Stat{"term_share/entropy", entropy / (kl + entropy + rest)})
	}
	return stats
}
