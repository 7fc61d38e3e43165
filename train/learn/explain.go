package learn

import (
	"errors"
	"fmt"

	"onering/models"
	"onering/runtime"
)

// An explainer finds out where figures that are not finite come from.
type explainer struct {
	env         *runtime.Env
	weights     []*models.Weights // of the model, and the adapter's where there is one
	learner     *runtime.Learner
	temperature float64
}

// CheckWeights names the first of the ring's weights that is not finite, wherever
// they lie.
func (e explainer) CheckWeights() error {
	for _, w := range e.weights {
		if err := e.env.Download(w); err != nil {
			return err
		}
		err := CheckWeights(w)
		if e.env.Forget(w); err != nil {
			return err
		}
	}
	return nil
}

// Explain adds to a *NonfiniteError about scores where those come from: a weight,
// or the first layer whose output overflows. Sequences are those that the error
// counts.
func (e explainer) Explain(err error, sequences []runtime.Sequence) error {
	var found *NonfiniteError
	if errors.As(err, &found) && len(found.Sequences) > 0 {
		found.Cause = e.Cause(sequences[found.Sequences[0]])
	}
	return err
}

// Cause says where the scores of a sequence that are not finite come from; "" where
// they are finite.
func (e explainer) Cause(x runtime.Sequence) string {
	if err := e.CheckWeights(); err != nil {
		var at *runtime.NotFiniteError
		if errors.As(err, &at) {
			return fmt.Sprintf("the weight %s is %v at element %d", at.Tensor, at.Value, at.Index)
		}
	}
	p, err := e.learner.Forward([]runtime.Sequence{x}, e.temperature, true)
	if err != nil {
		return err.Error()
	}
	defer p.Release()
	if (Scores{LogProb: [][]float64{float64s(p.LogProb[0])}, Entropy: [][]float64{float64s(p.Entropy[0])}}).Check("") == nil {
		return ""
	}
	switch layer, _, ok := p.FirstNonFinite(); {
	case !ok:
		return "all weights and the outputs of all layers are finite: the logits overflow"
	case layer < 0:
		return "all weights are finite, but not the embedding of its tokens"
	default:
		return fmt.Sprintf("all weights are finite, but not the output of layer %d", layer)
	}
}
