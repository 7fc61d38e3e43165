package objectives

import (
	"fmt"
	"math"
	"slices"
)

// Summary returns figures of one optimizer step for the training log. d is what
// Diagnose gave for b (nil without a Diagnoser), w what Weights gave.
//
// For each quantity among p, ess, ess_at_p_max, target_ess, clip_fraction, clipped,
// ratio and log_ratio that the objective reports there are NAME/mean, NAME/min and
// NAME/max over the responses that are not empty, with p/share_at_max. Each is
// there again for the responses of positive and of negative advantage alone, as
// NAME/mean_pos and NAME/mean_neg and so on; a figure over no responses is left out.
//
// gradient_share/decile_1 to decile_10 tell how the gradient is spread over the
// tokens of a response: the share of sum |w| that its tenth of the tokens with the
// largest |w| holds, then the next tenth, averaged over the responses that have a
// gradient. All are 0.1 where all tokens weigh alike. They too are given by sign.
func Summary(b Batch, d []Diagnostics, w [][]float64) map[string]float64 {
	m := map[string]float64{}
	all := make([]int, 0, len(b.Trajectories))
	var pos, neg []int
	for i, t := range b.Trajectories {
		if len(t.LogProb) == 0 {
			continue
		}
		all = append(all, i)
		if t.Advantage > 0 {
			pos = append(pos, i)
		} else if t.Advantage < 0 {
			neg = append(neg, i)
		}
	}
	var deciles [][10]float64
	var sorted []float64
	for i := range b.Trajectories {
		sorted = append(sorted[:0], w[i]...)
		deciles = append(deciles, shareByDecile(sorted))
	}
	for _, part := range []struct {
		suffix string
		of     []int
	}{{"", all}, {"_pos", pos}, {"_neg", neg}} {
		summarize(m, part.suffix, part.of, d)
		shareMeans(m, part.suffix, part.of, deciles)
	}
	return m
}

// figures are the quantities of Diagnostics that Summary reports.
var figures = []struct {
	name string
	of   func(*Diagnostics) *float64
}{
	{"p", func(d *Diagnostics) *float64 { return d.P }},
	{"ess", func(d *Diagnostics) *float64 { return d.ESS }},
	{"ess_at_p_max", func(d *Diagnostics) *float64 { return d.ESSAtPMax }},
	{"target_ess", func(d *Diagnostics) *float64 { return d.TargetESS }},
	{"clip_fraction", func(d *Diagnostics) *float64 { return d.ClipFraction }},
	{"clipped", func(d *Diagnostics) *float64 { return d.Clipped }},
	{"ratio", func(d *Diagnostics) *float64 { return d.Ratio }},
	{"log_ratio", func(d *Diagnostics) *float64 { return d.LogRatio }},
}

// summarize adds the figures over the responses of.
func summarize(m map[string]float64, suffix string, of []int, d []Diagnostics) {
	if d == nil {
		return
	}
	for _, figure := range figures {
		sum, lo, hi, n := 0.0, math.Inf(1), math.Inf(-1), 0
		for _, i := range of {
			if x := figure.of(&d[i]); x != nil {
				sum, lo, hi, n = sum+*x, min(lo, *x), max(hi, *x), n+1
			}
		}
		if n > 0 {
			m[figure.name+"/mean"+suffix] = sum / float64(n)
			m[figure.name+"/min"+suffix] = lo
			m[figure.name+"/max"+suffix] = hi
		}
	}
	at, n := 0, 0
	for _, i := range of {
		if x := d[i].AtPMax; x != nil {
			n++
			if *x {
				at++
			}
		}
	}
	if n > 0 {
		m["p/share_at_max"+suffix] = float64(at) / float64(n)
	}
}

// shareMeans adds the mean deciles over the responses of that have a gradient.
func shareMeans(m map[string]float64, suffix string, of []int, deciles [][10]float64) {
	var sum [10]float64
	n := 0.0
	for _, i := range of {
		if deciles[i] == [10]float64{} {
			continue
		}
		n++
		for k, share := range deciles[i] {
			sum[k] += share
		}
	}
	for k, s := range sum {
		if n > 0 {
			m[fmt.Sprintf("gradient_share/decile_%d%s", k+1, suffix)] = s / n
		}
	}
}

// shareByDecile returns the share of sum |w| in each tenth of the tokens, those of
// the largest |w| first; a token on the boundary is divided. Zeros if no token has
// weight. w is overwritten.
func shareByDecile(w []float64) (shares [10]float64) {
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
	n := float64(len(w))
	held := func(tenths int) float64 { // by the first tenths of the tokens
		end := float64(tenths) / 10 * n
		whole := int(end)
		sum := 0.0
		for _, x := range w[:whole] {
			sum += x
		}
		if whole < len(w) {
			sum += (end - float64(whole)) * w[whole]
		}
		return sum / total
	}
	before := 0.0
	for k := range shares {
		after := held(k + 1)
		shares[k] = after - before
		before = after
	}
	return shares
}
