package runtime

import (
	"fmt"

	"onering/models"
	"onering/models/moves"
	"onering/runtime/internal/buffers"
)

// graphMoves is the buffers.Mover of a device whose provider has copies between the host
// and whole buffers only: graphs copy within it and clear it (package moves).
type graphMoves struct {
	env      *Env // that has the memory
	memory   *memory
	copies   map[copyKind]*Binding
	clear    map[int]*Binding // by how many buffers
	sizes    []buffer         // int64 [1], of buffers to clear
	from, to buffer           // int64 [n], the rows that CopyRuns reads and writes
}

// A copyKind is what Programs that copy differ in.
type copyKind struct {
	buffers int
	within  bool
}

// mostCopied is from how many buffers one run copies at most. What it copies is held
// once more meanwhile.
const mostCopied = 32

// load makes the sessions, which are those of the Env that has the memory.
func (g *graphMoves) load(e *Env) (err error) {
	g.env, g.copies, g.clear = e, map[copyKind]*Binding{}, map[int]*Binding{}
	g.from, g.to = hostBuffer(models.I64), hostBuffer(models.I64)
	_, err = g.clearing(1)
	return err
}

// clearing returns the Program that clears n buffers.
func (g *graphMoves) clearing(n int) (*Binding, error) {
	if b := g.clear[n]; b != nil {
		return b, nil
	}
	b, err := loadBinding(g.env, moves.Clear(n))
	if err != nil {
		return nil, fmt.Errorf("runtime: %s: %w", g.memory, err)
	}
	g.clear[n] = b
	return b, nil
}

func (g *graphMoves) close() {
	closeBuffers(&g.from, &g.to)
	for i := range g.sizes {
		g.sizes[i].close()
	}
	for _, b := range g.copies {
		closeSessions(b)
	}
	for _, b := range g.clear {
		closeSessions(b)
	}
	g.copies, g.clear, g.sizes = nil, nil, nil
}

// Zero implements buffers.Mover, in one run.
func (g *graphMoves) Zero(at []buffers.Place, bytes []int) error {
	binding, err := g.clearing(len(at))
	if err != nil {
		return err
	}
	for len(g.sizes) < len(at) {
		g.sizes = append(g.sizes, hostBuffer(models.I64))
	}
	b := binder{b: binding}
	for i := range at {
		n := int64(bytes[i] / 4)
		v, err := newValue(g.memory, models.F32, at[i].At, bytes[i], []int64{n})
		if err != nil {
			return err
		}
		defer v.Close()
		copy(fill[int64](&b, moves.Name(moves.Size, i), &g.sizes[i], 1), []int64{n})
		b.out(moves.Name(moves.Zeros, i), v, nil)
	}
	return b.run()
}

// CopyRuns implements buffers.Mover. All is counted in rows of a size that divides
// everything. The end of a buffer that no run reaches may be less than a row, and is
// left out.
func (g *graphMoves) CopyRuns(to, from []buffers.Place, runs []buffers.Runs) error {
	for len(to) > 0 {
		// Those whose rows have the same numbers are copied together.
		n := 1
		for n < min(len(to), mostCopied) && to[n].First == to[0].First && from[n].First == from[0].First && (to[n].Buffer == from[n].Buffer) == (to[0].Buffer == from[0].Buffer) {
			n++
		}
		if err := g.copyAlike(to[:n], from[:n], runs); err != nil {
			return err
		}
		to, from = to[n:], from[n:]
	}
	return nil
}

// copyAlike copies in one run.
func (g *graphMoves) copyAlike(to, from []buffers.Place, runs []buffers.Runs) error {
	row, n := divisor(to[0].First, from[0].First), 0
	for _, r := range runs {
		row = divisor(row, r.To, r.Stride, r.From, r.FromStride, r.Width)
	}
	if row%4 != 0 {
		return fmt.Errorf("copies in units of %d bytes", row)
	}
	for _, r := range runs {
		n += r.Count * r.Width / row
	}
	kind := copyKind{len(to), to[0].Buffer == from[0].Buffer}
	binding, err := g.binding(kind)
	if err != nil {
		return err
	}
	b := binder{b: binding}
	ids := fill[int64](&b, moves.FromIDs, &g.from, int64(n))
	places := fill[int64](&b, moves.ToIDs, &g.to, int64(n), 1)
	if b.err != nil {
		return b.err
	}
	i := 0
	for _, r := range runs {
		r.Each(func(target, source int) {
			for k := range r.Width / row {
				ids[i], places[i] = int64((from[0].First+source)/row+k), int64((to[0].First+target)/row+k)
				i++
			}
		})
	}
	var tables []*Value
	defer func() { closeValues(tables...) }()
	table := func(p buffers.Place) *Value {
		v, err := g.table(p, row)
		if b.err == nil {
			b.err = err
		}
		if err == nil {
			tables = append(tables, v)
		}
		return v
	}
	for i := range to {
		if !kind.within {
			b.in(moves.Name(moves.From, i), table(from[i]), nil)
		}
		v := table(to[i])
		b.in(moves.Name(moves.To, i), v, nil)
		b.out(moves.Name(moves.ToOut, i), v, nil)
	}
	return b.run()
}

// binding returns that of a Program.
func (g *graphMoves) binding(kind copyKind) (*Binding, error) {
	if b := g.copies[kind]; b != nil {
		return b, nil
	}
	b, err := loadBinding(g.env, moves.Copy(kind.buffers, kind.within))
	if err != nil {
		return nil, err
	}
	g.copies[kind] = b
	return b, nil
}

// table returns the whole rows of a place's buffer, a matrix of int32.
func (g *graphMoves) table(p buffers.Place, row int) (*Value, error) {
	n := p.Bytes / row
	return newValue(g.memory, models.I32, p.At, n*row, []int64{int64(n), int64(row / 4)})
}

// divisor is the greatest that all have in common.
func divisor(x ...int) int {
	a := 0
	for _, b := range x {
		for b != 0 {
			a, b = b, a%b
		}
	}
	return a
}
