package objectives

import (
	"fmt"
	"math"
	"slices"

	"onering/objectives/means"
)

// A Stat is one named figure of an optimizer step.
type Stat struct {
	Name  string
	Value float64
}

// Summarize returns figures of one optimizer step for the training log, in an
// order that depends on the objective alone. w is the result of Weights for b, d
// that of Diagnose, nil if the objective is not a Diagnoser.
//
// They are means over the responses that are not empty, unless the name says
// otherwise, of the quantities that the objective reports:
//
//	p/mean, p/max, p/share_at_max, ess, ess_at_p_max, target_ess, clip_fraction,
//	clipped, ratio/mean, ratio/max
//
// The other figures exist for every objective, so that runs of different objectives
// can be compared:
//
//	log_ratio/mean, log_ratio/min, log_ratio/max, delta/std, delta/min, delta/max
//
// and, where there is a reference policy, kl: the mean over tokens of the k3 estimate of
// the KL divergence from it, e^x - x - 1 with x = RefLogProb - LogProb.
//
// delta is a token's LogProb minus its OldLogProb, log_ratio its mean over a response:
// the logarithm of the response's importance ratio, taken to the power 1/length.
// delta and log_ratio are not clipped or weighted. ratio is the one in the objective's
// formula. delta/... are over tokens.
//
// grad_share/top10 to top90 tell how the gradient is spread over the tokens of a
// response: the share of sum |w| that the tenth (two tenths, ...) of its tokens with
// the largest |w| holds, averaged over the responses that have a gradient. top10 is
// 0.1 if all tokens have the same |w|.
//
// Each name also exists with the endings /pos and /neg, over only the responses of
// positive or of negative advantage. A figure over no responses is NaN.
func (b Batch) Summarize(w [][]float64, d []Diagnostics) []Stat {
	byResponse := make([][9]float64, len(w))
	var sorted []float64
	for i := range w {
		sorted = append(sorted[:0], w[i]...)
		byResponse[i] = gradientShares(sorted)
	}
	var stats []Stat
	for _, part := range []struct {
		suffix string
		has    func(advantage float64) bool
	}{
		{"", func(float64) bool { return true }},
		{"/pos", func(a float64) bool { return a > 0 }},
		{"/neg", func(a float64) bool { return a < 0 }},
	} {
		var of []int // the responses that the part has
		for i, t := range b.Trajectories {
			if len(t.LogProb) > 0 && part.has(t.Advantage) {
				of = append(of, i)
			}
		}
		for _, s := range statistics {
			if slices.ContainsFunc(d, func(d Diagnostics) bool { return s.value(&d) != nil }) {
				stats = append(stats, Stat{s.name + part.suffix, s.over(d, of)})
			}
		}
		stats = append(stats, b.drift(of, part.suffix)...)
		if slices.ContainsFunc(b.Trajectories, func(t Trajectory) bool { return t.RefLogProb != nil }) {
			stats = append(stats, Stat{"kl" + part.suffix, mean(divergences(b, of))})
		}
		for k := range 9 {
			stats = append(stats, Stat{fmt.Sprintf("grad_share/top%d%s", 10*(k+1), part.suffix), meanShare(byResponse, of, k)})
		}
	}
	return stats
}

// A statistic is one quantity of Diagnostics and how it is reduced to a number.
type statistic struct {
	name   string
	value  func(*Diagnostics) *float64 // nil if the objective does not report it
	reduce func(values []float64) float64
}

// over returns the figure over the responses in of, NaN if none reports it.
func (s statistic) over(d []Diagnostics, of []int) float64 {
	var values []float64
	for _, i := range of {
		if x := s.value(&d[i]); x != nil {
			values = append(values, *x)
		}
	}
	if len(values) == 0 {
		return math.NaN()
	}
	return s.reduce(values)
}

var statistics = []statistic{
	{"p/mean", func(d *Diagnostics) *float64 { return d.P }, mean},
	{"p/max", func(d *Diagnostics) *float64 { return d.P }, slices.Max[[]float64]},
	{"p/share_at_max", atPMax, mean},
	{"ess", func(d *Diagnostics) *float64 { return d.ESS }, mean},
	{"ess_at_p_max", func(d *Diagnostics) *float64 { return d.ESSAtPMax }, mean},
	{"target_ess", func(d *Diagnostics) *float64 { return d.TargetESS }, mean},
	{"clip_fraction", func(d *Diagnostics) *float64 { return d.ClipFraction }, mean},
	{"clipped", func(d *Diagnostics) *float64 { return d.Clipped }, mean},
	{"ratio/mean", func(d *Diagnostics) *float64 { return d.Ratio }, mean},
	{"ratio/max", func(d *Diagnostics) *float64 { return d.Ratio }, slices.Max[[]float64]},
}

// atPMax returns AtPMax as 0 or 1.
func atPMax(d *Diagnostics) *float64 {
	switch {
	case d.AtPMax == nil:
		return nil
	case *d.AtPMax:
		return new(1.0)
	}
	return new(0.0)
}

// drift returns figures of how far the policy has moved from the one that sampled the
// responses in of.
func (b Batch) drift(of []int, suffix string) []Stat {
	var tokens, responses []float64
	for _, i := range of {
		t := &b.Trajectories[i]
		for j, logp := range t.LogProb {
			tokens = append(tokens, logp-t.OldLogProb[j])
		}
		responses = append(responses, t.MeanLogRatio())
	}
	least, most := extremes(responses)
	lowest, highest := extremes(tokens)
	return []Stat{
		{"log_ratio/mean" + suffix, mean(responses)}, {"log_ratio/min" + suffix, least}, {"log_ratio/max" + suffix, most},
		{"delta/std" + suffix, math.Sqrt(means.Variance(tokens))}, {"delta/min" + suffix, lowest}, {"delta/max" + suffix, highest},
	}
}

// divergences returns the k3 estimate of each token of the responses in of.
func divergences(b Batch, of []int) (kl []float64) {
	for _, i := range of {
		for j, ref := range b.Trajectories[i].RefLogProb {
			x := ref - b.Trajectories[i].LogProb[j]
			kl = append(kl, math.Expm1(x)-x)
		}
	}
	return kl
}

// extremes returns the least and the greatest value, or NaN if there are no values.
func extremes(x []float64) (low, high float64) {
	if len(x) == 0 {
		return math.NaN(), math.NaN()
	}
	return slices.Min(x), slices.Max(x)
}

// meanShare averages element k over the responses in of that have a gradient.
func meanShare(byResponse [][9]float64, of []int, k int) float64 {
	var shares []float64
	for _, i := range of {
		if byResponse[i][k] > 0 {
			shares = append(shares, byResponse[i][k])
		}
	}
	return mean(shares)
}

// gradientShares returns how the gradient of one response is spread over its
// tokens: element k is the share of sum |w| held by the (k+1)/10 of the tokens
// with the largest |w|. A token on the boundary counts in part. The shares are 0
// if no token has weight. w is overwritten.
func gradientShares(w []float64) (shares [9]float64) {
	total := 0.0
	for j, x := range w {
		w[j] = math.Abs(x)
		total += w[j]
	}
	if total == 0 || !finite(total) {
		return shares
	}
	slices.Sort(w)
	slices.Reverse(w)
	sum, taken := 0.0, 0
	for k := range shares {
		end := float64(k+1) / 10 * float64(len(w))
		for ; taken < int(end); taken++ {
			sum += w[taken]
		}
		shares[k] = (sum + (end-float64(taken))*w[taken]) / total
	}
	return shares
}
