package train

import (
	"fmt"
	"maps"
	"math"
	"os"

	"onering/internal/memory"
	"onering/models"
	"onering/policy"
	"onering/runtime"
	"onering/train/doctor"
	"onering/train/learn"
	"onering/train/rundir"
)

// OpenPolicy opens the model that a run trains, in the type dtype, and, if the run trains one, a new adapter or the one
// that it continues. base is the model's name in the adapter's files, and seed the seed of its first weights. shared,
// if not nil, is the result of policy.ShareBase.
func OpenPolicy(env *runtime.Env, path, dtype string, c LoRAConfig, base string, seed int64, shared *os.File) (*policy.Policy, error) {
	p, err := policy.Open(env, policy.Options{Path: path, DType: dtype, Base: c.BaseDType, Adapter: c.Adapter, Shared: shared, Name: base})
	if err != nil || !c.On || c.Adapter != "" {
		return p, err
	}
	if err := p.NewAdapter(c.Settings, base, uint64(seed)); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// PassesOf returns how a step on the policy is cut into passes, and what passes store, for
// micro-batches of micro tokens. apart is as in learn.PassesFor.
func PassesOf(p *policy.Policy, micro int, apart bool) learn.Passes {
	return learn.PassesFor(p.Geometry(), len(p.Weights.Data), micro, apart && p.Env.Device() == "cpu")
}

// FactsOf returns what is known of a policy that a run trains: its sizes, and on a CPU the typical size of a
// weight, which is the root of the mean square of some of them, else 0.
func FactsOf(p *policy.Policy) doctor.Facts {
	w, squares, n := p.Ring.Trained(), 0.0, 0
	if p.Env.Device() == "cpu" && p.Env.Download(w) == nil {
		for i := 0; i < len(w.Data); i += 1 + len(w.Data)>>16 { // some weights tell their size
			squares, n = squares+float64(w.Data[i])*float64(w.Data[i]), n+1
		}
		p.Env.Forget(w)
	}
	return doctor.Facts{Vocabulary: p.Geometry().Vocab, Parameters: w.Parameters(), Weight: math.Sqrt(squares / float64(max(1, n)))}
}

// Learned is the state that optimizer steps change: the weights of a policy, or its
// adapter, and the state of the optimizer.
type Learned struct {
	Policy  *policy.Policy
	Stepper *learn.Stepper // the Stepper of the policy's Ring
}

// SaveTo adds weights and optimizer to a checkpoint, without copying: a device's arrays are fetched as they are
// written. Where each rank updates a part, all must call it: the first one gets the others' parts, in memory that steps
// have freed. Weights are saved in the type of the model's config.json, an adapter in float32. An error concerns this
// rank only.
func (l Learned) SaveTo(snap *rundir.Snapshot) error {
	w, optimizer := l.Policy.Ring.Trained(), l.Stepper.Optimizer()
	switch {
	case optimizer.Buckets() != nil:
		if l.Stepper.Ranks().Rank() == 0 {
			memory.GiveBack(w.Parameters(), l.Stepper)
		}
		if err := l.Stepper.Collect(true); err != nil {
			return fmt.Errorf("train: checkpoint: %w", err)
		}
	case !l.Policy.Env.OnHost(w):
		snap.Device = device{l.Policy.Env}
	}
	others := snap.Optimizer // what the task has set before: a reference that moves
	snap.Weights, snap.Optimizer = w, maps.Clone(optimizer.State)
	maps.Copy(snap.Optimizer, others)
	snap.SaveModel, snap.DType = l.Policy.Save, l.Policy.Model.DType
	if l.Policy.Adapter != nil {
		snap.DType = models.F32
	}
	step := l.Stepper.State()
	s := &snap.State
	s.Updates, s.MicroTokens, s.LossScale, s.Base = optimizer.Updates, step.MicroTokens, (*rundir.LossScale)(step.LossScale), l.Policy.Base()
	return nil
}

// Written returns the trained weights for a writer of tensors. All ranks call it, since those that keep parts send
// them to the first; an error concerns this rank only.
func (l Learned) Written() (*models.Weights, error) {
	w := l.Policy.Ring.Trained()
	switch {
	case l.Stepper.Optimizer().Buckets() != nil:
		return w, l.Stepper.Collect(false)
	case l.Policy.Env.OnHost(w):
		return w, nil
	}
	return rundir.Lent(w, device{l.Policy.Env}), nil
}

// A device is the source of weights and state for a Snapshot: an Env.
type device struct{ env *runtime.Env }

func (d device) Fetch(w *models.Weights, from, to int) error {
	return d.env.DownloadPart(w, from, to)
}

func (d device) Drop(w *models.Weights, from, to int) { d.env.ForgetPart(w, from, to) }

// Release frees the host's copies of what SaveTo and the writer put there.
func (l Learned) Release() { l.Stepper.Drop() }

// restore reads weights and optimizer from a checkpoint. The first rank reads and sends them to the others, even after
// an error, which concerns this rank only. sameMicro says that train.micro_tokens has not changed: only then does the
// checkpoint's bound of micro-batches hold.
func (l Learned) restore(from Checkpoint, sameMicro bool) error {
	var err error
	if l.Stepper.Ranks().Rank() == 0 {
		if err = rundir.LoadWeights(from.Dir, l.Policy.Ring.Trained()); err == nil {
			err = rundir.LoadOptimizer(from.Dir, l.Stepper.Optimizer().State)
		}
	}
	if failed := l.Stepper.Follow(); err == nil && failed != nil {
		err = fmt.Errorf("train: resume: %w", failed)
	}
	l.Stepper.Optimizer().Updates = from.State.Updates
	step := learn.State{LossScale: (*learn.LossScale)(from.State.LossScale)}
	if sameMicro {
		step.MicroTokens = from.State.MicroTokens
	}
	l.Stepper.Restore(step)
	return err
}
