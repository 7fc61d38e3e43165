package objectives

import (
	"math"
)

// LogClip clips token log-ratios d in the log domain, as gmpo and pmpo do.
type LogClip struct {
	// Clip is the threshold c. Default 0.4.
	Clip float64 `toml:"clip" needs:"clip_mode!=none" range:"[0,)"`
	// ClipMode is token (default), sequence or none.
	ClipMode string `toml:"clip_mode" choice:"token sequence none"`
	// ClipForm decides which side is cut: pessimistic (default) or printed (D4).
	ClipForm string `toml:"clip_form" needs:"clip_mode=token" choice:"pessimistic printed"`
}

// Apply sets z[j] to the clipped log-ratio of token j of t and returns how many
// tokens were cut; a cut token passes no gradient on.
//
//	token        z = min(d, c) for A >= 0, max(d, -c) for A < 0 (pessimistic, D4, D5);
//	             the printed form exchanges the sides
//	sequence     S = sum d: where S > c (A >= 0) or S < -c (A < 0), every z is c/n or
//	             -c/n and every token counts as cut (D13). Always pessimistic
//	none         z = d
//
// It also returns how many |d| exceed eps, clipped or not (D10).
func (o LogClip) Apply(z []float64, t Trajectory, eps float64) (cut, saturated int) {
	lo, hi := math.Inf(-1), math.Inf(1)
	if o.ClipMode == "token" {
		if (t.Advantage >= 0) == (o.ClipForm == "pessimistic") {
			hi = o.Clip
		} else {
			lo = -o.Clip
		}
	}
	cut, saturated, sum := clampLogRatios(z, t, lo, hi, eps)
	if o.ClipMode == "sequence" {
		if each := o.sequence(sum, t.Advantage); each != sum {
			for j := range z {
				z[j] = each / float64(len(z))
			}
			cut = len(z)
		}
	}
	return cut, saturated
}

// clampLogRatios sets z[j] to the log-ratio of token j of t, clamped to [lo, hi]. It returns
// how many log-ratios lay outside, how many exceed eps in size, and the unclamped sum.
func clampLogRatios(z []float64, t Trajectory, lo, hi, eps float64) (cut, saturated int, sum float64) {
	logp, old := t.LogProb[:len(z)], t.OldLogProb[:len(z)]
	for j := range z {
		d := logp[j] - old[j]
		sum += d
		if math.Abs(d) > eps {
			saturated++
		}
		if d > hi {
			d = hi
			cut++
		} else if d < lo {
			d = lo
			cut++
		}
		z[j] = d
	}
	return cut, saturated, sum
}

// sequence clips the sum of a response's log-ratios.
func (o LogClip) sequence(sum, advantage float64) float64 {
	if advantage >= 0 {
		return min(sum, o.Clip)
	}
	return max(sum, -o.Clip)
}
