package policy

import (
	"cmp"
	"math"
	"slices"

	"onering/objectives"
)

// gains sets x.gain, and x.cutCount, the number of ratios on which a bound acts, if asked to diagnose. Without a gate the
// gain is a max(low, min(r, high)). Its derivative by log r, which x.slopes asks for, is the same, or 0 where a bound acts;
// weight = "one" puts 1 in the place of r.
func (x *response) gains() {
	if x.Gate != "none" {
		x.gatedGains()
		return
	}
	r := x.scratch(ratioScratch, len(x.logRatio))
	if x.Weight == "one" {
		fill(r, 1)
	} else {
		for j, l := range x.logRatio {
			r[j] = math.Exp(l)
		}
	}
	g, diagnose, slopes, cuts := x.gain[:len(r)], x.diagnose, x.slopes, 0
	for j, a := range x.advantages[:len(r)] {
		bound := &x.bounds[math.Float64bits(a)>>63] // by the sign bit, without a branch that nobody can predict
		if a == 0 {
			bound = &x.bounds[2] // those for a = 0
			if !diagnose {       // the ratio may be infinite, and 0 times it NaN
				g[j] = 0
				continue
			}
		}
		if x.perTokenBounds {
			ofToken := x.within(*bound, j, a)
			bound = &ofToken
		}
		bounded := max(bound.low, min(r[j], bound.high))
		if diagnose {
			cut := 0 // a number, so that no branch depends on the ratio
			if bounded != r[j] {
				cut = 1
			}
			cuts += cut
		}
		if slopes && bounded != r[j] {
			g[j] = 0
			continue
		}
		g[j] = a * bounded
	}
	x.cutCount = cuts
}

// gatedGains sets x.gain, to gains, or to their derivatives by l if x.slopes asks for them, and x.cutCount by the gate. l is the
// log-ratio, at most x.maxLog, and r = e^l:
//
//	sigmoid        a 4/tau sigmoid(tau (r - 1)),  tau = gate_positive for a > 0, else gate_negative
//	gamma          a exp(tau + k l - tau r),  l at least log 1e-8; never differentiated: it weighs log-probs
//	quadratic      a r - |a| mu (r - 1)^2 / (2 gate_width),  mu = e^OldLogProb
//	quadratic-tv   the same, with mu = 1 (D74)
//
// clip_dual keeps the gain of a < 0 at clip_dual a at least (D49).
func (x *response) gatedGains() {
	sigmoid, gamma, tv, g, hasDual := x.Gate == "sigmoid", x.Gate == "gamma", x.Gate == "quadratic-tv", x.gain[:len(x.logRatio)], x.ClipDual != 0
	for j, l := range x.logRatio {
		a, tau, k, held := x.advantages[j], x.GateNegative, x.KNegative, l > x.maxLog // held: no slope is left
		if a > 0 {
			tau, k = x.GatePositive, x.KPositive
		}
		if held {
			l = x.maxLog
		}
		gain, slope, r := 0.0, 0.0, math.Exp(l)
		switch {
		case sigmoid:
			s := 1 / (1 + math.Exp(-tau*(r-1)))
			gain, slope = a*4/tau*s, a*r*4*s*(1-s) // slope is the derivative by l
		case gamma:
			l = max(math.Log(1e-8), l)
			gain = a * math.Exp(tau+k*l-tau*math.Exp(l))
		default:
			mu := math.Abs(a)
			if !tv {
				mu *= math.Exp(x.t.OldLogProb[j])
			}
			gain, slope = a*r-mu*(r-1)*(r-1)/(2*x.GateWidth), a*r-mu*(r-1)*r/x.GateWidth
		}
		if hasDual && a < 0 && gain < x.dual(j)*a {
			gain, held = x.dual(j)*a, true
		}
		if held {
			x.cutCount++
			slope = 0
		}
		if x.slopes {
			gain = slope
		}
		g[j] = gain
	}
}

// The arguments of edges.
const aNotNegative, aNegative = 0, 1

// edges returns floor and cap of a ratio where A is negative, or not.
func (o *Policy) edges(sign int) clip {
	c := clip{o.Floor, o.Cap}
	switch {
	case o.ownBounds != nil:
		c = o.ownBounds(sign)
	case sign == aNegative:
		c = clip{*cmp.Or(o.FloorNegative, &o.Floor), *cmp.Or(o.CapNegative, &o.Cap)}
	}
	if c.high >= unbounded {
		c.high = math.Inf(1)
	}
	return c
}

