package report

import (
	"strconv"

	"onering/objectives"
)

// exponentSteps is the number of exponents, from 0 on, at which ESS is taken;
// exponentResponses bounds the responses of a round that it is taken of.
const (
	exponentSteps     = 20
	exponentResponses = 200
)

// An essTally sums what ESS would have been at each exponent on a run's own
// responses, by the sign of their advantage: first the positive ones.
type essTally struct {
	top    float64 // the largest exponent
	ess    [2][exponentSteps + 1]float64
	target [2]float64 // the paper's: 1/n + f (1 - 1/n)
	n      [2]int
}

// tallyESS adds responses that have an advantage and log-ratios. These are clipped
// as the run's objective clips them, or as PMPO does by default.
func (r *Run) tallyESS(lines []rolloutLine) {
	setting := func(key string, otherwise float64) float64 {
		if x, err := strconv.ParseFloat(r.Config["objective."+key], 64); err == nil {
			return x
		}
		return otherwise
	}
	clip := objectives.DefaultLogClip()
	clip.Clip = setting("clip", clip.Clip)
	if mode := r.Config["objective.clip_mode"]; mode != "" {
		clip.ClipMode = mode
	}
	if form := r.Config["objective.clip_form"]; form != "" {
		clip.ClipForm = form
	}
	eps := setting("eps_ess", 0.1)
	t := &r.ess
	t.top = max(1, setting("p_max", 1))
	stride := max(1, len(lines)/exponentResponses)
	for i := 0; i < len(lines); i += stride {
		l := &lines[i]
		n := len(l.Delta)
		if n == 0 || l.Advantage == 0 {
			continue
		}
		x := objectives.Trajectory{Advantage: l.Advantage, LogProb: make([]float64, n), OldLogProb: make([]float64, n)}
		for j, d := range l.Delta {
			x.LogProb[j] = float64(d)
		}
		z := make([]float64, n)
		_, beyond := clip.Apply(z, x, eps)
		sign := 0
		if l.Advantage < 0 {
			sign = 1
		}
		t.n[sign]++
		f, least := float64(beyond)/float64(n), 1/float64(n)
		t.target[sign] += least + f*(1-least)
		for k := range t.ess[sign] {
			t.ess[sign][k] += objectives.ESS(z, t.top*float64(k)/exponentSteps)
		}
	}
}

// reach draws ESS over p on the runs' own responses, and the target that the
// paper's rule sets for it.
func reach(groups []*group) (figure, bool) {
	f := figure{
		ID: "ess-over-p", Title: "ESS over p", X: "p", Kind: "line",
		Note: "Means over responses. Solid: positive advantage. Dashed: negative. Dotted: the paper's target; below the curve, no p meets it.",
	}
	for k, g := range groups {
		for sign, t := range []trace{{"", "A > 0", ""}, {"", "A < 0", "dashed"}} {
			var curve points
			var sum essTally
			for _, r := range g.runs {
				if r.ess.n[sign] == 0 || sum.top != 0 && r.ess.top != sum.top {
					continue // exponents of another range cannot be averaged with these
				}
				sum.top = r.ess.top
				sum.n[sign] += r.ess.n[sign]
				sum.target[sign] += r.ess.target[sign]
				for i, v := range r.ess.ess[sign] {
					sum.ess[sign][i] += v
				}
			}
			n := float64(sum.n[sign])
			if n == 0 {
				continue
			}
			for i, v := range sum.ess[sign] {
				curve = append(curve, [2]float64{sum.top * float64(i) / exponentSteps, v / n})
			}
			f.add(g.name, t, curve, k, false)
			target := sum.target[sign] / n
			f.add(g.name, trace{"", "target, " + t.label, "dotted"}, points{{0, target}, {sum.top, target}}, k, false)
		}
	}
	if len(f.series) == 0 {
		return f, false
	}
	c := newLine(shares)
	c.MultiSeries = f.series
	f.Chart = c.JSON()
	return f, true
}
