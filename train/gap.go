package train

import (
	"fmt"
	"math"

	"onering/train/metrics"
)

// A gap is how far log-probs of the learner are from those that the sampler saw,
// over the tokens before a round's first update: the same weights computed both.
type gap struct {
	Max, Sum float64 // of |rollout - training log-prob|
	Tokens   int
	// Over counts the tokens with more than gapBounds.
	Over [len(gapBounds)]int
	// Outside counts those whose ratio of probabilities is not in [0.9, 1.1]: in
	// 16 bits other trainers report several in a hundred.
	Outside int
}

var gapBounds = [...]float64{1e-5, 1e-4, 1e-3, 1e-2}

func (g *gap) add(rollout, training float64) {
	d := math.Abs(training - rollout)
	g.Max = max(g.Max, d)
	g.Sum += d
	g.Tokens++
	for i, bound := range gapBounds {
		if d > bound {
			g.Over[i]++
		}
	}
	if ratio := math.Exp(training - rollout); ratio < 0.9 || ratio > 1.1 {
		g.Outside++
	}
}

// metrics are the largest and the mean, and shares of the tokens.
func (g *gap) metrics() metrics.Record {
	n := float64(max(1, g.Tokens))
	r := metrics.Record{}.With("logp_gap_max", g.Max).With("logp_gap_mean", g.Sum/n).With("logp_gap_outside", float64(g.Outside)/n)
	for i, bound := range gapBounds {
		r = r.With(fmt.Sprintf("logp_gap_over/%g", bound), float64(g.Over[i])/n)
	}
	return r
}
