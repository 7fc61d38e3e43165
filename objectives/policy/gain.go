package policy

import (
	"math"
	"slices"

	"onering/objectives"
)

// limit bounds the logarithm of a product, and of a ratio behind a gate.
const limit = 20

// gain returns the gain of token j with advantage a, its derivative by the log of the ratio, and whether a
// bound acts. Without a gate the gain is a max(floor, min(r, cap)), which has no derivative where a bound acts; clip_dual
// keeps that of a < 0 at clip_dual a at least (D49).
func (x *response) gain(j int, a float64) (gain, slope float64, cut bool) {
	if x.masks {
		if cut = x.outside(j, a); cut || x.diagnose { // of which only cut is asked
			return 0, 0, cut
		}
	}
	l := x.lam[j]
	dead := x.limited && l > limit
	if dead {
		l = limit
	}
	r := math.Exp(l)
	if x.shape == nil {
		floor, most := x.floor[0], x.most[0]
		if a < 0 {
			floor, most = x.floor[1], x.most[1]
		}
		switch {
		case r > most:
			gain, cut = a*most, !x.masks // of which the region counts
		case r < floor:
			gain, cut = a*floor, !x.masks
		default:
			gain = a * r
			slope = gain
		}
	} else {
		gain, slope = x.shape(j, r, a)
	}
	if x.clip {
		switch lo, hi := x.interval(j); {
		case a > 0 && r > hi:
			gain, slope, cut = hi*a, 0, true
		case a < 0 && r < lo:
			gain, slope, cut = lo*a, 0, true
		}
	}
	if k := x.ClipDual; k != 0 && a < 0 {
		if x.Measure == "log" {
			k = x.widen(j, k)
		}
		if gain < k*a {
			gain, slope, cut = k*a, 0, true
		}
	}
	if x.Future != 0 {
		gain, slope = gain*x.future[j], slope*x.future[j]
	}
	if dead {
		slope, cut = 0, true
	}
	return gain, slope, cut
}

// capped is gains where gain does nothing but bound the ratio by floor and cap, and leave tokens out. Of figures it
// counts the tokens that a region leaves out, or if there is none those that floor and cap bound.
func (x *response) capped() {
	out := x.v
	if !x.values {
		out = x.g
	}
	var logs [2][2]float64 // of floor and cap, by sign
	for side := 0; side < 2 && x.diagnose; side++ {
		logs[side] = [2]float64{math.Log(x.floor[side]), math.Log(x.most[side])}
	}
	lam := x.lam[:len(x.a)]
	for j, a := range x.a {
		side, cut := 0, 0
		if a < 0 {
			side = 1
		}
		if x.diagnose {
			if l := x.lam[j]; x.masks && x.out[j] || !x.masks && (l < logs[side][0] || l > logs[side][1]) {
				cut = 1
			}
			x.cuts += cut
			continue
		}
		if a == 0 || x.masks && x.out[j] {
			out[j] = 0
			continue
		}
		r := math.Exp(lam[j])
		bounded := max(x.floor[side], min(r, x.most[side]))
		out[j] = a * bounded
		switch {
		case x.values && x.detached:
			out[j] *= x.t.LogProb[j]
		case !x.values && !x.detached && bounded != r:
			out[j] = 0
		}
	}
}

// leaveOut sets x.out, which says of each token whether the bound leaves it out.
func (x *response) leaveOut() {
	if !x.masks {
		return
	}
	x.out = room(x.out, len(x.a))
	logp, old, near := x.at.LogProb[:len(x.a)], x.at.OldLogProb[:len(x.a)], (1-1e-9)*min(x.ClipLow, x.ClipHigh)
	for j, a := range x.a { // outside, without calls for each token where the measure is common
		switch d := logp[j] - old[j]; {
		case x.back || x.ring:
			x.out[j] = x.outside(j, a)
		case x.Measure == "tv" && math.Abs(d) <= near && max(logp[j], old[j]) <= 0: // |pi - mu| <= |d|
			x.out[j] = false
		case x.Measure == "tv":
			d = math.Exp(logp[j]) - math.Exp(old[j])
			x.out[j] = d > x.ClipHigh && (a > 0 || !x.side) || d < -x.ClipLow && (a <= 0 || !x.side)
		default:
			x.out[j] = x.outside(j, a)
		}
	}
}

