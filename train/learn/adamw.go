package learn

import (
	"onering/models"
	"onering/runtime"
)

func init() {
	RegisterOptimizer("adamw", func() OptimizerSettings {
		return AdamW{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8}
	})
}

// AdamW are the settings of AdamW (Loshchilov & Hutter 2019, algorithm 2); the
// names are PyTorch's.
type AdamW struct {
	Beta1, Beta2 float64 // decay of the first and the second moment, in [0, 1)
	Eps          float64 // added to the root of the second moment
	WeightDecay  float64 // each weight shrinks by learning rate x WeightDecay an update
}

// Open implements OptimizerSettings.
func (a AdamW) Open(env *runtime.Env, ring *runtime.Ring, gradients *models.Weights, offload bool) (Optimizer, error) {
	o, err := env.NewOptimizer(ring, gradients, runtime.OptimizerOptions{Offload: offload})
	if err != nil {
		return nil, err
	}
	return &adamW{o, a}, nil
}

type adamW struct {
	*runtime.Optimizer
	settings AdamW
}

// The names of AdamW's state, which are PyTorch's.
const (
	FirstMoment  = "exp_avg"
	SecondMoment = "exp_avg_sq"
)

func (o *adamW) Update(rate, clip float64) error {
	s := o.settings
	return o.Optimizer.Update(runtime.AdamW{LearningRate: rate, Beta1: s.Beta1, Beta2: s.Beta2, Eps: s.Eps, WeightDecay: s.WeightDecay}, clip)
}

func (o *adamW) State() map[string]*models.Weights {
	return map[string]*models.Weights{FirstMoment: o.First, SecondMoment: o.Second}
}

func (o *adamW) Updates() int { return o.Steps }

func (o *adamW) SetUpdates(n int) { o.Steps = n }
