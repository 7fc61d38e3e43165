package ranks

import (
	"context"
	"sync"
	"sync/atomic"
)

// A wire moves bytes of any length between this rank and all others.
type wire struct {
	t    Transport
	left bool
	sent atomic.Int64 // number of bytes of weights and gradients

	mu   sync.Mutex
	lost error // the first failure of the transport
}

// Rank returns the number of this rank, from 0.
func (w *wire) Rank() int { return w.t.Rank() }

// Size returns how many ranks there are.
func (w *wire) Size() int {
	if w.left {
		return 1
	}
	return w.t.Size()
}

// First says whether this is the rank that writes and speaks for all.
func (w *wire) First() bool { return w.Rank() == 0 }

// Lost returns why the ranks can no longer reach each other; nil while they can.
func (w *wire) Lost() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// LeaveLost makes this rank the only one, for the remaining work, if it can no longer
// reach the others, and says whether that has just happened.
func (w *wire) LeaveLost() bool {
	leaves := !w.left && w.Lost() != nil
	w.left = w.left || leaves
	return leaves
}

// Abort ends all ranks with an error.
func (w *wire) Abort(err error) { w.t.Abort(err) }

// Close ends this rank's part in order.
func (w *wire) Close() error { return w.t.Close() }

// Sent returns how many bytes of gradients and weights this rank has sent.
func (w *wire) Sent() int64 { return w.sent.Load() }

// The tags of the messages.
const (
	tagSize   = 1 + iota // how long the blob is that follows
	tagBlob              // a blob of any length
	tagRows              // rows of figures
	tagReduce            // a rank's part of all gradients
	tagSpread            // a rank's own elements
	tagStop              // a rank is told to stop, or has ended
)

// exchange sends out(r) to each other rank r and fills in(r) with what r sends here. The
// first failure is the end of the group.
func (w *wire) exchange(tag int, out, in func(rank int) []byte) error {
	if err := w.Lost(); err != nil {
		return err
	}
	send, receive := make([][]byte, w.Size()), make([][]byte, w.Size())
	for r := range send {
		if r != w.Rank() {
			send[r], receive[r] = out(r), in(r)
		}
	}
	return w.lose(w.t.Exchange(context.Background(), tag, send, receive))
}

// lose has err, if it is not nil, be the end of the group, and returns the first such.
func (w *wire) lose(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost == nil {
		w.lost = err
	}
	return w.lost
}
