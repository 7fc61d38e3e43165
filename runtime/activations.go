package runtime

import "onering/models"

// activations are the values that a pass computes between its tokens and its
// log-probs. A pass that is kept owns one set until it is released; all others
// take turns with a single one, layer after layer in the same buffers. So a
// Learner has as many sets as passes are kept at once, and one more.
type activations struct {
	x     []scratch[float32] // layer i's input; the last is the last layer's output
	stash [][]room           // of each layer
	xr, h scratch[float32]   // the rows that predict response tokens, before and after the norm
}

// takeActivations returns a set that nothing uses, for a model whose layers
// stash these ports.
func (l *Learner) takeActivations(ports []models.Port) *activations {
	a := &activations{xr: onDevice[float32](l.env), h: onDevice[float32](l.env)}
	if n := len(l.spare); n > 0 {
		a, l.spare = l.spare[n-1], l.spare[:n-1]
	}
	for len(a.x) <= l.g.Layers {
		a.x = append(a.x, onDevice[float32](l.env))
		a.stash = append(a.stash, make([]room, len(ports)))
	}
	return a
}

// giveActivations hands a set back. What is in it holds until the next pass.
func (l *Learner) giveActivations(a *activations) {
	if a != nil {
		l.spare = append(l.spare, a)
	}
}

// input is where layer i's input lies, or the last layer's output: a place of
// its own, or one of two that take turns.
func (a *activations) input(i int, keep bool) *scratch[float32] {
	if !keep {
		i %= 2
	}
	return &a.x[i]
}

// stashed is where layer i's stash lies.
func (a *activations) stashed(i int, keep bool) []room {
	if !keep {
		i = 0
	}
	return a.stash[i]
}

func (a *activations) close() {
	a.xr.close()
	a.h.close()
	for i := range a.x {
		a.x[i].close()
	}
	for i := range a.stash {
		for j := range a.stash[i] {
			a.stash[i][j].close()
		}
	}
}
