package learn

import (
	"errors"
	"fmt"

	"onering/models"
	"onering/runtime"
)

// CheckWeights returns an error that names the first of the ring's weights, or of its adapter's, that is not finite,
// on the host or a device. It copies them to the host one after the other.
func (s *Stepper) CheckWeights() error {
	weights := []*models.Weights{s.ring.Weights}
	if s.ring.Adapter != nil {
		weights = append(weights, s.ring.Adapter)
	}
	for _, w := range weights {
		if err := s.env.Download(w); err != nil {
			return err
		}
		err := CheckWeights(w)
		s.env.Forget(w) // frees only the host's copy of what a device has
		if err != nil {
			return err
		}
	}
	return nil
}

// Explain adds the origin to a *NonfiniteError about scores, and returns err: a weight, or the first layer
// whose output overflows. sequences are those that the error counts.
func (s *Stepper) Explain(err error, sequences []runtime.Sequence) error {
	if found, ok := errors.AsType[*NonfiniteError](err); ok && len(found.Sequences) > 0 {
		found.Cause = s.Cause(sequences[found.Sequences[0]])
	}
	return err
}

// Cause looks for the origin of a sequence's scores that are not finite, by a forward pass of it alone, and returns it
// as text; "" if they are finite.
func (s *Stepper) Cause(x runtime.Sequence) string {
	if err := s.CheckWeights(); err != nil {
		if at, ok := errors.AsType[*runtime.NotFiniteError](err); ok {
			return fmt.Sprintf("the weight %s is %v at element %d", at.Tensor, at.Value, at.Index)
		}
	}
	p, err := s.learner.Forward([]runtime.Sequence{x}, s.options.Temperature, true)
	if err != nil {
		return err.Error()
	}
	defer p.Release()
	if (Scores{LogProb: [][]float64{Float64s(p.LogProb[0])}, Entropy: [][]float64{Float64s(p.Entropy[0])}}).Check("") == nil {
		return ""
	}
	switch layer, ok := p.FirstNonFinite(); {
	case !ok:
		return "all weights and the outputs of all layers are finite: the logits overflow"
	case layer < 0:
		return "all weights are finite, but not the embedding of its tokens"
	default:
		return fmt.Sprintf("all weights are finite, but not the output of layer %d", layer)
	}
}