// edged reports whether floor and cap act on a ratio, each where it is set.
func (o *Policy) edged() bool { return o.Gate == "none" && o.Weight == "ratio" }

// within returns c within the bounds of token j: PPO's clip bounds the ratio on the side to which the advantage pushes it,
// and clip_dual above where the advantage is negative (D49).
func (x *response) within(c clip, j int, a float64) clip {
	if x.Bound == "clip" && a > 0 {
		c.high = min(c.high, x.interval(j).high)
	}
	if x.Bound == "clip" && a < 0 {
		c.low = max(c.low, x.interval(j).low)
	}
	if a < 0 {
		c.high = min(c.high, x.dual(j))
	}
	return c
}

// dual returns clip_dual at token j: a ratio, or in the log a width.
func (x *response) dual(j int) float64 {
	switch {
	case x.ClipDual == 0:
		return math.Inf(1)
	case x.Measure == "log":
		return x.widen(j, x.ClipDual)
	}
	return x.ClipDual
}

// leaveOut sets the gains to 0 of tokens on which a bound other than clip acts, and x.cutCount to their number. A ratio on
// the edge of the interval is inside (D63).
func (x *response) leaveOut() {
	if x.Bound == "none" || x.Bound == "clip" {
		return // gains has seen to the clip
	}
	x.cutCount = 0
	if x.Measure == "budget" {
		x.setWithinBudget()
	}
	for j, a := range x.advantages {
		low, high := x.inside(j, a)
		out := !low || !high // bound = "mask"
		switch x.Bound {
		case "side":
			out = a > 0 && !high || a <= 0 && !low
		case "back": // a step by the advantage moves the ratio farther out
			out = out && a*x.logAt[j] > 0
		case "ring":
			was := math.Exp(x.logAt[j]) // a ratio so far behind that it must come back keeps its gain
			out = out && !(a >= 0 && was <= x.RingLow || a <= 0 && was >= x.RingHigh)
		}
		if out {
			x.gain[j] = 0
			x.cutCount++
		}
	}
}

// inside reports whether token j is inside the region of the measure, below and above:
//
//	tv       -clip_low <= pi - mu <= clip_high,  pi = e^LogProb, mu = e^OldLogProb
//	kl       mu log(mu/pi) + (1 - mu) log((1 - mu)/(1 - pi)) at most the width, or pi is on the other side (D62)
//	budget   setWithinBudget kept it
//	moment   d^2 at most x.moment, the step's, or a d <= 0
//	others   the ratio is in the interval
func (x *response) inside(j int, a float64) (low, high bool) {
	logp, old := x.at.LogProb[j], x.at.OldLogProb[j]
	d := logp - old
	switch x.Measure {
	case "tv":
		if math.Abs(d) <= (1-1e-9)*min(x.ClipLow, x.ClipHigh) && max(logp, old) <= 0 { // |pi - mu| <= |d|, which spares exponentials
			return true, true
		}
		moved := math.Exp(logp) - math.Exp(old)
		return moved >= -x.ClipLow, moved <= x.ClipHigh
	case "kl":
		pi, mu := math.Exp(logp), math.Exp(old)
		kl := -mu*d + (1-mu)*(math.Log1p(-mu)-math.Log1p(-pi))
		return kl <= x.ClipLow || pi >= mu, kl <= x.ClipHigh || pi <= mu
	case "budget":
		return x.withinBudget[j], x.withinBudget[j]
	case "moment":
		in := a*d <= 0 || d*d <= x.moment
		return in, in
	}
	c, r := x.interval(j), math.Exp(x.logAt[j])
	return r >= c.low, r <= c.high
}

// interval returns the bounds of the ratio of token j:
//
//	ratio         1 - clip_low, 1 + clip_high
//	log           e^(-clip_low t^band_power), e^(clip_high t^band_power),  t from 1; the length of a whole response
//	k3            the two r with r - 1 - log r = clip_high (D76)
//	probability   r with |(r - 1) pi| at most the width, pi = r mu (D75)
func (x *response) interval(j int) clip {
	switch x.Measure {
	case "log":
		return clip{x.widen(j, -x.ClipLow), x.widen(j, x.ClipHigh)}
	case "probability":
		mu := math.Exp(x.at.OldLogProb[j])
		return clip{0.5 + 0.5*math.Sqrt(max(1-4*x.ClipLow/mu, 0)), 0.5 + 0.5*math.Sqrt(1+4*x.ClipHigh/mu)}
	}
	return x.region
}

