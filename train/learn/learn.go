// Package learn takes optimizer steps. Its Stepper is the only code that does:
// reinforcement learning, the supervised warm start, `onering step`, replay and
// bench all call it.
//
// A step computes the log-probs of a batch of sequences, asks for the derivative
// of the loss with respect to each, computes the gradient of the weights, sums it
// over the ranks, clips it and hands it to the optimizer. The Stepper cuts the
// batch into micro-batches and computes the step again with smaller ones when
// memory ends, and with a smaller loss scale when gradients overflow float16. It
// looks for NaN and infinities at each stage, so nothing is updated from them.
//
// The package knows log-probs and their derivatives, not objectives, rewards or
// files.
package learn

import (
	"log/slog"

	"onering/models"
	"onering/runtime"
	"onering/train/metrics"
)

// A Batch is the sequences of one optimizer step.
type Batch struct {
	Sequences []runtime.Sequence
	// Live says which sequences may have derivatives other than zero. The others
	// are only scored. Nil means all.
	Live []bool
	// LiveOnly leaves out sequences that are not live: they are not computed, and their
	// scores are nil.
	LiveOnly bool
	// Weights are dLoss/dlogp by sequence and scored token where they are known
	// before the forward pass, and EntropyWeights likewise dLoss/dentropy, which
	// may be nil. Where Weights is nil a Weigh function is asked.
	Weights, EntropyWeights [][]float64
	// Apart says that the weights of a sequence depend only on its own scores, so
	// that Weigh can be called before other scores are known. A step in which that proves
	// wrong is computed again.
	Apart bool
	// Number of the step, from 1, for messages.
	Number       int
	LearningRate float64
}

// Scores are the log-probs of scored tokens and the entropies, in nats, of the
// distributions that they were drawn from: by sequence, then by token.
type Scores struct {
	LogProb, Entropy [][]float64
	SumSquares       [][]float64 // sums of the squared probabilities of these distributions; only Score sets them, with Options.Squares
}

// A Loss is the loss of a batch and its derivatives by sequence and scored
// token. Entropy, dLoss/dentropy, is nil where it is zero; else the Stepper needs
// Options.EntropyGradient.
type Loss struct {
	Value            float64
	LogProb, Entropy [][]float64
	// Rate, unless 0, multiplies the learning rate of the step.
	Rate float64
}

// rate returns the step's learning rate, given that of its batch.
func (l Loss) rate(whole float64) float64 {
	if l.Rate != 0 {
		return whole * l.Rate
	}
	return whole
}

// Weigh returns the loss of a batch with the given scores. A step that is computed again
// calls it again. With Batch.Apart it is called after each micro-batch, while later
// scores are nil, and once more at the end.
type Weigh func(Scores) (Loss, error)

// A Report says what a step did. With an error it has what was computed before.
type Report struct {
	Scores
	Loss     Loss
	GradNorm float64 // before clipping, without the loss scale
	// Tokens counts the tokens that were scored.
	Tokens int
	// LeftOut counts the sequences that were not computed; see Batch.LiveOnly.
	LeftOut      int
	MicroBatches int
	// Early counts the gradients that were final, and were passed to the other ranks,
	// before the end of the backward pass.
	Early int
	// LossScale is the factor of the loss; 0 if layers do not compute in float16.
	LossScale float64
}

// Options are the settings of a Stepper.
type Options struct {
	// Optimizer updates the weights; nil where only gradients are wanted, without
	// memory for an optimizer's state and without their norm.
	Optimizer models.Optimizer
	// MaxGradNorm scales a gradient of larger 2-norm down to it; 0 is off.
	MaxGradNorm float64
	// Temperature divides the logits.
	Temperature float64
	Passes
	// EntropyGradient allows derivatives with respect to the entropy.
	EntropyGradient bool
	// Squares has Score sum squared probabilities.
	Squares bool
	// Ranks are the processes that take the step together; nil means only this one.
	Ranks Ranks
	// Shard divides the optimizer's state among the ranks, and float32 weights that
	// Programs read as a 16-bit copy; each rank updates its part. Nothing may be made of
	// the ring before.
	Shard bool
	// Bucket is about how many gradients the ranks sum at once, and with Shard how many
	// adjacent elements a part has. 0 means runtime.DefaultBucket.
	Bucket int
	// Observe, if not nil, is called with each phase as it begins: score (log-probs), weights
	// (the loss and its derivatives), backward, reduce (the ranks' gradients to their sum,
	// and updated parts to all), optimizer (the norm too) and, between two steps, other.
	Observe func(metrics.Phase)
	// Log receives messages about steps that are computed again; nil discards them.
	Log *slog.Logger
	// BeforePass, if not nil, is called with the tokens of each micro-batch before its
	// forward pass; its error replaces the pass. Tests use it to simulate a lack of
	// memory.
	BeforePass func(tokens int) error
}

