package runtime

import (
	"fmt"

	"onering/models"
	"onering/models/ports"
)

// A prefix is one prompt's keys and values, [G,length,K] in each layer, and the
// normed state of its last token.
type prefix struct {
	length int
	cache  buffer // for one layer after the other, its keys and then its values
	hidden buffer // [D]
}

// newPrefix makes room for a prompt of length tokens.
func newPrefix(m *memory, g models.Geometry, length int) (x *prefix, err error) {
	x = &prefix{length: length}
	if x.cache, err = zeros(m, g.Compute, 2*g.Layers*g.KVHeads*length*g.CacheWidth); err != nil {
		return nil, err
	}
	if x.hidden, err = zeros(m, models.F32, g.Hidden); err != nil {
		x.cache.close()
		return nil, err
	}
	return x, nil
}

// parts returns the first element of the keys and of the values of a layer.
func (x *prefix) parts(g models.Geometry, layer int) (key, value int) {
	size := g.KVHeads * x.length * g.CacheWidth
	return 2 * layer * size, (2*layer + 1) * size
}

func (x *prefix) close() { closeBuffers(&x.cache, &x.hidden) }

// A prefillSession computes prompts in one batch [B,T], padded on the right.
type prefillSession struct {
	decodeSession
	last   buffer       // int64 [B], the packed index of each prompt's last token
	layers []cacheLayer // each [B,G,T,K], of the newest batch
	size   int          // how many elements the keys of a layer have room for
	made   int          // how often they got other memory
}

// Prefill computes the prompts and returns a handle for the prefix of each.
func (d *Decoder) Prefill(prompts [][]int32) ([]int, error) {
	tokens, err := d.checkPrompts(prompts)
	if err != nil || len(prompts) == 0 {
		return nil, err
	}
	if d.wholeSteps() && len(prompts) > 1 {
		return d.prefillEach(prompts)
	}
	if d.prefill == nil {
		s, err := d.openSession(d.ring.Arch.Prefill())
		if err != nil {
			return nil, err
		}
		d.prefill = &prefillSession{decodeSession: s, last: hostBuffer(models.I64)}
	}
	s := d.prefill
	if err := s.reserve(d, len(prompts), tokens); err != nil {
		return nil, err
	}
	if err := s.fill(d.geometry, prompts, tokens); err != nil {
		return nil, err
	}
	if err := s.binding.Run(); err != nil {
		return nil, err
	}
	out := make([]int, len(prompts))
	for i, p := range prompts {
		x, err := s.take(d, i, len(p), tokens)
		if err != nil {
			return nil, err
		}
		out[i] = d.nextID
		d.prefixes[d.nextID] = x
		d.nextID++
	}
	return out, nil
}

// prefillEach computes each prompt alone.
func (d *Decoder) prefillEach(prompts [][]int32) (handles []int, err error) {
	for _, p := range prompts {
		one, err := d.Prefill([][]int32{p})
		if err != nil {
			for _, x := range handles {
				d.Drop(x)
			}
			return nil, err
		}
		handles = append(handles, one...)
	}
	return handles, nil
}

// checkPrompts returns an error if the model cannot compute one of the prompts, else
// the length of the longest.
func (d *Decoder) checkPrompts(prompts [][]int32) (longest int, err error) {
	for i, p := range prompts {
		if len(p) == 0 || len(p) >= d.maxTokens {
			return 0, fmt.Errorf("runtime: prompt %d has %d tokens; a slot holds 1 to %d and one to sample", i, len(p), d.maxTokens-1)
		}
		for t, id := range p {
			if id < 0 || int(id) >= d.geometry.Vocab {
				return 0, fmt.Errorf("runtime: prompt %d holds id %d at %d; the model has ids 0 to %d", i, id, t, d.geometry.Vocab-1)
			}
		}
		longest = max(longest, len(p))
	}
	return longest, nil
}

// reserve makes room for the keys and values of a batch and binds it.
func (s *prefillSession) reserve(d *Decoder, batch, tokens int) (err error) {
	g := d.geometry
	if n := batch * g.KVHeads * tokens * g.CacheWidth; s.layers == nil || s.size < n {
		s.bound.close()
		closeLayers(s.layers)
		if s.layers, err = newLayers(d.env.memory, g, n); err != nil {
			return err
		}
		s.size = n
		s.made++
	}
	return s.bound.bind(s.binding, g, cacheView{s.layers, batch, tokens, s.made})
}

// fill hands the prompts to the session.
func (s *prefillSession) fill(g models.Geometry, prompts [][]int32, tokens int) error {
	batch := int64(len(prompts))
	b := binder{b: s.binding}
	ids := fill[int64](&b, ports.TokenIDs, &s.ids, batch, int64(tokens))
	last := fill[int64](&b, ports.LastTokens, &s.last, batch)
	lens := fillIf[int32](&b, ports.CacheLengths, &s.seqlens, batch)
	total := fillIf[int32](&b, ports.CacheTotal, &s.total)
	pos := fillIf[int64](&b, ports.Positions, &s.pos, batch*int64(tokens), 1)
	mask := fillIf[float32](&b, ports.Mask, &s.mask, int64(tokens), int64(tokens))
	hidden, err := s.hidden.of(batch, int64(g.Hidden))
	if b.out(ports.Hidden, hidden, err); b.err != nil {
		return b.err
	}
	clear(ids)
	for i, p := range prompts {
		for t, id := range p {
			ids[i*tokens+t] = int64(id)
		}
		last[i] = int64(i*tokens + len(p) - 1)
	}
	for i := range lens {
		lens[i] = int32(len(prompts[i]) - 1)
	}
	for i := range total {
		total[i] = int32(tokens)
	}
	for i := range pos {
		pos[i] = int64(i % tokens)
	}
	if mask != nil {
		fillCausal(mask, tokens)
	}
	return nil
}

// take copies the results of prompt i, which has length tokens, from a batch with
// rows of tokens places.
func (s *prefillSession) take(d *Decoder, i, length, tokens int) (*prefix, error) {
	g := d.geometry
	x, err := newPrefix(d.env.memory, g, length)
	if err != nil {
		return nil, err
	}
	size, from := length*g.CacheWidth, tokens*g.CacheWidth
	err = x.hidden.copyRuns(0, 0, &s.hidden, i*g.Hidden, 0, g.Hidden, 1)
	for j := range s.layers {
		key, value := x.parts(g, j)
		if err == nil {
			err = x.cache.copyRuns(key, size, &s.layers[j].k, i*g.KVHeads*from, from, size, g.KVHeads)
		}
		if err == nil {
			err = x.cache.copyRuns(value, size, &s.layers[j].v, i*g.KVHeads*from, from, size, g.KVHeads)
		}
	}
	if err != nil {
		x.close()
		return nil, err
	}
	return x, nil
}

func (s *prefillSession) close() {
	s.decodeSession.close()
	s.last.close()
	closeLayers(s.layers)
}

// Drop frees a prefix.
func (d *Decoder) Drop(prefix int) {
	if x := d.prefixes[prefix]; x != nil {
		x.close()
		delete(d.prefixes, prefix)
	}
}
