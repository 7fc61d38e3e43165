package learn

import (
	"errors"
	"fmt"
	"log/slog"

	"onering/models"
	"onering/runtime"
)

// A LossScale is the factor that the loss, and so every gradient, is multiplied
// by where a model computes in float16, whose smallest numbers are larger than
// most gradients. It is found by trial: a step whose gradients overflow is
// computed again with half the scale, and many steps without overflow double it
// (Micikevicius et al. 2018, section 3.2; the numbers are those of PyTorch's
// GradScaler). It is a power of two, so scaling alone rounds nothing.
type LossScale struct {
	// Scale multiplies dLoss/dlogp and dLoss/dentropy. It is divided out of the
	// gradients' norm and, in the optimizer's update, of each gradient.
	Scale float64 `json:"scale"`
	// Clean is the number of steps since Scale last changed.
	Clean int `json:"clean"`
}

const (
	firstScale  = 1 << 16 // the scale at the beginning
	largest     = 1 << 24 // a larger scale saves no more gradients from underflow
	growthSteps = 2000
)

// Halved is the scale to use after gradients overflowed. The error is that they
// overflow though nothing scales them: then float16 is not enough for the model.
func (s LossScale) Halved() (LossScale, error) {
	if s.Scale <= 1 {
		return s, fmt.Errorf("learn: gradients overflow float16 at a loss scale of %g: compute in bfloat16 or float32", s.Scale)
	}
	return LossScale{Scale: s.Scale / 2}, nil
}

// Counted is the scale to use after an update.
func (s LossScale) Counted() LossScale {
	if s.Clean++; s.Clean >= growthSteps {
		return LossScale{Scale: min(2*s.Scale, largest)}
	}
	return s
}

// A lossScaling is the loss scale of a ring's gradients.
type lossScaling struct {
	scale *LossScale // nil where layers do not compute in float16
	ring  *runtime.Ring
	log   *slog.Logger
}

// halve prepares the attempt that follows gradients that overflowed in a step.
func (s *lossScaling) halve(env *runtime.Env, gradients *models.Weights, step int) error {
	next, err := s.scale.Halved()
	if err != nil {
		at := &NonfiniteError{What: "a gradient in float16", Value: inf, Cause: err.Error()}
		if failed := env.Download(gradients); failed != nil {
			return errors.Join(at, failed)
		}
		if found, ok := errors.AsType[*runtime.NotFiniteError](CheckWeights(gradients)); ok {
			at.Tensor = found.Tensor
		}
		return at
	}
	s.set(next, step)
	return nil
}

// set sets what gradients are multiplied by. The old value is not overwritten, since a
// checkpoint may be written from it meanwhile.
func (s *lossScaling) set(x LossScale, step int) {
	if s.scale != nil && s.scale.Scale != x.Scale {
		s.log.Debug("the loss scale changes", "step", step, "from", s.scale.Scale, "to", x.Scale)
	}
	s.scale = &x
	s.ring.LossScale = x.Scale
}
