package runtime

// FirstNonFinite returns the first layer whose output holds NaN or an infinity
// for some token, and the index of a sequence that has it; ok is false where
// the outputs of all layers are finite, or cannot be had. The embedding counts
// as layer -1. Only a pass that was kept knows.
func (p *Pass) FirstNonFinite() (layer, sequence int, ok bool) {
	if p.activations == nil {
		return 0, 0, false
	}
	d := p.l.g.Hidden
	for i := range p.activations.x[:p.l.g.Layers+1] {
		x, err := p.activations.x[i].fetch()
		if err != nil {
			return 0, 0, false
		}
		at := 0
		for s, q := range p.sequences {
			for _, v := range x[at*d : (at+q.fed())*d] {
				if v-v != 0 {
					return i - 1, s, true
				}
			}
			at += q.fed()
		}
	}
	return 0, 0, false
}
