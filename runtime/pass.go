package runtime

import (
	"fmt"
	"math"

	"onering/models"
)

// A Pass is a micro-batch of sequences packed one after the other, its
// log-probs, and what the backward pass needs.
type Pass struct {
	// LogProb and Entropy hold, for each sequence, log p(token) and the
	// entropy in nats of the distribution that each response token was drawn
	// from, at the given temperature.
	LogProb, Entropy [][]float32

	sequences   []Sequence
	temperature float64
	l           *Learner
	buffers     *buffers
	activations *activations // nil where the pass is not kept
	n, rows     int          // packed tokens; response tokens
	longest     int          // T, the width of the rows that attention sees
	blocks      int
}

// buffers hold what a pass knows of its tokens, a few numbers for each. They are
// reused: what has a capacity keeps it.
type buffers struct {
	pos, seqRows, tokens scratch[int64]
	valid                scratch[float32]
	bounds               scratch[int64] // on the host, where what reads it runs: sizes are computed there
	at                   []int          // packed indices of the rows that predict response tokens
	y                    scratch[int64] // the tokens they predict
	ids, places          scratch[int64] // on a device: the fed tokens, and at
	z, u                 [2]scratch[float32]
	logit                scratch[float32]
}

func newBuffers(e *Env) *buffers {
	return &buffers{
		pos: aside[int64](e), seqRows: aside[int64](e), tokens: aside[int64](e), valid: aside[float32](e),
		y: aside[int64](e), ids: aside[int64](e), places: aside[int64](e),
		z:     [2]scratch[float32]{aside[float32](e), aside[float32](e)},
		u:     [2]scratch[float32]{aside[float32](e), aside[float32](e)},
		logit: aside[float32](e),
	}
}

func (b *buffers) close() {
	for _, s := range []*scratch[int64]{&b.pos, &b.seqRows, &b.tokens, &b.bounds, &b.y, &b.ids, &b.places} {
		s.close()
	}
	for _, s := range []*scratch[float32]{&b.valid, &b.z[0], &b.z[1], &b.u[0], &b.u[1], &b.logit} {
		s.close()
	}
}

// Forward computes the log-probs of the sequences' responses at a temperature.
// With keep the pass holds what Backward needs; without, Backward computes the
// layers again. Release gives the memory back.
func (l *Learner) Forward(sequences []Sequence, temperature float64, keep bool) (*Pass, error) {
	if !(temperature > 0) {
		return nil, fmt.Errorf("runtime: temperature %g is not above 0", temperature)
	}
	p := &Pass{l: l, sequences: sequences, temperature: temperature}
	if err := p.check(); err != nil {
		return nil, err
	}
	if n := len(l.free); n > 0 {
		p.buffers, l.free = l.free[n-1], l.free[:n-1]
	} else {
		p.buffers = newBuffers(l.env)
	}
	if err := p.forward(keep); err != nil {
		p.Release()
		return nil, err
	}
	return p, nil
}

func (p *Pass) check() error {
	for i, s := range p.sequences {
		if s.Prompt < 1 || s.Prompt > len(s.Tokens) {
			return fmt.Errorf("runtime: sequence %d has a prompt of %d of its %d tokens; it takes at least one", i, s.Prompt, len(s.Tokens))
		}
		if m := p.l.g.MaxPositions; m > 0 && len(s.Tokens) > m {
			return fmt.Errorf("runtime: sequence %d has %d tokens; the model's max_position_embeddings is %d", i, len(s.Tokens), m)
		}
		for t, id := range s.Tokens {
			if id < 0 || int(id) >= p.l.g.Vocab {
				return fmt.Errorf("runtime: sequence %d holds id %d at %d; the model has ids 0 to %d", i, id, t, p.l.g.Vocab-1)
			}
		}
		p.LogProb = append(p.LogProb, make([]float32, len(s.Tokens)-s.Prompt))
		p.Entropy = append(p.Entropy, make([]float32, len(s.Tokens)-s.Prompt))
		p.n += s.fed()
		p.rows += len(s.Tokens) - s.Prompt
	}
	return nil
}

// Tokens returns how many tokens pass through the layers.
func (p *Pass) Tokens() int { return p.n }

