package objectives

// A RatioBound clips a ratio to [1 - clip_low, 1 + clip_high] as PPO does: a token's
// ratio in RatioClip, a response's in gspo.
type RatioBound struct {
	// ClipLow and ClipHigh bound the ratio; clip_low = 1 leaves it unbounded below.
	ClipLow  float64 `toml:"clip_low" needs:"clip_mode=sequence clip_mode=token" range:"[0,1]"`
	ClipHigh float64 `toml:"clip_high" needs:"clip_mode!=none" range:"[0,)"`
}

// Bound returns the clipped ratio and whether the clip cut it. It bounds the ratio only
// on the side to which the advantage pushes it, so that
//
//	Bound(r) A = min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)
func (o RatioBound) Bound(r, advantage float64) (bounded float64, cut bool) {
	switch {
	case advantage > 0 && r > 1+o.ClipHigh:
		return 1 + o.ClipHigh, true
	case advantage < 0 && r < 1-o.ClipLow:
		return 1 - o.ClipLow, true
	}
	return r, false
}
