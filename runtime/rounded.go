package runtime

import "onering/models"

// A rounded is the elements from and up to to of an arena in 16 bits, for graphs
// to read.
type rounded struct {
	block    block
	from, to int
	values   map[string]*Value
}

// roundAtOnce is how many elements are rounded on their way to a device at once.
const roundAtOnce = 1 << 22

// round gives an arena its copy.
func (a *arena) round(d models.DType, from, to int) error {
	c := &rounded{from: from, to: to}
	var err error
	if c.block, err = a.env.newBlock(d, to-from); err != nil {
		return err
	}
	c.values, err = valuesOf(a.host.Layout, from, to, func(p models.Place) (*Value, error) {
		return c.block.value(p.Offset-from, int64s(p.Shape)...)
	})
	if err == nil {
		err = c.refresh(a.host)
	}
	if err != nil {
		c.close()
		return err
	}
	a.copy = c
	return nil
}

// refresh rounds the host's elements anew.
func (c *rounded) refresh(w *models.Weights) error {
	data, e := w.Data[c.from:c.to], c.block.env
	if e.memory == nil {
		models.Encode(c.block.host(0, len(data)), data, c.block.dtype)
		return nil
	}
	buffer := make([]byte, c.block.bytes(min(len(data), roundAtOnce)))
	for at := 0; at < len(data); at += roundAtOnce {
		some := data[at:min(at+roundAtOnce, len(data))]
		models.Encode(buffer, some, c.block.dtype)
		if err := upload(e, c.block.element(at), buffer[:c.block.bytes(len(some))]); err != nil {
			return err
		}
	}
	return nil
}

func (c *rounded) close() {
	closeValues(c.values)
	c.block.free()
}
