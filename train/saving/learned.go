package saving

import (
	"fmt"

	"onering/models"
	"onering/runtime"
	"onering/train/learn"
	"onering/train/rundir"
)

// Learned is what optimizer steps change: the weights of a model and the optimizer's
// state.
type Learned struct {
	Env     *runtime.Env
	Weights *models.Weights
	// Save writes the folder of a checkpoint, and DType is the type that it wants.
	Save    func(dir string, w *models.Weights, dtype models.DType, extra func(tmp string) error) error
	DType   models.DType
	Stepper *learn.Stepper
}

// held returns the weights and the optimizer's state. On a GPU they lie in the
// device's memory.
func (l Learned) held() []*models.Weights {
	held := []*models.Weights{l.Weights}
	for _, w := range l.Stepper.Optimizer().State {
		held = append(held, w)
	}
	return held
}

// SaveTo sets what a checkpoint keeps of it, without copying weights.
func (l Learned) SaveTo(snap *rundir.Snapshot) error {
	if err := l.Env.Download(l.held()...); err != nil {
		return fmt.Errorf("train: checkpoint: %w", err)
	}
	snap.Weights, snap.Optimizer = l.Weights, l.Stepper.Optimizer().State
	snap.SaveModel, snap.DType = l.Save, l.DType
	step := l.Stepper.State()
	s := &snap.State
	s.Updates, s.MicroTokens, s.LossScale = l.Stepper.Optimizer().Updates, step.MicroTokens, (*rundir.LossScale)(step.LossScale)
	return nil
}

// Release frees the host's copies of what SaveTo read from a GPU.
func (l Learned) Release() { l.Env.Forget(l.held()...) }

// Restore reads what the checkpoint dir, with state s, keeps of it. sameMicro says
// that train.micro_tokens is what it was: the bound that memory has left since then
// holds only under that.
func (l Learned) Restore(s rundir.State, dir string, sameMicro bool) error {
	if err := rundir.LoadWeights(dir, l.Weights); err != nil {
		return err
	}
	if err := rundir.LoadOptimizer(dir, l.Stepper.Optimizer().State); err != nil {
		return err
	}
	if err := l.Env.Upload(l.held()...); err != nil {
		return fmt.Errorf("train: resume: %w", err)
	}
	l.Release()
	l.Stepper.Optimizer().Updates = s.Updates
	step := learn.State{LossScale: (*learn.LossScale)(s.LossScale)}
	if sameMicro {
		step.MicroTokens = s.MicroTokens
	}
	l.Stepper.Restore(step)
	return nil
}