// widen returns e^(width t^band_power) of token j.
func (x *response) widen(j int, width float64) float64 {
	t := j + 1
	if x.Scope == "sequence" {
		t = len(x.t.LogProb)
	}
	return math.Exp(width * math.Pow(float64(t), x.BandPower))
}

// k3Region returns the r below and above 1 at which r - 1 - log r = width.
func k3Region(width float64) clip {
	root := func(in, out float64) float64 {
		for range 200 {
			if m := 0.5 * (in + out); m-1-math.Log(m) > width {
				out = m
			} else {
				in = m
			}
		}
		return 0.5 * (in + out)
	}
	return clip{root(1, math.Exp(-width-1)/2), root(1, 2+2*width+2*math.Sqrt(width))}
}

// moment is M2PO's: of the tokens with A d > 0, the largest d^2 such that the mean of all d^2 up to it is at most limit.
func moment(b objectives.Batch, limit float64) (largest float64) {
	squares, sum := make([]float64, 0, b.Tokens()), 0.0
	for i := range b.Trajectories {
		t := &b.Trajectories[i]
		for j, logp := range t.LogProb {
			if d := logp - t.OldLogProb[j]; d*t.AdvantageAt(j) > 0 {
				squares, sum, largest = append(squares, d*d), sum+d*d, max(largest, d*d)
			}
		}
	}
	if sum < (1-1e-9)*limit*float64(len(squares)) { // all are within it, whatever rounding did: no need to sort
		return largest
	}
	slices.Sort(squares)
	// The mean of the k smallest rises with k: the last k within the limit counts.
	sum, largest = 0, 0
	for k, square := range squares {
		if sum += square; sum > limit*float64(k+1) {
			break
		}
		largest = square
	}
	return largest
}

// setWithinBudget sets x.withinBudget to what CPPO keeps (D73): with D = |pi - mu| and weights u that fall from 1 at the first
// token to budget_weight at the last, a token stays if u D is at most clip_high, and at most what the tokens
// before it have left, clip_high + s sum u - sum u D. s is the 0.9 quantile of D in [budget_slack, 2 budget_slack].
func (x *response) setWithinBudget() {
	n := len(x.at.LogProb)
	moved := make([]float64, n)
	for j, logp := range x.at.LogProb {
		moved[j] = math.Abs(math.Exp(logp) - math.Exp(x.at.OldLogProb[j]))
	}
	slack := max(x.BudgetSlack, min(objectives.Quantile(slices.Clone(moved), 0.9), 2*x.BudgetSlack))
	x.withinBudget = slices.Grow(x.withinBudget[:0], n)[:n]
	spent, given := 0.0, 0.0 // the sums of u D and of u over the tokens before
	for j, m := range moved {
		u := 1 - (1-x.BudgetWeight)*float64(j)/float64(max(n-1, 1))
		x.withinBudget[j] = u*m <= min(x.ClipHigh, x.ClipHigh+slack*given-spent)
		spent, given = spent+u*m, given+u
	}
}

// weighFuture multiplies gains by FIPO's factor (D80): clip(e^F, future_low, future_high) with F_t the sum over k >= t of
// 2^(-(k-t)/future) d_k, in which d counts 0 where the ratio is above clip_dual. Where the advantage is
// negative and the ratio above future_safety, the factor is put into [0.8, 1].
func (x *response) weighFuture() {
	sum := 0.0
	for j := len(x.gain) - 1; j >= 0 && x.Future != 0; j-- {
		d := x.at.LogProb[j] - x.at.OldLogProb[j]
		r := math.Exp(d)
		if x.ClipDual != 0 && r > x.ClipDual {
			d = 0
		}
		sum = d + math.Exp2(-1/x.Future)*sum
		factor := max(x.FutureLow, min(math.Exp(sum), x.FutureHigh))
		if x.FutureSafety != 0 && x.advantages[j] < 0 && r > x.FutureSafety {
			factor = max(0.8, min(factor, 1))
		}
		x.gain[j] *= factor
	}
}
