package train

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"onering/models"
	"onering/objectives"
	"onering/runtime"
	"onering/train/metrics"
)

// keptShare is how much of the memory of the weights the forward passes of one
// optimizer step may keep between "forward once" and "backward once". Beyond
// it the layers are computed again before their backward pass.
const keptShare = 0.5

// keptBytes is what they may keep in all, besides the last one; with layers of
// 16 bits, for the reason that stashLevel has, nothing.
func keptBytes(g models.Geometry, parameters int) int {
	if g.Compute != models.F32 {
		return 0
	}
	return max(smallStash, int(keptShare*4*float64(parameters)))
}

// oneStep is one optimizer step on the given rollouts: forward, objective,
// backward, update. It leaves everything as it was unless it succeeds, but for
// an update that fails halfway, which sets t.torn.
func (t *Trainer) oneStep(r *underway, batch []int) (metrics.Record, error) {
	for {
		record, err := t.tryStep(r, batch)
		switch {
		case errors.Is(err, errScale): // the step is computed again with half of it
		case !isOutOfMemory(err) || !t.splitMicroBatches(err):
			return record, err
		}
	}
}

// errScale says that the loss scale was too large for the gradients of a step.
var errScale = errors.New("train: gradients overflow float16 with the loss scale")

// scaled takes whether the gradients of a step overflowed, which lowers the loss
// scale or in the end raises it. The error is errScale, or that there is no scale
// at which they do not.
func (t *Trainer) scaled(overflow bool) error {
	s := *t.lossScale
	_, err := s.Update(overflow)
	if err != nil {
		return &NonfiniteError{What: "a gradient in float16", Value: inf, Cause: err.Error()}
	}
	if s.Scale != t.lossScale.Scale {
		t.log.Debug("the loss scale changes", "step", t.step+1, "from", t.lossScale.Scale, "to", s.Scale)
	}
	t.setLossScale(s)
	if overflow {
		return errScale
	}
	return nil
}

func (t *Trainer) tryStep(r *underway, batch []int) (metrics.Record, error) {
	c := t.Config
	sequences := make([]runtime.Sequence, len(batch))
	live := make([]bool, len(batch))
	b := objectives.Batch{Trajectories: make([]objectives.Trajectory, len(batch)), Step: t.step, Steps: c.steps()}
	for i, j := range batch {
		sequences[i] = r.sequences[j]
		b.Trajectories[i] = r.trajectories[j]
		live[i] = b.Trajectories[i].Advantage != 0 || t.learner.HasEntropyGradient() || t.reference != nil
	}

	t.clock.Enter(metrics.PhaseScore)
	micro := microBatches(sequences, live, t.microTokens)
	passes, err := t.forward(b, sequences, live, micro)
	defer release(passes)
	if err != nil {
		return nil, err
	}
	if err := finiteLogProbs(b); err != nil {
		return t.notFinite(r, batch, b, nil, t.explain(err, sequences))
	}
	// Before the round's first update the pass is also the measure of how far
	// rollout and training log-probs are apart.
	if len(r.steps) == 0 && !r.rescored {
		for i, j := range batch {
			r.compare(j, b.Trajectories[i].LogProb)
		}
	}

	t.clock.Enter(metrics.PhaseWeights)
	x, err := think(t.Objective, c.Objective.Name, b)
	if err != nil {
		return nil, err
	}
	if err := x.finite(); err != nil {
		return t.notFinite(r, batch, b, x.w, err)
	}

	t.clock.Enter(metrics.PhaseBackward)
	if err := t.backward(passes, micro, x); err != nil {
		return nil, err
	}
	t.clock.Enter(metrics.PhaseOptimizer)
	o := c.Optimizer
	rate := o.rate(t.step+1, c.steps())
	norm, err := t.optimizer.Step(runtime.AdamW{
		LearningRate: rate, Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps,
		WeightDecay: o.WeightDecay, MaxGradNorm: o.MaxGradNorm,
	})
	t.clock.Enter(metrics.PhaseOther)
	if errors.Is(err, runtime.ErrOverflow) {
		if err = t.scaled(true); errors.Is(err, errScale) {
			return nil, err
		}
		return t.notFinite(r, batch, b, x.w, err)
	}
	if err != nil {
		// The norm comes first: where it is the culprit, nothing was updated.
		if _, early := t.optimizer.GradNorm(); early != nil {
			return t.notFinite(r, batch, b, x.w, gradientError(early))
		}
		t.torn = true
		return nil, err
	}
	if ob, ok := t.Objective.(objectives.Observer); ok {
		ob.Observe(b)
	}
	r.note(batch, b, x.w)

	tokens := 0
	for i := range x.w {
		tokens += len(x.w[i])
	}
	record := metrics.Record{}.With("loss", x.loss).With("grad_norm", norm).With("learning_rate", rate).With("train_tokens", tokens).With("micro_batches", len(micro))
	if t.lossScale != nil {
		record = record.With("loss_scale", t.lossScale.Scale)
		if err := t.scaled(false); err != nil {
			return nil, err
		}
	}
	for _, s := range x.stats {
		record = record.With(s.Name, s.Value)
	}
	return record, nil
}

