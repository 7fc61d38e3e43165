package runtime

import (
	"fmt"

	"onering/models"
	"onering/models/ports"
)

// layersForward runs the layers and the final norm and returns their activations: with
// keep those of all layers, else those of the last one. The caller releases them.
func (p *Pass) layersForward(keep bool) (*activations, error) {
	l := p.learner
	a := l.takeActivations(p, keep)
	if err := p.fillActivations(a, keep); err != nil {
		l.spare.give(a)
		return nil, err
	}
	return a, nil
}

// fillActivations runs the layers and the final norm and stores activations in a.
func (p *Pass) fillActivations(a *activations, keep bool) error {
	l := p.learner
	if err := l.tables.causal(p.longest, l.geometry); err != nil {
		return err
	}
	x, err := a.input(0, keep).of(p.streamShape()...)
	if err != nil {
		return err
	}
	if err := l.rows.embed(l.embedding, p.packed.ids.value, x); err != nil {
		return err
	}
	for i := range l.geometry.Layers {
		s, err := l.sessions(p.form(a, i))
		if err != nil {
			return err
		}
		bind := s.forward[i].begin()
		p.bindLayer(bind, i, a.input(i, keep))
		y, err := a.input(i+1, keep).of(p.streamShape()...)
		bind.out(ports.StreamOut, y, err)
		stash := a.stashed(i, keep, s.stash)
		for j, port := range s.stash {
			v, err := p.stashValue(port, &stash[j])
			bind.out(port.Name, v, err)
		}
		if err := bind.run(); err != nil {
			return fmt.Errorf("runtime: layer %d: %w", i, err)
		}
		x = y
	}
	xr, err := a.xr.of(int64(p.rows), int64(l.geometry.Hidden))
	if err != nil {
		return err
	}
	if err := l.rows.gather(x, p.packed.places.value, xr); err != nil {
		return err
	}
	return l.norm.runForward(xr, &a.h, p.temperature)
}

// layersBackward runs the layers backward from the gradient of the rows that predict
// scored tokens. It adds to the gradients of the layers and of the embedding.
func (p *Pass) layersBackward(dxr *Value) error {
	l, a := p.learner, p.activations
	if err := l.tables.causal(p.longest, l.geometry); err != nil {
		return err
	}
	dy, err := l.back.dx[0].of(p.streamShape()...)
	if err != nil {
		return err
	}
	if err := l.rows.scatter(dxr, p.packed.places.value, dy); err != nil {
		return err
	}
	for i := l.geometry.Layers - 1; i >= 0; i-- {
		s, err := l.sessions(p.form(a, i))
		if err != nil {
			return err
		}
		bind := s.backward[i].begin()
		p.bindLayer(bind, i, &a.x[i])
		bind.in(ports.Valid, p.packed.valid.value, nil)
		bind.in(ports.TokenCopies, p.packed.copies.value, nil)
		bind.in(ports.TokenCopied, p.packed.copied.value, nil)
		for j, port := range s.stash {
			bind.in(port.Name, a.stash[i][j].value, nil)
		}
		bind.in(ports.StreamGrad, dy, nil)
		dx, err := l.back.dx[(l.geometry.Layers-i)%2].of(p.streamShape()...)
		bind.out(ports.StreamGradOut, dx, err)
		if err := bind.run(); err != nil {
			return fmt.Errorf("runtime: layer %d: %w", i, err)
		}
		dy = dx
		l.final(i)
	}
	if l.trainsWeights() {
		if err := l.rows.learn(dy, &p.packed.ids, l.gradients.value(l.geometry.Embedding, models.F32)); err != nil {
			return err
		}
	}
	if l.options.Final != nil {
		l.options.Final(0)
	}
	return nil
}

// form returns the form of layer i's Programs in a pass with the activations a.
func (p *Pass) form(a *activations, i int) layerForm {
	g := p.learner.geometry
	return layerForm{g.Kinds[g.Kind(i)].Program, p.blocks, i < a.full}
}

// bindLayer binds the inputs that the forward and the backward Program of a layer
// share. x is the layer's input.
func (p *Pass) bindLayer(b *Binding, layer int, x *buffer) {
	in, tables := p.packed, &p.learner.tables
	kind := p.learner.geometry.Kind(layer)
	mask := tables.maskOf(p.learner.geometry.Kinds[kind]).value
	v, err := x.of(p.streamShape()...)
	b.in(ports.Stream, v, err)
	for name, v := range map[string]*Value{ports.Positions: in.pos.value, ports.Cos: tables.cos[kind].value, ports.Sin: tables.sin[kind].value,
		ports.Mask: mask, ports.Band: mask, ports.BlockBounds: in.bounds.value} {
		if b.has(name) { // kinds of layers need different inputs
			b.in(name, v, nil)
		}
	}
	b.in(ports.PackedRows, in.rows.value, nil)
	b.in(ports.PackedTokens, in.tokens.value, nil)
}

