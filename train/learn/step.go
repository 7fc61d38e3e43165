package learn

import (
	"context"
	"errors"

	"onering/models"
	"onering/runtime"
	"onering/train/metrics"
)

// Step takes one optimizer step: Gradients, then Update with the batch's learning rate times what the loss says.
// After an error other than an *UpdateError the weights are unchanged.
func (s *Stepper) Step(ctx context.Context, b Batch, weigh Weigh) (Report, error) {
	r, err := s.Gradients(ctx, b, weigh)
	if err == nil {
		err = s.Update(r.Loss.rate(b.LearningRate))
	}
	return r, err
}

// Gradients computes the gradients of a batch, summed over the ranks, for Update. If memory runs out it begins again
// with smaller micro-batches, and if gradients overflow float16 with a smaller loss scale. Figures that are not finite
// are a *NonfiniteError. When ctx ends it stops before the next micro-batch.
func (s *Stepper) Gradients(ctx context.Context, b Batch, weigh Weigh) (Report, error) {
	defer s.observe(metrics.PhaseOther)
	if (weigh == nil) == (b.Weights == nil) { // both or neither
		return Report{}, errors.New("learn: a step needs either a batch's weights or a function that weighs it")
	}
	if err := b.givenLoss().Check(); err != nil {
		return Report{}, err
	}
	for {
		a := s.newAttempt(b, weigh)
		err := a.run(ctx)
		switch {
		case errors.Is(err, runtime.ErrOverflow):
			if err := s.scaling.halve(s.env, s.learner.Gradients, b.Number); err != nil {
				return a.Report, err
			}
		case s.outcome(err) == outOfMemory:
			s.limit.halve(err, "step", b.Number)
		case s.outcome(err) == joint:
			s.weighsJointly = true // for later steps, too
			s.options.Log.Warn("the objective says that it weighs each response by itself, but weights depend on the "+
				"log-probs of other responses: it is asked for whole batches from here on, which takes more memory and time; objectivetest says where", "step", b.Number)
		default:
			return a.Report, err
		}
	}
}

// givenLoss is the part of the loss that the batch gives before the forward pass.
func (b Batch) givenLoss() Loss { return Loss{LogProb: b.Weights, Entropy: b.EntropyWeights} }

// An UpdateError is an update that failed halfway: part of the weights and of the
// optimizer's state are updated, and the rest is not.
type UpdateError struct{ Err error }

func (e *UpdateError) Error() string { return e.Err.Error() }

func (e *UpdateError) Unwrap() error { return e.Err }

// Update clips the gradients that Gradients has computed and updates the weights with them. After an *UpdateError the
// weights belong to no step. If each rank updates a part, it receives the other parts.
func (s *Stepper) Update(rate float64) error {
	s.observe(metrics.PhaseOptimizer)
	defer s.observe(metrics.PhaseOther)
	clip := 1.0
	if most := s.options.MaxGradNorm; most > 0 {
		clip = min(1, most/(s.norm+1e-6)) // as torch.nn.utils.clip_grad_norm_ does
	}
	err := s.optimizer.Update(rate, clip)
	if err == nil {
		err = s.shareWeights()
	}
	if err != nil {
		return &UpdateError{err}
	}
	if x := s.scaling.scale; x != nil { // the loss scale, where layers compute in float16
		s.scaling.set(x.Counted(), s.optimizer.Updates) // the next step's, doubled after many steps without overflow
	}
	return nil
}

// WithoutScale calls use with the gradients that Gradients has computed, in the host's memory, divided by the loss
// scale and not clipped. Where there is a scale they are copies, so Update may follow.
func (s *Stepper) WithoutScale(use func([]models.Tensor) error) error {
	g := s.learner.Gradients
	if err := s.env.Download(g); err != nil {
		return err
	}
	tensors := g.Tensors()
	if s.scaling.scale != nil {
		for i, x := range tensors {
			tensors[i].Data = make([]float32, len(x.Data))
			for k, v := range x.Data {
				tensors[i].Data[k] = v / float32(s.scaling.scale.Scale)
			}
		}
	}
	return use(tensors)
}
