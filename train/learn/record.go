package learn

import "onering/train/metrics"

// phaseNames are the names of a Stepper's phases in the metrics.
var phaseNames = map[Phase]metrics.Phase{
	Forward: metrics.PhaseScore, Weighing: metrics.PhaseWeights, Backward: metrics.PhaseBackward,
	Reducing: metrics.PhaseReduce, Updating: metrics.PhaseOptimizer, Idle: metrics.PhaseOther,
}

// Timing returns an Options.Observe that has a stopwatch count each phase.
func Timing(clock *metrics.Stopwatch) func(Phase) {
	return func(p Phase) { clock.Enter(phaseNames[p]) }
}

// Record returns the figures of a step that was taken at a learning rate.
func (r Report) Record(rate float64) metrics.Record {
	record := metrics.Record{}.With("loss", r.Loss.Value).With("grad_norm", r.GradNorm).With("learning_rate", rate).
		With("train_tokens", r.Tokens).With("micro_batches", r.MicroBatches).
		With("left_out", r.LeftOut)
	if r.LossScale != 0 {
		record = record.With("loss_scale", r.LossScale)
	}
	return record
}
