package adamw

import "fmt"

// A LossScale is the factor that the loss, and so every gradient, is multiplied
// by where a model computes in float16, whose smallest numbers are larger than
// most gradients. It is found by trial: a step whose gradients overflow is not
// taken and halves the scale, and many steps without overflow double it
// (Micikevicius et al. 2018, section 3.2; the numbers are those of PyTorch's
// GradScaler). It is a power of two, so scaling alone rounds nothing.
type LossScale struct {
	// Scale multiplies dL/dlogp and dL/dentropy; it is divided out in
	// Norm2Scaled's unscale and in Step's clip.
	Scale float64 `json:"scale"`
	// Clean is how many steps have been taken since Scale last changed.
	Clean int `json:"clean"`
}

const (
	firstScale  = 1 << 16
	largest     = 1 << 24 // beyond, nothing is left to be gained
	growthSteps = 2000
)

// NewLossScale returns the scale to begin with.
func NewLossScale() LossScale { return LossScale{Scale: firstScale} }

// Update takes whether a step's gradients hold infinities or NaN, and says
// whether the step is to be taken. The error is that gradients overflow though
// nothing scales them: then float16 is not enough for the model.
func (s *LossScale) Update(found bool) (take bool, err error) {
	if found {
		if s.Scale <= 1 {
			return false, fmt.Errorf("adamw: gradients overflow float16 at a loss scale of %g: compute in bfloat16 or float32", s.Scale)
		}
		s.Scale, s.Clean = s.Scale/2, 0
		return false, nil
	}
	if s.Clean++; s.Clean >= growthSteps {
		s.Scale, s.Clean = min(2*s.Scale, largest), 0
	}
	return true, nil
}
