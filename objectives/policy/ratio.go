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

// logRatios sets x.sure and x.lam, the log-ratios of each token: sure at the detached log-probs, lam at those
// that have a gradient. They are one slice where nothing differs. It also sets x.z and x.orders.
func (x *response) logRatios() {
	if x.Scope != "token" && !x.alone {
		n := len(x.t.LogProb)
		x.means, x.orders, x.soft, x.from, x.to = room(x.means, n), room(x.orders, n), room(x.soft, n), room(x.from, n), room(x.to, n)
		x.scopes()
	}
	x.z, x.sure = x.logRatiosOf(x.at, 2, true)
	switch x.lam = x.sure; {
	case x.detached || &x.t.LogProb[0] == &x.at.LogProb[0]:
	case x.Gradient == "own":
		x.rooms[5] = room(x.rooms[5], len(x.t.LogProb))
		x.lam = x.rooms[5]
		for j, logp := range x.t.LogProb {
			x.lam[j] = x.sure[j] + (logp - x.at.LogProb[j])
		}
	default:
		_, x.lam = x.logRatiosOf(x.t, 4, false)
	}
}

// scopes sets x.from and x.to: the ratio of token j is a mean over the tokens from[j] to to[j]-1, by the
// setting scope.
func (x *response) scopes() {
	n, begin, turn := len(x.to), 0, 0
	for j := range n {
		for turn < len(x.t.Turns) && j >= x.t.Turns[turn].To {
			begin, turn = x.t.Turns[turn].To, turn+1
		}
		switch x.from[j], x.to[j] = 0, n; x.Scope {
		case "none":
			x.to[j] = 0
		case "prefix":
			x.to[j] = j + 1
		case "before":
			x.to[j] = j
		case "next":
			x.from[j], x.to[j] = j, min(n, j+x.ScopeTokens)
		case "turn":
			x.from[j] = begin
			if turn < len(x.t.Turns) {
				x.to[j] = x.t.Turns[turn].To
			}
		}
	}
}

// logRatiosOf returns the clipped log-ratios of t and the logs of its ratios, in two rooms from the given number on. first
// says that t has the log-probs at which orders are chosen.
func (x *response) logRatiosOf(t *objectives.Trajectory, at int, first bool) (z, l []float64) {
	n := len(t.LogProb)
	x.rooms[at], x.rooms[at+1] = room(x.rooms[at], n), room(x.rooms[at+1], len(x.a))
	z, l = x.rooms[at], x.rooms[at+1]
	sum := x.clipped(t, z)
	switch {
	case x.Scope == "token":
		return z, z
	case x.alone:
		if first {
			x.orders = append(x.orders[:0], x.orderOf(t, z, 0, n))
		}
		switch {
		case !x.linear:
			sum = x.mean(z, x.orders[0], nil)
		case x.Mean != "product":
			sum /= float64(n)
		}
		return z, fill(l, sum)
	}
	for j := range l {
		from, to := x.from[j], x.to[j]
		if j > 0 && from == x.from[j-1] && to == x.to[j-1] {
			x.means[j], x.orders[j] = x.means[j-1], x.orders[j-1]
		} else if from < to {
			if first {
				x.orders[j] = x.orderOf(t, z, from, to)
			}
			x.means[j] = x.mean(z[from:to], x.orders[j], nil)
		} else {
			x.means[j] = 0
		}
		switch x.WithToken {
		case "no":
			l[j] = x.means[j]
		case "times":
			l[j] = x.means[j] + z[j]
		default:
			l[j] = means.LogPowerMean([]float64{z[j], x.means[j]}, x.token, nil)
		}
	}
	return z, l
}