// forward sets the log-probs and entropies of b and returns the passes of the
// micro-batches, which the caller releases also where there is an error.
func (t *Trainer) forward(b objectives.Batch, sequences []runtime.Sequence, live []bool, micro [][]int) ([]*runtime.Pass, error) {
	passes := make([]*runtime.Pass, len(micro))
	budget := keptBytes(t.Policy.Geometry(), len(t.Policy.Weights.Data))
	for i, group := range micro {
		part := make([]runtime.Sequence, len(group))
		n := 0
		for k, s := range group {
			part[k] = sequences[s]
			n += len(sequences[s].Tokens)
		}
		size := t.learner.Bytes(n)
		// The last pass has its backward pass first: it may always keep.
		keep := live[group[0]] && (size <= budget || i == len(micro)-1)
		if keep {
			budget -= size
		}
		if t.beforePass != nil {
			if err := t.beforePass(n); err != nil {
				return passes, err
			}
		}
		p, err := t.learner.Forward(part, t.Config.Rollout.Temperature, keep)
		if err != nil {
			return passes, err
		}
		passes[i] = p
		for k, s := range group {
			b.Trajectories[s].LogProb = float64s(p.LogProb[k])
			b.Trajectories[s].Entropy = float64s(p.Entropy[k])
		}
	}
	return passes, nil
}

// release releases the passes that are still held.
func release(passes []*runtime.Pass) {
	for _, p := range passes {
		if p != nil {
			p.Release()
		}
	}
}

// backward leaves the gradients of the passes in the learner. The newest comes
// first: its memory serves those whose layers are computed again.
func (t *Trainer) backward(passes []*runtime.Pass, micro [][]int, x thought) error {
	t.learner.ZeroGradients()
	for i, group := range slices.Backward(micro) {
		wp, vp := make([][]float64, len(group)), [][]float64(nil)
		if x.v != nil {
			vp = make([][]float64, len(group))
		}
		for k, s := range group {
			wp[k] = x.w[s]
			if x.v != nil {
				vp[k] = x.v[s]
			}
		}
		if err := passes[i].Backward(wp, vp); err != nil {
			return err
		}
		passes[i].Release()
		passes[i] = nil
	}
	return nil
}

// A thought is what an objective says of a batch.
type thought struct {
	loss  float64
	w, v  [][]float64 // dL/dlogp and dL/dentropy by trajectory and token; v may be nil
	stats []objectives.Stat
}

// think asks the objective. An objective is a plug-in: its panic is an error
// that names it.
func think(o objectives.Objective, name string, b objectives.Batch) (x thought, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("objective %q panics: %v\n%s", name, p, debug.Stack())
		}
	}()
	zeros := func() [][]float64 {
		z := make([][]float64, len(b.Trajectories))
		for i := range z {
			z[i] = make([]float64, len(b.Trajectories[i].LogProb))
		}
		return z
	}
	x.w = zeros()
	x.loss = o.Loss(b, b)
	o.Weights(b, x.w)
	if e, ok := o.(objectives.EntropyWeigher); ok && e.WeighsEntropy() {
		x.v = zeros()
		e.EntropyWeights(b, x.v)
	}
	if x.finite() != nil {
		return x, nil // figures of it would say nothing
	}
	var diagnostics []objectives.Diagnostics
	if d, ok := o.(objectives.Diagnoser); ok {
		diagnostics = d.Diagnose(b)
	}
	x.stats = objectives.Summarize(b, x.w, diagnostics)
	return x, nil
}

// oldLogProbs sets the old policy's log-probs of a new round: those of the
// sampler, or with old_logp = "rescore" the learner's; and the reference's
// where the objective asks for them.
func (t *Trainer) oldLogProbs(r *round) error {
	rescore := t.Config.Rollout.OldLogProb == "rescore"
	r.rescored = rescore
	if !rescore && t.reference == nil {
		return nil
	}
	t.clock.Enter(metrics.PhaseScore)
	defer t.clock.Enter(metrics.PhaseOther)
	live := make([]bool, len(r.sequences))
	for _, group := range microBatches(r.sequences, live, t.microTokens) {
		part := make([]runtime.Sequence, len(group))
		for k, s := range group {
			part[k] = r.sequences[s]
		}
		score := func(l *runtime.Learner, use func(s int, logp []float32)) error {
			p, err := l.Forward(part, t.Config.Rollout.Temperature, false)
			if err != nil {
				return err
			}
			defer p.Release()
			for k, s := range group {
				use(s, p.LogProb[k])
			}
			return nil
		}
		if rescore {
			err := score(t.learner, func(s int, logp []float32) {
				r.trajectories[s].OldLogProb = float64s(logp)
				r.compare(s, r.trajectories[s].OldLogProb)
			})
			if err != nil {
				return err
			}
		}
		if t.reference != nil {
			err := score(t.reference, func(s int, logp []float32) { r.trajectories[s].RefLogProb = float64s(logp) })
			if err != nil {
				return err
			}
		}
	}
	return nil
}
