package runtime

import (
	"fmt"

	"onering/models"
	"onering/models/ports"
)

// layersForward runs the layers and the final norm and returns their activations: with
// forBackward those of all layers, else those of the last one. The caller gives them back to spare.
func (p *Pass) layersForward(forBackward bool) (*activations, error) {
	l := p.learner
	a := l.takeActivations(p, forBackward)
	if err := p.fillActivations(a, forBackward); err != nil {
		l.spare.putBack(a)
		return nil, err
	}
	return a, nil
}

// fillActivations runs the embedding, the layers and the final norm of the rows that predict scored tokens. It stores in
// a the inputs of the layers (stream) and the outputs that their backward Programs read (stash), of all layers with
// forBackward; else each layer writes over those of earlier ones.
func (p *Pass) fillActivations(a *activations, forBackward bool) error {
	l := p.learner
	if err := l.tables.causal(p.rowLength, l.geometry); err != nil {
		return err
	}
	x, err := a.streamOf(0, forBackward).resize(p.streamShape()...)
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
		p.bindLayer(bind, i, a.streamOf(i, forBackward))
		y, err := a.streamOf(i+1, forBackward).resize(p.streamShape()...)
		bind.out(ports.StreamOut, y, err)
		stash := a.stashOf(i, forBackward, s.stash)
		for j, port := range s.stash {
			v, err := p.stashValue(port, &stash[j])
			bind.out(port.Name, v, err)
		}
		if err := bind.run(); err != nil {
			return fmt.Errorf("runtime: layer %d: %w", i, err)
		}
		x = y
	}
	xr, err := a.scoredRows.resize(int64(p.scored), int64(l.geometry.Hidden))
	if err != nil {
		return err
	}
	if err := l.rows.gather(x, p.packed.predictors.value, xr); err != nil {
		return err
	}
	return l.norm.runForward(xr, &a.normedRows, p.temperature)
}

// layersBackward runs the layers backward from the gradient of the rows that predict
// scored tokens. It adds to the gradients of the layers and of the embedding.
func (p *Pass) layersBackward(dxr *Value) error {
	l, a := p.learner, p.activations
	if err := l.tables.causal(p.rowLength, l.geometry); err != nil { // a later pass may have made them for other rows
		return err
	}
	dy, err := l.back.dx[0].resize(p.streamShape()...)
	if err != nil {
		return err
	}
	if err := l.rows.scatter(dxr, p.packed.predictors.value, dy); err != nil { // the other rows of dy become zeros
		return err
	}
	for i := l.geometry.Layers - 1; i >= 0; i-- {
		s, err := l.sessions(p.form(a, i))
		if err != nil {
			return err
		}
		bind := s.backward[i].begin()
		p.bindLayer(bind, i, &a.stream[i])
		bind.in(ports.Valid, p.packed.valid.value, nil)
		bind.in(ports.TokenCopies, p.packed.sharedPlaces.value, nil) // all places of a shared token, whose gradients add up
		bind.in(ports.TokenCopied, p.packed.sharedMask.value, nil)
		for j, port := range s.stash {
			bind.in(port.Name, a.stash[i][j].value, nil)
		}
		bind.in(ports.StreamGrad, dy, nil)
		dx, err := l.back.dx[(l.geometry.Layers-i)%2].resize(p.streamShape()...) // the one that dy is not in
		bind.out(ports.StreamGradOut, dx, err)
		if err := bind.run(); err != nil {
			return fmt.Errorf("runtime: layer %d: %w", i, err)
		}
		dy = dx
		l.reportFinal(i) // calls Options.Final with the first element of those that are final now
	}
	if l.trainsWeights() {
		if err := l.rows.learn(dy, &p.packed.ids, l.gradients.value(l.geometry.Embedding, models.F32)); err != nil {
			return err
		}
	}
	if l.options.Final != nil {
		l.options.Final(0) // from element 0 on all gradients are final, the embedding's too
	}
	return nil
}

// form returns the form of layer i's Programs in a pass with the activations a.
func (p *Pass) form(a *activations, i int) layerForm {
	g := p.learner.geometry
	return layerForm{g.Kinds[g.Kind(i)].Program, p.queryBlocks, i < a.fullLayers}
}

// bindLayer binds the inputs that the forward and the backward Program of a layer share. x is the layer's input.
func (p *Pass) bindLayer(b *Binding, layer int, x *buffer) {
	in, tables := p.packed, &p.learner.tables
	kind := p.learner.geometry.Kind(layer)
	mask := tables.maskOf(p.learner.geometry.Kinds[kind]).value // a layer reads one of the ports Mask and Band
	v, err := x.resize(p.streamShape()...)
	b.in(ports.Stream, v, err)
	for name, v := range map[string]*Value{ports.Positions: in.positions.value, ports.Cos: tables.cos[kind].value, ports.Sin: tables.sin[kind].value,
		ports.Mask: mask, ports.Band: mask, ports.BlockBounds: in.blockBounds.value} {
		if b.has(name) { // kinds of layers need different inputs
			b.in(name, v, nil)
		}
	}
	b.in(ports.PackedRows, in.tokenAt.value, nil)
	b.in(ports.PackedTokens, in.placeOf.value, nil)
}

