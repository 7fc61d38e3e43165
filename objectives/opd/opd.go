// Package opd is on-policy distillation: the policy samples, and a teacher, which is
// the reference policy (model.reference), says of each token how probable it would
// have been. The reverse KL from the teacher is the policy gradient's signal,
//
//	L = -1/T sum_i sum_t M_t r_t sg[RefLogProb_t - LogProb_t] + drift/T sum_i sum_t d_t^2
//	M_t = [pi_t - mu_t >= -tv_low]
//
// with r = e^d, pi = e^LogProb and mu = e^OldLogProb. The mask drops tokens whose
// probability has fallen too far already. The weight of a token is
// (-M_t r_t (RefLogProb_t - LogProb_t) + 2 drift d_t) / T; on policy that is an unbiased
// estimate of the gradient of the mean of KL(pi, teacher), each token's alone.
// Rewards and advantages have no part in it: they are only logged, and one response to a
// problem is enough (rollout.samples_per_prompt = 1).
//
// This is prime-rl's ref_kl loss (tv_low = 0.2, drift = 1e-3), whose source was read.
// The idea is from Thinking Machines' post "On-Policy Distillation" (2025), which was
// not.
//
// Degenerate cases: an empty response adds nothing; a batch without tokens has loss 0;
// a teacher that is the policy itself gives no gradient but that of drift.
package opd

import (
	"maps"
	"math"

	"onering/objectives"
)

// An opd is the objective "opd".
type opd struct {
	objectives.TokenSum
	// TVLow bounds how far the probability of a token may fall. Default 0.2.
	TVLow float64 `toml:"tv_low" range:"[0,1]"`
	// Drift is the weight of the squared log-ratio. Default 1e-3.
	Drift float64 `toml:"drift" range:"[0,)"`
}

func init() {
	objectives.Register("opd", func() objectives.Objective {
		return &opd{TokenSum: objectives.NewTokenSum("centered", "token-mean"), TVLow: 0.2, Drift: 1e-3}
	})
}

// NeedsReference says that the teacher is the reference.
func (o *opd) NeedsReference() bool { return true }

// NeedsTeacher says that the reference is not the initial policy.
func (o *opd) NeedsTeacher() bool { return true }

// NeedsGroup says that rewards are not used.
func (o *opd) NeedsGroup() bool { return false }

// Exemptions implements objectives.Exempter.
func (o *opd) Exemptions() map[string]string {
	all := map[string]string{
		"direction":     "a token's weight follows from the teacher, whatever the reward",
		"equal-rewards": "the teacher has something to say where rewards are equal",
	}
	maps.Copy(all, o.Shared.Exemptions())
	return all
}

// outside reports whether the probability of token j has fallen too far.
func (o *opd) outside(t *objectives.Trajectory, j int) bool {
	return math.Exp(t.LogProb[j])-math.Exp(t.OldLogProb[j]) < -o.TVLow
}

// ahead returns how much more probable the teacher finds token j, in logarithms, or 0
// where the mask drops the token.
func (o *opd) ahead(t *objectives.Trajectory, j int) float64 {
	if o.outside(t, j) {
		return 0
	}
	return t.RefLogProb[j] - t.LogProb[j]
}

// Loss implements objectives.Objective; the mask and the teacher's lead are detached.
func (o *opd) Loss(b, at objectives.Batch) float64 {
	return o.SumLoss(b, func(i int, v []float64) {
		t := &b.Trajectories[i]
		for j, logp := range t.LogProb {
			d := logp - t.OldLogProb[j]
			v[j] = -o.Drift * d * d
			if a := o.ahead(&at.Trajectories[i], j); a != 0 { // the ratio may be infinite
				v[j] += math.Exp(d) * a
			}
		}
	})
}

// Weights implements objectives.Objective.
func (o *opd) Weights(b objectives.Batch, w [][]float64) {
	o.SumWeights(b, w, func(i int, g []float64) {
		t := &b.Trajectories[i]
		for j, logp := range t.LogProb {
			d := logp - t.OldLogProb[j]
			g[j] = -2 * o.Drift * d
			if a := o.ahead(t, j); a != 0 {
				g[j] += math.Exp(d) * a
			}
		}
	})
}

// Diagnose implements objectives.Diagnoser.
func (o *opd) Diagnose(b objectives.Batch) []objectives.Diagnostics {
	return b.DiagnoseCut(o.outside)
}

var _ objectives.Diagnoser = (*opd)(nil)
