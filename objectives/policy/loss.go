package policy

import (
	"math"
	"slices"

	"onering/objectives"
	"onering/objectives/means"
)

// Loss implements objectives.Objective. What gradient, weight and bound detach is taken from at.
func (o *Policy) Loss(b, at objectives.Batch) float64 {
	switch {
	case o.clips():
		return o.RatioClip.Loss(b, at)
	case o.List != "none":
		return o.groupLoss(b, nil)
	}
	loss, x, scales, penalties := 0.0, o.begin(b, at), o.TokenScales(b), o.penaltyScales(b)
	x.values = true
	for i := range b.Trajectories {
		x.read(&b.Trajectories[i], &at.Trajectories[i])
		if x.alike && !x.detached && o.Drift == 0 && !o.Pull {
			loss -= scales[i] * float64(len(x.v)) * x.v[0]
		} else {
			for _, v := range x.v {
				loss -= scales[i] * v
			}
		}
		loss += o.Penalty(b.Trajectories[i], penalties[i])
	}
	return loss
}

// Weights implements objectives.Objective.
func (o *Policy) Weights(b objectives.Batch, w [][]float64) {
	switch {
	case o.clips():
		o.RatioClip.Weights(b, w)
		return
	case o.List != "none":
		o.groupLoss(b, w)
		return
	}
	x, scales, penalties := o.begin(b, b), o.TokenScales(b), o.penaltyScales(b)
	for i := range b.Trajectories {
		x.g = w[i]
		if x.spreads {
			x.spread = room(x.spread, len(w[i]))
			x.g = x.spread
		}
		x.read(&b.Trajectories[i], &b.Trajectories[i])
		x.pull(w[i])
		row, c := w[i], -scales[i]
		for j := range row {
			row[j] *= c
		}
		o.AddPenalty(b.Trajectories[i], penalties[i], row)
	}
}

// penaltyScales returns what a token of each response counts in the penalties: c, or what PenaltyAggregate says.
func (o *Policy) penaltyScales(b objectives.Batch) []float64 {
	mean := o.TokenSum
	if o.PenaltyAggregate != "same" {
		mean.Aggregate = o.PenaltyAggregate
	}
	return mean.TokenScales(b)
}

// TokenScale implements objectives.TokenScaler.
func (o *Policy) TokenScale(b objectives.Batch, i int) float64 { return o.penaltyScales(b)[i] }

// EntropyWeights implements objectives.EntropyWeigher.
func (o *Policy) EntropyWeights(b objectives.Batch, v [][]float64) {
	for i, c := range o.penaltyScales(b) {
		o.FillEntropy(c, v[i])
	}
}

// Diagnose implements objectives.Diagnoser: the share of tokens that a bound acts on, where there is
// one, the ratio of a whole response, and p3o's e.
func (o *Policy) Diagnose(b objectives.Batch) []objectives.Diagnostics {
	if o.clips() && !o.adapts() {
		return o.RatioClip.Diagnose(b)
	}
	all := make([]objectives.Diagnostics, len(b.Trajectories))
	bounded := o.Bound != "none" || o.ClipDual != 0 || o.CapESS || o.Cap != unbounded || o.Floor != 0 || o.CapNegative != nil || o.FloorNegative != nil
	inner, power := o.Inner == "token" || o.Inner == "rewards", o.Mean == "ess" || o.Mean == "rewards" || o.MeanLast != nil
	whole := o.Scope == "sequence" && (o.Gate == "none" || inner || power)
	x, rows := o.begin(b, b), o.StepAdvantages(b)
	x.diagnose = true
	for i, t := range b.Trajectories {
		all[i].Advantage = t.Advantage
		if o.List != "none" || !bounded && !whole {
			continue
		}
		if rows != nil {
			t.TokenAdvantage = rows[i]
		}
		x.read(&t, &t)
		if bounded {
			all[i].Clipped = objectives.Fraction(x.cuts, len(x.v))
		}
		if o.CapESS {
			all[i].ESS = new(x.ess)
		}
		if power {
			all[i].P = new(append(x.orders, x.order)[0]) // of an empty response
		}
		if inner {
			cut := 0
			for j := range t.LogProb {
				if x.z[j] != t.LogProb[j]-t.OldLogProb[j] {
					cut++
				}
			}
			all[i].Clipped = objectives.Fraction(cut, len(x.v))
		}
		if o.Scope == "sequence" && o.Gate == "none" {
			all[i].SetLogRatio(append(x.sure, 0)[0]) // 0 of an empty response
		}
	}
	return all
}

