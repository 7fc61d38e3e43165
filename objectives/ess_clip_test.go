package objectives_test

import (
	"math/rand/v2"
	"testing"

	"onering/objectives"
	"onering/objectives/means"
)

// TestESSOverP: for normal log-ratios of four spreads the effective sample size falls with p,
// from 1 at p = 0, and the clip of training, which leaves one side open, keeps it higher.
// runs/results/ess-over-p.svg shows the curves.
func TestESSOverP(t *testing.T) {
	const tokens, responses, most, points = 800, 20, 4.0, 40
	for i, spread := range []float64{0.05, 0.2, 0.5, 1} {
		var plain [points + 1]float64
		for k, advantage := range []float64{1, 1, -1} {
			clip := objectives.DefaultClippedMean("centered").LogClip
			if k == 0 {
				clip.ClipMode = "none"
			}
			var ess [points + 1]float64
			r := rand.New(rand.NewPCG(1, uint64(i))) // with and without clip on the same log-ratios
			for range responses {
				x := objectives.Trajectory{Advantage: advantage, LogProb: make([]float64, tokens), OldLogProb: make([]float64, tokens)}
				for j := range x.LogProb {
					x.LogProb[j] = spread * r.NormFloat64()
				}
				var c objectives.ClippedLogRatios
				c.Read(clip, x, 0.1)
				for j := range ess {
					ess[j] += means.ESS(c.Z, most*float64(j)/points) / responses
				}
			}
			if k == 0 {
				plain = ess
			}
			for j, y := range ess {
				if j == 0 && y < 1-1e-9 || j > 0 && y >= ess[j-1] || y < plain[j]-1e-9 {
					t.Errorf("spread %v, mode %s, A = %v: ESS(%.1f) = %v", spread, clip.ClipMode, advantage, most*float64(j)/points, y)
				}
			}
		}
	}
}
