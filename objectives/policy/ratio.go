package policy

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"onering/objectives"
	"onering/objectives/means"
)

// A word is a setting that is a number or one of some words.
type word string

// UnmarshalTOML implements settings.Special.
func (w *word) UnmarshalTOML(value any) error {
	text := fmt.Sprint(value)
	x, err := strconv.ParseFloat(text, 64)
	if err != nil && !slices.Contains([]string{"no", "times", "product", "min", "ess", "rewards"}, text) || math.IsInf(x, 0) || math.IsNaN(x) {
		return fmt.Errorf("%v must be %s", value, w.Wanted())
	}
	*w = word(text)
	return nil
}

// Wanted implements settings.Special.
func (*word) Wanted() string {
	return `a number; or "product", "min", "ess" or "rewards" as mean, "no" or "times" as with_token`
}

// number returns the number, or 0 for a word.
func (w word) number() float64 {
	x, _ := strconv.ParseFloat(string(w), 64)
	return x
}

// logRatios sets x.logAt and x.logRatio, the log-ratios of each token at the detached log-probs, and at those that have a
// gradient. They are one slice where nothing differs. It also sets x.innerLogs, x.means and x.orders.
func (x *response) logRatios() {
	x.innerLogs, x.logAt = x.logRatiosOf(x.at, atScratch)
	switch x.logRatio = x.logAt; {
	case x.detached || &x.t.LogProb[0] == &x.at.LogProb[0]: // the same slice
	case x.Gradient == "own":
		x.logRatio = x.scratch(lossScratch, len(x.t.LogProb))
		for j, logp := range x.t.LogProb {
			x.logRatio[j] = x.logAt[j] + (logp - x.at.LogProb[j])
		}
	default:
		_, x.logRatio = x.logRatiosOf(x.t, lossScratch)
	}
}

// logRatiosOf returns the log-ratios z of t after the inner clip, and the logs l of its tokens' ratios: z itself, or means of
// z over each token's scope, which with_token joins with its own z. They lie in the scratch slices slot and slot+1. It sets
// x.means, the logs of the means, and their orders x.orders, which are those at x.at for x.t, too.
func (x *response) logRatiosOf(t *objectives.Trajectory, slot int) (z, l []float64) {
	z = x.scratch(slot, len(t.LogProb))
	sum := x.clipped(t, z)
	if x.Scope == "token" {
		return z, z
	}
	l = x.scratch(slot+1, len(x.advantages)) // one element where one stands for all tokens
	if x.oneElement && x.linearMean {        // one mean for all tokens, which the sum gives
		x.orders = append(x.orders, x.order)
		return z, fill(l, sum/x.count(len(z)))
	}
	x.means = slices.Grow(x.means[:0], len(l))[:len(l)]
	begin, end, least := -1, 0, 0.0 // the scope of the token before; sum and least are of its log-ratios
	for j := range l {
		from, to := x.span(j)
		if t == x.at {
			x.orders = append(x.orders, x.order) // replaced below if it is the token's own
		}
		same := from == begin && to == end
		if from != begin || to < end { // a scope that grows keeps its sum and its least
			begin, end, sum, least = from, from, 0, math.Inf(1)
		}
		for ; end < to; end++ {
			sum, least = sum+z[end], min(least, z[end])
		}
		switch {
		case same:
			x.means[j], x.orders[j] = x.means[j-1], x.orders[j-1]
		case from == to:
			x.means[j] = 0 // of no tokens: a ratio of 1
		case x.linearMean:
			x.means[j] = sum / x.count(to-from)
		case x.Mean == "min":
			x.means[j] = least
		default:
			if t == x.at && x.Mean == "ess" {
				x.orders[j] = orderOf(t, z, from, to)
			}
			x.means[j] = means.LogPowerMean(z[from:to], x.orders[j], nil)
		}
		switch x.WithToken {
		case "no":
			l[j] = x.means[j]
		case "times":
			l[j] = x.means[j] + z[j]
		default:
			l[j] = means.LogPowerMean([]float64{z[j], x.means[j]}, x.tokenOrder, nil)
		}
	}
	return z, l
}

// span returns the scope of token j: its ratio is a mean over the tokens from from to to-1. Where there are none (scope =
// "none", or "before" for the first token) the mean is 1. "sequence" has all tokens. Those of an environment are not among x.t's.
func (x *response) span(j int) (from, to int) {
	to = len(x.t.LogProb)
	switch x.Scope {
	case "none":
		to = 0
	case "prefix":
		to = j + 1
	case "before":
		to = j
	case "next":
		from, to = j, min(to, j+x.ScopeTokens)
	case "turn":
		for _, turn := range x.t.Turns {
			if j < turn.To {
				return from, turn.To
			}
			from = turn.To
		}
	}
	return from, to
}

// clipped sets z to the log-ratios of t within the inner clip, and returns their sum if there is a clip. Where there is none
// and a linear mean over the response reads the sum alone, it returns that and leaves z unset.
func (x *response) clipped(t *objectives.Trajectory, z []float64) (sum float64) {
	if x.Inner == "none" && x.oneElement && x.linearMean {
		return t.LogRatio()
	}
	logRatios(t, z)
	for j := 0; j < len(z) && x.Inner != "none"; j++ {
		d, within := z[j], &x.inner[0] // the clip where the advantage is not negative
		if a := x.advantages[min(j, len(x.advantages)-1)]; a < 0 {
			within = &x.inner[1]
		}
		if d > within.high {
			d = within.high
		} else if d < within.low {
			d = within.low
		}
		z[j], sum = d, sum+d
	}
	return sum // 0, which is not read, without a clip
}

