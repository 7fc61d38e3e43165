package report

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"onering/objectives"
	"onering/objectives/means"
	"onering/train/rundir"
)

const (
	exponentSteps     = 20  // ESS is computed at exponents 0, 1/20, 2/20, ... of the largest
	exponentResponses = 200 // ESS is computed for about this many responses of a round
)

// An essTally sums, over a run's own responses, the effective sample size (ESS) that each exponent p would have
// given. Index 0 is for responses with a positive advantage, index 1 for those with a negative one.
type essTally struct {
	maxP   float64 // the largest exponent
	ess    [2][exponentSteps + 1]float64
	target [2]float64 // the PMPO paper's target: 1/n + f (1 - 1/n)
	n      [2]int     // number of responses
}

// tallyESS adds to r.ess the responses of a round that have an advantage and log-ratios (Delta). It clips the
// log-ratios as the run's objective does. A setting that the objective lacks has the default value of PMPO.
func (r *Run) tallyESS(lines []rolloutLine) {
	setting := func(key string, byDefault float64) float64 {
		if x, err := strconv.ParseFloat(r.Config["objective."+key], 64); err == nil {
			return x
		}
		return byDefault
	}
	clip := objectives.DefaultClippedMean("centered").LogClip
	clip.Clip = setting("clip", clip.Clip)
	clip.ClipMode = cmp.Or(r.Config["objective.clip_mode"], clip.ClipMode)
	clip.ClipForm = cmp.Or(r.Config["objective.clip_form"], clip.ClipForm)
	eps := setting("eps_ess", 0.1)
	t := &r.ess
	t.maxP = max(1, setting("p_max", 1))
	stride := max(1, len(lines)/exponentResponses)
	for i := 0; i < len(lines); i += stride {
		l := &lines[i]
		delta := rundir.Sampled(l.Turns, l.Delta) // of the policy's own tokens
		n := len(delta)
		if n == 0 || l.Advantage == 0 {
			continue
		}
		x := objectives.Trajectory{Advantage: l.Advantage, LogProb: make([]float64, n), OldLogProb: make([]float64, n)}
		for j, d := range delta {
			x.LogProb[j] = float64(d) // beside an OldLogProb of 0 it is the log-ratio
		}
		var c objectives.ClippedLogRatios
		c.Read(clip, x, eps)
		sign := 0
		if l.Advantage < 0 {
			sign = 1
		}
		t.n[sign]++
		f, least := float64(c.Saturated)/float64(n), 1/float64(n) // the PMPO paper's target is 1/n + f (1 - 1/n)
		t.target[sign] += least + f*(1-least)
		for k := range t.ess[sign] {
			t.ess[sign][k] += means.ESS(c.Z, t.maxP*float64(k)/exponentSteps)
		}
	}
}

// extent returns the smallest and the largest value of the points of all series but targets.
func (f *figure) extent(value func(xy [2]float64) float64) (least, most float64) {
	least, most = math.Inf(1), math.Inf(-1)
	for i, s := range f.series {
		if !strings.HasPrefix(f.Labels[i], "target") {
			for _, xy := range s.Data.(points) {
				least, most = min(least, value(xy)), max(most, value(xy))
			}
		}
	}
	return least, most
}

// essOverExponent draws the ESS that each p gives on the runs' own responses, and
// the target that the PMPO paper's rule sets.
func essOverExponent(groups []*group) figure {
	f := figure{
		ID: "ess-over-p", Title: "ESS over p", X: "p", Kind: "line",
		Note: "Means over responses. Solid: positive advantage. Dashed: negative advantage. Dotted: the PMPO paper's " +
			"target. If the target is below the whole curve, no p reaches it.",
	}
	for k, g := range groups {
		for sign, t := range []trace{{label: "A > 0"}, {label: "A < 0", dash: "dashed"}} {
			var curve points
			var sum essTally
			for _, r := range g.runs {
				if r.ess.n[sign] == 0 || sum.maxP != 0 && r.ess.maxP != sum.maxP {
					continue // it has no such responses, or exponents of another range, which cannot be averaged
				}
				sum.maxP = r.ess.maxP
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
				curve = append(curve, [2]float64{sum.maxP * float64(i) / exponentSteps, v / n})
			}
			f.add(g.name, t, curve, k, false)
			target := sum.target[sign] / n
			f.add(g.name, trace{label: "target, " + t.label, dash: "dotted"}, points{{0, target}, {sum.maxP, target}}, k, false)
		}
	}
	if least, most := f.extent(func(xy [2]float64) float64 { return xy[1] }); most-least <= 0.01 {
		return f.replacedBy(fmt.Sprintf("ESS was %.3g at every p: the log-ratios of a response's tokens hardly differ, as before a round's first step.", most))
	}
	return f.drawLines(zeroToOne)
}
