package policy

import (
	"math"
	"slices"

	"onering/objectives"
	"onering/objectives/means"
)

// tokenMean is the part aggregate, which says what a token of the batch counts:
//
//	sequence-mean  1/(N n)   each response counts the same
//	token-mean     1/T       each token of the batch counts the same
//	constant       1/(N L)   as token-mean, with a constant L in place of the mean length
//	group-mean     1/(G U)   each of the G groups counts the same, and each of its U tokens
//	token-sum      1         nothing is averaged
type tokenMean struct {
	// Aggregate is one of these words.
	Aggregate string `toml:"aggregate" needs:"list=none kl_beta!=0 entropy_bonus!=0 entropy_target!=0" choice:"sequence-mean token-mean constant group-mean token-sum"`
	// ConstantLength is L. Default 3000, the response limit of the paper's recipe.
	ConstantLength float64 `toml:"constant_length" needs:"aggregate=constant" range:"[1,)"`
}

// scales returns what a token of each response counts. It is infinite where there are no tokens.
func (o tokenMean) scales(b objectives.Batch) []float64 {
	count, total, groups := float64(len(b.Trajectories)), float64(b.Tokens()), map[int]float64{}
	for i := 0; i < len(b.Trajectories) && o.Aggregate == "group-mean"; i++ {
		groups[b.Trajectories[i].Group] += float64(len(b.Trajectories[i].LogProb))
	}
	scales := make([]float64, len(b.Trajectories))
	for i := range scales {
		switch t := &b.Trajectories[i]; o.Aggregate {
		case "token-mean":
			scales[i] = 1 / total
		case "constant":
			scales[i] = 1 / (count * o.ConstantLength)
		case "group-mean":
			scales[i] = 1 / (float64(len(groups)) * groups[t.Group])
		case "token-sum":
			scales[i] = 1
		default:
			scales[i] = 1 / (count * float64(len(t.LogProb)))
		}
	}
	return scales
}

// penaltyScales returns what a token of each response counts in the penalties: the same, or what PenaltyAggregate says.
func (o *Policy) penaltyScales(b objectives.Batch) []float64 {
	mean := o.tokenMean
	if o.PenaltyAggregate != "same" {
		mean.Aggregate = o.PenaltyAggregate
	}
	return mean.scales(b)
}

// TokenScale implements objectives.TokenScaler.
func (o *Policy) TokenScale(b objectives.Batch, i int) float64 { return o.penaltyScales(b)[i] }

// EntropyWeights implements objectives.EntropyWeigher.
func (o *Policy) EntropyWeights(b objectives.Batch, v [][]float64) {
	for i, c := range o.penaltyScales(b) {
		o.FillEntropy(c, v[i])
	}
}

// Loss implements objectives.Objective: the sum of -c v over tokens, c by scales and v by values, and the penalties. What
// gradient, weight and bound detach is taken from at.
func (o *Policy) Loss(b, at objectives.Batch) float64 {
	if o.List != "none" {
		return o.groupLoss(b, nil)
	}
	loss, x, scales, penalties := 0.0, o.newResponse(b, at), o.scales(b), o.penaltyScales(b)
	for i := range b.Trajectories {
		t, c := &b.Trajectories[i], scales[i]
		x.computeGains(t, &at.Trajectories[i])
		values := x.values()
		if len(values) < len(t.LogProb) { // one for all tokens
			c *= float64(len(t.LogProb))
		}
		for _, v := range values {
			loss -= c * v
		}
		loss += o.Penalty(*t, penalties[i])
	}
	return loss
}

// Weights implements objectives.Objective: -c times the derivative of v, see Loss, and that of the penalties.
func (o *Policy) Weights(b objectives.Batch, w [][]float64) {
	if o.List != "none" {
		o.groupLoss(b, w)
		return
	}
	x, scales, penalties := o.newResponse(b, b), o.scales(b), o.penaltyScales(b)
	x.slopes = !x.detached // v = sg[gain] LogProb has the gain itself as derivative
	for i, row := range w {
		t, c := &b.Trajectories[i], -scales[i]
		x.computeGains(t, t)
		g := x.derivative(row)
		if len(g) < len(row) { // one for all tokens
			fill(row, g[0]*c)
		} else {
			for j, g := range g {
				row[j] = g * c
			}
		}
		o.AddPenalty(*t, penalties[i], row)
	}
}

