package train

import (
	"errors"
	"fmt"
	"strings"

	"onering/data"
	"onering/models"
	"onering/objectives"
	"onering/runtime"
	"onering/train/metrics"
)

// A NonfiniteError says where NaN or an infinity was found. Nothing was updated.
type NonfiniteError struct {
	// What was not finite, such as "the log-prob of response token 3", and its
	// value.
	What  string
	Value float64
	// Cause is where it comes from as far as that is known: a tensor, a layer.
	Cause string
	// Trajectories of the round it was found in; empty where it is in a sum
	// over all of the batch.
	Trajectories []int
	// File is the batch, for `onering replay`; empty where it is not written.
	File string
}

func (e *NonfiniteError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is %v", e.What, e.Value)
	if n := len(e.Trajectories); n > 0 {
		list := e.Trajectories[:min(n, 8)]
		fmt.Fprintf(&b, " (in %d trajectories of the round: %s", n, strings.Trim(fmt.Sprint(list), "[]"))
		if n > len(list) {
			b.WriteString(" ...")
		}
		b.WriteString(")")
	}
	if e.Cause != "" {
		b.WriteString(": " + e.Cause)
	}
	b.WriteString("; nothing was updated")
	if e.File != "" {
		b.WriteString("; to look at the batch: onering replay " + e.File)
	}
	return b.String()
}

// nonfinite says whether x is NaN or an infinity.
func nonfinite(x float64) bool { return x-x != 0 }

// finiteTable looks for NaN and infinities in figures by trajectory and token.
func finiteTable(what string, table [][]float64) *NonfiniteError {
	var found *NonfiniteError
	for i := range table {
		for pos, x := range table[i] {
			if !nonfinite(x) {
				continue
			}
			if found == nil {
				found = &NonfiniteError{What: fmt.Sprintf("%s of response token %d", what, pos), Value: x}
			}
			found.Trajectories = append(found.Trajectories, i)
			break
		}
	}
	return found
}

// finiteLogProbs looks at what a forward pass made of b; trajectories are those
// of b.
func finiteLogProbs(b objectives.Batch) error {
	logp, entropy := make([][]float64, len(b.Trajectories)), make([][]float64, len(b.Trajectories))
	for i, x := range b.Trajectories {
		logp[i], entropy[i] = x.LogProb, x.Entropy
	}
	if err := finiteTable("the log-prob", logp); err != nil {
		return err
	}
	if err := finiteTable("the entropy", entropy); err != nil {
		return err
	}
	return nil
}

// finite looks at what an objective said.
func (x thought) finite() error {
	if err := finiteTable("the objective's weight", x.w); err != nil {
		return err
	}
	if err := finiteTable("the objective's weight of the entropy", x.v); err != nil {
		return err
	}
	if nonfinite(x.loss) {
		return &NonfiniteError{What: "the loss", Value: x.loss, Cause: "the objective's weights are finite"}
	}
	return nil
}

// gradientError is what the norm of the gradients found.
func gradientError(err error) error {
	var said *NonfiniteError
	if errors.As(err, &said) {
		return said
	}
	var at *runtime.NotFiniteError
	if errors.As(err, &at) {
		return &NonfiniteError{What: fmt.Sprintf("the %s of %s at element %d", at.What, at.Tensor, at.Index), Value: float64(at.Value)}
	}
	return &NonfiniteError{What: "the norm of the gradients", Value: inf, Cause: err.Error()}
}

// checkWeights names the first weight that is not finite.
func checkWeights(w *models.Weights) error {
	if allFinite(w.Data) {
		return nil
	}
	return runtime.NotFinite("weight", w)
}

// checkWeights looks at the policy's weights wherever they lie.
func (t *Trainer) checkWeights() error {
	if err := t.env.Download(t.Policy.Weights); err != nil {
		return err
	}
	defer t.env.Forget(t.Policy.Weights)
	return checkWeights(t.Policy.Weights)
}

// allFinite is fast where everything is finite.
func allFinite(x []float32) bool {
	for len(x) > 0 {
		n := min(len(x), 1<<12)
		sum := float32(0)
		for _, v := range x[:n] {
			sum += v - v // 0, or NaN for ever
		}
		if sum != 0 {
			return false
		}
		x = x[n:]
	}
	return true
}

