package learn

import (
	"context"
	"errors"
	"slices"

	"onering/models"
	"onering/runtime"
)

// Step takes one optimizer step: Gradients, then Update with the batch's learning
// rate. With an error other than an *UpdateError the weights are as they were.
func (s *Stepper) Step(ctx context.Context, b Batch, weigh Weigh) (Report, error) {
	r, err := s.Gradients(ctx, b, weigh)
	if err == nil {
		err = s.Update(b.LearningRate)
	}
	return r, err
}

// Gradients computes the gradients of a batch, summed over the ranks, for Update.
// When memory ends it begins again with smaller micro-batches, and when gradients
// overflow float16 with a smaller loss scale. Figures that are not finite are a
// *NonfiniteError. When ctx ends it stops before the next micro-batch.
func (s *Stepper) Gradients(ctx context.Context, b Batch, weigh Weigh) (Report, error) {
	defer s.observe(Idle)
	if (weigh == nil) == (b.Weights == nil) {
		return Report{}, errors.New("learn: a step needs either a batch's weights or a function that weighs it")
	}
	if err := b.known().Check(); err != nil {
		return Report{}, err
	}
	for {
		r, err := s.attempt(ctx, b, weigh)
		switch {
		case errors.Is(err, runtime.ErrOverflow):
			if err := s.halveScale(b.Number); err != nil {
				return r, err
			}
		case s.outcome(err) == OutOfMemory:
			s.halve(err, "step", b.Number)
		default:
			return r, err
		}
	}
}

// known is what is known of the batch's loss before the forward pass.
func (b Batch) known() Loss { return Loss{LogProb: b.Weights, Entropy: b.EntropyWeights} }

// An UpdateError is an update that failed in the middle: part of the weights and
// of the optimizer's state are those after it, the others those before.
type UpdateError struct{ Err error }

func (e *UpdateError) Error() string { return e.Err.Error() }

func (e *UpdateError) Unwrap() error { return e.Err }

// Update clips the gradients that Gradients has left and updates the weights.
func (s *Stepper) Update(rate float64) error {
	s.observe(Updating)
	defer s.observe(Idle)
	clip := 1.0
	if most := s.options.MaxGradNorm; most > 0 {
		clip = min(1, most/(s.norm+1e-6)) // as torch.nn.utils.clip_grad_norm_ does
	}
	if err := s.optimizer.Update(rate, clip); err != nil {
		return &UpdateError{err}
	}
	if s.scale != nil {
		s.setScale(s.scale.Counted(), s.optimizer.Updates)
	}
	return nil
}

// attempt computes the gradients of a batch once.
func (s *Stepper) attempt(ctx context.Context, b Batch, weigh Weigh) (Report, error) {
	micro := microBatches(b.Sequences, b.Live, s.microTokens)
	r := Report{Scores: newScores(len(b.Sequences)), MicroBatches: len(micro)}
	for _, x := range b.Sequences {
		r.Tokens += len(x.Tokens) - x.Prompt
	}
	if s.scale != nil {
		r.LossScale = s.scale.Scale
	}
	var err error
	if weigh == nil {
		err = s.passByPass(ctx, b, micro, &r)
	} else {
		err = s.allForward(ctx, b, micro, &r, weigh)
	}
	if err != nil {
		return r, err
	}
	if err := s.options.Ranks.Sum(ctx, s.learner.Gradients); err != nil {
		return r, err
	}
	if s.optimizer == nil {
		return r, nil
	}
	s.observe(Updating)
	if s.norm, err = s.optimizer.GradNorm(); err != nil && !errors.Is(err, runtime.ErrOverflow) {
		err = gradientError(err)
	}
	r.GradNorm = s.norm
	return r, err
}

// passByPass computes the gradients of a batch whose weights are known: each
// micro-batch forward and backward at once, so memory holds one pass only.
func (s *Stepper) passByPass(ctx context.Context, b Batch, micro [][]int, r *Report) error {
	compute := func() error {
		r.Loss = b.known()
		s.learner.ZeroGradients()
		for _, group := range micro {
			loss, err := s.onePass(ctx, b, group, r)
			if err != nil {
				return err
			}
			r.Loss.Value += loss
		}
		return r.Loss.Check()
	}
	return s.agree(ctx, compute())
}

