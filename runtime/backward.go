package runtime

import "fmt"

// Backward adds the gradients of sum_t w[t] logp[t] + v[t] entropy[t] to the
// Learner's Gradients. w[i][t] is dL/dlogp of response token t of sequence i, and v
// is dL/dentropy in the same way; nil means none, anything else requires the option
// EntropyGradient. The gradients are multiplied by the Ring's LossScale. A pass of
// which all weights are zero computes nothing.
func (p *Pass) Backward(w, v [][]float64) error {
	l := p.learner
	switch {
	case l.options.ScoreOnly:
		return fmt.Errorf("runtime: this learner only scores")
	case v != nil && !l.options.EntropyGradient:
		return fmt.Errorf("runtime: an entropy gradient takes the option EntropyGradient")
	case l.failed != nil:
		return fmt.Errorf("runtime: clearing the gradients: %w", l.failed)
	case p.rows == 0:
		return nil
	}
	if any, err := p.takeWeights(w, v); err != nil || !any {
		return err
	}
	if p.activations == nil {
		var err error
		if p.activations, err = p.layersForward(true); err != nil {
			return err
		}
	}
	dxr, err := p.headBackward()
	if err != nil {
		return err
	}
	return p.layersBackward(dxr)
}

// takeWeights hands w and v to the sessions and reports whether any is not zero.
func (p *Pass) takeWeights(w, v [][]float64) (any bool, err error) {
	head := p.learner.head
	ws, _, err := sized[float32](&head.w, int64(p.rows), 1)
	if err != nil {
		return false, err
	}
	if any, err = p.flatten(ws, w, "w"); err != nil {
		return false, err
	}
	if p.learner.options.EntropyGradient {
		vs, _, err := sized[float32](&head.v, int64(p.rows), 1)
		if err != nil {
			return false, err
		}
		clear(vs)
		if v != nil {
			some, err := p.flatten(vs, v, "v")
			if err != nil {
				return false, err
			}
			any = any || some
		}
	}
	if !any {
		return false, nil
	}
	if err := head.w.push(); err != nil {
		return false, err
	}
	if p.learner.options.EntropyGradient {
		return true, head.v.push()
	}
	return true, nil
}

// flatten writes the weights of all sequences one after the other and reports
// whether any is not zero.
func (p *Pass) flatten(to []float32, w [][]float64, name string) (any bool, err error) {
	if len(w) != len(p.sequences) {
		return false, fmt.Errorf("runtime: %s has %d sequences, the pass %d", name, len(w), len(p.sequences))
	}
	i, scale := 0, p.learner.ring.lossScale()
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