// A response is one trajectory on its way through the parts, with what all responses of its step share. Its
// buffers are used again for the next one.
type response struct {
	*Policy
	order, token      float64                                         // the orders of mean and with_token, if they are the same for all
	innerHigh         float64                                         // the inner clip from above
	shape             func(j int, r, a float64) (gain, slope float64) // nil for the ratio itself
	floor, most       [2]float64                                      // of a ratio, where A is not negative and where it is
	clip, masks       bool                                            // the bound is PPO's clip, or another one
	limited, alone    bool                                            // logarithms are limited; the scope is the whole response and no token's own ratio joins
	plain, detached   bool                                            // a gain is the ratio within floor and cap; no gradient passes through it
	whole, alike      bool                                            // tokens of one advantage have one gain; those of this response have
	spreads, smooth   bool                                            // a ratio has a gradient by the log-probs of several tokens; a gain is the shape
	side, back, ring  bool                                            // the bound
	flat, spread      []float64                                       // rooms for a and g
	lo, hi            float64                                         // the bounds of a ratio, if they are the same for all tokens
	ess, moment       float64                                         // p3o's e, and the largest d^2 within the moment
	diagnose, values  bool                                            // whether a bound acts is asked of every token; v is asked for
	t, at             *objectives.Trajectory                          // at has the log-probs at which what is detached is taken
	a, z, means, soft []float64                                       // advantages; log-ratios after the inner clip; the scopes' means; weights of one mean
	from, to          []int                                           // the scope of each token; unused where it is the token alone
	// sure are the logs of the ratios at at, lam those of the loss, in rooms, and orders those of the means.
	sure, lam, orders []float64
	rooms             [2][]float64
	// v are the gains, or the gains times log-probs, if they are asked for, and else g their derivatives: by lam where
	// the gradient goes through the ratio, else by the token's own log-prob. cuts counts the tokens on which a bound acts.
	v, g   []float64
	cuts   int
	within []bool    // what the budget leaves
	out    []bool    // what a bound other than clip leaves out of a plain response
	future []float64 // the factor of what follows a token
}

// begin prepares what the responses of b share.
func (o *Policy) begin(b, at objectives.Batch) *response {
	x := &response{Policy: o, order: o.Mean.number(), token: o.WithToken.number(), lo: 1 - o.ClipLow, hi: 1 + o.ClipHigh}
	x.clip, x.masks = o.Bound == "clip", o.Bound != "clip" && o.Bound != "none"
	x.limited, x.alone = o.Mean == "product" || o.Gate != "none", o.Scope == "sequence" && o.WithToken == "no"
	if o.MeanLast != nil {
		x.order = b.Schedule(o.MeanSchedule, x.order, *o.MeanLast)
	}
	x.byRewards(at)
	if o.Measure == "k3" {
		x.lo, x.hi = k3Roots(o.ClipHigh)
	}
	if o.Measure == "moment" {
		x.moment = moment(at, o.ClipHigh)
	}
	if o.CapESS || o.Pull {
		d := make([]float64, 0, at.Tokens())
		for i := range at.Trajectories {
			t := &at.Trajectories[i]
			for j, logp := range t.LogProb {
				d = append(d, logp-t.OldLogProb[j])
			}
		}
		x.ess = means.ESS(d, 1) // (sum r)^2 / (T sum r^2), D47
	}
	x.detached = o.Gradient == "detached"
	x.whole = x.alone && o.Gradient != "own" && o.Future == 0 && o.Gate != "quadratic" && slices.Contains([]string{"ratio", "log", "k3"}, o.Measure)
	x.side, x.back, x.ring = o.Bound == "side", o.Bound == "back", o.Bound == "ring"
	x.spreads = o.Gradient == "through" && o.Scope != "token"
	x.plain = o.Bound != "clip" && o.Gate == "none" && o.Weight == "ratio" && o.ClipDual == 0 && o.Future == 0 && !x.limited && !x.alone
	x.smooth = o.Gate != "none" && o.ClipDual == 0 && o.Future == 0
	x.floor, x.most = [2]float64{o.Floor, o.Floor}, [2]float64{o.Cap, o.Cap}
	if o.Cap == unbounded {
		x.most = [2]float64{math.Inf(1), math.Inf(1)}
	}
	if o.FloorNegative != nil {
		x.floor[1] = *o.FloorNegative
	}
	if o.CapNegative != nil {
		x.most[1] = *o.CapNegative
	}
	if o.CapESS {
		x.most = [2]float64{x.ess, x.ess}
	}
	for sign := 0; sign < 2 && o.limits != nil; sign++ {
		x.floor[sign], x.most[sign] = o.limits(float64(-sign))
	}
	switch {
	case o.Gate == "sigmoid":
		x.shape = x.sigmoid
	case o.Gate == "gamma":
		x.shape = x.gamma
	case o.Gate != "none":
		x.shape = x.quadratic
	case o.Weight == "one":
		x.shape = func(_ int, _, a float64) (gain, slope float64) { return a, 0 }
	}
	return x
}

