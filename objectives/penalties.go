package objectives

import "math"

// penalties are the settings of the terms beside the policy gradient: the distance from a reference policy, in the loss
// or in the reward, and the entropy.
type penalties struct {
	// KLBeta is the weight of an estimate of the KL divergence from the reference policy
	// (D20). Default 0: no reference is needed.
	KLBeta float64 `toml:"kl_beta" range:"[0,)"`
	// KLForm is the estimate, KLGradient its derivative, and KLCap its largest value, beyond
	// which its own derivative is 0; 0 is none. Default k3, own, 0. See klTerm.
	KLForm     string  `toml:"kl_form" needs:"kl_beta!=0" choice:"k3 k2 abs k1"`
	KLGradient string  `toml:"kl_gradient" needs:"kl_beta!=0" choice:"own k2 unbiased"`
	KLCap      float64 `toml:"kl_cap" needs:"kl_beta!=0" range:"[0,)"`
	// KLReward is how much of sum_t (OldLogProb_t - RefLogProb_t) is taken from the reward
	// of a response before advantages are computed, as oat's kl_penalty_coef and TRL's RLOO
	// do. Default 0.
	KLReward float64 `toml:"kl_reward" needs:"signal=advantage" range:"[0,)"`
	// EntropyBonus is the weight of the policy's entropy; a positive value
	// raises the entropy. Default 0.
	EntropyBonus float64 `toml:"entropy_bonus" range:"(-inf,)"`
	adaptive
}

// NeedsReference says that a penalty compares with the reference.
func (s penalties) NeedsReference() bool { return s.KLBeta != 0 || s.KLReward != 0 }

// klPenalty returns the amount that kl_reward subtracts from the reward of a response.
func (s penalties) klPenalty(t Trajectory) float64 {
	sum, weight := 0.0, s.reward()
	for j := 0; s.KLReward != 0 && j < len(t.OldLogProb); j++ {
		sum += weight * (t.OldLogProb[j] - t.RefLogProb[j])
	}
	return sum
}

// Penalty returns the KL and entropy terms of one trajectory, in which every token
// counts c times:
//
//	c sum_t (kl_beta kl_t - entropy_bonus Entropy_t)
func (s penalties) Penalty(t Trajectory, c float64) float64 {
	sum, beta, bonus := 0.0, s.beta(), s.bonus()
	for i := 0; beta != 0 && i < len(t.RefLogProb); i++ {
		kl, _ := s.klTerm(&t, i)
		sum += c * beta * kl
	}
	if bonus != 0 {
		for _, h := range t.Entropy {
			sum -= c * bonus * h
		}
	}
	return sum
}

// AddPenalty adds the derivative of Penalty with respect to LogProb to w.
func (s penalties) AddPenalty(t Trajectory, c float64, w []float64) {
	beta := s.beta()
	for i := 0; beta != 0 && i < len(t.RefLogProb); i++ {
		_, slope := s.klTerm(&t, i)
		w[i] += c * beta * slope
	}
}

// klTerm returns the estimate of the KL divergence at token i and its derivative, with
// x = RefLogProb - LogProb (D52 to D54). An estimate above KLCap is KLCap, with the derivative 0 unless kl_gradient gives
// another:
//
//	k3   e^x - x - 1, 1 - e^x     k2   x^2/2, -x     abs  |x|, -sign(x)     k1   -x, 0: a measure without a pull
//	kl_gradient = "k2": the derivative is -x, whatever the estimate
//	kl_gradient = "unbiased": r k3, -r x, with r = e^(LogProb - OldLogProb) in the gradient
func (s penalties) klTerm(t *Trajectory, i int) (kl, slope float64) {
	x := t.RefLogProb[i] - t.LogProb[i]
	switch s.KLForm {
	case "k2":
		kl, slope = x*x/2, -x
	case "abs":
		kl, slope = math.Abs(x), -x/max(math.Abs(x), math.SmallestNonzeroFloat64) // 0 at 0
	case "k1":
		kl = -x
	default:
		e := math.Expm1(x) // exact where the policies nearly agree
		kl, slope = e-x, -e
	}
	if s.KLCap > 0 && kl > s.KLCap {
		kl, slope = s.KLCap, 0
	}
	switch s.KLGradient {
	case "k2":
		slope = -x
	case "unbiased":
		r := math.Exp(t.LogProb[i] - t.OldLogProb[i])
		kl, slope = r*kl, -r*x
	}
	return kl, slope
}

// WeighsEntropy implements EntropyWeigher.
func (s penalties) WeighsEntropy() bool { return s.EntropyBonus != 0 || s.EntropyTarget != 0 }

// EntropyWeights implements EntropyWeigher for objectives that average over the
// tokens of a trajectory and then over trajectories (c = 1/(N n) in Penalty).
func (s penalties) EntropyWeights(b Batch, v [][]float64) {
	for i := range v {
		s.FillEntropy(1/float64(len(b.Trajectories)*len(v[i])), v[i])
	}
}

// FillEntropy sets v to the derivative of Penalty with respect to Entropy.
func (s penalties) FillEntropy(c float64, v []float64) {
	bonus := s.bonus()
	for i := range v {
		v[i] = -c * bonus
	}
}
