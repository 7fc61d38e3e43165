package ranks

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"onering/runtime/mpi"
)

// Local returns the transports of n ranks that are goroutines of this process. A Send
// waits for its Recv, as MPI's may.
func Local(n int) []Transport {
	w := &world{routes: map[route]chan parcel{}, over: make(chan struct{}), closed: make([]chan struct{}, n)}
	out := make([]Transport, n)
	for i := range out {
		w.closed[i] = make(chan struct{})
		out[i] = &local{w, i}
	}
	return out
}

// A world is the state that ranks in one process share.
type world struct {
	mu     sync.Mutex
	routes map[route]chan parcel
	over   chan struct{} // closed by the first Abort
	err    error         // the error of that Abort
	closed []chan struct{}
}

type route struct{ from, to, tag int }

// A parcel is a message on its way. taken is signalled when b may be used again.
type parcel struct {
	b     []byte
	taken chan struct{}
}

type local struct {
	*world
	rank int
}

var _ Transport = (*local)(nil)

func (l *local) Rank() int { return l.rank }

func (l *local) Size() int { return len(l.closed) }

// channel returns the channel of a route, which the first of its two ends makes.
func (l *local) channel(r route) (chan parcel, error) {
	if n := l.Size(); r.from < 0 || r.from >= n || r.to < 0 || r.to >= n || r.from == r.to {
		return nil, fmt.Errorf("ranks: no message goes from rank %d to rank %d of %d", r.from, r.to, n)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.routes[r]
	if c == nil {
		c = make(chan parcel)
		l.routes[r] = c
	}
	return c, nil
}

// gone is why a call will never be answered.
func (l *local) gone(ctx context.Context, peer int) error {
	select {
	case <-l.over:
		return l.err
	default:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return fmt.Errorf("ranks: rank %d has left the run", peer)
}

// Send implements Transport: it returns once the receiver has copied b.
func (l *local) Send(ctx context.Context, to, tag int, b []byte) error {
	c, err := l.channel(route{l.rank, to, tag})
	if err != nil {
		return err
	}
	p := parcel{b, make(chan struct{})}
	select {
	case c <- p:
		<-p.taken // else b could change before it is copied
		return nil
	case <-l.over:
	case <-l.closed[to]:
	case <-ctx.Done():
	}
	return l.gone(ctx, to)
}

// Recv implements Transport: it copies the next message of the route into b, which must have its length.
func (l *local) Recv(ctx context.Context, from, tag int, b []byte) error {
	c, err := l.channel(route{from, l.rank, tag})
	if err != nil {
		return err
	}
	select {
	case p := <-c:
		defer close(p.taken)
		if len(p.b) != len(b) {
			return fmt.Errorf("ranks: rank %d sent %d bytes where rank %d expects %d (tag %d)", from, len(p.b), l.rank, len(b), tag)
		}
		copy(b, p.b)
		return nil
	case <-l.over:
	case <-l.closed[from]:
	case <-ctx.Done():
	}
	return l.gone(ctx, from)
}

// Exchange implements Transport: it sends out[r] to and receives in[r] from each rank r at the same time; empty
// ones are left out. The first error ends the others.
func (l *local) Exchange(ctx context.Context, tag int, out, in [][]byte) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wait sync.WaitGroup
	start := func(sendOrRecv func(context.Context, int, int, []byte) error, rank int, b []byte) {
		if len(b) == 0 {
			return
		}
		wait.Go(func() {
			if err := sendOrRecv(ctx, rank, tag, b); err != nil {
				cancel(err)
			}
		})
	}
	for r := range out {
		start(l.Send, r, out[r])
		start(l.Recv, r, in[r])
	}
	wait.Wait()
	return context.Cause(ctx) // the first error, or nil
}

// Ended implements Transport.
func (l *local) Ended() error {
	select {
	case <-l.over:
	case <-l.closed[l.rank]:
	}
	return l.gone(context.Background(), l.rank)
}

// Abort implements Transport.
func (l *local) Abort(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = &mpi.AbortError{Rank: l.rank, Err: err}
		close(l.over)
	}
}

// Close implements Transport.
func (l *local) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed[l.rank]:
		return errors.New("ranks: this rank is closed already")
	default:
		close(l.closed[l.rank])
		return nil
	}
}
