package runtime

import (
	"fmt"
	"slices"
	"strings"

	"onering/models"
)

// A Sequence is a prompt and a response of it, as token ids.
type Sequence struct {
	Tokens []int32 // prompt and response
	Prompt int     // tokens of the prompt, at least 1
}

// fed is how many of the sequence's tokens pass through the layers: all but
// the last, which nothing is predicted from.
func (s Sequence) fed() int {
	if len(s.Tokens) <= s.Prompt {
		return 0
	}
	return len(s.Tokens) - 1
}

// LearnerOptions tune the memory and speed of a Learner, never its results
// beyond rounding.
type LearnerOptions struct {
	// Stash is how much of the forward pass is kept for the backward pass.
	Stash models.Stash
	// HeadRows is how many rows of the vocabulary are multiplied at once; 0
	// means 8192.
	HeadRows int
	// BlockTokens is the query length from which attention is computed in
	// blocks of about that many queries; 0 means 512.
	BlockTokens int
	// EntropyGradient lets Backward take dL/dentropy.
	EntropyGradient bool
	// ScoreOnly leaves out everything that Backward needs, the arena of
	// gradients above all.
	ScoreOnly bool
}

// A Learner computes log-probs and their gradients layer by layer, with one
// session for all layers. Gradients are added onto Gradients.
type Learner struct {
	Gradients *models.Weights

	env      *Env
	ring     *Ring
	g        models.Geometry
	options  LearnerOptions
	arena    *arena // of Gradients
	grads    map[string]*Value
	rows     [3]*Binding            // gather, add, token: on a device
	layers   map[int]*layerSessions // by blocks
	norm     [2]*Binding            // forward, backward
	head     [3]*Binding            // forward, target, backward
	slices   []headSlice
	free     []*buffers
	spare    []*activations
	mask     scratch[float32] // [T,T], of the newest pass
	cos, sin scratch[float32]
	invT     scratch[float32]
	dx       [2]scratch[float32]
	dh, dxr  scratch[float32]
	w, v     scratch[float32]
	entropy  scratch[float32]
	failed   error // of ZeroGradients
}

// layerSessions are the bindings of each layer to the two layer Programs.
type layerSessions struct {
	forward, backward []*Binding    // by layer
	stash             []models.Port // what forward keeps for backward
}

// A headSlice is some rows of the head and of its gradient.
type headSlice struct{ e, de *Value }

const (
	defaultHeadRows    = 8192
	defaultBlockTokens = 512
)

// NewLearner makes an arena for the gradients and loads the Programs.
func (e *Env) NewLearner(r *Ring, o LearnerOptions) (l *Learner, err error) {
	if o.HeadRows <= 0 {
		o.HeadRows = defaultHeadRows
	}
	if o.BlockTokens <= 0 {
		o.BlockTokens = defaultBlockTokens
	}
	if err := r.on(e); err != nil {
		return nil, err
	}
	l = &Learner{env: e, ring: r, g: r.Arch.Geometry(), options: o, layers: make(map[int]*layerSessions),
		mask: aside[float32](e), cos: aside[float32](e), sin: aside[float32](e), w: aside[float32](e), v: aside[float32](e), entropy: aside[float32](e),
		dh: onDevice[float32](e), dxr: onDevice[float32](e), dx: [2]scratch[float32]{onDevice[float32](e), onDevice[float32](e)}}
	made := l // which a return of nil hides
	defer func() {
		if err != nil {
			made.Close()
		}
	}()
	if !o.ScoreOnly {
		if l.Gradients, err = models.NewWeights(r.Weights.Layout); err != nil {
			return nil, err
		}
		if l.arena, err = e.hold(l.Gradients, true); err != nil {
			return nil, err
		}
		if l.grads, err = l.arena.values(); err != nil {
			return nil, err
		}
	}
	if e.memory != nil {
		gather, add, token, err := r.Arch.Rows()
		if err != nil {
			return nil, err
		}
		for i, p := range []models.Program{gather, add, token} {
			if l.rows[i], err = l.load(p); err != nil {
				return nil, err
			}
		}
	}
	forward, backward, err := r.Arch.Norm()
	if err != nil {
		return nil, err
	}
	for i, p := range l.needed(forward, backward) {
		if l.norm[i], err = l.load(p); err == nil {
			err = l.bindWeights(l.norm[i], "")
		}
		if err != nil {
			return nil, err
		}
	}
	forward, target, backward, err := r.Arch.Head(o.EntropyGradient)
	if err != nil {
		return nil, err
	}
	for i, p := range l.needed(forward, target, backward) {
		if l.head[i], err = l.load(p); err != nil {
			return nil, err
		}
	}
	if err := l.head[1].Input("E", r.values[l.g.Head]); err != nil {
		return nil, err
	}
	return l, l.sliceHead()
}

