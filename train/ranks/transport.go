// Package ranks lets several processes train one model: each samples and learns its
// share, and all take the same decisions from the same figures.
//
// A Transport moves bytes between the processes. The code above it fixes which rank adds what, and in which
// order, so that a run with the same number of ranks gives the same bits each time.
package ranks

import "context"

// Transport moves bytes between the ranks of a run. Its methods may be called by several goroutines at once.
type Transport interface {
	Rank() int // the number of this rank, from 0
	Size() int
	// Send returns when b may be used again, which may be only when it was received.
	// Messages of one pair and tag keep their order.
	Send(ctx context.Context, to, tag int, b []byte) error
	// Recv fills b whole; a message of another length is an error.
	Recv(ctx context.Context, from, tag int, b []byte) error
	// Exchange sends out[r] to each rank r and fills in[r] with the bytes that r sends
	// here; an empty slice means no message. Exchanges of one tag keep their order, and
	// all ranks make the same. It returns when all is moved, or after the first failure.
	Exchange(ctx context.Context, tag int, out, in [][]byte) error
	// Ended returns when a rank has ended the run, with why, or after Close.
	Ended() error
	// Abort ends all ranks; people see the first rank's message. A transport between
	// processes may end this process.
	Abort(err error)
	// Close ends this rank's part in order (MPI_Finalize). Nothing is called after it.
	Close() error
}