// Diagnose implements objectives.Diagnoser: the share of tokens that a bound acts on, where there is
// one, the ratio of a whole response, and p3o's e.
func (o *Policy) Diagnose(b objectives.Batch) []objectives.Diagnostics {
	all := make([]objectives.Diagnostics, len(b.Trajectories))
	everyRatio := clip{0, math.Inf(1)} // floor and cap where neither is set
	bounded := o.Bound != "none" || o.ClipDual != 0 || o.CapESS || o.edges(aNotNegative) != everyRatio || o.edges(aNegative) != everyRatio
	// ordersDiffer: the order of the mean differs between responses or steps.
	hasInnerClip, ordersDiffer := o.Inner == "token" || o.Inner == "rewards", o.Mean == "ess" || o.Mean == "rewards" || o.MeanLast != nil
	hasFigures := o.Scope == "sequence" && (o.Gate == "none" || hasInnerClip || ordersDiffer) // of its ratio and mean
	x, rows := o.newResponse(b, b), o.StepAdvantages(b)
	x.diagnose = true
	for i, t := range b.Trajectories {
		all[i].Advantage = t.Advantage
		if o.List != "none" || !bounded && !hasFigures {
			continue
		}
		if rows != nil {
			t.TokenAdvantage = rows[i]
		}
		x.computeGains(&t, &t)
		if bounded {
			all[i].Clipped = objectives.Fraction(x.cutCount, len(x.gain))
		}
		if o.CapESS {
			all[i].ESS = new(x.ess)
		}
		if ordersDiffer {
			all[i].P = new(append(x.orders, x.order)[0]) // x.order for an empty response, which has no orders
		}
		if hasInnerClip {
			cut := 0
			for j := range t.LogProb {
				if x.innerLogs[j] != t.LogProb[j]-t.OldLogProb[j] {
					cut++
				}
			}
			all[i].Clipped = objectives.Fraction(cut, len(t.LogProb))
		}
		if o.Scope == "sequence" && o.Gate == "none" {
			all[i].SetLogRatio(append(x.logAt, 0)[0]) // 0 of an empty response
		}
	}
	return all
}

// A response is one trajectory on its way through the parts, with what all responses of its step share. Its columns have
// an element for each token, or a single one where all tokens are alike, and are used again for the next response.
type response struct {
	*Policy
	slopes, diagnose bool // Weights asks for derivatives, Diagnose for bounds that act too, Loss for gains

	order, tokenOrder float64 // the orders of mean and with_token, if they are the same for all
	inner             [2]clip // of d, where A is not negative and where it is
	bounds            [3]clip // of a ratio where A is positive, negative, and 0
	perTokenBounds    bool    // bounds differ from token to token
	region            clip    // the ratios inside the bound, if they are the same for all tokens
	maxLog            float64 // of a ratio
	ess, moment       float64 // p3o's e, and the largest d^2 within the moment
	detached          bool    // no gradient passes through a gain
	ratioPerResponse  bool    // the ratio is that of the response, and so is the gain unless advantages differ
	linearMean        bool    // the log of a mean is a sum of log-ratios, or their mean

	t, at           *objectives.Trajectory // at has the log-probs at which what is detached is taken
	oneElement      bool                   // all columns but innerLogs have one element
	drift           float64                // the weight of d^2
	hasDriftOrPull  bool                   // drift or pull are terms of the loss
	advantages      []float64
	innerLogs       []float64 // log-ratios after the inner clip, at at
	logAt, logRatio []float64 // the logs of the ratios at at, and in the loss
	means, orders   []float64 // the logs of the scopes' means, and their orders
	meanSlopes      []float64 // the derivative of a mean
	withinBudget    []bool    // of each token
	gain            []float64 // gains; for Weights, if a gradient passes, their derivatives by logRatio
	cutCount        int       // on how many gains a bound acts
	scratches       [ratioScratch + 1][]float64
}

// The numbers of the scratch slices. Those of log-ratios are followed by one for the logs of their means.
const (
	advantageScratch = 0
	gainScratch      = 1 // gains for each token
	atScratch        = 2 // at at
	lossScratch      = 4 // in the loss
	ratioScratch     = 6
)

// A clip is an interval.
type clip struct{ low, high float64 }

