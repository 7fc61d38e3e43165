package opd_test

import (
	"math"
	"testing"

	"onering/objectives"
	"onering/objectives/objectivetest"
	_ "onering/objectives/opd"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "opd") }

// TestReverseKL: on policy, the mean of a token's weight times its score over the
// tokens that the policy draws is the derivative of KL(policy, teacher) by its logits.
func TestReverseKL(t *testing.T) {
	o, err := objectives.New("opd")
	if err != nil {
		t.Fatal(err)
	}
	logits, teacher := []float64{0.3, -1, 0.8, 2}, []float64{1, 0.2, -0.4, 0.1}
	logSoftmax := func(x []float64) []float64 {
		sum := 0.0
		for _, v := range x {
			sum += math.Exp(v)
		}
		out := make([]float64, len(x))
		for i, v := range x {
			out[i] = v - math.Log(sum)
		}
		return out
	}
	kl := func(x []float64) (sum float64) {
		q := logSoftmax(teacher)
		for i, logp := range logSoftmax(x) {
			sum += math.Exp(logp) * (logp - q[i])
		}
		return sum
	}
	p, q := logSoftmax(logits), logSoftmax(teacher)
	got := make([]float64, len(logits))
	for drawn := range logits {
		w := [][]float64{{0}}
		o.Weights(objectives.Batch{Trajectories: []objectives.Trajectory{{
			LogProb: p[drawn : drawn+1], OldLogProb: p[drawn : drawn+1], RefLogProb: q[drawn : drawn+1],
		}}}, w)
		for i := range logits { // dLogProb[drawn]/dlogit[i] = [i = drawn] - p[i]
			score := -math.Exp(p[i])
			if i == drawn {
				score++
			}
			got[i] += math.Exp(p[drawn]) * w[0][0] * score
		}
	}
	const h = 1e-5
	for i := range logits {
		up, down := append([]float64{}, logits...), append([]float64{}, logits...)
		up[i] += h
		down[i] -= h
		if want := (kl(up) - kl(down)) / (2 * h); math.Abs(got[i]-want) > 1e-8 {
			t.Errorf("logit %d: %v, want %v", i, got[i], want)
		}
	}
}
