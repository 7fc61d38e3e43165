package learn

import "onering/train/metrics"

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
