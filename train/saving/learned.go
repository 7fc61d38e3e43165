package saving

import (
	"errors"
	"fmt"

	"onering/internal/files"
	"onering/internal/memory"
	"onering/models"
	"onering/policy"
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
	Save    func(dir string, w *models.Weights, dtype models.DType, extra func(d *files.Draft) error) error
	DType   models.DType
	Stepper *learn.Stepper
}

// LearnedOf is what the steps of a Stepper of the policy's Ring change. They are saved in the
// type of the model's config.json, an adapter in float32.
func LearnedOf(p *policy.Policy, env *runtime.Env, stepper *learn.Stepper) Learned {
	dtype := p.Model.DType
	if p.Adapter != nil {
		dtype = models.F32
	}
	return Learned{Env: env, Weights: p.Ring.Trained(), Save: p.Save, DType: dtype, Stepper: stepper}
}

// SaveTo sets what a checkpoint keeps of it, without copying weights: what a device holds
// is fetched as it is written. The moments of the other ranks take the room of what steps
// left.
func (l Learned) SaveTo(snap *rundir.Snapshot) error {
	switch {
	case l.Stepper.Optimizer().Buckets() != nil:
		var err error
		if l.Stepper.Ranks().Rank() == 0 {
			memory.GiveBack(l.Weights.Parameters(), l.Stepper)
			err = l.Env.Download(l.Weights)
		}
		if err := errors.Join(err, l.Stepper.Collect()); err != nil {
			return fmt.Errorf("train: checkpoint: %w", err)
		}
	case l.Env.Device() != "cpu":
		snap.Device = device{l.Env}
	}
	snap.Weights, snap.Optimizer = l.Weights, l.Stepper.Optimizer().State
	snap.SaveModel, snap.DType = l.Save, l.DType
	step := l.Stepper.State()
	s := &snap.State
	s.Updates, s.MicroTokens, s.LossScale = l.Stepper.Optimizer().Updates, step.MicroTokens, (*rundir.LossScale)(step.LossScale)
	return nil
}

// A device is where an Env keeps weights and state, as a Snapshot has it.
type device struct{ env *runtime.Env }

func (d device) Fetch(w *models.Weights, from, to int) error {
	return d.env.DownloadPart(w, from, to)
}

func (d device) Drop(w *models.Weights, from, to int) { d.env.ForgetPart(w, from, to) }

// Release frees the host's copies of what SaveTo and the writer read from a GPU.
func (l Learned) Release() {
	l.Env.Forget(l.Weights)
	l.Stepper.Drop()
}

// Restore reads what the checkpoint dir, with state s, keeps of it. Of several ranks the
// first reads, and the others get it from there. sameMicro says
// that train.micro_tokens is what it was: the bound that memory has left since then
// holds only under that.
func (l Learned) Restore(s rundir.State, dir string, sameMicro bool) error {
	var err error
	if l.Stepper.Ranks().Rank() == 0 {
		if err = rundir.LoadWeights(dir, l.Weights); err == nil {
			err = rundir.LoadOptimizer(dir, l.Stepper.Optimizer().State)
		}
	}
	if err := l.Stepper.Ranks().AgreeOn(err); err != nil {
		return err
	}
	if err := l.Stepper.Follow(); err != nil {
		return fmt.Errorf("train: resume: %w", err)
	}
	l.Stepper.Optimizer().Updates = s.Updates
	step := learn.State{LossScale: (*learn.LossScale)(s.LossScale)}
	if sameMicro {
		step.MicroTokens = s.MicroTokens
	}
	l.Stepper.Restore(step)
	return nil
}