// newResponse prepares what the responses of b share: what the settings say of all, and figures of the whole step. at is the
// batch at whose log-probs all that is detached is taken.
func (o *Policy) newResponse(b, at objectives.Batch) *response {
	x := &response{Policy: o, order: o.Mean.number(), tokenOrder: o.WithToken.number(), region: clip{1 - o.ClipLow, 1 + o.ClipHigh}, maxLog: math.Inf(1)}
	if o.MeanLast != nil {
		x.order = b.Schedule(o.MeanSchedule, x.order, *o.MeanLast)
	}
	x.inner = o.innerClip(o.InnerHigh)
	if o.Mean == "rewards" || o.Inner == "rewards" {
		x.setByRewards(at)
	}
	if o.Mean == "product" || o.Gate != "none" {
		x.maxLog = 20 // no gradient passes beyond it
	}
	switch o.Measure {
	case "k3":
		x.region = k3Region(o.ClipHigh)
	case "moment":
		x.moment = moment(at, o.ClipHigh)
	}
	if o.CapESS || o.Pull {
		d := make([]float64, at.Tokens())
		for i, rest := 0, d; i < len(at.Trajectories); i++ { // rest is what of d is not filled yet
			rest = rest[logRatios(&at.Trajectories[i], rest):]
		}
		x.ess = means.ESS(d, 1) // (sum r)^2 / (T sum r^2), D47
	}
	// linearMean: the product, or the geometric mean, which has the order 0.
	x.detached, x.linearMean = o.Gradient == "detached", o.Mean == "product" || o.Mean != "min" && o.Mean != "ess" && x.order == 0
	// The ratio is one for the response unless a part tells its tokens apart.
	x.ratioPerResponse = o.Scope == "sequence" && o.WithToken == "no" && o.Gradient != "own" && o.Future == 0 && o.Gate != "quadratic" &&
		slices.Contains([]string{"ratio", "log", "k3"}, o.Measure)
	// A width in the log may grow with the token's place, and one in probabilities goes with the token's own.
	x.perTokenBounds = o.Measure == "log" && (o.Bound == "clip" || o.ClipDual != 0) || o.Measure == "probability" && o.Bound == "clip"
	for k, a := range []float64{1, -1, 0} { // an advantage for each of bounds
		c := clip{0, math.Inf(1)}
		if o.edged() { // floor and cap act
			c = o.edges(k & 1) // aNegative for -1 alone
		}
		if o.edged() && o.CapESS {
			c.high = x.ess
		}
		c.high = min(c.high, math.Exp(x.maxLog))
		if !x.perTokenBounds {
			c = x.within(c, 0, a) // of token 0, as of any other
		}
		x.bounds[k] = c
	}
	return x
}

// computeGains sets x.gain to the gains of t, or to their derivatives if x.slopes asks for them, and x.cutCount; at is t at
// whose log-probs what is detached is taken. They are in x until the next response.
func (x *response) computeGains(t, at *objectives.Trajectory) {
	n := len(t.LogProb)
	x.t, x.at, x.oneElement, x.drift = t, at, x.ratioPerResponse && t.TokenAdvantage == nil && n > 0, x.Drift
	if x.DriftOn != "all" && x.Signal != "teacher" && !t.HasAdvantage() {
		x.drift = 0 // drift_on = "advantage"
	}
	x.hasDriftOrPull = x.Pull || x.drift != 0
	if x.oneElement {
		n = 1 // one element stands for all tokens
	}
	if x.advantages = t.TokenAdvantage; x.advantages == nil {
		x.advantages = fill(x.scratch(advantageScratch, n), t.Advantage)
	}
	x.logAt, x.orders, x.gain, x.cutCount = x.logAt[:0], x.orders[:0], slices.Grow(x.gain[:0], n)[:n], 0
	if n > 0 {
		x.logRatios()
		x.gains()
		x.leaveOut()
		x.weighFuture()
	}
}

// gainPerToken returns the gains with an element for each token.
func (x *response) gainPerToken() []float64 {
	if !x.oneElement {
		return x.gain
	}
	return fill(x.scratch(gainScratch, len(x.t.LogProb)), x.gain[0])
}

// scratch returns n elements of the scratch slice k, whose values are those of an earlier response.
func (x *response) scratch(k, n int) []float64 {
	x.scratches[k] = slices.Grow(x.scratches[k][:0], n)[:n]
	return x.scratches[k]
}

// fill sets all elements of x to v, and returns x.
func fill(x []float64, v float64) []float64 {
	for j := range x {
		x[j] = v
	}
	return x
}

// values returns the v of each token, drift and pull included, or a single one that all tokens have. v is the gain, or
// where gradients are detached the gain times the log-prob.
func (x *response) values() []float64 {
	if !x.detached && !x.hasDriftOrPull {
		return x.gain
	}
	v := x.gainPerToken()
	if x.detached {
		for j, logp := range x.t.LogProb {
			v[j] *= logp
		}
	}
	x.subtractDrift(v, false) // their values
	return v
}

// subtractDrift takes from each v, or from its derivative by the log-prob if slope is set, drift and pull, or their
// derivative:
//
//	drift d^2 + (1 - e)(e^-d - 1 + d),  e = (sum r)^2/(T sum r^2)
func (x *response) subtractDrift(v []float64, slope bool) {
	if !x.hasDriftOrPull {
		return
	}
	drift, pull := x.drift, 0.0
	if x.Pull {
		pull = 1 - x.ess
	}
	logp, old := x.t.LogProb[:len(v)], x.t.OldLogProb[:len(v)]
	for j := range v {
		d, e := logp[j]-old[j], 0.0
		if pull != 0 {
			e = math.Expm1(-d)
		}
		if slope {
			v[j] -= 2*drift*d - pull*e
		} else {
			v[j] -= drift*d*d + pull*(e+d)
		}
	}
}
