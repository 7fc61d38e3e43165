package learn

import (
	"context"
	"errors"
	"math"
	"slices"

	"onering/runtime"
	"onering/train/metrics"
)

// An attempt computes the gradients of a batch once, with the micro-batches and the loss scale of the moment.
type attempt struct {
	*Stepper
	batch       Batch
	weigh       Weigh
	owner       []int   // the rank to which each sequence belongs
	micro       [][]int // the sequences of each micro-batch, which are this rank's
	interleaved bool    // each pass goes backward before the next one begins
	Report
}

// newAttempt deals the sequences of a batch to the ranks and cuts this rank's into micro-batches, and decides whether
// each micro-batch goes backward before the next goes forward: with weights that are known (weigh is nil), or where the
// batch says, in Apart, that a sequence's weights depend on its own scores alone.
func (s *Stepper) newAttempt(b Batch, weigh Weigh) *attempt {
	a := &attempt{Stepper: s, batch: b, weigh: weigh, owner: s.owners(b)}
	mine := slices.DeleteFunc(s.own(a.owner), b.leavesOut)
	a.micro = microBatches(b.Sequences, b.Live, mine, s.limit.tokens, s.options.ApartTokens)
	// With a single pass nothing is gained; but another of several ranks may have more, and all must do alike.
	a.interleaved = weigh == nil || b.Apart && !s.weighsJointly && (len(a.micro) > 1 || s.ranks.Size() > 1)
	a.Loss, a.Scores, a.MicroBatches = b.givenLoss(), newScores(len(b.Sequences)), len(a.micro)
	for i, x := range b.Sequences {
		if b.leavesOut(i) {
			a.LeftOut++
			continue
		}
		a.Tokens += x.Count()
	}
	if s.scaling.scale != nil {
		a.LossScale = s.scaling.scale.Scale
	}
	return a
}

// run computes the gradients, summed over the ranks, in the learner's buffer, and their norm if there is an optimizer,
// which also checks that they are finite. ErrOverflow is for the caller, who halves the loss scale.
func (a *attempt) run(ctx context.Context) error {
	compute := a.allForward
	if a.interleaved {
		compute = a.passByPass
	}
	err := compute(ctx)
	if err != nil || a.optimizer == nil {
		return err
	}
	a.observe(metrics.PhaseOptimizer)
	// The norm is both the Stepper's, for Update to clip by, and the Report's.
	if a.norm, err = a.gradNorm(); err != nil && !errors.Is(err, runtime.ErrOverflow) {
		err = gradientError(err)
	}
	a.GradNorm = a.norm
	return err
}

// reduce sums the gradients that compute leaves over the ranks, in part while compute still runs: final hands over
// what is complete. All ranks return an error if one of them fails; their gradients are then of no use.
func (a *attempt) reduce(compute func() error) error {
	a.reduction = a.openReduction()
	err := compute()
	if r := a.reduction; r != nil {
		a.Early = r.count // the rest is handed over by finish
	}
	copied, lost := a.reduction.finish()
	a.reduction = nil
	err = errors.Join(err, copied)
	if lost != nil {
		return errors.Join(err, lost)
	}
	return a.agree(err)
}