// explain finds out where log-probs that are not finite come from: a weight, or
// the first layer whose output overflows.
func (t *Trainer) explain(err error, sequences []runtime.Sequence) error {
	var e *NonfiniteError
	if !errors.As(err, &e) || len(e.Trajectories) == 0 {
		return err
	}
	e.Cause = t.whereFrom(sequences[e.Trajectories[0]])
	return e
}

func (t *Trainer) whereFrom(s runtime.Sequence) string {
	if err := t.checkWeights(); err != nil {
		var at *runtime.NotFiniteError
		if errors.As(err, &at) {
			return fmt.Sprintf("the weight %s is %v at element %d", at.Tensor, at.Value, at.Index)
		}
	}
	p, err := t.learner.Forward([]runtime.Sequence{s}, t.Config.Rollout.Temperature, true)
	if err != nil {
		return err.Error()
	}
	defer p.Release()
	switch layer, _, ok := p.FirstNonFinite(); {
	case !ok:
		return "all weights and the outputs of all layers are finite: the logits overflow"
	case layer < 0:
		return "all weights are finite, but not the embedding of its tokens"
	default:
		return fmt.Sprintf("all weights are finite, but not the output of layer %d", layer)
	}
}

// samplingFailed adds to an error of the sampler, which stops at log-probs that
// are not finite, where those come from.
func (t *Trainer) samplingFailed(err error, problems []data.Problem) error {
	_, prompt, failed := t.prompter.Prompt(problems[0])
	if failed != nil {
		return err
	}
	s := runtime.Sequence{Tokens: append(prompt[:len(prompt):len(prompt)], prompt[0]), Prompt: len(prompt)}
	p, failed := t.learner.Forward([]runtime.Sequence{s}, t.Config.Rollout.Temperature, false)
	if failed != nil || len(p.LogProb[0]) == 0 {
		return err
	}
	logp := float64(p.LogProb[0][0])
	p.Release()
	if !nonfinite(logp) {
		return err
	}
	return fmt.Errorf("%w: %s", err, t.whereFrom(s))
}

// checkRollouts refuses a round whose sampling met NaN or infinities.
func (t *Trainer) checkRollouts(r *round) error {
	logp, entropy := make([][]float64, len(r.rollouts)), make([][]float64, len(r.rollouts))
	for i := range r.rollouts {
		logp[i], entropy[i] = r.rollouts[i].LogProb, r.rollouts[i].Entropy
	}
	e := finiteTable("the sampled log-prob", logp)
	if e == nil {
		e = finiteTable("the sampled entropy", entropy)
	}
	if e == nil {
		return nil
	}
	return fmt.Errorf("train: round %d: %w", t.round+1, t.explain(e, r.sequences))
}

// notFinite is the end of a step that met NaN or an infinity: the batch is
// written, and the step is skipped or the run stops, as train.on_nonfinite has
// it. The trajectories of err are numbers in the batch; those it returns are
// numbers in the round.
func (t *Trainer) notFinite(r *underway, batch []int, b objectives.Batch, w [][]float64, err error) (metrics.Record, error) {
	var e *NonfiniteError
	if !errors.As(err, &e) {
		return nil, err
	}
	for i, k := range e.Trajectories {
		e.Trajectories[i] = batch[k]
	}
	path := t.folder.FailureFile(t.step + 1)
	if failed := t.failure(r, batch, b, w, e).write(path); failed != nil {
		return nil, errors.Join(e, failed)
	}
	e.File = path
	c := t.Config.Train
	if c.OnNonfinite != "skip" {
		return nil, e
	}
	if t.skipped >= c.SkipLimit {
		return nil, fmt.Errorf("%w; train.skip_limit = %d steps were skipped before", e, c.SkipLimit)
	}
	// The weights of the batch are those before the step: replay wants them.
	if t.saved != t.position() {
		if failed := t.save(t.saver.Background); failed != nil {
			return nil, errors.Join(e, failed)
		}
	}
	t.skipped++
	t.log.Warn("an optimizer step is skipped", "step", t.step+1, "skipped", t.skipped, "limit", c.SkipLimit, "reason", e)
	return metrics.Record{}.With("skipped", t.skipped).With("reason", e.What), nil
}
