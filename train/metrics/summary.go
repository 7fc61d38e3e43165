package metrics

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Moments returns the mean and the population standard deviation of x, NaN for no numbers.
func Moments(x []float64) (mean, std float64) {
	if len(x) == 0 {
		return math.NaN(), math.NaN()
	}
	for _, v := range x {
		mean += v
	}
	mean /= float64(len(x))
	for _, v := range x {
		std += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(std / float64(len(x)))
}

// AppendSteps adds to a round's record a summary of its optimizer steps' records: how many were skipped, and for every
// float the mean over the steps, or the largest or smallest if what follows the first slash of its name begins with max
// or min, as in p/max and log_ratio/max/pos. NaN is left out. Figures that the round's record has stay unchanged.
func (r Record) AppendSteps(steps []Record) Record {
	var names []string // in the order of their first appearance
	values := map[string][]float64{}
	skipped := 0
	for _, s := range steps {
		if s.Get("skipped") != nil {
			skipped++
		}
		for _, m := range s {
			v, ok := m.Value.(float64)
			if !ok {
				continue
			}
			if _, seen := values[m.Name]; !seen {
				names = append(names, m.Name)
				values[m.Name] = nil
			}
			if !math.IsNaN(v) {
				values[m.Name] = append(values[m.Name], v)
			}
		}
	}
	if skipped > 0 {
		r = append(r, Metric{"skipped_steps", skipped})
	}
	for _, name := range names {
		if len(values[name]) == 0 || r.Get(name) != nil {
			continue
		}
		v, _ := Moments(values[name])
		switch _, last, _ := strings.Cut(name, "/"); { // last is "" for a name without a slash, which has the mean
		case strings.HasPrefix(last, "max"): // the largest of the steps' largest
			v = slices.Max(values[name])
		case strings.HasPrefix(last, "min"):
			v = slices.Min(values[name])
		}
		r = append(r, Metric{name, v})
	}
	return r
}

// A Gap is the difference between the learner's and the sampler's log-probs, over the
// tokens before a round's first update: both computed them with the same weights.
type Gap struct {
	Max, Sum float64 // of |sampler's log-prob - learner's log-prob|
	Tokens   int
	// Over counts the tokens whose distance is larger than each of gapBounds.
	Over [len(gapBounds)]int
	// Outside counts the tokens whose ratio of probabilities is not in [0.9, 1.1]. Other
	// trainers report several percent in 16 bits.
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