// read computes the gains of t and their derivatives.
func (x *response) read(t, at *objectives.Trajectory) {
	n := len(t.LogProb)
	x.t, x.at, x.cuts = t, at, 0
	x.v, x.sure, x.orders, x.alike = room(x.v, n), x.sure[:0], x.orders[:0], false
	if n == 0 {
		return
	}
	if x.a = t.TokenAdvantage; x.a == nil {
		x.flat = room(x.flat, n)
		if x.a, x.alike = x.flat, x.whole; x.alike && x.Inner == "none" {
			x.flat[0] = t.Advantage // of which no other is read
		} else {
			fill(x.flat, t.Advantage)
		}
	}
	x.logRatios()
	x.budget()
	x.follow()
	if x.plain {
		x.leaveOut()
		x.capped()
	} else {
		x.gains()
	}
	drift, old, v := x.drift(), t.OldLogProb[:n], x.v[:n]
	if !x.values || drift == 0 && !x.Pull {
		return
	}
	for j, logp := range t.LogProb {
		d := logp - old[j]
		v[j] -= drift * d * d
		if x.Pull {
			v[j] -= (1 - x.ess) * (math.Expm1(-d) + d)
		}
	}
}

// gains sets v or g, and cuts. Where all tokens are alike the first one stands for all.
func (x *response) gains() {
	out := x.v
	if !x.values {
		out = x.g
	}
	for j, a := range x.a {
		gain, slope, cut := 0.0, 0.0, false
		if l := x.lam[j]; x.smooth && l <= limit && a != 0 {
			gain, slope = x.shape(j, math.Exp(l), a)
		} else if a != 0 || x.diagnose {
			gain, slope, cut = x.gain(j, a)
		}
		switch {
		case x.diagnose:
		case x.detached && x.values:
			out[j] = gain * x.t.LogProb[j]
		case x.detached || x.values:
			out[j] = gain
		default:
			out[j] = slope
		}
		if cut {
			x.cuts++
		}
		if !x.alike {
			continue
		}
		x.cuts *= len(x.a)
		switch {
		case x.diagnose:
		case x.detached && x.values:
			for k, logp := range x.t.LogProb {
				out[k] = gain * logp
			}
		default:
			fill(out, out[0])
		}
		return
	}
}

// room returns a slice of n elements, in the place of x if it is large enough.
func room[T any](x []T, n int) []T { return slices.Grow(x[:0], n)[:n] }

// drift returns the weight of d^2 in the response.
func (x *response) drift() float64 {
	if x.Drift == 0 || x.DriftOn == "all" || x.Signal == "teacher" || x.t.HasAdvantage() {
		return x.Drift
	}
	return 0
}

// pull makes of w, which is g unless the gradient spreads, the derivatives of the sum of v by the log-probs of the response.
func (x *response) pull(w []float64) {
	if x.spreads && len(w) > 0 {
		x.through(w)
	}
	for j := 0; j < len(w) && x.Inner != "none" && x.Gradient == "through"; j++ {
		if x.z[j] != x.t.LogProb[j]-x.t.OldLogProb[j] {
			w[j] = 0
		}
	}
	drift, logp, old := x.drift(), x.t.LogProb[:len(w)], x.t.OldLogProb[:len(w)]
	for j := 0; j < len(w) && drift != 0; j++ {
		w[j] -= 2 * drift * (logp[j] - old[j])
	}
	for j := 0; j < len(w) && x.Pull; j++ {
		w[j] += (1 - x.ess) * math.Expm1(old[j]-logp[j])
	}
}
