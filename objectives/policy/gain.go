package policy

import (
	"cmp"
	"math"
	"slices"

	"onering/objectives"
)

// gains sets g, and cuts. Without a gate the gain is a max(floor, min(r, cap)), which has no derivative where a bound acts.
func (x *response) gains() {
	x.r = room(x.r, len(x.a))
	r, g, lam, limit := x.r, x.g[:len(x.r)], x.lam[:len(x.r)], x.limit
	for j, l := range lam {
		if l > limit {
			l = limit
		}
		r[j] = math.Exp(l)
	}
	slopes, diagnose, shape, bends := !x.values && !x.detached, x.diagnose, x.shape, x.bends
	for j, a := range x.a[:len(r)] {
		g[j] = 0
		if a == 0 && !diagnose || x.masks && (diagnose || x.out[j]) { // a ratio may be infinite
			continue
		}
		bounds := &x.bounds[0]
		if a < 0 {
			bounds = &x.bounds[1]
		}
		bounded := max(bounds.low, min(r[j], bounds.high))
		gain, slope, cut := a*bounded, a*r[j], false
		if shape != nil {
			gain, slope = shape(j, r[j], a)
		} else if (slopes || diagnose) && bounded != r[j] { // not asked in vain, for nobody can predict it
			slope, cut = 0, true
		}
		if bends || lam[j] > limit {
			gain, slope, cut = x.bend(j, r[j], a, gain, slope, cut)
		}
		if slopes {
			gain = slope
		}
		g[j] = gain
		if cut {
			x.cuts++
		}
	}
}

