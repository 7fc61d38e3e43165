// Package pmpo is Power-Mean Policy Optimization: the ratio of a response is the
// power mean of its tokens' clipped ratios, of an order p chosen per response,
//
//	r_i = (1/n_i sum_t exp(p_i z_t))^(1/p_i)
//	L   = -1/N sum_i A_i r_i
//
// where z is d = LogProb - OldLogProb clipped in the log domain at clip = 0.4
// (objectives.LogClip, D4). p = 0 is the geometric mean (gmpo), p = 1 the arithmetic
// mean (grpo). Advantages are centered (D1). p is a constant in the gradient (D7);
// the weight of a token is
//
//	-A_i/N r_i softmax(p_i z)_t, or 0 where the clip cut it (D6).
//
// # The exponent
//
// p_rule = "ess" (default, the paper's rule): f is the share of tokens with |d| >
// eps_ess (D10), eta* = 1/n + f (1 - 1/n), and p is where the normalized effective
// sample size of softmax(p z) is eta*, within [p_min, p_max], by ten halvings (D9;
// tolerance > 0 solves further). The other rules: "fixed" uses p; "direct" is 1 - f,
// clamped to [p_min, p_max] (D15); "length" and "entropy" map the z-score of the
// response's length or mean entropy against a moving average through a sigmoid
// (D16, D17); "cosine" (D18) and "linear" fall from p_max to p_min over the run.
//
// Exponents may be negative: p = -1 is the harmonic mean, which with standardized
// advantages is hmpo of GMPO's repository (D45). The mean then follows the tokens that have
// become least likely, and a token whose ratio is far above the others has no weight. ESS
// is 1 at p = 0 and falls on both sides, so the paper's rule never goes below 0: with
// p_min < 0 it is the rule for p_min = 0, and with p_max < 0 it is p_max (D40). "direct"
// does not go below 0 either (D42).
//
// # Where the paper's rule saturates
//
// ESS is about 1 - p^2 var(z) while p^2 var(z) is small. With eps_ess = 0.1 and
// log-ratios of standard deviation 0.2 and less and light tails, ESS(0.99) stays
// above 0.95 while eta* is under 0.65. The target is then out of reach and p = p_max
// for practically every response: PMPO acts as a power mean of fixed order 0.99. An
// interior p takes heavy tails on the side that the clip leaves open, or standard
// deviations of 0.5 and more. Example_saturation prints the table, and Example_paper
// the mean p of log-ratios of other tails, for the 0.8 and 1.2 that the paper reports. Watch
// p/share_at_max in the metrics.
//
// target = "attainable" keeps the idea, fewer saturated tokens give a more
// arithmetic mean, but interpolates between the values that ESS takes:
//
//	eta* = ESS(p_max) + f (ESS(p_min) - ESS(p_max))
//
// which has a solution inside [p_min, p_max] for every f: p_max at f = 0, p_min at
// f = 1, and about p_max sqrt(1 - f) between. With p_min < 0 it interpolates
// sign(p) (1 - ESS(p)) in its place, so that f leads from p_max through 0 to p_min (D41).
//
// p_negative, unset by default, fixes p for responses of negative advantage. With p
// near 1 softmax(p z) gives little weight to tokens whose log-prob has already
// fallen far; p_negative = 0 gives all tokens of a wrong response equal weight.
//
// # Degenerate cases
//
// An empty response adds nothing, counts in N, and is logged with f = 0, ESS =
// eta* = r = 1 and p = p_max, or the fixed p (D8). One token, or equal z: ESS is 1 at
// every p, hence p_max. f = 0, on policy for instance: p_max (D11). A group with equal
// rewards, or of one response, has zero advantages.
//
// norm = "sum" is the paper's ablation without 1/n: r = (sum exp(p z))^(1/p), taken
// literally (D14). It is n^(1/p) times the mean form, infinite for p = 0.01 and more
// than 1,200 tokens, and undefined at p = 0, which Validate refuses. "count-times"
// is n times the mean form.
package pmpo

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"onering/objectives"
	"onering/objectives/means"
)

