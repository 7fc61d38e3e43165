package objectives

import (
	"math"
	"slices"
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

// ClippedLogRatios are the log-ratios of one response after a clip; the zero value is ready for Read, which may be called
// again for the next response.
type ClippedLogRatios struct {
	Z []float64
	// Cut is the number of tokens that the clip cut; a cut token passes no gradient on. Saturated is the number of
	// tokens with |d| above the threshold given to Read.
	Cut, Saturated int
}

// Read replaces the contents by the log-ratios of t, clipped by clip:
//
//	token        z = min(d, c) for A >= 0, max(d, -c) for A < 0 (pessimistic, D4, D5);
//	             the printed form exchanges the sides
//	sequence     S = sum d: where S > c (A >= 0) or S < -c (A < 0), every z is c/n or
//	             -c/n and every token counts as cut (D13). Always pessimistic
//	none         z = d
//
// Tokens with |d| > eps, clipped or not, count as saturated (D10).
func (c *ClippedLogRatios) Read(clip LogClip, t Trajectory, eps float64) {
	lo, hi := math.Inf(-1), math.Inf(1)
	if clip.ClipMode == "token" {
		if (t.Advantage >= 0) == (clip.ClipForm == "pessimistic") {
			hi = clip.Clip
		} else {
			lo = -clip.Clip
		}
	}
	sum := c.ReadWithin(t, lo, hi, eps)
	clipped := max(sum, -clip.Clip)
	if t.Advantage >= 0 {
		clipped = min(sum, clip.Clip)
	}
	if clip.ClipMode == "sequence" && clipped != sum {
		for j := range c.Z {
			c.Z[j] = clipped / float64(len(c.Z))
		}
		c.Cut = len(c.Z)
	}
}

// ReadWithin replaces the contents by the log-ratios of t, clamped to [lo, hi], and returns their sum before that. Tokens
// with a log-ratio beyond eps count as saturated.
func (c *ClippedLogRatios) ReadWithin(t Trajectory, lo, hi, eps float64) (sum float64) {
	n := len(t.LogProb)
	z, old := slices.Grow(c.Z[:0], n)[:n], t.OldLogProb[:n]
	cut, saturated := 0, 0
	for j, logp := range t.LogProb {
		d := logp - old[j]
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
	c.Z, c.Cut, c.Saturated = z, cut, saturated
	return sum
}

// Gate zeroes the elements of w whose token was cut when the log-ratios of t were read.
func (c *ClippedLogRatios) Gate(w []float64, t Trajectory) {
	switch c.Cut {
	case 0:
		return
	case len(c.Z):
		clear(w)
		return
	}
	for j := range w {
		if c.Z[j] != t.LogProb[j]-t.OldLogProb[j] {
			w[j] = 0
		}
	}
}
