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
		t, c := &b.Trajectories[i], scales[i]
		x.read(t, &at.Trajectories[i])
		drift := x.drift()
		if x.alike && !x.detached && drift == 0 && !o.Pull {
			loss -= c * float64(len(t.LogProb)) * x.g[0]
		} else {
			for j, v := range x.each() {
				if x.detached {
					v *= t.LogProb[j]
				}
				if drift != 0 || o.Pull {
					d := t.LogProb[j] - t.OldLogProb[j]
					v -= drift * d * d
					if o.Pull {
						v -= (1 - x.ess) * (math.Expm1(-d) + d)
					}
				}
				loss -= c * v
			}
		}
		loss += o.Penalty(*t, penalties[i])
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
	for i, row := range w {
		t := &b.Trajectories[i]
		x.read(t, t)
		inner, drift := o.Gradient == "through" && o.Inner != "none", x.drift()
		terms := inner || drift != 0 || o.Pull
		switch same, is := x.uniform(); {
		case is:
			fill(row, same)
		case o.Gradient == "through" && o.Scope != "token":
			x.through(row)
		default:
			copy(row, x.each())
		}
		for j, g := range row {
			if terms {
				d := t.LogProb[j] - t.OldLogProb[j]
				if inner && x.z[j] != d {
					g = 0
				}
				g -= 2 * drift * d
				if o.Pull {
					g += (1 - x.ess) * math.Expm1(-d)
				}
			}
			row[j] = g * -scales[i]
		}
		o.AddPenalty(*t, penalties[i], row)
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
			all[i].Clipped = objectives.Fraction(x.cuts, len(x.g))
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
			all[i].Clipped = objectives.Fraction(cut, len(t.LogProb))
		}
		if o.Scope == "sequence" && o.Gate == "none" {
			all[i].SetLogRatio(append(x.sure, 0)[0]) // 0 of an empty response
		}
	}
	return all
}

// A response is one trajectory on its way through the parts, with what all responses of its step share. Its columns have
// an element for each token, or a single one where all tokens are alike, and are used again for the next response.
type response struct {
	*Policy
	values, diagnose bool // Loss asks for gains, Diagnose for bounds that act, Weights for derivatives

	order, token float64    // the orders of mean and with_token, if they are the same for all
	inner        [2]clip    // of d, where A is not negative and where it is
	bounds       [2]clip    // floor and cap of a ratio, likewise
	region       clip       // the ratios inside the bound, if they are the same for all tokens
	limit        float64    // of the logarithm of a ratio
	ess, moment  float64    // p3o's e, and the largest d^2 within the moment
	detached     bool       // no gradient passes through a gain
	alone, whole bool       // the ratio is that of the response, and so is the gain unless advantages differ
	linear       bool       // and the log of the ratio is a sum or a plain mean
	masks, bends bool       // the bound takes tokens out, or something else acts on gains
	inside       membership // of the region
	shape        shape      // of a gain; nil for the ratio itself

	t, at       *objectives.Trajectory // at has the log-probs at which what is detached is taken
	alike       bool                   // all columns but z have one element
	a, z        []float64              // advantages; log-ratios after the inner clip, at at
	sure, lam   []float64              // the logs of the ratios at at, and in the loss
	r           []float64              // the ratios in the loss
	from, to    []int                  // the scope of each token, if it is neither the token nor the response
	means, soft []float64              // the logs of the scopes' means, and the derivative of one
	orders      []float64              // of these means
	out, kept   []bool                 // what the bound takes out, and what the budget leaves
	future      []float64              // the factors of what follows the tokens
	g           []float64              // gains; for Weights, if a gradient passes, their derivatives by lam
	cuts        int                    // on how many of them a bound acts
	rooms       [6][]float64           // of a, of g for each token, and of log-ratios and ratios at at and in the loss
}

// A clip is an interval.
type clip struct{ low, high float64 }

// begin prepares what the responses of b share.
func (o *Policy) begin(b, at objectives.Batch) *response {
	x := &response{Policy: o, order: o.Mean.number(), token: o.WithToken.number(), region: clip{1 - o.ClipLow, 1 + o.ClipHigh}, limit: math.Inf(1)}
	if o.MeanLast != nil {
		x.order = b.Schedule(o.MeanSchedule, x.order, *o.MeanLast)
	}
	x.inner = o.innerClip(o.InnerHigh)
	if o.Mean == "rewards" || o.Inner == "rewards" {
		x.byRewards(at)
	}
	if o.Mean == "product" || o.Gate != "none" {
		x.limit = 20
	}
	switch o.Measure {
	case "k3":
		x.region = k3Region(o.ClipHigh)
	case "moment":
		x.moment = moment(at, o.ClipHigh)
	}
	if o.CapESS || o.Pull {
		d := make([]float64, 0, at.Tokens())
		for _, t := range at.Trajectories {
			for j, logp := range t.LogProb {
				d = append(d, logp-t.OldLogProb[j])
			}
		}
		x.ess = means.ESS(d, 1) // (sum r)^2 / (T sum r^2), D47
	}
	x.detached, x.alone = o.Gradient == "detached", o.Scope == "sequence" && o.WithToken == "no"
	x.linear = x.alone && (o.Mean == "product" || o.Mean != "min" && o.Mean != "ess" && x.order == 0)
	x.whole = x.alone && o.Gradient != "own" && o.Future == 0 && o.Gate != "quadratic" && slices.Contains([]string{"ratio", "log", "k3"}, o.Measure)
	x.masks, x.bends = o.Bound != "none" && o.Bound != "clip", o.Bound == "clip" || o.ClipDual != 0 || o.Future != 0
	x.inside, x.shape = x.membership(), x.gate()
	for sign := range x.bounds {
		x.bounds[sign] = o.bounds(sign, x.ess)
	}
	return x
}

// read computes the gains of t.
func (x *response) read(t, at *objectives.Trajectory) {
	n := len(t.LogProb)
	x.t, x.at, x.alike = t, at, x.whole && t.TokenAdvantage == nil && n > 0
	if x.alike {
		n = 1
	}
	if x.a = t.TokenAdvantage; x.a == nil {
		x.rooms[0] = room(x.rooms[0], n)
		x.a = fill(x.rooms[0], t.Advantage)
	}
	x.sure, x.orders, x.g, x.cuts = x.sure[:0], x.orders[:0], room(x.g, n), 0
	if n > 0 {
		x.logRatios()
		x.budget()
		x.follow()
		x.leaveOut()
		x.gains()
	}
}

// each returns g with an element for each token.
func (x *response) each() []float64 {
	if !x.alike {
		return x.g
	}
	x.rooms[1] = room(x.rooms[1], len(x.t.LogProb))
	return fill(x.rooms[1], x.g[0])
}

// room returns a slice of n elements, in the place of x if it is large enough.
func room[T any](x []T, n int) []T { return slices.Grow(x[:0], n)[:n] }

// fill sets all elements of x to v, and returns x.
func fill(x []float64, v float64) []float64 {
	for j := range x {
		x[j] = v
	}
	return x
}

// drift returns the weight of d^2 in the response.
func (x *response) drift() float64 {
	if x.Drift == 0 || x.DriftOn == "all" || x.Signal == "teacher" || x.t.HasAdvantage() {
		return x.Drift
	}
	return 0
}
