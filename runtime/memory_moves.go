package runtime

import (
	"errors"
	"fmt"

	"onering/models"
	"onering/models/moves"
	"onering/runtime/buffers"
)

// graphMoves is the buffers.Mover of a device whose provider has copies between the host
// and whole buffers only: graphs copy within it and clear it (package moves).
type graphMoves struct {
	memory    *memory
	take, put *Binding
	clear     *Binding
	size      buffer // int64 [1]
	from, to  buffer // int64 [n], the rows that CopyRuns reads and writes
	rows      buffer // the rows on their way
}

// load makes the sessions, which are those of the Env that has the memory.
func (g *graphMoves) load(e *Env) (err error) {
	g.size, g.from, g.to, g.rows = hostBuffer(models.I64), hostBuffer(models.I64), hostBuffer(models.I64), e.buffer(models.I32)
	for into, p := range map[**Binding]models.Program{&g.take: moves.Take(), &g.put: moves.Put(), &g.clear: moves.Clear()} {
		if *into, err = loadBinding(e, p); err != nil {
			return fmt.Errorf("runtime: %s: %w", g.memory, err)
		}
	}
	return nil
}

func (g *graphMoves) close() {
	closeBuffers(&g.size, &g.from, &g.to, &g.rows)
	closeSessions(g.take, g.put, g.clear)
	g.take, g.put, g.clear = nil, nil, nil
}

// Zero implements buffers.Mover.
func (g *graphMoves) Zero(at buffers.Place, bytes int) error {
	n := int64(bytes / 4)
	v, err := newValue(g.memory, models.F32, at.At, bytes, []int64{n})
	if err != nil {
		return err
	}
	defer v.Close()
	b := binder{b: g.clear}
	copy(fill[int64](&b, moves.Size, &g.size, 1), []int64{n})
	b.out(moves.Zeros, v, nil)
	return b.run()
}

// CopyRuns implements buffers.Mover. All is counted in rows of a size that divides
// everything. The end of a buffer that no run reaches may be less than a row, and is
// left out.
func (g *graphMoves) CopyRuns(to buffers.Place, stride int, from buffers.Place, fromStride, width, runs int) error {
	row := divisor(width, stride, fromStride, to.First, from.First)
	if row%4 != 0 {
		return fmt.Errorf("copies in units of %d bytes", row)
	}
	each := width / row // rows of a run
	n := int64(each * runs)
	take, put := binder{b: g.take}, binder{b: g.put}
	ids := fill[int64](&take, moves.FromIDs, &g.from, n)
	places := fill[int64](&put, moves.ToIDs, &g.to, n, 1)
	if err := errors.Join(take.err, put.err); err != nil {
		return err
	}
	for i := range ids {
		run, rest := i/each, i%each
		ids[i] = int64((from.First+run*fromStride)/row + rest)
		places[i] = int64((to.First+run*stride)/row + rest)
	}
	source, err := g.table(from, row)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := g.table(to, row)
	if err != nil {
		return err
	}
	defer target.Close()
	rows, err := g.rows.of(n, int64(row/4))
	take.in(moves.From, source, nil)
	take.out(moves.Rows, rows, err)
	if err := take.run(); err != nil {
		return err
	}
	put.in(moves.To, target, nil)
	put.in(moves.Rows, rows, nil)
	put.out(moves.ToOut, target, nil)
	return put.run()
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
