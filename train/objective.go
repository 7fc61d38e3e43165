package train

import (
	"fmt"
	"runtime/debug"

	"onering/objectives"
	"onering/train/learn"
)

// weigh asks an objective for the loss and the derivatives of a batch, and for
// figures about them where they are finite. An objective is a plug-in: its panic
// is an error that names it.
func weigh(o objectives.Objective, name string, b objectives.Batch) (x learn.Loss, stats []objectives.Stat, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("objective %q panics: %v\n%s", name, p, debug.Stack())
		}
	}()
	zeros := func() [][]float64 {
		z := make([][]float64, len(b.Trajectories))
		for i := range z {
			z[i] = make([]float64, len(b.Trajectories[i].LogProb))
		}
		return z
	}
	x.LogProb = zeros()
	x.Value = o.Loss(b, b)
	o.Weights(b, x.LogProb)
	if e, ok := o.(objectives.EntropyWeigher); ok && e.WeighsEntropy() {
		x.Entropy = zeros()
		e.EntropyWeights(b, x.Entropy)
	}
	if x.Check() != nil {
		return x, nil, nil // the Stepper reports it
	}
	var diagnostics []objectives.Diagnostics
	if d, ok := o.(objectives.Diagnoser); ok {
		diagnostics = d.Diagnose(b)
	}
	return x, objectives.Summarize(b, x.LogProb, diagnostics), nil
}

// isLive says whether an objective may give a trajectory weights other than zero.
func isLive(o objectives.Objective, x objectives.Trajectory) bool {
	return x.Advantage != 0 || objectives.WeighsEntropy(o) || objectives.NeedsReference(o)
}
