package runtime

import "onering/models"

// activations are what a pass computes between its tokens and its log-probs. A
// pass that is kept owns a set until it is released. All other passes share one
// set, and write all layers to the same buffers. So a Learner has as many sets as
// passes are kept at once, and one more.
type activations struct {
	x     []buffer   // the input [N,D] of each layer, and the last layer's output
	stash [][]buffer // for each layer, what forward keeps for backward
	xr, h buffer     // the rows [n,D] that predict response tokens, before and after the final norm
}

// spare holds buffers that no open pass uses, for the next passes.
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

// takeActivations returns a set that no pass uses, for layers that stash these
// ports.
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

// giveActivations gives a set back. Its content stays until the next pass.
func (l *Learner) giveActivations(a *activations) {
	if a != nil {
		l.spare.activations = append(l.spare.activations, a)
	}
}

// input returns the buffer of layer i's input, or of the last layer's output: a
// buffer of its own if the pass is kept, else one of two in turns.
func (a *activations) input(i int, keep bool) *buffer {
	if !keep {
		i %= 2
	}
	return &a.x[i]
}

// stashed returns the buffers of layer i's stash: its own if the pass is kept.
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