// clipped sets z to the log-ratios of t within the inner clip, unless their sum, which it returns, is all that is read.
func (x *response) clipped(t *objectives.Trajectory, z []float64) (sum float64) {
	logp, old := t.LogProb[:len(z)], t.OldLogProb[:len(z)]
	switch {
	case x.Inner == "none" && x.linear && x.alike:
		return t.LogRatio()
	case x.Inner == "none" && !x.alone:
		for j := range z {
			z[j] = logp[j] - old[j]
		}
		return 0
	}
	within := &x.inner[0]
	for j := range z {
		d := logp[j] - old[j]
		if j == 0 || !x.alike {
			within = &x.inner[0]
			if x.a[j] < 0 {
				within = &x.inner[1]
			}
		}
		if d > within.high {
			d = within.high
		} else if d < within.low {
			d = within.low
		}
		z[j], sum = d, sum+d
	}
	return sum
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

// byRewards sets what follows from the mean and the sample deviation of the step's rewards (APMPO, D46):
//
//	mean = "rewards"    p = e^(-0.8 mean)
//	inner = "rewards"   ratios up to 1 + (e^inner_high - 1)(1 + tanh(mean/(deviation + 1e-8)))
func (x *response) byRewards(b objectives.Batch) {
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

// orderOf returns the order of the mean of z over tokens from to to: a number, or that of PMPO's rule (D9, D10) with
// its defaults, [0.01, 0.99] and 0.1.
func (x *response) orderOf(t *objectives.Trajectory, z []float64, from, to int) float64 {
	if x.Mean != "ess" {
		return x.order
	}
	far, n := 0.0, float64(to-from)
	for j := from; j < to; j++ {
		if math.Abs(t.LogProb[j]-t.OldLogProb[j]) > 0.1 {
			far++
		}
	}
	return means.Solver{PMin: 0.01, PMax: 0.99, Bisections: 10}.Solve(z[from:to], 1/n+far/n*(1-1/n))
}

// mean returns log M of the ratios e^z. Unless soft is nil, it becomes the derivative by z.
func (x *response) mean(z []float64, order float64, soft []float64) (log float64) {
	switch x.Mean {
	case "product":
		for j, v := range z {
			log += v
			if soft != nil {
				soft[j] = 1
			}
		}
		return log
	case "min":
		least := slices.Index(z, slices.Min(z))
		clear(soft)
		if soft != nil {
			soft[least] = 1
		}
		return z[least]
	}
	return means.LogPowerMean(z, order, soft)
}

// uniform returns the derivative of the sum of v by every log-prob of the response, if it is the same for all.
func (x *response) uniform() (w float64, same bool) {
	n := float64(len(x.t.LogProb))
	switch {
	case !x.alike || x.Gradient == "through" && !x.linear:
		return 0, false
	case x.Gradient != "through":
		return x.g[0], true
	case x.Mean == "product":
		return n * x.g[0], true
	}
	return 1 / n * (n * x.g[0]), true
}

// through sets w to the derivatives of the sum of v by log-probs: every ratio in whose scope a token is moves with it.
func (x *response) through(w []float64) {
	if len(w) == 0 {
		return
	}
	if x.alone {
		sum := float64(len(w)) * x.g[0]
		if !x.alike {
			sum = 0
			for _, g := range x.g {
				sum += g
			}
		}
		x.mean(x.z, x.orders[0], w)
		for j := range w {
			w[j] *= sum
		}
		return
	}
	clear(w)
	for j := 0; j < len(w); {
		from, to, order, sum := x.from[j], x.to[j], x.orders[j], 0.0
		for ; j < len(w) && x.from[j] == from && x.to[j] == to; j++ {
			share := [2]float64{0, 1} // of the token's own ratio and of the scope's
			if x.WithToken == "times" {
				share[0] = 1
			} else if x.WithToken != "no" {
				means.LogPowerMean([]float64{x.z[j], x.means[j]}, x.token, share[:])
			}
			w[j], sum = w[j]+x.g[j]*share[0], sum+x.g[j]*share[1]
		}
		if from < to && sum != 0 {
			x.mean(x.z[from:to], order, x.soft[from:to])
			for k := from; k < to; k++ {
				w[k] += sum * x.soft[k]
			}
		}
	}
}