// sigmoid is the shape a 4/tau sigmoid(tau (r - 1)),  tau = gate_positive for a > 0, else gate_negative.
func (x *response) sigmoid(_ int, r, a float64) (gain, slope float64) {
	tau := x.GateNegative
	if a > 0 {
		tau = x.GatePositive
	}
	s := 1 / (1 + math.Exp(-tau*(r-1)))
	return a * 4 / tau * s, a * r * 4 * s * (1 - s)
}

// gamma is the shape a exp(lambda + k log r - lambda r),  log r at least log 1e-8; a constant of the gradient.
func (x *response) gamma(j int, _, a float64) (gain, _ float64) {
	lambda, k := x.GatePositive, x.KPositive
	if a < 0 {
		lambda, k = x.GateNegative, x.KNegative
	}
	l := max(math.Log(1e-8), min(x.lam[j], limit))
	return a * math.Exp(lambda+k*l-lambda*math.Exp(l)), 0
}

// quadratic is the shape a r - |a| mu (r - 1)^2 / (2 gate_width),  mu = e^OldLogProb, or 1 in quadratic-tv (D74).
func (x *response) quadratic(j int, r, a float64) (gain, slope float64) {
	mu := math.Abs(a)
	if x.Gate == "quadratic" {
		mu *= math.Exp(x.t.OldLogProb[j])
	}
	return a*r - mu*(r-1)*(r-1)/(2*x.GateWidth), a*r - mu*(r-1)*r/x.GateWidth
}

// outside reports whether a bound other than clip acts on token j. Edges are inside (D63).
func (x *response) outside(j int, a float64) bool {
	low, high := x.region(j, a)
	switch {
	case x.side:
		return a > 0 && !high || a <= 0 && !low
	case x.back:
		return !(low && high) && a*x.sure[j] > 0
	case x.ring:
		was := math.Exp(x.sure[j])
		return !(low && high || a >= 0 && was <= x.RingLow || a <= 0 && was >= x.RingHigh)
	}
	return !(low && high)
}

// region reports whether token j is inside below and above:
//
//	tv       -clip_low <= pi - mu <= clip_high,  pi = e^LogProb, mu = e^OldLogProb
//	kl       mu log(mu/pi) + (1 - mu) log((1 - mu)/(1 - pi)) at most the width, or pi is on the other side (D62)
//	budget, moment: see there; a moment counts tokens with a d > 0
//	others   the ratio is in the interval
func (x *response) region(j int, a float64) (low, high bool) {
	d := x.at.LogProb[j] - x.at.OldLogProb[j]
	switch x.Measure {
	case "tv", "kl":
		pi, mu := math.Exp(x.at.LogProb[j]), math.Exp(x.at.OldLogProb[j])
		if x.Measure == "tv" {
			return pi-mu >= -x.ClipLow, pi-mu <= x.ClipHigh
		}
		kl := -mu*d + (1-mu)*(math.Log1p(-mu)-math.Log1p(-pi))
		return kl <= x.ClipLow || pi >= mu, kl <= x.ClipHigh || pi <= mu
	case "budget":
		return x.within[j], x.within[j]
	case "moment":
		low = !(a*d > 0 && d*d > x.moment)
		return low, low
	}
	lo, hi := x.interval(j)
	r := math.Exp(x.sure[j])
	return r >= lo, r <= hi
}

// interval returns the bounds of the ratio of token j:
//
//	ratio         1 - clip_low, 1 + clip_high
//	log           e^(-clip_low t^band_power), e^(clip_high t^band_power),  t from 1; the length of a whole response
//	k3            the two r with r - 1 - log r = clip_high (D76)
//	probability   r with |(r - 1) pi| at most the width, pi = r mu (D75)
func (x *response) interval(j int) (lo, hi float64) {
	switch x.Measure {
	case "log":
		return x.widen(j, -x.ClipLow), x.widen(j, x.ClipHigh)
	case "probability":
		mu := math.Exp(x.at.OldLogProb[j])
		return 0.5 + 0.5*math.Sqrt(max(1-4*x.ClipLow/mu, 0)), 0.5 + 0.5*math.Sqrt(1+4*x.ClipHigh/mu)
	}
	return x.lo, x.hi
}

