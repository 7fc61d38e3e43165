package objectives

import (
	"cmp"
	"math"
	"slices"
)

// masks are settings of Shared that scale the policy gradient token by token, in every
// objective. Factors of several masks multiply. They are constants in the gradient, scale
// the derivative by the log-probs, and leave the value of the loss, the KL penalty and
// the entropy bonus unchanged; an objective of whole responses still has the ratios of
// masked tokens in its mean. Loss and Weights, the functions, apply them.
type masks struct {
	// MaskOffPolicy drops responses of negative advantage whose mean of SampleLogProb -
	// LogProb exceeds it. 0 (default) is off.
	MaskOffPolicy float64 `toml:"mask_off_policy" range:"[0,)"`
	// TopEntropy is the share of the batch's tokens, those of largest entropy, that
	// are trained on. 0 (default) is off.
	TopEntropy float64 `toml:"top_entropy" range:"[0,1]"`
	// ClipCov is the share of the batch's tokens that are dropped at random among
	// those whose covariance is between ClipCovLow and ClipCovHigh. Default 0 (off), 1, 5.
	ClipCov     float64 `toml:"clip_cov" range:"[0,1]"`
	ClipCovLow  float64 `toml:"clip_cov_low" needs:"clip_cov!=0" range:"(-inf,)"`
	ClipCovHigh float64 `toml:"clip_cov_high" needs:"clip_cov!=0" range:"(-inf,)"`
	// KLCov is the share of the batch's tokens, those of largest covariance, that pay
	// KLCovBeta |d|. Default 0 (off), 1.
	KLCov     float64 `toml:"kl_cov" range:"[0,1]"`
	KLCovBeta float64 `toml:"kl_cov_beta" needs:"kl_cov!=0" range:"[0,)"`
	foreign
}

// Mask implements Masker: it returns the product of the masks for each token, or nil if all are off. KL-Cov is no factor,
// but a term of the loss.
func (m masks) Mask(b Batch) [][]float64 {
	if m.MaskOffPolicy == 0 && m.TopEntropy == 0 && m.ClipCov == 0 && m.ImportanceCap == 0 && m.Importance == "none" && m.Reject == "none" {
		return nil
	}
	factors := b.Zeros()
	for i := range b.Trajectories {
		t := &b.Trajectories[i]
		factor := 1.0 // of all tokens of t
		if m.offPolicy(t) {
			factor = 0
		}
		for j := range factors[i] {
			factors[i][j] = factor
		}
		m.scale(t, factors[i]) // by importance weights, and by 0 where a token is rejected
	}
	if m.TopEntropy > 0 && m.TopEntropy < 1 {
		least := Quantile(allTokens(b, func(t *Trajectory, j int) float64 { return t.Entropy[j] }), 1-m.TopEntropy)
		for i, t := range b.Trajectories {
			for j, h := range t.Entropy {
				if h < least {
					factors[i][j] = 0
				}
			}
		}
	}
	for _, k := range m.clipCovDropped(b) {
		factors[k.i][k.j] = 0
	}
	return factors
}

// offPolicy reports whether t is dropped: DeepSeek-V3.2's off-policy sequence mask
// (arXiv:2512.02556).
func (m masks) offPolicy(t *Trajectory) bool {
	if m.MaskOffPolicy == 0 || t.Advantage >= 0 || len(t.LogProb) == 0 {
		return false
	}
	sum := 0.0
	for j, sampled := range t.SampledLogProb() {
		sum += sampled - t.LogProb[j]
	}
	return sum/float64(len(t.LogProb)) > m.MaskOffPolicy
}

// A place is token j of trajectory i, with its covariance.
type place struct {
	i, j       int
	covariance float64
}

// covariances returns (A - mean A)(LogProb - mean LogProb) of every token, with means
// over the tokens of the batch (arXiv:2505.22617).
func covariances(b Batch) []place {
	advantage := mean(allTokens(b, (*Trajectory).AdvantageAt))
	logp := mean(allTokens(b, func(t *Trajectory, j int) float64 { return t.LogProb[j] }))
	var all []place
	for i := range b.Trajectories {
		t := &b.Trajectories[i]
		for j := range t.LogProb {
			all = append(all, place{i, j, (t.AdvantageAt(j) - advantage) * (t.LogProb[j] - logp)})
		}
	}
	return all
}

