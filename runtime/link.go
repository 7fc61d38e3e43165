package runtime

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"onering/models"
	"onering/models/onnx"
	"onering/runtime/nccl"
)

// A Linker is a Driver with addresses whose device sends to those of other processes.
type Linker interface {
	// NCCL opens the library for the stream of the device's runs, and names the device's
	// card among all of its machine.
	NCCL(ctx context.Context) (library *nccl.Library, card string, err error)
}

// NCCL is that of the device's Linker.
func (e *Env) NCCL(ctx context.Context) (library *nccl.Library, card string, err error) {
	l, ok := e.memory.Driver.(Linker)
	if !ok {
		return nil, "", fmt.Errorf("the device is %s, and NCCL links CUDA devices", e.memory)
	}
	return l.NCCL(ctx)
}

// A Link moves elements of arenas between the devices of several ranks and adds them
// there. One goroutine at a time uses it, with the same calls on all ranks. Calls take
// effect in order with runs and may return before they are complete. Any goroutine may call
// Abort and Check.
type Link struct {
	*nccl.Comm
	env        *Env
	rank, size int
	others     buffer   // what other ranks have sent to be added
	sum        *Binding // of sumProgram
}

// Link joins this device with those of the other ranks, which all call it with the same id.
// It takes all the memory that Add needs: in a step, a rank that lacks it would stop all.
func (e *Env) Link(library *nccl.Library, id []byte, rank, size int) (l *Link, err error) {
	l = &Link{env: e, rank: rank, size: size, others: e.buffer(models.F32)}
	if _, err = l.others.of(DefaultBucket); err == nil {
		l.sum, err = loadBinding(e, sumProgram(max(2, size), rank)) // a rank alone adds nothing
	}
	if err == nil {
		l.Comm, err = library.Join(id, rank, size)
	}
	if err == nil { // only the first message to a rank opens the way
		one := make([]int, size+1)
		for i := range one {
			one[i] = i
		}
		one[size]++ // so that the shares are uneven
		err = errors.Join(l.exchange(l.others.element, 4, one), l.Wait())
	}
	if err == nil {
		return l, nil
	}
	if l.Comm != nil {
		l.Abort()
	}
	l.release()
	return nil, err
}

// sumProgram adds n tensors in order, ((x0 + x1) + x2) + ..., in the place of number own.
func sumProgram(n, own int) models.Program {
	p := models.Program{Name: "link.sum", Outputs: []models.Port{portOf(portResults, models.F32, "n")}, Alias: map[string]string{portResults: numbered(portFrom, own)}}
	before := numbered(portFrom, 0)
	for i := range n {
		in, out := numbered(portFrom, i), numbered(portResults, i)
		p.Inputs = append(p.Inputs, portOf(in, models.F32, "n"))
		if i == n-1 {
			out = portResults
		}
		if i > 0 {
			p.Nodes = append(p.Nodes, onnx.Node{Op: "Add", Inputs: []string{before, in}, Outputs: []string{out}})
			before = out
		}
	}
	return p
}

// Add replaces the elements from[rank] to to[rank]-1 by the sum over all ranks, in the
// order of the ranks, and gives each other rank those that are that rank's.
func (l *Link) Add(w *models.Weights, from, to []int) error {
	a, n := l.env.arenaOf(w), to[l.rank]-from[l.rank]
	if _, err := l.others.of(int64(max(1, n*(l.size-1)))); err != nil {
		return err
	}
	var out, in []nccl.Move
	for r := range l.size {
		if r != l.rank {
			out = append(out, nccl.Move{Peer: r, At: a.address(from[r]), Bytes: 4 * (to[r] - from[r])})
			in = append(in, nccl.Move{Peer: r, At: l.others.element(len(in) * n), Bytes: 4 * n})
		}
	}
	if err := l.Exchange(out, in); err != nil || n == 0 {
		return err
	}
	own, err := a.view(from[l.rank], int64(n))
	if err != nil {
		return err
	}
	return l.add(own)
}

// add adds what the others have sent to own, which it closes.
func (l *Link) add(own *Value) error {
	b, n, other := binder{b: l.sum}, own.shape[0], 0
	defer closeValues(own)
	for r := range l.size {
		v, err := own, error(nil)
		if r != l.rank {
			v, err = l.others.view(other*int(n), n)
			defer closeValues(v)
			other++
		}
		b.in(numbered(portFrom, r), v, err)
	}
	b.out(portResults, own, nil)
	return b.run()
}

// Spread gives every rank the elements that each owns, rank r those from bounds[r] to
// bounds[r+1]-1, and their 16-bit copies.
func (l *Link) Spread(w *models.Weights, bounds []int) error {
	a := l.env.arenaOf(w)
	err := l.exchange(a.address, a.dtype.Size(), bounds)
	if c := a.rounded; c != nil && err == nil {
		cut := make([]int, len(bounds))
		for i, b := range bounds {
			cut[i] = min(max(b, c.from), c.to)
		}
		err = l.exchange(c.address, c.dtype.Size(), cut)
	}
	return err
}

// exchange gives every rank the elements of so many bytes between the bounds of each.
func (l *Link) exchange(address func(element int) unsafe.Pointer, size int, bounds []int) error {
	own, even := bounds[l.rank+1]-bounds[l.rank], true
	var out, in []nccl.Move
	for r := range l.size {
		n := bounds[r+1] - bounds[r]
		even = even && n == own
		if r != l.rank {
			out = append(out, nccl.Move{Peer: r, At: address(bounds[l.rank]), Bytes: own * size})
			in = append(in, nccl.Move{Peer: r, At: address(bounds[r]), Bytes: n * size})
		}
	}
	if even {
		return l.Gather(address(bounds[0]), own*size)
	}
	return l.Exchange(out, in)
}

// Wait returns when all before it is complete, with what it has met.
func (l *Link) Wait() error { return errors.Join(l.env.memory.Wait(), l.Check()) }

// Close frees what the Link holds. All ranks call it.
func (l *Link) Close() error {
	l.release()
	return l.Comm.Close()
}

func (l *Link) release() {
	closeSessions(l.sum)
	l.others.close()
}