// streamShape returns the shape [N,D] of the inputs and outputs of layers.
func (p *Pass) streamShape() []int64 {
	return []int64{int64(p.tokens), int64(p.learner.geometry.Hidden)}
}

// stashValue returns the Value in b of an output that is kept for backward.
func (p *Pass) stashValue(port models.Port, b *buffer) (*Value, error) {
	shape, err := port.Sizes(map[string]int{"N": p.tokens, "B": int(p.packed.tokenAt.value.shape[0]), "T": p.rowLength})
	if err != nil {
		return nil, err
	}
	return b.resize(shape...)
}

// activations are the values that a pass computes between its tokens and its log-probs. A pass that is kept for
// Backward owns a set until it is released. All other passes share one set, and write all layers to the same buffers.
// So a Learner has one set for each pass that is kept at the same time, and one more.
type activations struct {
	stream                 []buffer   // the input [N,D] of each layer, and the last layer's output
	stash                  [][]buffer // for each layer, the values that forward stores for backward
	fullLayers             int        // how many layers, from the first on, store all that backward reads
	stashBytes             int        // its part of LearnerOptions.StashBytes
	scoredRows, normedRows buffer     // the rows [n,D] that predict scored tokens, before and after the final norm
	// logits [n,v] of each slice of the vocabulary, if they are stored
	logits      []buffer
	keepsLogits bool
}

// spare holds buffers that no open pass uses, for the next passes.
type spare struct {
	packed      []*packed
	activations []*activations
	stashBytes  int // bytes of StashBytes that open passes use
}

func (s *spare) close() {
	for _, p := range s.packed {
		p.close()
	}
	for _, a := range s.activations {
		a.close()
	}
}

// takeActivations returns a set for p that no other pass uses, with buffers for all layers and slices, and decides
// how much of p it stores.
func (l *Learner) takeActivations(p *Pass, forBackward bool) *activations {
	a := &activations{scoredRows: l.env.buffer(models.F32), normedRows: l.env.buffer(models.F32)}
	if s := &l.spare; len(s.activations) > 0 {
		last := len(s.activations) - 1
		a, s.activations = s.activations[last], s.activations[:last]
	}
	for len(a.logits) < len(l.head.slices) {
		a.logits = append(a.logits, l.env.buffer(models.F32))
	}
	for len(a.stream) <= l.geometry.Layers {
		a.stream, a.stash = append(a.stream, l.env.buffer(models.F32)), append(a.stash, nil)
	}
	a.fullLayers, a.keepsLogits = 0, false
	if forBackward {
		a.chooseStored(p)
	}
	if !a.keepsLogits { // their memory may be needed for more layers
		closeAll(a.logits)
	}
	return a
}

// chooseStored lets a store as much of p as the rest of StashBytes has room for: everything of some
// layers, then of all layers, then the logits too.
func (a *activations) chooseStored(p *Pass) {
	l := p.learner
	g, room := l.geometry, l.options.StashBytes-l.spare.stashBytes
	full, left := g.Full(p.tokens, room) // how many layers fit, and the bytes that they leave
	logits := 4 * p.scored * g.Vocab
	a.fullLayers = full
	if full == g.Layers && logits <= left {
		a.keepsLogits, left = true, left-logits
	}
	if full > 0 {
		a.stashBytes = room - left
		l.spare.stashBytes += a.stashBytes
	}
}

// putBack returns a set for other passes. Its content stays until the next pass.
func (s *spare) putBack(a *activations) {
	if a != nil {
		s.stashBytes, a.stashBytes = s.stashBytes-a.stashBytes, 0
		s.activations = append(s.activations, a)
	}
}

// streamOf returns the buffer of layer i's input, or of the last layer's output: a separate
// buffer if the pass is kept, else one of two in turn.
func (a *activations) streamOf(i int, forBackward bool) *buffer {
	if !forBackward {
		i %= 2
	}
	return &a.stream[i]
}

// stashOf returns the buffers of layer i's stash, or where the pass is not kept those of one stash for all
// layers. Those of an earlier pass that kept more are freed.
func (a *activations) stashOf(i int, forBackward bool, ports []models.Port) []buffer {
	if !forBackward {
		i = 0
	}
	s := a.stash[i]
	for j := len(s); j < len(ports); j++ {
		s = append(s, buffer{memory: a.normedRows.memory, dtype: ports[j].DType})
	}
	closeAll(s[len(ports):])
	a.stash[i] = s
	return s[:len(ports)]
}

// logitsOf returns the buffer of the logits of slice i: its own if the pass is kept.
func (a *activations) logitsOf(i int, forBackward bool) *buffer {
	if !forBackward {
		i = 0
	}
	return &a.logits[i]
}

func (a *activations) close() {
	closeBuffers(&a.scoredRows, &a.normedRows)
	closeAll(a.logits)
	closeAll(a.stream)
	for _, s := range a.stash {
		closeAll(s)
	}
}
