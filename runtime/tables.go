package runtime

import (
	"math"

	"onering/models"
)

// tables are the inputs of attention that depend on nothing but positions. A Decoder has no masks in them.
type tables struct {
	cos, sin []buffer // [n,K/2] of the rotary embedding, by the kinds of layers
	// masks [T,T] for the newest pass: of layers without and with a window
	mask, band buffer
}

func newTables(e *Env, g models.Geometry) tables {
	t := tables{mask: e.buffer(models.F32), band: e.buffer(models.F32)}
	for range g.Kinds {
		t.cos, t.sin = append(t.cos, e.buffer(models.F32)), append(t.sin, e.buffer(models.F32))
	}
	return t
}

func (t *tables) close() {
	closeAll(t.cos)
	closeAll(t.sin)
	closeBuffers(&t.mask, &t.band)
}

// cover makes cosines and sines for at least n positions.
func (t *tables) cover(n int, g models.Geometry) error {
	if v := t.sin[0].value; v != nil && int(v.shape[0]) >= n {
		return nil
	}
	return t.makeRotary(max(256, 2*n), g)
}

// makeRotary makes the cosines and sines of n positions, in float32, as the models of Hugging Face do.
func (t *tables) makeRotary(n int, g models.Geometry) error {
	for kind, k := range g.Kinds {
		half := len(k.Frequencies)
		cos, _, err := sized[float32](&t.cos[kind], int64(n), int64(half))
		if err != nil {
			return err
		}
		sin, _, err := sized[float32](&t.sin[kind], int64(n), int64(half))
		if err != nil {
			return err
		}
		for i, freq := range k.Frequencies {
			for p := range n {
				angle := float64(float32(p) * freq)
				cos[p*half+i], sin[p*half+i] = float32(math.Cos(angle))*k.Scale, float32(math.Sin(angle))*k.Scale
			}
		}
		if err := t.cos[kind].push(); err != nil {
			return err
		}
		if err := t.sin[kind].push(); err != nil {
			return err
		}
	}
	return nil
}

// causal makes the causal masks of all kinds of layers for rows of T tokens, unless they are of that size already.
func (t *tables) causal(T int, g models.Geometry) error {
	for _, k := range g.Kinds {
		b := t.maskOf(k)
		if b.value != nil && b.value.shape[0] == int64(T) {
			continue
		}
		mask, _, err := sized[float32](b, int64(T), int64(T))
		if err != nil {
			return err
		}
		fillCausal(mask, T, k.Window)
		if err := b.push(); err != nil {
			return err
		}
	}
	return nil
}

// maskOf returns the mask for a kind of layers.
func (t *tables) maskOf(k models.Kind) *buffer {
	if k.Window > 0 {
		return &t.band
	}
	return &t.mask
}

// fillCausal fills a mask [T,T] that is added to the scores of attention. It lets
// each token see itself and the tokens before it, or with a window the newest of them.
func fillCausal(mask []float32, T, window int) {
	for i := range T {
		for j := range T {
			mask[i*T+j] = maskAt(i, j, window)
		}
	}
}

// maskAt is what a mask adds to the score of the key at position j for the query at i.
func maskAt(i, j, window int) float32 {
	if j > i || window > 0 && j <= i-window {
		return -math.MaxFloat32
	}
	return 0
}
