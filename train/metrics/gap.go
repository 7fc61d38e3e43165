package metrics

import (
	"fmt"
	"math"
)

// A Gap is how far the learner's log-probs are from those that the sampler saw,
// over the tokens before a round's first update: the same weights computed both.
type Gap struct {
	Max, Sum float64 // of |sampler's log-prob - learner's log-prob|
	Tokens   int
	// Over counts the tokens whose distance is larger than each of gapBounds.
	Over [len(gapBounds)]int
	// Outside counts the tokens whose ratio of probabilities is not in [0.9, 1.1].
	// In 16 bits other trainers report several in a hundred.
	Outside int
}

var gapBounds = [...]float64{1e-5, 1e-4, 1e-3, 1e-2}

// Add adds a token with its log-prob in sampler and learner.
func (g *Gap) Add(sampled, learned float64) {
	d := math.Abs(learned - sampled)
	g.Max = max(g.Max, d)
	g.Sum += d
	g.Tokens++
	for i, bound := range gapBounds {
		if d > bound {
			g.Over[i]++
		}
	}
	if ratio := math.Exp(learned - sampled); ratio < 0.9 || ratio > 1.1 {
		g.Outside++
	}
}

// Record returns the largest and the mean distance, and the shares of the tokens
// that Outside and Over count: NaN where no token was compared.
func (g *Gap) Record() Record {
	n, most := float64(g.Tokens), g.Max
	if g.Tokens == 0 {
		most = math.NaN()
	}
	r := Record{}.With("logp_gap_max", most).With("logp_gap_mean", g.Sum/n).With("logp_gap_outside", float64(g.Outside)/n)
	for i, bound := range gapBounds {
		r = r.With(fmt.Sprintf("logp_gap_over/%g", bound), float64(g.Over[i])/n)
	}
	return r
}
