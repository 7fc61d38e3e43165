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
	Beta1       float64 `toml:"beta1" range:"[0,1)" help:"decay of the first moment"`
	Beta2       float64 `toml:"beta2" range:"[0,1)" help:"decay of the second moment"`
	Eps         float64 `toml:"eps" range:"(0,)" help:"added to the root of the second moment"`
	WeightDecay float64 `toml:"weight_decay" range:"[0,)" help:"decoupled weight decay: an update shrinks each weight by its learning rate times this share"`
}

// UpdateSettings are AdamW with a learning rate and a clip: what run files and
// the commands that take optimizer steps declare of an update.
type UpdateSettings struct {
	LearningRate float64 `toml:"learning_rate" flag:"lr" range:"(0,)" help:"learning rate, the highest of a schedule"`
	AdamW
	MaxGradNorm float64 `toml:"max_grad_norm" range:"[0,)" note:"0 turns it off" help:"scale a gradient of a larger Euclidean norm down to this norm"`
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