func (p *Pass) forward(keep bool) error {
	if p.rows == 0 {
		return nil
	}
	if err := p.pack(); err != nil {
		return err
	}
	a, err := p.layersForward(keep)
	if err != nil {
		return err
	}
	if keep {
		p.activations = a
	} else {
		defer p.l.giveActivations(a)
	}
	return p.headForward(a)
}

// pack lays out the sequences: which place in rows [B,T] each token has.
func (p *Pass) pack() error {
	l, b := p.l, p.buffers
	batch, longest := 0, 0
	for _, s := range p.sequences {
		if n := s.fed(); n > 0 {
			batch++
			longest = max(longest, n)
		}
	}
	T := (longest + 7) / 8 * 8 // fewer different sizes for the runtime's memory planner
	p.longest = T
	p.blocks = 1
	if T > l.options.BlockTokens {
		p.blocks = min(8, (T+l.options.BlockTokens-1)/l.options.BlockTokens)
	}
	pos, _, err := b.pos.of(int64(p.n), 1)
	if err != nil {
		return err
	}
	seqRows, _, err := b.seqRows.of(int64(batch), int64(T))
	if err != nil {
		return err
	}
	tokens, _, err := b.tokens.of(int64(p.n))
	if err != nil {
		return err
	}
	valid, _, err := b.valid.of(int64(batch), int64(T), 1)
	if err != nil {
		return err
	}
	y, _, err := b.y.of(int64(p.rows))
	if err != nil {
		return err
	}
	clear(valid)
	clear(seqRows)
	b.at = b.at[:0]
	row, at := 0, 0
	for _, s := range p.sequences {
		n := s.fed()
		if n == 0 {
			continue
		}
		for t := range n {
			place := row*T + t
			pos[at+t], tokens[at+t], seqRows[place], valid[place] = int64(t), int64(place), int64(at+t), 1
			if t+1 >= s.Prompt {
				y[len(b.at)] = int64(s.Tokens[t+1])
				b.at = append(b.at, at+t)
			}
		}
		row, at = row+1, at+n
	}
	bounds, _, err := b.bounds.of(int64(p.blocks + 1))
	if err != nil {
		return err
	}
	for i := range bounds {
		bounds[i] = int64(i * T / p.blocks)
	}
	if err := p.push(); err != nil {
		return err
	}
	return l.angles(longest)
}

// push takes what pack made to the device, once for all layers.
func (p *Pass) push() error {
	if p.l.env.memory == nil {
		return nil
	}
	b := p.buffers
	ids, _, err := b.ids.of(int64(p.n))
	if err != nil {
		return err
	}
	places, _, err := b.places.of(int64(p.rows))
	if err != nil {
		return err
	}
	ids = ids[:0]
	for _, s := range p.sequences {
		for _, id := range s.Tokens[:s.fed()] {
			ids = append(ids, int64(id))
		}
	}
	for i, at := range b.at {
		places[i] = int64(at)
	}
	for _, s := range []*scratch[int64]{&b.pos, &b.seqRows, &b.tokens, &b.y, &b.ids, &b.places} {
		if err := s.push(); err != nil {
			return err
		}
	}
	return b.valid.push()
}

// gather makes y the rows of x at ids, on the device.
func (l *Learner) gather(x, ids, y *Value) error {
	b := binder{b: l.rows[0]}
	b.in("X", x, nil)
	b.in("ids", ids, nil)
	b.out("y", y, nil)
	return b.run()
}

// add adds rows onto x at ids, on the device.
func (l *Learner) add(x, ids, rows *Value) error {
	b := binder{b: l.rows[1]}
	b.in("X", x, nil)
	b.in("ids", ids, nil)
	b.in("rows", rows, nil)
	b.out("X_out", x, nil)
	return b.run()
}

// causal makes the mask that of rows of T tokens: a token sees itself and those
// before it.
func (l *Learner) causal(T int) error {
	if len(l.mask.shape) > 0 && l.mask.shape[0] == int64(T) {
		return nil
	}
	mask, _, err := l.mask.of(int64(T), int64(T))
	if err != nil {
		return err
	}
	causal(mask, T)
	return l.mask.push()
}