// widen returns e^(width t^band_power) of token j.
func (x *response) widen(j int, width float64) float64 {
	t := j + 1
	if x.Scope == "sequence" {
		t = len(x.t.LogProb)
	}
	return math.Exp(width * math.Pow(float64(t), x.BandPower))
}

// k3Roots returns the r below and above 1 at which r - 1 - log r = width.
func k3Roots(width float64) (lo, hi float64) {
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
	return root(1, math.Exp(-width-1)/2), root(1, 2+2*width+2*math.Sqrt(width))
}

// moment returns the largest d^2 of the tokens with A d > 0, so that the mean of these d^2 up to it is at most most: M2PO.
func moment(b objectives.Batch, most float64) (largest float64) {
	squares, sum := make([]float64, 0, b.Tokens()), 0.0
	for i := range b.Trajectories {
		t := &b.Trajectories[i]
		for j, logp := range t.LogProb {
			if d := logp - t.OldLogProb[j]; d*t.AdvantageAt(j) > 0 {
				squares, sum, largest = append(squares, d*d), sum+d*d, max(largest, d*d)
			}
		}
	}
	if sum < (1-1e-9)*most*float64(len(squares)) {
		return largest
	}
	slices.Sort(squares)
	// The mean of the k smallest rises with k: the last k within the budget counts.
	sum, largest = 0, 0
	for k, square := range squares {
		if sum += square; sum > most*float64(k+1) {
			break
		}
		largest = square
	}
	return largest
}

// budget sets within to what CPPO keeps (D73): with D = |pi - mu| and weights u that fall from 1 at the first
// token to budget_weight at the last, a token stays if u D is at most clip_high, and at most what the tokens
// before it have left, clip_high + s sum u - sum u D. s is the 0.9 quantile of D in [budget_slack, 2 budget_slack].
func (x *response) budget() {
	n := len(x.at.LogProb)
	if x.Measure != "budget" {
		return
	}
	moved := make([]float64, n)
	for j, logp := range x.at.LogProb {
		moved[j] = math.Abs(math.Exp(logp) - math.Exp(x.at.OldLogProb[j]))
	}
	slack := max(x.BudgetSlack, min(objectives.Quantile(slices.Clone(moved), 0.9), 2*x.BudgetSlack))
	x.within = room(x.within, n)
	spent, given := 0.0, 0.0
	for j, m := range moved {
		u := 1 - (1-x.BudgetWeight)*float64(j)/float64(max(n-1, 1))
		x.within[j] = u*m <= min(x.ClipHigh, x.ClipHigh+slack*given-spent)
		spent, given = spent+u*m, given+u
	}
}

// follow sets future to FIPO's factor (D80): clip(e^F, future_low, future_high) with F_t the sum over k >= t of
// 2^(-(k-t)/future) d_k, in which d counts 0 where the ratio is above clip_dual. Where the advantage is
// negative and the ratio above future_safety, the factor is put into [0.8, 1].
func (x *response) follow() {
	n, sum := len(x.at.LogProb), 0.0
	x.future = room(x.future, n)
	for j := n - 1; j >= 0 && x.Future != 0; j-- {
		d := x.at.LogProb[j] - x.at.OldLogProb[j]
		r := math.Exp(d)
		if x.ClipDual != 0 && r > x.ClipDual {
			d = 0
		}
		sum = d + math.Exp2(-1/x.Future)*sum
		x.future[j] = max(x.FutureLow, min(math.Exp(sum), x.FutureHigh))
		if x.FutureSafety != 0 && x.a[j] < 0 && r > x.FutureSafety {
			x.future[j] = max(0.8, min(x.future[j], 1))
		}
	}
}
