package objectives

// A RatioBound clips a ratio to [1 - clip_low, 1 + clip_high] as PPO does: a token's
// ratio in policy, a response's in gspo. A ratio above clip_dual, in a response of
// negative advantage, is clipped too (D49): the ratio there has no other upper bound.
type RatioBound struct {
	// ClipLow and ClipHigh bound the ratio; clip_low = 1 leaves it unbounded below.
	ClipLow  float64 `toml:"clip_low" needs:"clip_mode=sequence clip_mode=token,bound!=none,measure!=k3,measure!=budget,measure!=moment" range:"[0,1]"`
	ClipHigh float64 `toml:"clip_high" needs:"clip_mode!=none,bound!=none" range:"[0,)"`
	// ClipDual is that bound; 0 (default) is none.
	ClipDual float64 `toml:"clip_dual" needs:"clip_mode=sequence,list=none,weight=ratio gate!=none" range:"[0,)"`
}

// CheckDual refuses a clip_dual that would cut every ratio above 1 and less.
func (o RatioBound) CheckDual() error {
	if o.ClipDual > 0 && o.ClipDual <= 1 {
		return &SettingError{Key: "clip_dual", Value: o.ClipDual, Remedy: "must be above 1, or 0 for none"}
	}
	return nil
}

// Bounded returns the clipped ratio and whether the clip cut it. It bounds the ratio only
// on the side to which the advantage pushes it, so that
//
//	Bounded(r) A = max(min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), clip_dual A if A < 0)
func (o RatioBound) Bounded(r, advantage float64) (bounded float64, cut bool) {
	if advantage < 0 {
		return o.below(r)
	}
	if advantage > 0 && r > 1+o.ClipHigh {
		return 1 + o.ClipHigh, true
	}
	return r, false
}

// below is Bounded for a negative advantage.
func (o RatioBound) below(r float64) (bounded float64, cut bool) {
	switch {
	case r < 1-o.ClipLow:
		return 1 - o.ClipLow, true
	case o.ClipDual != 0 && r > o.ClipDual:
		return o.ClipDual, true
	}
	return r, false
}
