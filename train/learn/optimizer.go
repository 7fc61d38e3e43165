package learn

import (
	"fmt"
	"slices"
	"strings"

	"onering/models"
	"onering/runtime"
)

// An Optimizer updates the weights of a ring from its gradients. To add one, write
// a file like adamw.go and register its settings there.
type Optimizer interface {
	// GradNorm returns the 2-norm of all gradients, divided by the ring's loss
	// scale. NaN and infinities are a *runtime.NotFiniteError, or in float16
	// runtime.ErrOverflow.
	GradNorm() (float64, error)
	// Update takes the next update with a learning rate. Gradients count
	// multiplied by clip and divided by the ring's loss scale, and stay as they
	// are.
	Update(rate, clip float64) error
	// State returns by name what is kept for each parameter between updates, such
	// as the first moments. Each is of the weights' layout and zero at first. A
	// checkpoint reads and writes their contents.
	State() map[string]*models.Weights
	// Updates counts the updates made, and SetUpdates sets the count of a
	// checkpoint.
	Updates() int
	SetUpdates(n int)
	Close()
}

// OptimizerSettings are the settings of an optimizer, in its exported fields.
type OptimizerSettings interface {
	// Open makes the optimizer of a ring, whose layout tells the names and shapes
	// of all tensors. The gradients have that layout and lie on the device of
	// env. With offload the optimizer keeps its state in the host's memory.
	Open(env *runtime.Env, ring *runtime.Ring, gradients *models.Weights, offload bool) (Optimizer, error)
}

var optimizers = map[string]func() OptimizerSettings{}

// RegisterOptimizer makes an optimizer known by name; settings returns its default
// settings. It panics where the name is taken.
func RegisterOptimizer(name string, settings func() OptimizerSettings) {
	if optimizers[name] != nil {
		panic(fmt.Sprintf("learn: optimizer %q is registered twice", name))
	}
	optimizers[name] = settings
}

// NewOptimizer returns the default settings of an optimizer.
func NewOptimizer(name string) (OptimizerSettings, error) {
	if settings := optimizers[name]; settings != nil {
		return settings(), nil
	}
	return nil, fmt.Errorf("learn: there is no optimizer %q; there are %s", name, strings.Join(OptimizerNames(), ", "))
}

// OptimizerNames returns the names of all optimizers, sorted.
func OptimizerNames() []string {
	var names []string
	for name := range optimizers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