// causal fills a mask [T,T].
func causal(mask []float32, T int) {
	for i := range T {
		for j := range T {
			mask[i*T+j] = 0
			if j > i {
				mask[i*T+j] = -math.MaxFloat32
			}
		}
	}
}

// angles makes the rotary tables long enough.
func (l *Learner) angles(n int) error {
	half := l.g.HeadDim / 2
	if len(l.cos.shape) > 0 && l.cos.shape[0] >= int64(n) {
		return nil
	}
	n = max(256, 2*n)
	cos, sin := rotary(n, l.g)
	to, _, err := l.cos.of(int64(n), int64(half))
	if err != nil {
		return err
	}
	copy(to, cos)
	if to, _, err = l.sin.of(int64(n), int64(half)); err != nil {
		return err
	}
	copy(to, sin)
	if err := l.cos.push(); err != nil {
		return err
	}
	return l.sin.push()
}

// bindLayer binds what the two layer Programs have in common; x is the layer's
// input.
func (p *Pass) bindLayer(b *binder, x *scratch[float32]) error {
	buf := p.buffers
	_, v, err := x.of(int64(p.n), int64(p.l.g.Hidden))
	b.in("x", v, err)
	b.in("pos", buf.pos.value, nil)
	b.in("cos", p.l.cos.value, nil)
	b.in("sin", p.l.sin.value, nil)
	b.in("mask", p.l.mask.value, nil)
	b.in("rows", buf.seqRows.value, nil)
	b.in("tokens", buf.tokens.value, nil)
	if p.blocks > 1 {
		b.in("bounds", buf.bounds.value, nil)
	}
	return b.err
}

// stashShape returns the sizes of one stashed value.
func (p *Pass) stashShape(port string) []int64 {
	g, n := p.l.g, int64(p.n)
	switch port {
	case "q":
		return []int64{n, int64(g.Heads * g.HeadDim)}
	case "k", "v":
		return []int64{n, int64(g.KVHeads * g.HeadDim)}
	case "o":
		s := p.buffers.seqRows.shape
		return []int64{s[0], s[1], int64(g.Heads * g.HeadDim)}
	case "x2":
		return []int64{n, int64(g.Hidden)}
	default: // gate, up
		return []int64{n, int64(g.FFN)}
	}
}

// layersForward runs the layers and returns what they made, of all layers with
// keep and else of the last one. The caller owns it.
func (p *Pass) layersForward(keep bool) (a *activations, err error) {
	l := p.l
	s, err := l.sessions(p.blocks)
	if err != nil {
		return nil, err
	}
	if err := l.causal(p.longest); err != nil {
		return nil, err
	}
	a = l.takeActivations(s.stash)
	made := a // which a return of nil hides
	defer func() {
		if err != nil {
			l.giveActivations(made)
		}
	}()
	x, xv, err := a.input(0, keep).of(int64(p.n), int64(l.g.Hidden))
	if err != nil {
		return nil, err
	}
	if l.env.memory == nil {
		l.embed(x, p.sequences)
	} else if err := l.gather(l.ring.values[l.g.Embedding], p.buffers.ids.value, xv); err != nil {
		return nil, err
	}
	for i := range l.g.Layers {
		bind := binder{b: s.forward[i]}
		if err := p.bindLayer(&bind, a.input(i, keep)); err != nil {
			return nil, err
		}
		y, yv, err := a.input(i+1, keep).of(int64(p.n), int64(l.g.Hidden))
		bind.out("y", yv, err)
		stash := a.stashed(i, keep)
		for j, port := range s.stash {
			v, err := stash[j].of(l.env, port.DType, p.stashShape(port.Name)...)
			bind.out(port.Name, v, err)
		}
		if err := bind.run(); err != nil {
			return nil, fmt.Errorf("runtime: layer %d: %w", i, err)
		}
		x, xv = y, yv
	}
	return a, p.headInput(a, x, xv)
}

