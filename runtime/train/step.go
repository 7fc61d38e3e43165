package train

import (
	"fmt"
	"math"

	"onering/objectives"
	"onering/runtime"
)

// keptShare is how much of the memory of the weights the forward passes of one
// optimizer step may keep between "forward once" and "backward once". Beyond
// it the layers are computed again before their backward pass.
const keptShare = 0.5

// oneStep is one optimizer step on the given rollouts: forward, objective,
// backward, update.
func (t *Trainer) oneStep(r *round, batch []int) (Record, error) {
	c := t.Config
	sequences := make([]runtime.Sequence, len(batch))
	live := make([]bool, len(batch))
	b := objectives.Batch{Trajectories: make([]objectives.Trajectory, len(batch)), Step: t.step, Steps: c.steps()}
	for i, j := range batch {
		sequences[i] = r.sequences[j]
		b.Trajectories[i] = r.trajectories[j]
		live[i] = b.Trajectories[i].Advantage != 0 || t.learner.HasEntropyGradient() || t.reference != nil
	}

	// Forward once. Before the round's first update the pass is also the
	// measure of how far rollout and training log-probs are apart.
	t.clock.enter(phaseScore)
	micro := microBatches(sequences, live, c.Train.MicroTokens)
	passes := make([]*runtime.Pass, len(micro))
	defer func() {
		for _, p := range passes {
			if p != nil {
				p.Release()
			}
		}
	}()
	budget := max(smallStash, int(keptShare*4*float64(len(t.Policy.Weights.Data))))
	for i, group := range micro {
		part := make([]runtime.Sequence, len(group))
		n := 0
		for k, s := range group {
			part[k] = sequences[s]
			n += len(sequences[s].Tokens)
		}
		size := t.learner.Bytes(n)
		// The last pass is followed by its own backward pass: it may always keep.
		keep := live[group[0]] && (size <= budget || i == len(micro)-1)
		if keep {
			budget -= size
		}
		p, err := t.learner.Forward(part, c.Rollout.Temperature, keep)
		if err != nil {
			return nil, err
		}
		passes[i] = p
		for k, s := range group {
			logp := p.LogProb[k]
			for pos, x := range logp {
				if x-x != 0 {
					return nil, fmt.Errorf("the log-prob of response token %d of trajectory %d is %v; nothing was updated: the weights or the activations overflow", pos, batch[s], x)
				}
			}
			if t.stepOfRound == 0 && c.Rollout.OldLogProb == "rollout" {
				r.compare(batch[s], logp)
			}
			b.Trajectories[s].LogProb = float64s(logp)
			b.Trajectories[s].Entropy = float64s(p.Entropy[k])
		}
	}

	// Think.
	t.clock.enter(phaseWeights)
	w := make([][]float64, len(batch))
	for i := range w {
		w[i] = make([]float64, len(b.Trajectories[i].LogProb))
	}
	loss := t.Objective.Loss(b, b)
	t.Objective.Weights(b, w)
	var v [][]float64
	if e, ok := t.Objective.(objectives.EntropyWeigher); ok {
		v = make([][]float64, len(batch))
		for i := range v {
			v[i] = make([]float64, len(w[i]))
		}
		if !e.EntropyWeights(b, v) {
			v = nil
		}
	}
	if err := finite(loss, w, v, batch); err != nil {
		return nil, err
	}
	var diagnostics []objectives.Diagnostics
	if d, ok := t.Objective.(objectives.Diagnoser); ok {
		diagnostics = d.Diagnose(b)
	}
	stats := objectives.Summarize(b, w, diagnostics)

	// Backward once, and update.
	t.clock.enter(phaseBackward)
	t.learner.ZeroGradients()
	for i, group := range micro {
		wp, vp := make([][]float64, len(group)), [][]float64(nil)
		if v != nil {
			vp = make([][]float64, len(group))
		}
		for k, s := range group {
			wp[k] = w[s]
			if v != nil {
				vp[k] = v[s]
			}
		}
		if err := passes[i].Backward(wp, vp); err != nil {
			return nil, err
		}
		passes[i].Release()
		passes[i] = nil
	}
	t.clock.enter(phaseOptimizer)
	o := c.Optimizer
	rate := o.rate(t.step+1, c.steps())
	norm, err := t.optimizer.Step(runtime.AdamW{
		LearningRate: rate, Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps,
		WeightDecay: o.WeightDecay, MaxGradNorm: o.MaxGradNorm,
	})
	if err != nil {
		return nil, err
	}
	t.clock.enter(phaseOther)
	if ob, ok := t.Objective.(objectives.Observer); ok {
		ob.Observe(b)
	}
	t.stepOfRound++

	tokens := 0
	for i := range w {
		tokens += len(w[i])
	}
	record := Record{{"loss", loss}, {"grad_norm", norm}, {"learning_rate", rate}, {"train_tokens", tokens}, {"micro_batches", len(micro)}}
	for _, s := range stats {
		record = append(record, Metric{s.Name, s.Value})
	}
	return record, nil
}

// finite stops a step whose loss or weights are not numbers.
func finite(loss float64, w, v [][]float64, batch []int) error {
	for _, table := range [][][]float64{w, v} {
		for i := range table {
			for pos, x := range table[i] {
				if math.IsNaN(x) || math.IsInf(x, 0) {
					return fmt.Errorf("the objective's weight of response token %d of trajectory %d is %v; nothing was updated", pos, batch[i], x)
				}
			}
		}
	}
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return fmt.Errorf("the loss is %v; nothing was updated", loss)
	}
	return nil
}

// oldLogProbs sets the old policy's log-probs of a new round: those of the
// sampler, or with old_logp = "rescore" the learner's; and the reference's
// where the objective asks for them.
func (t *Trainer) oldLogProbs(r *round) error {
	t.stepOfRound = 0
	rescore := t.Config.Rollout.OldLogProb == "rescore"
	if !rescore && t.reference == nil {
		return nil
	}
	t.clock.enter(phaseScore)
	defer t.clock.enter(phaseOther)
	live := make([]bool, len(r.sequences))
	for _, group := range microBatches(r.sequences, live, t.Config.Train.MicroTokens) {
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
				r.compare(s, logp)
				r.trajectories[s].OldLogProb = float64s(logp)
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