// A PMPO is the objective "pmpo".
type PMPO struct {
	objectives.ClippedMean
	// PRule is ess (default), fixed, direct, length, entropy, cosine or linear.
	PRule string `toml:"p_rule" choice:"ess fixed direct length entropy cosine linear"`
	// P is the exponent of p_rule = "fixed", any real number. Default 1.
	P float64 `toml:"p" needs:"p_rule=fixed" range:"(-inf,)"`
	// PMin and PMax bound the exponent of the other rules. They may be negative (D40 to
	// D43). Default [0.01, 0.99] (D19).
	PMin float64 `toml:"p_min" needs:"p_rule!=fixed" range:"(-inf,)"`
	PMax float64 `toml:"p_max" needs:"p_rule!=fixed" range:"(-inf,)"`
	// EpsESS is the threshold of f. Default 0.1.
	EpsESS float64 `toml:"eps_ess" range:"[0,)"`
	// Bisections is how often the solver halves [PMin, PMax]. Default 10.
	Bisections int `toml:"bisections" needs:"p_rule=ess,tolerance=0" range:"[1,1100]"`
	// Tolerance, unless 0, replaces Bisections: the solver halves until the bracket
	// of p is no wider.
	Tolerance float64 `toml:"tolerance" needs:"p_rule=ess" range:"[0,)"`
	// EMADecay is the weight of the past in the moving averages. Default 0.9.
	EMADecay float64 `toml:"ema_decay" needs:"p_rule=length p_rule=entropy" range:"[0,1]"`
	// EMAAlpha is the slope of the sigmoid in the z-score. Default 1.
	EMAAlpha float64 `toml:"ema_alpha" needs:"p_rule=length p_rule=entropy" range:"(-inf,)"`
	// Target is paper (default) or attainable.
	Target string `toml:"target" needs:"p_rule=ess" choice:"paper attainable"`
	// PNegative, if set, is the exponent of responses with negative advantage.
	PNegative *float64 `toml:"p_negative"`

	history *moments // history of the length and entropy rules; nil before the first batch
}

func init() {
	objectives.Register("pmpo", func() objectives.Objective {
		return &PMPO{
			ClippedMean: objectives.DefaultClippedMean("centered"),

			PRule: "ess", P: 1, PMin: 0.01, PMax: 0.99,
			EpsESS: 0.1, Bisections: 10,
			EMADecay: 0.9, EMAAlpha: 1,
			Target: "paper",
		}
	})
}

// Validate refuses impossible settings.
func (o *PMPO) Validate() error {
	errs := []error{o.ClippedMean.Validate()}
	if o.PMin > o.PMax {
		errs = append(errs, &objectives.SettingError{Key: "p_min", Value: o.PMin, Remedy: fmt.Sprintf("must be at most p_max = %v", o.PMax)})
	}
	if o.PNegative != nil {
		errs = append(errs, objectives.Within("p_negative", *o.PNegative, -math.MaxFloat64, math.MaxFloat64))
	}
	return errors.Join(append(errs, o.validateSum())...)
}

// validateSum refuses a range of exponents with 0 in it if the norm is undefined at 0 (D44).
func (o *PMPO) validateSum() error {
	const remedy = `must not be 0 with norm = "sum", which is undefined at p = 0`
	switch {
	case o.Norm != "sum":
	case o.PNegative != nil && *o.PNegative == 0:
		return &objectives.SettingError{Key: "p_negative", Value: 0.0, Remedy: remedy}
	case o.PRule == "fixed" && o.P == 0:
		return &objectives.SettingError{Key: "p", Value: o.P, Remedy: remedy}
	case o.PRule != "fixed" && o.PMin <= 0 && o.PMax >= 0:
		return &objectives.SettingError{Key: "p_min", Value: o.PMin,
			Remedy: fmt.Sprintf("must be above 0, or p_max = %v below it, with norm = \"sum\", which is undefined at p = 0", o.PMax)}
	}
	return nil
}

// NeedsEntropy is for the entropy rule; see objectives.Needs.
func (o *PMPO) NeedsEntropy() bool { return o.PRule == "entropy" || o.Shared.NeedsEntropy() }

// WeighsApart says that the entropy rule compares responses; see objectives.Needs.
func (o *PMPO) WeighsApart() bool { return o.PRule != "entropy" && o.Shared.WeighsApart() }

