// Package p3o is P3O (arXiv:2605.12380), whose trust region follows the effective
// sample size of the batch. With r = e^d, d = LogProb - OldLogProb,
//
//	e = (sum r)^2 / (T sum r^2)
//	L = 1/T sum_i sum_t (-sg[min(r_t, e)] A_i LogProb_t + (1 - e) (d_t + e^(-d_t) - 1))
//
// over the T tokens of the optimizer step, those of responses without advantage among
// them. e is 1 where all ratios are equal and falls as they spread; it and min(r, e) are
// constants of the gradient. The second term pulls the policy back to the one that
// sampled, the harder the further the batch is off policy, also in groups that teach
// nothing; pull = false leaves it out. Advantages are standardized. The weight of a token
// is (-min(r, e) A + (1 - e) (1 - e^-d)) / T.
//
// The formulas are those of the authors' code (FeynRL), without the 1e-8 that it adds to e
// and without its clamp of the pull's exponent (D47). That code takes e over a micro-batch
// and, where sums overflow, sets it to 1; here e is computed in the log domain. Old
// log-probs are the sampler's there: see rollout.old_logp.
//
// Degenerate cases: an empty response adds nothing; a batch without tokens has loss 0; a
// group with equal rewards, or of one response, has zero advantages.
package p3o

import (
	"maps"
	"math"

	"onering/objectives"
)

// A p3o is the objective "p3o".
type p3o struct {
	objectives.TokenSum
	// Pull says whether a term draws the policy back to the sampling policy. Default true.
	Pull bool `toml:"pull"`
}

func init() {
	objectives.Register("p3o", func() objectives.Objective {
		return &p3o{TokenSum: objectives.NewTokenSum("standardized", "token-mean"), Pull: true}
	})
}

// ReadsBatch says that e is computed from every response; see objectives.Needs.
func (o *p3o) ReadsBatch() bool { return true }

// WeighsApart says that e is computed from every response; see objectives.Needs.
func (o *p3o) WeighsApart() bool { return false }

// WeighsAll says that the pull gives weights to responses without advantage.
func (o *p3o) WeighsAll() bool { return o.Pull }

// Exemptions implements objectives.Exempter.
func (o *p3o) Exemptions() map[string]string {
	all := map[string]string{}
	if o.Pull {
		all["equal-rewards"] = "the pull moves responses whatever their rewards are"
	}
	maps.Copy(all, o.Shared.Exemptions())
	return all
}

// ess returns e, the normalized effective sample size of the batch.
func ess(b objectives.Batch) float64 {
	d := make([]float64, 0, b.Tokens())
	for i := range b.Trajectories {
		t := &b.Trajectories[i]
		for j, logp := range t.LogProb {
			d = append(d, logp-t.OldLogProb[j])
		}
	}
	return objectives.ESS(d, 1)
}

// capped sets k to min(r, e) A, the capped ratio times the advantage.
func capped(t *objectives.Trajectory, e float64, k []float64) {
	for j, logp := range t.LogProb {
		k[j] = 0
		if a := t.AdvantageAt(j); a != 0 {
			k[j] = min(math.Exp(logp-t.OldLogProb[j]), e) * a
		}
	}
}

// Loss implements objectives.Objective; e and the capped ratio are detached.
func (o *p3o) Loss(b, at objectives.Batch) float64 {
	e := ess(at)
	return o.SumLoss(b, func(i int, v []float64) {
		t := &b.Trajectories[i]
		capped(&at.Trajectories[i], e, v)
		for j, logp := range t.LogProb {
			v[j] *= logp
			if d := logp - t.OldLogProb[j]; o.Pull {
				v[j] -= (1 - e) * (math.Expm1(-d) + d)
			}
		}
	})
}

// Weights implements objectives.Objective.
func (o *p3o) Weights(b objectives.Batch, w [][]float64) {
	e := ess(b)
	o.SumWeights(b, w, func(i int, g []float64) {
		t := &b.Trajectories[i]
		capped(t, e, g)
		for j, logp := range t.LogProb {
			if o.Pull {
				g[j] += (1 - e) * math.Expm1(t.OldLogProb[j]-logp)
			}
		}
	})
}

// Diagnose implements objectives.Diagnoser: a token is clipped if r exceeds e, and the
// ESS is the batch's.
func (o *p3o) Diagnose(b objectives.Batch) []objectives.Diagnostics {
	e := ess(b)
	all := b.DiagnoseCut(func(t *objectives.Trajectory, j int) bool {
		return math.Exp(t.LogProb[j]-t.OldLogProb[j]) > e
	})
	for i := range all {
		all[i].ESS = new(e)
	}
	return all
}

var _ objectives.Diagnoser = (*p3o)(nil)