// headInput takes the rows that predict response tokens from the last layer's
// output x, and norms them.
func (p *Pass) headInput(a *activations, x []float32, xv *Value) error {
	l, d, rows := p.l, p.l.g.Hidden, int64(p.rows)
	xr, xrv, err := a.xr.of(rows, int64(d))
	bind := binder{b: l.norm[0]}
	bind.in("x", xrv, err)
	inv, v, err := l.invT.of()
	bind.in("inv_temperature", v, err)
	_, h, err := a.h.of(rows, int64(d))
	bind.out("h", h, err)
	if bind.err != nil {
		return bind.err
	}
	if l.env.memory == nil {
		for i, at := range p.buffers.at {
			copy(xr[i*d:(i+1)*d], x[at*d:])
		}
	} else if err := l.gather(xv, p.buffers.places.value, xrv); err != nil {
		return err
	}
	inv[0] = float32(1 / p.temperature)
	return bind.run()
}

// embed copies the embedding of each fed token.
func (l *Learner) embed(x []float32, sequences []Sequence) {
	e, _, _ := l.ring.Weights.View(l.g.Embedding)
	d, at := l.g.Hidden, 0
	for _, s := range sequences {
		for _, id := range s.Tokens[:s.fed()] {
			copy(x[at:at+d], e[int(id)*d:])
			at += d
		}
	}
}

// headForward computes log-probs and entropies of the response tokens.
func (p *Pass) headForward(a *activations) error {
	l, b := p.l, p.buffers
	rows, h := int64(p.rows), a.h.value
	z, zv, err := b.z[0].of(rows, 1)
	if err != nil {
		return err
	}
	u, uv, err := b.u[0].of(rows, 1)
	if err != nil {
		return err
	}
	for i := range z {
		z[i], u[i] = -1e30, 0
	}
	if err := b.z[0].push(); err != nil {
		return err
	}
	if err := b.u[0].push(); err != nil {
		return err
	}
	bind := binder{b: l.head[0]}
	bind.in("h", h, nil)
	for i, s := range l.slices {
		bind.in("E", s.e, nil)
		bind.in("z", zv, nil)
		bind.in("u", uv, nil)
		next := (i + 1) % 2
		if z, zv, err = b.z[next].of(rows, 1); err != nil {
			return err
		}
		if u, uv, err = b.u[next].of(rows, 1); err != nil {
			return err
		}
		bind.out("z_out", zv, nil)
		bind.out("u_out", uv, nil)
		if err := bind.run(); err != nil {
			return err
		}
	}
	bind = binder{b: l.head[1]}
	bind.in("h", h, nil)
	bind.in("y", b.y.value, nil)
	logit, v, err := b.logit.of(rows, 1)
	bind.out("logit", v, err)
	if err := bind.run(); err != nil {
		return err
	}
	last := len(l.slices) % 2
	for _, s := range []*scratch[float32]{&b.z[last], &b.u[last], &b.logit} {
		if err := s.pull(); err != nil {
			return err
		}
	}
	i := 0
	for s := range p.LogProb {
		for t := range p.LogProb[s] {
			// Rounding may put a near-certain token a little above 0, and its
			// entropy a little below.
			p.LogProb[s][t] = min(logit[i]-z[i], 0)
			p.Entropy[s][t] = max(z[i]-u[i], 0)
			i++
		}
	}
	return nil
}

// z is the log-sum-exp of the head's last slice.
func (p *Pass) lastZ() *scratch[float32] { return &p.buffers.z[len(p.l.slices)%2] }

// Release gives the pass's memory back to the Learner for the next pass.
func (p *Pass) Release() {
	p.l.giveActivations(p.activations)
	p.activations = nil
	if p.buffers != nil {
		p.l.free = append(p.l.free, p.buffers)
		p.buffers = nil
	}
}

// Bytes estimates what a kept pass over n tokens in rows of T holds.
func (l *Learner) Bytes(n int) int { return StashBytes(l.g, l.options.Stash, n) }

// StashBytes estimates what the layers of a kept pass over n tokens hold.
func StashBytes(g models.Geometry, level models.Stash, n int) int {
	size := g.Compute.Size() // of all but the stream from layer to layer
	per := 4 * g.Hidden
	if level >= models.StashAttention {
		per += size*(2*g.Heads*g.HeadDim+2*g.KVHeads*g.HeadDim) + 4*g.Hidden
	}
	if level >= models.StashAll {
		per += size * 2 * g.FFN
	}
	return n * per * g.Layers
}