// streamShape returns the shape [N,D] of the inputs and outputs of layers.
func (p *Pass) streamShape() []int64 { return []int64{int64(p.n), int64(p.learner.geometry.Hidden)} }

// stashValue returns the Value in b of an output that is kept for backward.
func (p *Pass) stashValue(port models.Port, b *buffer) (*Value, error) {
	shape, err := port.Sizes(map[string]int{"N": p.n, "B": int(p.packed.rows.value.shape[0]), "T": p.longest})
	if err != nil {
		return nil, err
	}
	return b.of(shape...)
}

// activations are the values that a pass computes between its tokens and its log-probs. A
// pass that is kept owns a set until it is released. All other passes share one set, and
// write all layers to the same buffers. So a Learner has one set for each pass that is
// kept at the same time, and one more.
type activations struct {
	x     []buffer   // the input [N,D] of each layer, and the last layer's output
	stash [][]buffer // for each layer, the values that forward stores for backward
	full  int        // how many layers store everything
	bytes int        // its part of StashBytes
	xr, h buffer     // the rows [n,D] that predict scored tokens, before and after the final norm
	// logits [n,v] of each slice of the vocabulary, if they are stored
	logits      []buffer
	keepsLogits bool
}

// spare holds buffers that no open pass uses, for the next passes.
type spare struct {
	packed      []*packed
	activations []*activations
	stored      int // bytes of StashBytes that open passes use
}

func (s *spare) close() {
	for _, p := range s.packed {
		p.close()
	}
	for _, a := range s.activations {
		a.close()
	}
}

// takeActivations returns a set for p that no other pass uses.
func (l *Learner) takeActivations(p *Pass, keep bool) *activations {
	a := &activations{xr: l.env.buffer(models.F32), h: l.env.buffer(models.F32)}
	if s := &l.spare; len(s.activations) > 0 {
		last := len(s.activations) - 1
		a, s.activations = s.activations[last], s.activations[:last]
	}
	for len(a.logits) < len(l.head.slices) {
		a.logits = append(a.logits, l.env.buffer(models.F32))
	}
	for len(a.x) <= l.geometry.Layers {
		a.x, a.stash = append(a.x, l.env.buffer(models.F32)), append(a.stash, nil)
	}
	a.full, a.keepsLogits = 0, false
	if keep {
		a.fill(p)
	}
	if !a.keepsLogits { // an earlier pass may have used them for more layers
		closeAll(a.logits)
	}
	return a
}

// fill lets a store as much of p as the rest of StashBytes has room for: everything of some
// layers, then of all layers, then the logits too.
func (a *activations) fill(p *Pass) {
	l := p.learner
	g, most := l.geometry, l.options.StashBytes-l.spare.stored
	full, left := g.Full(p.n, most)
	logits := 4 * p.rows * g.Vocab
	if a.full = full; full == g.Layers && logits <= left {
		a.keepsLogits, left = true, left-logits
	}
	if full > 0 {
		a.bytes = most - left
		l.spare.stored += a.bytes
	}
}

// give returns a set for other passes. Its content stays until the next pass.
func (s *spare) give(a *activations) {
	if a != nil {
		s.stored, a.bytes = s.stored-a.bytes, 0
		s.activations = append(s.activations, a)
	}
}

// input returns the buffer of layer i's input, or of the last layer's output: a separate
// buffer if the pass is kept, else one of two in turn.
func (a *activations) input(i int, keep bool) *buffer {
	if !keep {
		i %= 2
	}
	return &a.x[i]
}

// stashed returns the buffers of layer i's stash, or where the pass is not kept those of one stash for all
// layers. Those of an earlier pass that kept more are freed.
func (a *activations) stashed(i int, keep bool, ports []models.Port) []buffer {
	if !keep {
		i = 0
	}
	s := a.stash[i]
	for j := len(s); j < len(ports); j++ {
		s = append(s, buffer{memory: a.h.memory, dtype: ports[j].DType})
	}
	closeAll(s[len(ports):])
	a.stash[i] = s
	return s[:len(ports)]
}

// slice returns the buffer of the logits of slice i: its own if the pass is kept.
func (a *activations) slice(i int, keep bool) *buffer {
	if !keep {
		i = 0
	}
	return &a.logits[i]
}

func (a *activations) close() {
	closeBuffers(&a.xr, &a.h)
	closeAll(a.logits)
	closeAll(a.x)
	for _, s := range a.stash {
		closeAll(s)
	}
}
