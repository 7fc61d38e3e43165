package objectives

import "math"

// Diagnostics are the figures that an objective reports for one trajectory. Fields
// that it does not report are nil and left out of JSON.
type Diagnostics struct {
	Advantage float64 `json:"advantage"`
	// P is the exponent of the power mean.
	P *float64 `json:"p,omitempty"`
	// ESS is the normalized effective sample size of the token weights at P, in [1/n, 1].
	ESS *float64 `json:"ess,omitempty"`
	// TargetESS is eta*, the target that P was chosen to meet.
	TargetESS *float64 `json:"target_ess,omitempty"`
	// ClipFraction is f, the share of tokens with |d| > eps_ess (D10).
	ClipFraction *float64 `json:"clip_fraction,omitempty"`
	// Clipped is the share of tokens that the training clip cuts.
	Clipped *float64 `json:"clipped,omitempty"`
	// Ratio is the effective ratio of the whole response, LogRatio its logarithm.
	Ratio    *float64 `json:"ratio,omitempty"`
	LogRatio *float64 `json:"log_ratio,omitempty"`
	// ESSAtPMax is ESS at the largest allowed exponent, and AtPMax says that P is that exponent.
	ESSAtPMax *float64 `json:"ess_at_p_max,omitempty"`
	AtPMax    *bool    `json:"at_p_max,omitempty"`
}

// Fraction returns part/whole for a field of Diagnostics, 0 if whole is 0.
func Fraction(part, whole int) *float64 {
	if whole == 0 {
		return new(float64)
	}
	return new(float64(part) / float64(whole))
}

// SetLogRatio sets LogRatio and Ratio. Ratio stays nil if it overflows.
func (d *Diagnostics) SetLogRatio(logRatio float64) {
	d.LogRatio = new(logRatio)
	if r := math.Exp(logRatio); !math.IsInf(r, 0) {
		d.Ratio = new(r)
	}
}