// onePass takes one micro-batch forward and backward and returns its part of the
// loss.
func (s *Stepper) onePass(ctx context.Context, b Batch, group []int, r *Report) (loss float64, err error) {
	s.observe(Forward)
	p, err := s.forward(ctx, s.learner, b.Sequences, group, true, r.Scores)
	if err != nil {
		return 0, err
	}
	defer p.Release()
	if err := r.Scores.finite("", group); err != nil {
		return 0, s.Explain(err, b.Sequences)
	}
	for _, i := range group {
		for t, x := range r.LogProb[i] {
			loss += b.Weights[i][t] * x
		}
	}
	s.observe(Backward)
	return loss, s.backward(p, group, r.Loss)
}

// allForward computes the gradients of a batch whose weights depend on the scores
// of all its sequences: all micro-batches forward, then the loss, then all
// backward.
func (s *Stepper) allForward(ctx context.Context, b Batch, micro [][]int, r *Report, weigh Weigh) error {
	passes := make([]*runtime.Pass, len(micro))
	defer func() {
		for _, p := range passes {
			if p != nil {
				p.Release()
			}
		}
	}()
	s.observe(Forward)
	// All ranks have their scores before any weighs them: weigh may need those of
	// the other ranks.
	if err := s.agree(ctx, s.forwardAll(ctx, b, micro, r, passes)); err != nil {
		return err
	}
	compute := func() (err error) {
		s.observe(Weighing)
		if r.Loss, err = weigh(r.Scores); err != nil {
			return err
		}
		if err := r.Loss.Check(); err != nil {
			return err
		}
		s.observe(Backward)
		s.learner.ZeroGradients()
		// The newest pass is the first: its memory serves those whose layers are
		// computed again.
		for i, group := range slices.Backward(micro) {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := s.backward(passes[i], group, r.Loss); err != nil {
				return err
			}
			passes[i].Release()
			passes[i] = nil
		}
		return nil
	}
	return s.agree(ctx, compute())
}

// forwardAll sets the scores of a batch and the passes of its micro-batches.
func (s *Stepper) forwardAll(ctx context.Context, b Batch, micro [][]int, r *Report, passes []*runtime.Pass) (err error) {
	budget := KeptBytes(s.ring.Arch.Geometry(), len(s.ring.Weights.Data))
	for i, group := range micro {
		size := s.learner.Bytes(tokens(b.Sequences, group))
		// The last pass has its backward pass first: it may always keep.
		keep := b.live(group[0]) && (size <= budget || i == len(micro)-1)
		if keep {
			budget -= size
		}
		if passes[i], err = s.forward(ctx, s.learner, b.Sequences, group, keep, r.Scores); err != nil {
			return err
		}
	}
	if err := r.Scores.finite("", nil); err != nil {
		return s.Explain(err, b.Sequences)
	}
	return nil
}

// forward sets the scores of one micro-batch.
func (s *Stepper) forward(ctx context.Context, l *runtime.Learner, sequences []runtime.Sequence, group []int, keep bool, out Scores) (*runtime.Pass, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.options.BeforePass != nil {
		if err := s.options.BeforePass(tokens(sequences, group)); err != nil {
			return nil, err
		}
	}
	part := make([]runtime.Sequence, len(group))
	for k, i := range group {
		part[k] = sequences[i]
	}
	p, err := l.Forward(part, s.options.Temperature, keep)
	if err != nil {
		return nil, err
	}
	for k, i := range group {
		out.LogProb[i], out.Entropy[i] = float64s(p.LogProb[k]), float64s(p.Entropy[k])
	}
	return p, nil
}

// backward adds the gradients of one micro-batch.
func (s *Stepper) backward(p *runtime.Pass, group []int, x Loss) error {
	rows := func(table [][]float64) (part [][]float64) {
		if table == nil {
			return nil
		}
		for _, i := range group {
			part = append(part, table[i])
		}
		return part
	}
	return p.Backward(rows(x.LogProb), rows(x.Entropy))
}

func newScores(n int) Scores {
	return Scores{LogProb: make([][]float64, n), Entropy: make([][]float64, n)}
}

func float64s(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

// WithoutScale calls use with the gradients that Gradients has left, on the host
// and without the loss scale. They are not clipped. Update may follow.
func (s *Stepper) WithoutScale(use func([]models.Tensor) error) error {
	g := s.learner.Gradients
	if err := s.env.Download(g); err != nil {
		return err
	}
	tensors := g.Tensors()
	if s.scale != nil {
		for i, x := range tensors {
			tensors[i].Data = make([]float32, len(x.Data))
			for k, v := range x.Data {
				tensors[i].Data[k] = v / float32(s.scale.Scale)
			}
		}
	}
	return use(tensors)
}
