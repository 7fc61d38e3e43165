package runtime

import (
	"errors"
	"fmt"

	"onering/models"
)

// A cache holds the keys and values of the sequences that are being decoded, one
// row for each. n sequences always have rows 0 to n-1: when one ends, the last one
// moves into its row. So a step computes no idle rows.
type cache struct {
	memory    memory
	geometry  models.Geometry
	maxTokens int

	layers   []cacheLayer // each [slots,G,S,K] with S = capacity
	capacity int          // tokens that a row has room for; grows up to maxTokens
	rowOf    []int        // by slot; -1 if the slot is free
	slotOf   []int        // by row
	lengths  []int        // tokens in the cache, by row
	failed   error        // an error that left the cache broken; later calls return it
}

// A cacheLayer is the keys and values of one layer.
type cacheLayer struct{ k, v buffer }

// both returns the keys and the values.
func (l *cacheLayer) both() [2]*buffer { return [2]*buffer{&l.k, &l.v} }

// newLayers makes room for n elements of keys and n of values in each layer.
func newLayers(m memory, g models.Geometry, n int) (layers []cacheLayer, err error) {
	for range g.Layers {
		var l cacheLayer
		l.k, err = zeros(m, g.Compute, n)
		if err == nil {
			l.v, err = zeros(m, g.Compute, n)
		}
		layers = append(layers, l)
		if err != nil {
			closeLayers(layers)
			return nil, err
		}
	}
	return layers, nil
}

func closeLayers(layers []cacheLayer) {
	for i := range layers {
		closeBuffers(&layers[i].k, &layers[i].v)
	}
}

// newCache makes an empty cache for slots sequences.
func newCache(e *Env, g models.Geometry, slots, maxTokens int) *cache {
	c := &cache{memory: e.memory, geometry: g, maxTokens: maxTokens, rowOf: make([]int, slots), layers: make([]cacheLayer, g.Layers)}
	for i := range c.rowOf {
		c.rowOf[i] = -1
	}
	for i := range c.layers {
		c.layers[i] = cacheLayer{e.buffer(g.Compute), e.buffer(g.Compute)}
	}
	return c
}

// rows returns how many sequences are being decoded.
func (c *cache) rows() int { return len(c.slotOf) }

// rowSize returns how many elements one row of a layer's keys has.
func (c *cache) rowSize() int { return c.geometry.KVHeads * c.capacity * c.geometry.CacheWidth }

// reserve makes room for n tokens in each row. A step reads whole rows, so they are
// not longer than needed: they grow with the longest sequence, each time by a
// quarter and at least 64 tokens.
func (c *cache) reserve(n int) error {
	if c.failed != nil || n <= c.capacity {
		return c.failed
	}
	was, wasRow := c.capacity, c.rowSize()
	c.capacity = min(c.maxTokens, max(n+n/4, n+64))
	for i := range c.layers {
		for _, old := range c.layers[i].both() {
			grown, err := zeros(c.memory, c.geometry.Compute, len(c.rowOf)*c.rowSize())
			for row, length := range c.lengths {
				if err == nil {
					err = c.place(&grown, old, row*wasRow, row, length, was)
				}
			}
			if err != nil {
				grown.close()
				c.failed = err // some layers have grown, others not
				return err
			}
			old.close()
			*old = grown
		}
	}
	return nil
}

// start gives a slot the next row and copies a prefix there.
func (c *cache) start(slot int, x *prefix) error {
	if c.rowOf[slot] >= 0 {
		return fmt.Errorf("runtime: slot %d is in use", slot)
	}
	if err := c.reserve(x.length + 1); err != nil {
		return err
	}
	row := c.rows()
	c.rowOf[slot], c.slotOf, c.lengths = row, append(c.slotOf, slot), append(c.lengths, x.length)
	for i := range c.layers {
		key, value := x.parts(c.geometry, i)
		if err := c.place(&c.layers[i].k, &x.cache, key, row, x.length, x.length); err != nil {
			return err
		}
		if err := c.place(&c.layers[i].v, &x.cache, value, row, x.length, x.length); err != nil {
			return err
		}
	}
	return nil
}

// place copies n tokens into a row of a cache's keys or values. In from, they begin
// at element at, and their heads are stride tokens apart.
func (c *cache) place(to, from *buffer, at, row, n, stride int) error {
	k := c.geometry.CacheWidth
	return to.copyRuns(row*c.rowSize(), c.capacity*k, from, at, stride*k, n*k, c.geometry.KVHeads)
}

// truncate frees the rows from n on, which were started last.
func (c *cache) truncate(n int) {
	for _, slot := range c.slotOf[n:] {
		c.rowOf[slot] = -1
	}
	c.slotOf, c.lengths = c.slotOf[:n], c.lengths[:n]
}

// free gives a slot back. The last row moves into the row of that slot.
func (c *cache) free(slot int) {
	row := c.rowOf[slot]
	if row < 0 {
		return
	}
	last := c.rows() - 1
	if row != last {
		for i := range c.layers {
			for _, b := range c.layers[i].both() {
				if err := c.place(b, b, last*c.rowSize(), row, c.lengths[last], c.capacity); err != nil {
					c.failed = errors.Join(c.failed, err)
				}
			}
		}
		moved := c.slotOf[last]
		c.rowOf[moved], c.slotOf[row], c.lengths[row] = row, moved, c.lengths[last]
	}
	c.rowOf[slot] = -1
	c.slotOf, c.lengths = c.slotOf[:last], c.lengths[:last]
}

// A cacheBinding holds the Values over a cache that a session is bound to.
type cacheBinding struct {
	values       []*Value
	rows, tokens int // of the cache when it was bound; 0 if it is not
}

// bind binds a number of rows of a cache that has a number of tokens in each row.
// It does nothing if both are what they were, because a cache gets other memory
// only when its rows grow.
func (c *cacheBinding) bind(b *Binding, layers []cacheLayer, g models.Geometry, rows, tokens int) error {
	if c.rows == rows && c.tokens == tokens {
		return nil
	}
	c.close()
	for i := range layers {
		for _, half := range layers[i].both() {
			v, err := half.view(0, int64(rows), int64(g.KVHeads), int64(tokens), int64(g.CacheWidth))
			if err != nil {
				return err
			}
			c.values = append(c.values, v)
		}
	}
	for half, role := range []models.Role{models.Keys, models.Values} {
		err := b.bindAll(role, func(p models.Port) (*Value, error) { return c.values[2*p.Layer+half], nil })
		if err != nil {
			return err
		}
	}
	c.rows, c.tokens = rows, tokens
	return nil
}

func (c *cacheBinding) close() {
	closeValues(c.values...)
	*c = cacheBinding{values: c.values[:0]}
}
