package policy

import (
	"math"
	"slices"

	"onering/objectives"
)

// gain returns the gain of token j with advantage a, its derivative by the log of the ratio, and whether a
// bound acts. clip_dual keeps the gain of a < 0 at clip_dual a at least (D49).
func (x *response) gain(j int, a float64) (gain, slope float64, cut bool) {
	const limit = 20
	l, sure := x.lam[j], x.sure[j]
	dead := l > limit && (x.Mean == "product" || x.Gate != "none")
	if dead {
		l, sure = limit, min(sure, limit)
	}
	r := math.Exp(l)
	was := r
	if sure != l {
		was = math.Exp(sure)
	}
	if gain, slope, cut = x.coefficient(j, r, l, a); x.Bound == "clip" {
		lo, hi := x.interval(j)
		if a > 0 && r > hi {
			gain, slope, cut = hi*a, 0, true
		} else if cut = a < 0 && r < lo; cut {
			gain, slope = lo*a, 0
		}
	} else if x.Bound != "none" {
		if cut = x.outside(j, was, a); cut {
			gain, slope = 0, 0
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

// coefficient returns the gain without bounds, and its derivative by the log of the ratio:
//
//	weight        a r,  or a
//	floor, cap    a max(floor, min(r, cap)), which passes no gradient where it acts
//	sigmoid       a 4/tau sigmoid(tau (r - 1)),  tau = gate_positive for a > 0, else gate_negative
//	gamma         a exp(lambda + k log r - lambda r),  log r at least log 1e-8; a constant
//	quadratic     a r - |a| mu (r - 1)^2 / (2 gate_width),  mu = e^OldLogProb, or 1 in quadratic-tv (D74)
func (x *response) coefficient(j int, r, l, a float64) (gain, slope float64, cut bool) {
	switch x.Gate {
	case "sigmoid":
		tau := x.GateNegative
		if a > 0 {
			tau = x.GatePositive
		}
		s := 1 / (1 + math.Exp(-tau*(r-1)))
		return a * 4 / tau * s, a * r * 4 * s * (1 - s), false
	case "gamma":
		lambda, k := x.GatePositive, x.KPositive
		if a < 0 {
			lambda, k = x.GateNegative, x.KNegative
		}
		l = max(math.Log(1e-8), l)
		return a * math.Exp(lambda+k*l-lambda*math.Exp(l)), 0, false
	case "quadratic", "quadratic-tv":
		mu := math.Abs(a)
		if x.Gate == "quadratic" {
			mu *= math.Exp(x.t.OldLogProb[j])
		}
		return a*r - mu*(r-1)*(r-1)/(2*x.GateWidth), a*r - mu*(r-1)*r/x.GateWidth, false
	}
	if x.Weight == "one" {
		return a, 0, false
	}
	floor, most := x.Floor, x.Cap
	switch {
	case x.limits != nil:
		floor, most = x.limits(a)
	case x.CapESS:
		most = x.ess
	case a < 0 && x.CapNegative != nil:
		most = *x.CapNegative
	}
	if a < 0 && x.FloorNegative != nil && x.limits == nil {
		floor = *x.FloorNegative
	}
	if bounded := max(floor, min(r, most)); bounded != r {
		return a * bounded, 0, true
	}
	return a * r, a * r, false
}

// outside reports whether a bound other than clip acts on token j, whose ratio was where the region is looked
// at. Edges are inside (D63).
func (x *response) outside(j int, was, a float64) bool {
	low, high := x.region(j, was, a)
	switch x.Bound {
	case "side":
		return a > 0 && !high || a <= 0 && !low
	case "back":
		return !(low && high) && a*(was-1) > 0
	case "ring":
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
func (x *response) region(j int, ratio, a float64) (low, high bool) {
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
	return ratio >= lo, ratio <= hi
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
	var squares []float64
	for i := range b.Trajectories {
		t := &b.Trajectories[i]
		for j, logp := range t.LogProb {
			if d := logp - t.OldLogProb[j]; d*t.AdvantageAt(j) > 0 {
				squares = append(squares, d*d)
			}
		}
	}
	slices.Sort(squares)
	// The mean of the k smallest rises with k: the last k within the budget counts.
	sum := 0.0
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
		if x.future[j] = max(x.FutureLow, min(math.Exp(sum), x.FutureHigh)); x.FutureSafety != 0 && x.a[j] < 0 && r > x.FutureSafety {
			x.future[j] = max(0.8, min(x.future[j], 1))
		}
	}
}