// needed leaves out the last Program, the backward one, where only scores are
// asked for.
func (l *Learner) needed(programs ...models.Program) []models.Program {
	if l.options.ScoreOnly {
		return programs[:len(programs)-1]
	}
	return programs
}

// HasEntropyGradient says whether Backward takes dL/dentropy.
func (l *Learner) HasEntropyGradient() bool { return l.options.EntropyGradient }

// sliceHead cuts the head and its gradient into slices of HeadRows rows.
func (l *Learner) sliceHead() error {
	head, ok := l.ring.Weights.Layout.Find(l.g.Head)
	if !ok {
		return fmt.Errorf("runtime: the layout has no tensor %q", l.g.Head)
	}
	for from := 0; from < l.g.Vocab; from += l.options.HeadRows {
		to := min(from+l.options.HeadRows, l.g.Vocab)
		var s headSlice
		var err error
		first, after := head.Offset+from*l.g.Hidden, head.Offset+to*l.g.Hidden
		if s.e, err = l.ring.arena.value(first, after, int64(to-from), int64(l.g.Hidden)); err != nil {
			return err
		}
		l.slices = append(l.slices, s)
		if l.options.ScoreOnly {
			continue
		}
		last := &l.slices[len(l.slices)-1]
		if last.de, err = l.arena.value(first, after, int64(to-from), int64(l.g.Hidden)); err != nil {
			return err
		}
	}
	return nil
}

func (l *Learner) load(p models.Program) (*Binding, error) {
	s, err := l.env.Load(p)
	if err != nil {
		return nil, err
	}
	return s.NewBinding()
}

// bindWeights binds the weights and, where a Program updates them, the running
// gradients in place.
func (l *Learner) bindWeights(b *Binding, prefix string) error {
	if err := l.ring.bind(b, prefix); err != nil {
		return err
	}
	for out, in := range b.s.alias {
		name, ok := strings.CutPrefix(in, "grad.")
		if !ok {
			continue
		}
		v := l.grads[prefix+name]
		if v == nil {
			return fmt.Errorf("runtime: program %q updates the gradient of %q, which the model lacks", b.s.name, prefix+name)
		}
		if err := b.Input(in, v); err != nil {
			return err
		}
		if err := b.Output(out, v); err != nil {
			return err
		}
	}
	return nil
}

// sessions returns the layer Programs for a number of query blocks, loading
// them on first use.
func (l *Learner) sessions(blocks int) (*layerSessions, error) {
	if s := l.layers[blocks]; s != nil {
		return s, nil
	}
	forward, backward, err := l.ring.Arch.Layer(l.options.Stash, blocks)
	if err != nil {
		return nil, err
	}
	s := &layerSessions{}
	for _, p := range forward.Outputs {
		if p.Name != "y" {
			s.stash = append(s.stash, p)
		}
	}
	for i, p := range l.needed(forward, backward) {
		session, err := l.env.Load(p)
		if err != nil {
			return nil, err
		}
		for layer := range l.g.Layers {
			b, err := session.NewBinding()
			if err == nil {
				err = l.bindWeights(b, l.ring.Arch.LayerPrefix(layer))
			}
			if err != nil {
				return nil, err
			}
			if i == 0 {
				s.forward = append(s.forward, b)
			} else {
				s.backward = append(s.backward, b)
			}
		}
	}
	l.layers[blocks] = s
	return s, nil
}

// ZeroGradients clears the running gradients.
func (l *Learner) ZeroGradients() { l.failed = l.arena.zero() }

// Close frees the sessions, the buffers and the gradients.
func (l *Learner) Close() {
	closeBinding := func(b *Binding) {
		if b != nil {
			b.s.Close()
		}
	}
	for _, s := range l.layers {
		closeBinding(s.forward[0])
		if len(s.backward) > 0 {
			closeBinding(s.backward[0])
		}
	}
	for _, b := range slices.Concat(l.norm[:], l.head[:], l.rows[:]) {
		closeBinding(b)
	}
	for _, s := range l.slices {
		s.e.Close()
		if s.de != nil {
			s.de.Close()
		}
	}
	for _, b := range l.free {
		b.close()
	}
	for _, a := range l.spare {
		a.close()
	}
	closeValues(l.grads)
	for _, s := range []*scratch[float32]{&l.mask, &l.cos, &l.sin, &l.invT, &l.dx[0], &l.dx[1], &l.dh, &l.dxr, &l.w, &l.v, &l.entropy} {
		s.close()
	}
	l.arena.close()
	if l.Gradients != nil {
		l.Gradients.Close()
	}
}
