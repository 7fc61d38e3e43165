package runtime

import "fmt"

// Backward adds the gradients of sum_t w[t] logp[t] + v[t] entropy[t] to the
// Learner's Gradients: w[i][t] = dL/dlogp of sequence i's response token t, v
// likewise dL/dentropy, nil for none (it takes the option EntropyGradient). All
// is multiplied by the Ring's LossScale. A pass whose weights are all zero costs
// nothing.
func (p *Pass) Backward(w, v [][]float64) error {
	l, b := p.l, p.buffers
	if l.options.ScoreOnly {
		return fmt.Errorf("runtime: this learner only scores")
	}
	if v != nil && !l.options.EntropyGradient {
		return fmt.Errorf("runtime: an entropy gradient takes the option EntropyGradient")
	}
	if l.failed != nil {
		return fmt.Errorf("runtime: clearing the gradients: %w", l.failed)
	}
	if p.rows == 0 {
		return nil
	}
	ws, wv, err := l.w.of(int64(p.rows), 1)
	if err != nil {
		return err
	}
	any, err := p.flatten(ws, w, "w")
	if err != nil {
		return err
	}
	var vs []float32
	var vv *Value
	if l.options.EntropyGradient {
		if vs, vv, err = l.v.of(int64(p.rows), 1); err != nil {
			return err
		}
		clear(vs)
		if v != nil {
			some, err := p.flatten(vs, v, "v")
			if err != nil {
				return err
			}
			any = any || some
		}
	}
	if !any {
		return nil
	}
	if err := l.w.push(); err != nil {
		return err
	}
	if vv != nil {
		if err := l.v.push(); err != nil {
			return err
		}
	}
	if p.activations == nil {
		if p.activations, err = p.layersForward(true); err != nil {
			return err
		}
	}
	a := p.activations
	if err := l.causal(p.longest); err != nil {
		return err
	}
	dxr, dxrv, err := p.headBackward(ws, wv, vv)
	if err != nil {
		return err
	}
	// The rows that predict response tokens, back in their places.
	d := l.g.Hidden
	dy, dyv, err := l.dx[0].of(int64(p.n), int64(d))
	if err != nil {
		return err
	}
	if err := l.dx[0].zero(); err != nil {
		return err
	}
	if l.env.memory == nil {
		for i, at := range b.at {
			copy(dy[at*d:(at+1)*d], dxr[i*d:])
		}
	} else if err := l.add(dyv, b.places.value, dxrv); err != nil {
		return err
	}
	s, err := l.sessions(p.blocks)
	if err != nil {
		return err
	}
	for i := l.g.Layers - 1; i >= 0; i-- {
		bind := binder{b: s.backward[i]}
		if err := p.bindLayer(&bind, &a.x[i]); err != nil {
			return err
		}
		bind.in("valid", b.valid.value, nil)
		for j, port := range s.stash {
			bind.in(port.Name, a.stash[i][j].value, nil)
		}
		bind.in("dy", dyv, nil)
		dx, dxv, err := l.dx[(l.g.Layers-i)%2].of(int64(p.n), int64(d))
		bind.out("dx", dxv, err)
		if err := bind.run(); err != nil {
			return fmt.Errorf("runtime: layer %d: %w", i, err)
		}
		dy, dyv = dx, dxv
	}
	if l.env.memory != nil {
		return l.add(l.grads[l.g.Embedding], b.ids.value, dyv)
	}
	de, _, _ := l.Gradients.View(l.g.Embedding)
	at := 0
	for _, s := range p.sequences {
		for _, id := range s.Tokens[:s.fed()] {
			axpy(de[int(id)*d:(int(id)+1)*d], 1, dy[at:at+d])
			at += d
		}
	}
	return nil
}

// flatten writes per-sequence weights one after the other and says whether
// any is not zero.
func (p *Pass) flatten(to []float32, w [][]float64, name string) (any bool, err error) {
	if len(w) != len(p.sequences) {
		return false, fmt.Errorf("runtime: %s has %d sequences, the pass %d", name, len(w), len(p.sequences))
	}
	i, scale := 0, p.l.ring.lossScale()
	for s := range w {
		if len(w[s]) != len(p.LogProb[s]) {
			return false, fmt.Errorf("runtime: %s of sequence %d has %d tokens, its response %d", name, s, len(w[s]), len(p.LogProb[s]))
		}
		for _, x := range w[s] {
			to[i] = float32(x * scale)
			any = any || to[i] != 0
			i++
		}
	}
	return any, nil
}

// tokenPart is what the response tokens themselves add to the gradients of the
// head, dlogit_y = w: to dh, which it overwrites, and to the rows of dE.
func (p *Pass) tokenPart(w, dh []float32, wv, dhv *Value) error {
	l, b, a, d := p.l, p.buffers, p.activations, p.l.g.Hidden
	if l.env.memory != nil {
		bind := binder{b: l.rows[2]}
		bind.in("E", l.ring.values[l.g.Head], nil)
		bind.in("dE", l.grads[l.g.Head], nil)
		bind.in("h", a.h.value, nil)
		bind.in("y", b.y.value, nil)
		bind.in("w", wv, nil)
		bind.out("dh", dhv, nil)
		bind.out("dE_out", l.grads[l.g.Head], nil)
		return bind.run()
	}
	e, _, _ := l.ring.Weights.View(l.g.Head)
	de, _, _ := l.Gradients.View(l.g.Head)
	clear(dh)
	for i, x := range w {
		if x == 0 {
			continue
		}
		row := int(b.y.data[i]) * d
		axpy(dh[i*d:(i+1)*d], x, e[row:row+d])
		axpy(de[row:row+d], x, a.h.data[i*d:(i+1)*d])
	}
	return nil
}

// headBackward returns dL/dx of the rows that predict response tokens.
func (p *Pass) headBackward(w []float32, wv, vv *Value) ([]float32, *Value, error) {
	l, a := p.l, p.activations
	d := l.g.Hidden
	dh, dhv, err := l.dh.of(int64(p.rows), int64(d))
	if err == nil {
		err = p.tokenPart(w, dh, wv, dhv)
	}
	if err != nil {
		return nil, nil, err
	}
	bind := binder{b: l.head[2]}
	bind.in("h", a.h.value, nil)
	bind.in("z", p.lastZ().value, nil)
	bind.in("w", wv, nil)
	if vv != nil {
		entropy, v, err := l.entropy.of(int64(p.rows), 1)
		bind.in("v", vv, nil)
		bind.in("entropy", v, err)
		i := 0
		for _, s := range p.Entropy {
			i += copy(entropy[i:], s)
		}
		if bind.err == nil {
			bind.err = l.entropy.push()
		}
	}
	bind.in("dh", dhv, nil)
	bind.out("dh_out", dhv, nil)
	for _, s := range l.slices {
		bind.in("E", s.e, nil)
		bind.in("dE", s.de, nil)
		bind.out("dE_out", s.de, nil)
		if err := bind.run(); err != nil {
			return nil, nil, err
		}
	}
	bind = binder{b: l.norm[1]}
	bind.in("x", a.xr.value, nil)
	inv, v, err := l.invT.of()
	bind.in("inv_temperature", v, err)
	bind.in("dh", dhv, nil)
	dx, v, err := l.dxr.of(int64(p.rows), int64(d))
	bind.out("dx", v, err)
	if bind.err == nil {
		inv[0] = float32(1 / p.temperature)
	}
	return dx, v, bind.run()
}

// axpy adds a x to y.
func axpy(y []float32, a float32, x []float32) {
	x = x[:len(y)]
	for i := range y {
		y[i] += a * x[i]
	}
}