// Loss implements objectives.Objective; the exponents are computed from at.
func (o *PMPO) Loss(b, at objectives.Batch) float64 {
	c := new(objectives.ClippedLogRatios)
	rule := o.rule(at)
	return o.SequenceLoss(b, func(i int) float64 {
		c.Read(o.LogClip, at.Trajectories[i], o.EpsESS)
		p := rule.exponent(at.Trajectories[i], c)
		c.Read(o.LogClip, b.Trajectories[i], o.EpsESS)
		return math.Exp(o.LogMean(c.Z, p, nil))
	})
}

// Weights implements objectives.Objective.
func (o *PMPO) Weights(b objectives.Batch, w [][]float64) {
	c := new(objectives.ClippedLogRatios)
	rule := o.rule(b)
	o.SequenceWeights(b, w, func(i int, g []float64) float64 {
		t := b.Trajectories[i]
		c.Read(o.LogClip, t, o.EpsESS)
		l := o.LogMean(c.Z, rule.exponent(t, c), g) // g = softmax(p z)
		c.Gate(g, t)
		return math.Exp(l)
	})
}

// Diagnose implements objectives.Diagnoser. ClipFraction is the f of the exponent's rule, of tokens with |log-ratio| >
// eps_ess; Clipped is the share of tokens that log_clip has cut.
func (o *PMPO) Diagnose(b objectives.Batch) []objectives.Diagnostics {
	c := new(objectives.ClippedLogRatios)
	rule := o.rule(b)
	all := make([]objectives.Diagnostics, len(b.Trajectories))
	for i, t := range b.Trajectories {
		c.Read(o.LogClip, t, o.EpsESS)
		n, p := len(c.Z), rule.exponent(t, c)
		f := float64(c.Saturated) / float64(max(n, 1))
		d := objectives.Diagnostics{
			Advantage:    t.Advantage,
			P:            new(p),
			ESS:          new(means.ESS(c.Z, p)),
			TargetESS:    new(o.target(c.Z, f)),
			ClipFraction: new(f),
			Clipped:      objectives.Fraction(c.Cut, n),
			ESSAtPMax:    new(means.ESS(c.Z, o.PMax)),
			AtPMax:       new(p == o.PMax),
		}
		logRatio := 0.0 // the log-ratio of an empty response
		if n > 0 {
			logRatio = o.LogMean(c.Z, p, nil)
		}
		d.SetLogRatio(logRatio)
		all[i] = d
	}
	return all
}

// target returns eta* for one response, even if the rule does not use it.
func (o *PMPO) target(z []float64, f float64) float64 {
	if len(z) == 0 {
		return 1
	}
	if o.Target == "attainable" {
		return o.solver().Attainable(z, f)
	}
	return paperTarget(len(z), f)
}

// solver returns the solver of the ESS rules.
func (o *PMPO) solver() means.Solver {
	return means.Solver{PMin: o.PMin, PMax: o.PMax, Bisections: o.Bisections, Tolerance: o.Tolerance}
}

// paperTarget returns eta* = 1/n + f (1 - 1/n).
func paperTarget(n int, f float64) float64 {
	least := 1 / float64(n)
	return least + f*(1-least)
}

// Observe implements objectives.Observer: it updates the averages of the length and entropy rules
// from b.
func (o *PMPO) Observe(b objectives.Batch) {
	o.Shared.Observe(b)
	batch, ok := o.measure(b)
	switch {
	case !ok:
	case o.history == nil:
		o.history = &batch
	default:
		k := o.EMADecay
		o.history = &moments{
			Mean:     k*o.history.Mean + (1-k)*batch.Mean,
			Variance: k*o.history.Variance + (1-k)*batch.Variance,
		}
	}
}

// MarshalText implements encoding.TextMarshaler: the moving averages as JSON,
// {"mean","variance"}, or null before the first batch; see objectives.Shared.JoinState.
func (o *PMPO) MarshalText() ([]byte, error) {
	own, err := json.Marshal(o.history)
	if err != nil {
		return nil, err
	}
	return o.JoinState(own)
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *PMPO) UnmarshalText(text []byte) error {
	own, err := o.SplitState(text)
	if err != nil {
		return err
	}
	m, err := parseMoments(own)
	if err != nil {
		return fmt.Errorf("pmpo: state %q: %w", own, err)
	}
	o.history = m
	return nil
}

var (
	_ objectives.Diagnoser = (*PMPO)(nil)
	_ objectives.Observer  = (*PMPO)(nil)
)