// A Stepper takes optimizer steps on the weights of one ring.
type Stepper struct {
	crew
	options Options
	limit   microLimit
	scaling lossScaling
	norm    float64 // norm of the gradients that Update uses
	// weighsJointly says that a batch said Apart wrongly: its objective weighs responses together.
	weighsJointly bool

	reduction    *reduction // under way; nil between two and of one rank
	lastBackward bool       // the backward pass that follows is the last one of the step
}

// New allocates the gradients and, with Options.Optimizer, its state. The caller
// still owns the ring and closes it after the Stepper.
func New(env *runtime.Env, ring *runtime.Ring, o Options) (*Stepper, error) {
	if o.Ranks == nil {
		o.Ranks = single{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Stepper{options: o, limit: microLimit{o.MicroTokens, o.Log}, scaling: lossScaling{ring: ring, log: o.Log}}
	part, parts := o.Ranks.Rank(), o.Ranks.Size()
	if o.Shard || o.Bucket > 0 {
		if !o.Shard {
			part, parts = 0, 1 // each rank updates all: Divide then sets only the size of buckets
		}
		if err := ring.Divide(part, parts, o.Bucket); err != nil {
			return nil, err
		}
	}
	learner, err := env.NewLearner(ring, runtime.LearnerOptions{StashBytes: o.StashBytes, EntropyGradient: o.EntropyGradient, Squares: o.Squares,
		Final: s.final}) // final passes gradients on to the other ranks during the backward pass
	if err != nil {
		return nil, err
	}
	s.crew = crew{env: env, learner: learner, ring: ring, ranks: o.Ranks, watch: o.Observe}
	if o.Optimizer != nil {
		if err := s.OpenOptimizer(o.Optimizer); err != nil {
			s.Close()
			return nil, err
		}
	}
	if ring.Arch.Geometry().Compute == models.F16 {
		s.scaling.set(LossScale{Scale: firstScale}, 0) // 0: before the first step
	}
	return s, nil
}

// OpenOptimizer gives an optimizer to a Stepper that was made without one.
func (s *Stepper) OpenOptimizer(o models.Optimizer) (err error) {
	s.optimizer, err = s.env.NewOptimizer(s.ring, s.learner.Gradients, o)
	return err
}

// Release frees what steps leave in memory for the next ones; see runtime.Learner.Release.
func (s *Stepper) Release() { s.learner.Release() }

// Close frees the gradients and the optimizer.
func (s *Stepper) Close() {
	if s.optimizer != nil {
		s.optimizer.Close()
	}
	s.learner.Close()
}

// Optimizer returns the optimizer, whose state a checkpoint holds; nil if there is none.
func (s *Stepper) Optimizer() *runtime.Optimizer { return s.optimizer }

// A State is the state of a Stepper, besides the optimizer's, that is needed to continue
// with the same bits.
type State struct {
	// MicroTokens is the bound of micro-batches, which moves the last bits of
	// sums.
	MicroTokens int
	// LossScale is nil where layers do not compute in float16. It is never
	// changed in place, so it may be written to a file during the next step.
	LossScale *LossScale
}

// State returns the present state.
func (s *Stepper) State() State { return State{s.limit.tokens, s.scaling.scale} }

// Restore continues from a state. A zero value in the state changes nothing.
func (s *Stepper) Restore(x State) {
	if x.MicroTokens > 0 {
		s.limit.tokens = x.MicroTokens
	}
	if x.LossScale != nil && s.scaling.scale != nil {
		s.scaling.set(*x.LossScale, 0)
	}
}

// Record returns the figures of a step whose batch had this learning rate.
func (r Report) Record(rate float64) metrics.Record {
	record := metrics.Record{}.With("loss", r.Loss.Value).With("grad_norm", r.GradNorm).With("learning_rate", r.Loss.rate(rate)).
		With("train_tokens", r.Tokens).With("micro_batches", r.MicroBatches).
		With("left_out", r.LeftOut)
	if r.LossScale != 0 {
		record = record.With("loss_scale", r.LossScale)
	}
	return record
}
