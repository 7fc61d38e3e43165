// Package vespo is Variational Sequence-level Soft Policy Optimization
// (arXiv:2602.10693): the importance weight of a whole response is reshaped by a gamma
// density, which is 1 on policy, rises a little and then falls to 0,
//
//	W_i   = exp(sum_t d_t)
//	phi_i = exp(lambda + k log W_i - lambda W_i)
//	L     = -1/T sum_i sg[phi_i] A_i sum_t LogProb_t
//
// with (k, lambda) = (2, 3) for A >= 0 and (3, 2) for A < 0, and standardized
// advantages. Each d is limited to [-20, 20] and log W to [log 1e-8, 20]. The weight of
// a token is -phi_i A_i / T. The formula is checked against TRL 1.16 (loss_type =
// "vespo"); with importance_cap the truncated weights multiply phi, where TRL puts
// them into W.
//
// Degenerate cases: an empty response adds nothing; a batch without tokens has loss 0;
// a group with equal rewards, or of one response, has zero advantages.
package vespo

import (
	"math"

	"onering/objectives"
)

// A vespo is the objective "vespo".
type vespo struct {
	objectives.TokenSum
	// KPositive and LambdaPositive shape phi for A >= 0, KNegative and LambdaNegative for
	// A < 0. Default 2, 3, 3, 2.
	KPositive      float64 `toml:"k_positive" range:"[0,100]"`
	LambdaPositive float64 `toml:"lambda_positive" range:"[0.0001,100]"`
	KNegative      float64 `toml:"k_negative" range:"[0,100]"`
	LambdaNegative float64 `toml:"lambda_negative" range:"[0.0001,100]"`
}

func init() {
	objectives.Register("vespo", func() objectives.Objective {
		return &vespo{
			TokenSum:  objectives.NewTokenSum("standardized", "token-mean"),
			KPositive: 2, LambdaPositive: 3, KNegative: 3, LambdaNegative: 2,
		}
	})
}

// phi returns the weight phi of a response.
func (o *vespo) phi(t *objectives.Trajectory) float64 {
	sum := 0.0
	for j, logp := range t.LogProb {
		sum += max(-20, min(logp-t.OldLogProb[j], 20))
	}
	sum = max(math.Log(1e-8), min(sum, 20))
	k, lambda := o.KPositive, o.LambdaPositive
	if t.Advantage < 0 {
		k, lambda = o.KNegative, o.LambdaNegative
	}
	return math.Exp(lambda + k*sum - lambda*math.Exp(sum))
}

// coefficients sets k to the advantages times phi.
func (o *vespo) coefficients(t *objectives.Trajectory, k []float64) {
	phi := o.phi(t)
	for j := range k {
		k[j] = t.AdvantageAt(j) * phi
	}
}

// Loss implements objectives.Objective; phi is detached.
func (o *vespo) Loss(b, at objectives.Batch) float64 { return o.Reinforce(b, at, o.coefficients) }

// Weights implements objectives.Objective.
func (o *vespo) Weights(b objectives.Batch, w [][]float64) { o.ReinforceWeights(b, w, o.coefficients) }