// passByPass computes the gradients from one micro-batch after the other: forward,
// weights and backward of each before the next, so that memory holds a single pass. Then it sets
// the loss of the whole batch; where the objective gave the weights, it must give them again.
func (a *attempt) passByPass(ctx context.Context) error {
	used := a.Loss // the weights with which passes go backward: known ones, or set pass by pass
	if a.weigh != nil {
		used = Loss{LogProb: make([][]float64, len(a.owner)), Entropy: make([][]float64, len(a.owner))}
	}
	err := a.reduce(func() error {
		a.learner.ZeroGradients()
		// Sequences that are not live come last and have no backward pass: the last pass is that of live ones.
		last := len(a.micro) - 1
		for last > 0 && !a.batch.live(a.micro[last][0]) {
			last--
		}
		for i, group := range a.micro {
			a.lastBackward = i == last // then each gradient that it completes is summed over the ranks at once
			err := a.forwardAndBack(ctx, group, used)
			if a.Scores.finite("", group) != nil { // err is that of this micro-batch; the explanation counts the later ones' sequences, too
				return a.explainScores(ctx, a.micro[i+1:])
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case a.weigh == nil:
		return a.sumKnown()
	}
	return a.agree(a.weighWhole(used))
}

// explainScores explains scores that are not finite, which also needs the scores of later micro-batches.
func (a *attempt) explainScores(ctx context.Context, following [][]int) error {
	for _, group := range following {
		p, err := a.forward(ctx, a.learner, a.batch.Sequences, group, false, a.Scores)
		if err != nil {
			return err
		}
		p.Release()
	}
	return a.Explain(a.Scores.finite("", nil), a.batch.Sequences)
}

// forwardAndBack takes the micro-batch group forward and backward: with the weights in used where they are known, else
// with those that the objective gives for the scores so far, which it puts into used. What is not live is only scored.
func (a *attempt) forwardAndBack(ctx context.Context, group []int, used Loss) error {
	a.observe(metrics.PhaseScore)
	live := a.batch.live(group[0])
	p, err := a.forward(ctx, a.learner, a.batch.Sequences, group, live, a.Scores)
	if err != nil {
		return err
	}
	defer p.Release()
	if err := a.Scores.finite("", group); err != nil || !live {
		return err
	}
	loss := used
	if a.weigh != nil {
		a.observe(metrics.PhaseWeights)
		if loss, err = a.weigh(a.Scores); err != nil {
			return err
		}
		if err := loss.Check(); err != nil {
			a.Loss = loss // for the Report
			return err
		}
		for _, i := range group {
			used.LogProb[i] = loss.LogProb[i]
			if loss.Entropy != nil {
				used.Entropy[i] = loss.Entropy[i]
			}
		}
	}
	a.observe(metrics.PhaseBackward)
	return a.backward(p, group, loss)
}

// weighWhole asks for the loss of the whole batch, once all scores are known and shared by the ranks. The weights of
// tokens must have the same bits as used, those with which backward passes already ran: otherwise the objective weighs
// responses jointly, although the batch says Apart, and the error is errJoint, after which the step is computed again.
func (a *attempt) weighWhole(used Loss) (err error) {
	if err := a.share(a.owner, a.batch, a.Scores); err != nil {
		return err
	}
	a.observe(metrics.PhaseWeights)
	if a.Loss, err = a.weigh(a.Scores); err != nil {
		return err
	}
	if err := a.Loss.Check(); err != nil {
		return err
	}
	same := func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) }
	for i := range used.LogProb {
		if used.LogProb[i] != nil && !slices.EqualFunc(used.LogProb[i], a.Loss.LogProb[i], same) ||
			used.Entropy[i] != nil && !slices.EqualFunc(used.Entropy[i], a.Loss.Entropy[i], same) {
			return errJoint
		}
	}
	return nil
}

// sumKnown sets the loss of a batch whose weights are known: the sum of weight times log-prob. One
// rank adds the sums of its micro-batches; several, whose micro-batches differ, share the log-probs
// and add over all sequences, so that each gets the same sum.
func (a *attempt) sumKnown() error {
	groups := a.micro
	if a.ranks.Size() > 1 {
		groups = [][]int{numbers(len(a.LogProb))} // one group of all sequences, in their order
	}
	if err := a.share(a.owner, a.batch, a.Scores); err != nil {
		return err
	}
	for _, group := range groups {
		loss := 0.0
		for _, i := range group {
			for t, x := range a.LogProb[i] {
				loss += a.batch.Weights[i][t] * x
			}
		}
		a.Loss.Value += loss
	}
	return a.Loss.Check()
}

// allForward computes the gradients of a batch whose weights depend on the scores of all its sequences: all
// micro-batches forward, then the loss, then all backward.
func (a *attempt) allForward(ctx context.Context) error {
	passes := make([]*runtime.Pass, len(a.micro))
	defer func() {
		for _, p := range passes {
			if p != nil {
				p.Release()
			}
		}
	}()
	// Each rank weighs the scores of the whole batch, so all get the same weights.
	if err := a.agree(a.forwardAll(ctx, passes)); err != nil {
		return err
	}
	if err := a.share(a.owner, a.batch, a.Scores); err != nil {
		return err
	}
	if err := a.Scores.finite("", nil); err != nil {
		return a.Explain(err, a.batch.Sequences)
	}
	return a.reduce(func() error { return a.backwardAll(ctx, passes) })
}

// forwardAll sets the scores of this rank's sequences and the passes of its micro-batches. Passes keep the inputs of
// their layers for the backward pass as long as the budget of bytes lasts; the others' layers are computed again.
func (a *attempt) forwardAll(ctx context.Context, passes []*runtime.Pass) (err error) {
	a.observe(metrics.PhaseScore)
	budget := keptBytes(a.ring.Arch.Geometry(), len(a.ring.Weights.Data))
	for i, group := range a.micro {
		size := a.learner.Bytes(picked(a.batch.Sequences, group))
		// The last micro-batch goes backward at once, so whatever the budget its inputs are kept only for a short time.
		keep := a.batch.live(group[0]) && (size <= budget || i == len(a.micro)-1)
		if keep {
			budget -= size
		}
		if passes[i], err = a.forward(ctx, a.learner, a.batch.Sequences, group, keep, a.Scores); err != nil {
			return err
		}
	}
	return nil
}

// backwardAll asks for the loss and computes the gradients of all passes, which it releases one by one.
func (a *attempt) backwardAll(ctx context.Context, passes []*runtime.Pass) (err error) {
	a.observe(metrics.PhaseWeights)
	if a.Loss, err = a.weigh(a.Scores); err != nil {
		return err
	}
	if err := a.Loss.Check(); err != nil {
		return err
	}
	a.observe(metrics.PhaseBackward)
	a.learner.ZeroGradients()
	// The newest pass goes first: its memory then serves passes whose layers are computed again.
	for i, group := range slices.Backward(a.micro) {
		if err := ctx.Err(); err != nil {
			return err
		}
		a.lastBackward = i == 0 // then each gradient that it completes is summed over the ranks at once
		if err := a.backward(passes[i], group, a.Loss); err != nil {
			return err
		}
		passes[i].Release()
		passes[i] = nil
	}
	return nil
}

// backward adds the gradients of one micro-batch.
func (a *attempt) backward(p *runtime.Pass, group []int, loss Loss) error {
	return p.Backward(picked(loss.LogProb, group), picked(loss.Entropy, group))
}