// share returns how many of n tokens make up a share, at least one.
func share(of float64, n int) int { return min(max(1, int(of*float64(n))), n) }

// clipCovDropped returns the tokens that Clip-Cov drops. A hash of each candidate's numbers
// decides, so that neither order nor history matters.
func (m masks) clipCovDropped(b Batch) []place {
	if m.ClipCov == 0 {
		return nil
	}
	all := covariances(b)
	count := share(m.ClipCov, len(all))
	candidates := slices.DeleteFunc(all, func(k place) bool {
		return k.covariance <= m.ClipCovLow || k.covariance >= m.ClipCovHigh
	})
	slices.SortFunc(candidates, func(x, y place) int { return cmp.Compare(lot(b, x), lot(b, y)) })
	return candidates[:min(count, len(candidates))]
}

// lot returns a hash of the numbers of a token and the step.
func lot(b Batch, k place) uint64 {
	t := &b.Trajectories[k.i]
	h := uint64(b.Step)
	for _, x := range []uint64{math.Float64bits(t.LogProb[k.j]), math.Float64bits(t.OldLogProb[k.j]), math.Float64bits(t.Advantage), uint64(k.j)} {
		h = (h ^ x) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h
}

// klCovPenalized returns the tokens that KL-Cov penalizes: those of largest covariance.
func (m masks) klCovPenalized(b Batch) []place {
	if m.KLCov == 0 {
		return nil
	}
	all := covariances(b)
	count := share(m.KLCov, len(all))
	slices.SortStableFunc(all, func(x, y place) int { return cmp.Compare(y.covariance, x.covariance) })
	return all[:count]
}

// allTokens collects one number of every token of b.
func allTokens(b Batch, of func(t *Trajectory, j int) float64) []float64 {
	var all []float64
	for i := range b.Trajectories {
		for j := range b.Trajectories[i].LogProb {
			all = append(all, of(&b.Trajectories[i], j))
		}
	}
	return all
}

// Quantile interpolates linearly between the sorted values, as torch.quantile does.
// It is NaN if there are none. It sorts x.
func Quantile(x []float64, q float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	slices.Sort(x)
	at := q * float64(len(x)-1)
	low := int(at)
	return x[low] + (at-float64(low))*(x[min(low+1, len(x)-1)]-x[low])
}

// hasShared is implemented by every objective that embeds Shared.
type hasShared interface{ settings() Shared }

func (s Shared) settings() Shared { return s }

// Loss returns the loss of o with its masks and KL-Cov's term: a token with factor m has the log-prob m LogProb + (1 - m)
// that of at, through which no gradient passes. Without both Loss returns o.Loss(b, at).
func Loss(o Objective, b, at Batch) float64 {
	loss, rows := 0.0, stepAdvantages(o, at) // from at, as constants; nil leaves the advantages as they are
	b, at = b.withTokenAdvantages(rows), at.withTokenAdvantages(rows)
	if factors := maskOf(o, at); factors == nil {
		loss = o.Loss(b, at)
	} else {
		loss = o.Loss(blend(b, at, factors), at)
		if NeedsOf(o).Flat {
			// The loss without advantages is the penalties. They are not masked, so whole ones replace the masked.
			b, at := withoutAdvantages(b), withoutAdvantages(at)
			loss += o.Loss(b, at) - o.Loss(blend(b, at, factors), at)
		}
	}
	if s, ok := o.(hasShared); ok {
		for _, k := range s.settings().klCovPenalized(at) {
			t := &b.Trajectories[k.i]
			loss += tokenScale(o, b, k.i) * s.settings().KLCovBeta * math.Abs(t.LogProb[k.j]-t.OldLogProb[k.j])
		}
	}
	return loss
}

// Weights sets w to the derivative of Loss, the function, with respect to LogProb. If o has StepAdvantages, they
// replace b's TokenAdvantage. Without masks and KL-Cov, which adds +-KLCovBeta to the tokens that it penalizes, the
// result is then that of o.Weights(b, w).
func Weights(o Objective, b Batch, w [][]float64) {
	b = b.withTokenAdvantages(stepAdvantages(o, b)) // b itself without StepAdvantages
	o.Weights(b, w)
	if factors := maskOf(o, b); factors != nil {
		penalties := b.Zeros() // the part of the weights without advantages, which is not masked
		if NeedsOf(o).Flat {   // there is such a part, as of a KL penalty
			o.Weights(withoutAdvantages(b), penalties)
		}
		for i := range w {
			for j, m := range factors[i] {
				switch p := penalties[i][j]; m {
				case 1: // no mask
				case 0: // this also clears an infinite weight
					w[i][j] = p
				default:
					w[i][j] = p + m*(w[i][j]-p)
				}
			}
		}
	}
	if s, ok := o.(hasShared); ok {
		for _, k := range s.settings().klCovPenalized(b) {
			t := &b.Trajectories[k.i]
			switch d := t.LogProb[k.j] - t.OldLogProb[k.j]; { // the derivative of KLCovBeta |d|: 0 at d = 0
			case d > 0:
				w[k.i][k.j] += tokenScale(o, b, k.i) * s.settings().KLCovBeta
			case d < 0:
				w[k.i][k.j] -= tokenScale(o, b, k.i) * s.settings().KLCovBeta
			}
		}
	}
}

// MaskStats returns figures about the masks of a step for the training log: the mean
// of the factors over tokens, and the share of tokens that are dropped. There are none
// without masks.
func MaskStats(o Objective, b Batch) []Stat {
	factors := slices.Concat(maskOf(o, b)...)
	if len(factors) == 0 {
		return nil
	}
	dropped := 0
	for _, m := range factors {
		if m == 0 {
			dropped++
		}
	}
	return []Stat{{"mask/mean", mean(factors)}, {"mask/dropped", *Fraction(dropped, len(factors))}}
}

func stepAdvantages(o Objective, b Batch) [][]float64 {
	if s, ok := o.(stepAdvantager); ok {
		return s.StepAdvantages(b)
	}
	return nil
}

// withTokenAdvantages returns b with other advantages of tokens; b itself if rows is nil.
func (b Batch) withTokenAdvantages(rows [][]float64) Batch {
	if rows != nil {
		b.Trajectories = slices.Clone(b.Trajectories)
	}
	for i, row := range rows {
		b.Trajectories[i].TokenAdvantage = row
	}
	return b
}

func maskOf(o Objective, b Batch) [][]float64 {
	if m, ok := o.(Masker); ok {
		return m.Mask(b)
	}
	return nil
}

// tokenScale returns the weight of a token of trajectory i in the loss.
func tokenScale(o Objective, b Batch, i int) float64 {
	if s, ok := o.(tokenScaler); ok {
		return s.TokenScale(b, i)
	}
	return 1 / float64(len(b.Trajectories)*len(b.Trajectories[i].LogProb))
}

// blend returns b with log-probs between those of at (factor 0) and its own (factor 1),
// so that the derivative by b's log-probs is multiplied by the factors.
func blend(b, at Batch, factors [][]float64) Batch {
	b.Trajectories = slices.Clone(b.Trajectories)
	for i := range b.Trajectories {
		mixed := make([]float64, len(factors[i]))
		for j, m := range factors[i] {
			from := at.Trajectories[i].LogProb[j]
			mixed[j] = from + m*(b.Trajectories[i].LogProb[j]-from)
		}
		b.Trajectories[i].LogProb = mixed
	}
	return b
}

// withoutAdvantages returns b with advantages of zero.
func withoutAdvantages(b Batch) Batch {
	b.Trajectories = slices.Clone(b.Trajectories)
	for i := range b.Trajectories {
		b.Trajectories[i].Advantage, b.Trajectories[i].TokenAdvantage = 0, nil
	}
	return b
}
