package runtime

import "onering/models"

// activations are what a pass computes between its tokens and its log-probs. A
// pass that is kept owns one set until it is released; all others take turns with
// a single one, layer after layer in the same buffers. So a Learner has as many
// sets as passes are kept at once, and one more.
type activations struct {
	x     []buffer   // layer i's input [N,D]; the last is the last layer's output
	stash [][]buffer // of each layer, what its forward Program keeps for its backward one
	xr, h buffer     // the rows [n,D] that predict response tokens, before and after the final norm
}

// spare is what a Learner's next passes may use: what no open pass does.
type spare struct {
	packed      []*packed
	activations []*activations
}

func (s *spare) close() {
	for _, p := range s.packed {
		p.close()
	}
	for _, a := range s.activations {
		a.close()
	}
}

// takeActivations returns a set that nothing uses, for a model whose layers
// stash these ports.
func (l *Learner) takeActivations(ports []models.Port) *activations {
	a := &activations{xr: l.env.buffer(models.F32), h: l.env.buffer(models.F32)}
	if s := &l.spare; len(s.activations) > 0 {
		last := len(s.activations) - 1
		a, s.activations = s.activations[last], s.activations[:last]
	}
	for len(a.x) <= l.geometry.Layers {
		a.x = append(a.x, l.env.buffer(models.F32))
		var stash []buffer
		for _, p := range ports {
			stash = append(stash, l.env.buffer(p.DType))
		}
		a.stash = append(a.stash, stash)
	}
	return a
}

// giveActivations hands a set back. Its content stays until the next pass.
func (l *Learner) giveActivations(a *activations) {
	if a != nil {
		l.spare.activations = append(l.spare.activations, a)
	}
}

// input is the buffer of layer i's input, or of the last layer's output: one of
// its own where the pass is kept, else one of two that take turns.
func (a *activations) input(i int, keep bool) *buffer {
	if !keep {
		i %= 2
	}
	return &a.x[i]
}

// stashed are the buffers of layer i's stash: its own where the pass is kept.
func (a *activations) stashed(i int, keep bool) []buffer {
	if !keep {
		i = 0
	}
	return a.stash[i]
}

func (a *activations) close() {
	closeBuffers(&a.xr, &a.h)
	for i := range a.x {
		a.x[i].close()
	}
	for i := range a.stash {
		for j := range a.stash[i] {
			a.stash[i][j].close()
		}
	}
}
