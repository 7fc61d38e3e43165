package runtime

import (
	"math"

	"onering/models"
)

// tables are the inputs of attention that depend on positions alone.
type tables struct {
	angles angles
	still  angles // which turn nothing, for layers without rotary embedding
	mask   buffer // [T,T], for the newest pass
}

func newTables(e *Env) tables { return tables{newAngles(e), newAngles(e), e.buffer(models.F32)} }

// causal makes the mask for rows of T tokens.
func (t *tables) causal(T int) error {
	if t.mask.value != nil && t.mask.value.shape[0] == int64(T) {
		return nil
	}
	mask, _, err := sized[float32](&t.mask, int64(T), int64(T))
	if err != nil {
		return err
	}
	fillCausal(mask, T)
	return t.mask.push()
}

// cover makes angles for at least n positions.
func (t *tables) cover(n int, g models.Geometry) error {
	if t.angles.length() >= n {
		return nil
	}
	n = max(256, 2*n)
	if g.Unturned != nil {
		if err := t.still.fill(n, make([]float32, len(g.RopeFrequencies))); err != nil {
			return err
		}
	}
	return t.angles.fill(n, g.RopeFrequencies)
}

// of returns the angles of a layer.
func (t *tables) of(layer int, g models.Geometry) *angles {
	if g.Unturned != nil && g.Unturned[layer] {
		return &t.still
	}
	return &t.angles
}

func (t *tables) close() {
	t.angles.close()
	t.still.close()
	t.mask.close()
}

// fillCausal fills a mask [T,T] that is added to the scores of attention. It lets
// each token see itself and the tokens before it.
func fillCausal(mask []float32, T int) {
	for i := range T {
		for j := range T {
			mask[i*T+j] = 0
			if j > i {
				mask[i*T+j] = -math.MaxFloat32
			}
		}
	}
}

// angles are the cosines and sines [n,K/2] of the rotary embedding.
type angles struct{ cos, sin buffer }

func newAngles(e *Env) angles { return angles{e.buffer(models.F32), e.buffer(models.F32)} }

// length returns for how many positions there are angles.
func (a *angles) length() int {
	if a.sin.value == nil {
		return 0
	}
	return int(a.sin.value.shape[0])
}

// fill makes the angles of n positions at the frequencies of a Geometry. It computes them
// in float32, as the models of Hugging Face do.
func (a *angles) fill(n int, frequencies []float32) error {
	half := len(frequencies)
	cos, _, err := sized[float32](&a.cos, int64(n), int64(half))
	if err != nil {
		return err
	}
	sin, _, err := sized[float32](&a.sin, int64(n), int64(half))
	if err != nil {
		return err
	}
	for i, freq := range frequencies {
		for p := range n {
			angle := float64(float32(p) * freq)
			cos[p*half+i], sin[p*half+i] = float32(math.Cos(angle)), float32(math.Sin(angle))
		}
	}
	if err := a.cos.push(); err != nil {
		return err
	}
	return a.sin.push()
}

func (a *angles) close() { closeBuffers(&a.cos, &a.sin) }