// logRatios sets z to the log-ratios of t, and returns their number.
func logRatios(t *objectives.Trajectory, z []float64) int {
	z = z[:len(t.LogProb)]
	old := t.OldLogProb[:len(z)]
	for j, logp := range t.LogProb {
		z[j] = logp - old[j]
	}
	return len(z)
}

// innerClip returns the inner clip where A is not negative and where it is: on both sides, or on that to which the
// advantage pushes a log-ratio (D4).
func (o *Policy) innerClip(high float64) [2]clip {
	above, below := clip{math.Inf(-1), high}, clip{-o.InnerLow, math.Inf(1)}
	switch {
	case o.Inner == "none":
		all := clip{math.Inf(-1), math.Inf(1)}
		return [2]clip{all, all}
	case o.Inner == "limits":
		both := clip{-o.InnerLow, high}
		return [2]clip{both, both}
	case o.InnerForm == "printed":
		return [2]clip{below, above}
	}
	return [2]clip{above, below}
}

// setByRewards sets what follows from the mean and the sample deviation of the step's rewards (APMPO, D46):
//
//	mean = "rewards"    p = e^(-0.8 mean)
//	inner = "rewards"   ratios up to 1 + (e^inner_high - 1)(1 + tanh(mean/(deviation + 1e-8)))
func (x *response) setByRewards(b objectives.Batch) {
	rewards := objectives.Rewards(b.Trajectories)
	mu := means.Mean(rewards, nil)
	if x.Mean == "rewards" {
		x.order = math.Exp(-0.8 * mu)
	}
	if x.Inner == "rewards" {
		deviation := means.Root(objectives.Centered(rewards), nil, max(float64(len(rewards)-1), 1))
		x.inner = x.innerClip(math.Log1p(math.Expm1(x.InnerHigh) * (1 + math.Tanh(mu/(deviation+1e-8)))))
	}
}

// orderOf returns the order of the mean of z over tokens from to to by PMPO's rule (D9, D10) with its defaults, [0.01,
// 0.99] and 0.1.
func orderOf(t *objectives.Trajectory, z []float64, from, to int) float64 {
	far, n := 0.0, float64(to-from)
	for j := from; j < to; j++ {
		if math.Abs(t.LogProb[j]-t.OldLogProb[j]) > 0.1 {
			far++
		}
	}
	return means.Solver{PMin: 0.01, PMax: 0.99, Bisections: 10}.Solve(z[from:to], 1/n+far/n*(1-1/n))
}

// setMeanSlopes sets x.meanSlopes to the derivative of the log of the mean of e^z over tokens from to to.
func (x *response) setMeanSlopes(from, to int, order float64) {
	switch z, soft := x.innerLogs[from:to], x.meanSlopes[from:to]; {
	case x.linearMean:
		fill(soft, 1/x.count(len(z)))
	case x.Mean == "min":
		clear(soft)
		soft[slices.Index(z, slices.Min(z))] = 1
	default:
		means.LogPowerMean(z, order, soft)
	}
}

// count returns by what the sum of n log-ratios is divided in a linear mean.
func (p *parts) count(n int) float64 {
	if p.Mean == "product" {
		return 1
	}
	return float64(n)
}

// derivative returns the derivatives of the sum of v by log-probs, drift and pull included: in w, in a slice of x, or as a
// single one that all log-probs have. Through a mean, every ratio in whose scope a token is moves with it, but not where
// the inner clip holds the token's log-ratio.
func (x *response) derivative(w []float64) []float64 {
	through := x.Gradient == "through" && x.Scope != "token" && len(w) > 0
	switch {
	case x.oneElement && !x.hasDriftOrPull && !through:
		return x.gain // each log-prob moves its own ratio only
	case x.oneElement && !x.hasDriftOrPull && x.linearMean && x.Inner == "none":
		x.gain[0] = 1 / x.count(len(w)) * (float64(len(w)) * x.gain[0]) // all ratios are one mean, which each token moves
		return x.gain
	case through:
		x.throughMeans(w)
	default:
		w = x.gainPerToken()
	}
	for j := 0; j < len(w) && x.Gradient == "through" && x.Inner != "none"; j++ {
		if x.innerLogs[j] != x.t.LogProb[j]-x.t.OldLogProb[j] { // it is clipped
			w[j] = 0
		}
	}
	x.subtractDrift(w, true) // their derivatives
	return w
}

// throughMeans sets w to the derivatives of the sum of v by log-ratios after the inner clip. It sums the derivatives of tokens
// with one scope, and gives each token of the scope its share by the slope of the mean.
func (x *response) throughMeans(w []float64) {
	clear(w)
	x.meanSlopes = slices.Grow(x.meanSlopes[:0], len(w))[:len(w)]
	for j := 0; j < len(x.gain); {
		from, to := x.span(j)
		order, sum := x.orders[j], 0.0
		for start, end := from, to; j < len(x.gain) && start == from && end == to; {
			switch g := x.gain[j]; x.WithToken {
			case "no":
				sum += g
			case "times":
				w[j], sum = w[j]+g, sum+g
			default:
				share := [2]float64{} // of the token's own ratio and of the scope's
				means.LogPowerMean([]float64{x.innerLogs[j], x.means[j]}, x.tokenOrder, share[:])
				w[j], sum = w[j]+g*share[0], sum+g*share[1]
			}
			j++
			start, end = x.span(j)
		}
		if x.oneElement { // the one gain stands for those of all tokens
			sum *= float64(len(w))
		}
		if from < to && sum != 0 {
			x.setMeanSlopes(from, to, order)
			for k := from; k < to; k++ {
				w[k] += sum * x.meanSlopes[k]
			}
		}
	}
}