// bend is what happens to a gain and its derivative after gate, floor and cap: PPO's clip; clip_dual, which keeps the gain
// of a < 0 at clip_dual a at least (D49); the factor of the future; and no derivative for a logarithm beyond the limit.
func (x *response) bend(j int, r, a, gain, slope float64, cut bool) (float64, float64, bool) {
	if x.Bound == "clip" {
		switch c := x.interval(j); {
		case a > 0 && r > c.high:
			gain, slope, cut = c.high*a, 0, true
		case a < 0 && r < c.low:
			gain, slope, cut = c.low*a, 0, true
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
	if x.lam[j] > x.limit {
		slope, cut = 0, true
	}
	return gain, slope, cut
}

// bounds returns floor and cap of a ratio where A is negative (1), or not (0); e is p3o's.
func (o *Policy) bounds(sign int, e float64) clip {
	c := clip{o.Floor, o.Cap}
	if sign == 1 {
		c = clip{*cmp.Or(o.FloorNegative, &o.Floor), *cmp.Or(o.CapNegative, &o.Cap)}
	}
	switch {
	case o.ownBounds != nil:
		c = o.ownBounds(sign)
	case o.CapESS:
		c.high = e
	case c.high >= unbounded:
		c.high = math.Inf(1)
	}
	return c
}

// A shape returns the gain of token j with the ratio r, and its derivative by log r.
type shape func(j int, r, a float64) (gain, slope float64)

// gate returns the shape of gains, nil for the ratio itself.
func (x *response) gate() shape {
	switch {
	case x.Gate == "sigmoid":
		return x.sigmoid
	case x.Gate == "gamma":
		return x.gamma
	case x.Gate != "none":
		return x.quadratic
	case x.Weight == "one":
		return func(_ int, _, a float64) (gain, slope float64) { return a, 0 }
	}
	return nil
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
	l := max(math.Log(1e-8), min(x.lam[j], x.limit))
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

// leaveOut sets out, the tokens on which a bound other than clip acts, and cuts. Edges are inside (D63).
func (x *response) leaveOut() {
	if !x.masks {
		return
	}
	x.out = room(x.out, len(x.a))
	side, back, ring := x.Bound == "side", x.Bound == "back", x.Bound == "ring"
	for j, a := range x.a {
		low, high := x.inside(j, a)
		out := !low || !high
		switch {
		case side:
			out = a > 0 && !high || a <= 0 && !low
		case back:
			out = out && a*x.sure[j] > 0
		case ring && out:
			was := math.Exp(x.sure[j])
			out = !(a >= 0 && was <= x.RingLow || a <= 0 && was >= x.RingHigh)
		}
		if x.out[j] = out; out {
			x.cuts++
		}
	}
}

// A membership reports whether token j is inside a region, below and above.
type membership func(j int, a float64) (low, high bool)

// membership returns that of the measure:
//
//	tv       -clip_low <= pi - mu <= clip_high,  pi = e^LogProb, mu = e^OldLogProb
//	kl       mu log(mu/pi) + (1 - mu) log((1 - mu)/(1 - pi)) at most the width, or pi is on the other side (D62)
//	budget   what is left of it
//	moment   d^2 at most the largest within it, or a d <= 0
//	others   the ratio is in the interval
func (x *response) membership() membership {
	switch x.Measure {
	case "tv":
		near := (1 - 1e-9) * min(x.ClipLow, x.ClipHigh)
		return func(j int, _ float64) (low, high bool) {
			logp, old := x.at.LogProb[j], x.at.OldLogProb[j]
			if math.Abs(logp-old) <= near && max(logp, old) <= 0 { // |pi - mu| <= |d|
				return true, true
			}
			d := math.Exp(logp) - math.Exp(old)
			return d >= -x.ClipLow, d <= x.ClipHigh
		}
	case "kl":
		return func(j int, _ float64) (low, high bool) {
			logp, old := x.at.LogProb[j], x.at.OldLogProb[j]
			pi, mu := math.Exp(logp), math.Exp(old)
			kl := -mu*(logp-old) + (1-mu)*(math.Log1p(-mu)-math.Log1p(-pi))
			return kl <= x.ClipLow || pi >= mu, kl <= x.ClipHigh || pi <= mu
		}
	case "budget":
		return func(j int, _ float64) (low, high bool) { return x.kept[j], x.kept[j] }
	case "moment":
		return func(j int, a float64) (low, high bool) {
			d := x.at.LogProb[j] - x.at.OldLogProb[j]
			low = a*d <= 0 || d*d <= x.moment
			return low, low
		}
	}
	return func(j int, _ float64) (low, high bool) {
		c, r := x.interval(j), math.Exp(x.sure[j])
		return r >= c.low, r <= c.high
	}
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

// budget sets kept to what CPPO keeps (D73): with D = |pi - mu| and weights u that fall from 1 at the first
// token to budget_weight at the last, a token stays if u D is at most clip_high, and at most what the tokens
// before it have left, clip_high + s sum u - sum u D. s is the 0.9 quantile of D in [budget_slack, 2 budget_slack].
func (x *response) budget() {
	if x.Measure != "budget" {
		return
	}
	n := len(x.at.LogProb)
	moved := make([]float64, n)
	for j, logp := range x.at.LogProb {
		moved[j] = math.Abs(math.Exp(logp) - math.Exp(x.at.OldLogProb[j]))
	}
	slack := max(x.BudgetSlack, min(objectives.Quantile(slices.Clone(moved), 0.9), 2*x.BudgetSlack))
	x.kept = room(x.kept, n)
	spent, given := 0.0, 0.0
	for j, m := range moved {
		u := 1 - (1-x.BudgetWeight)*float64(j)/float64(max(n-1, 1))
		x.kept[j] = u*m <= min(x.ClipHigh, x.ClipHigh+slack*given-spent)
		spent, given = spent+u*m, given+u
	}
}

// follow sets future to FIPO's factor (D80): clip(e^F, future_low, future_high) with F_t the sum over k >= t of
// 2^(-(k-t)/future) d_k, in which d counts 0 where the ratio is above clip_dual. Where the advantage is
// negative and the ratio above future_safety, the factor is put into [0.8, 1].
func (x *response) follow() {
	if x.Future == 0 {
		return
	}
	n, sum := len(x.at.LogProb), 0.0
	x.future = room(x.future, n)
	for j := n - 1; j >= 0; j-- {
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
