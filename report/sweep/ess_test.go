package sweep

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"onering/objectives"
)

var update = flag.Bool("update", false, "write anew what the tests compare in docs")

// TestESSOverP: runs/results/ess-over-p.svg is the PMPO paper's figure of the effective sample
// size over p, for normal log-ratios of four spreads. The first panel is without clip, as
// in the paper; the others have the clip of training, which leaves one side open. ESS
// falls along every curve, from 1 at p = 0, and the clip keeps it higher.
func TestESSOverP(t *testing.T) {
	const tokens, responses, most, points = 800, 20, 4.0, 40
	spreads := []float64{0.05, 0.2, 0.5, 1}
	names := make([]string, len(spreads))
	panels := []panel{{Title: "ESS, no clip", X: "p"}, {Title: "ESS, clip of 0.4, A > 0", X: "p"}, {Title: "ESS, clip of 0.4, A < 0", X: "p"}}
	for k := range panels {
		clip, advantage := objectives.DefaultClippedMean("centered").LogClip, 1.0
		switch k {
		case 0:
			clip.ClipMode = "none"
		case 2:
			advantage = -1
		}
		for i, spread := range spreads {
			names[i] = fmt.Sprintf("standard deviation %v", spread)
			l := line{Variant: names[i], Points: make([][2]float64, points+1)}
			r := rand.New(rand.NewPCG(1, uint64(i))) // Every panel has the same log-ratios.
			for range responses {
				x := objectives.Trajectory{Advantage: advantage, LogProb: make([]float64, tokens), OldLogProb: make([]float64, tokens)}
				for j := range x.LogProb {
					x.LogProb[j] = spread * r.NormFloat64()
				}
				z := make([]float64, tokens)
				clip.Apply(z, x, 0.1)
				for j := range l.Points {
					p := most * float64(j) / points
					l.Points[j][0] = p
					l.Points[j][1] += objectives.ESS(z, p) / responses
				}
			}
			for j, xy := range l.Points {
				if j == 0 && xy[1] < 1-1e-9 || j > 0 && xy[1] >= l.Points[j-1][1] || k > 0 && xy[1] < panels[0].Lines[i].Points[j][1]-1e-9 {
					t.Errorf("%s, %s: ESS(%.1f) = %v", panels[k].Title, l.Variant, xy[0], xy[1])
				}
			}
			panels[k].Lines = append(panels[k].Lines, l)
		}
	}
	var b strings.Builder
	if err := sweepDynamics(&b, names, panels); err != nil {
		t.Fatal(err)
	}
	const file = "../../runs/results/ess-over-p.svg"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(file); err != nil || string(have) != b.String() {
		t.Errorf("%s is another figure (%v): go test ./report/sweep -run TestESSOverP -update", file, err)
	}
}
