package buffers

import (
	"runtime"
	"sync"
	"unsafe"
)

// Pinned is memory of the host that a device reads and writes by itself. Copies of other
// memory go through it in pieces: while the device moves one, the host copies the next.
// The device's own way for memory that is not pinned has one thread do both by turns.
type Pinned struct {
	mu    sync.Mutex
	parts [2][]byte
}

// PinnedPart is how many bytes a piece has at most. It takes the device longer than what
// starting and waiting for a copy takes, and there are two.
const PinnedPart = 8 << 20

// pinnedFrom is from how many bytes on copies are staged: less is over as fast without.
const pinnedFrom = 1 << 20

// NewPinned returns a Pinned of 2*PinnedPart bytes that the device knows.
func NewPinned(at unsafe.Pointer) *Pinned {
	all := unsafe.Slice((*byte)(at), 2*PinnedPart)
	return &Pinned{parts: [2][]byte{all[:PinnedPart], all[PinnedPart:]}}
}

// Stages reports whether a copy of so many bytes should go through p, which may be nil.
func (p *Pinned) Stages(bytes int) bool { return p != nil && bytes >= pinnedFrom }

// Up copies to a device. start begins to copy a piece to byte at of the place, and wait
// returns when it has been copied.
func (p *Pinned) Up(from []byte, start func(at int, piece []byte) error, wait func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, at := 0, 0; at < len(from); i++ {
		piece := p.parts[i%2][:min(PinnedPart, len(from)-at)]
		copyAtOnce(piece, from[at:]) // while the piece before is on its way
		if err := wait(); err != nil {
			return err
		}
		if err := start(at, piece); err != nil {
			return err
		}
		at += len(piece)
	}
	return wait()
}

// Down copies from a device. start begins to copy from byte at of the place to a piece.
func (p *Pinned) Down(to []byte, start func(piece []byte, at int) error, wait func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var before []byte // the piece that has come, and is to be copied to done
	for i, at, done := 0, 0, 0; at < len(to) || before != nil; i++ {
		piece := p.parts[i%2][:min(PinnedPart, len(to)-at)]
		if len(piece) > 0 {
			if err := start(piece, at); err != nil {
				return err
			}
		}
		copyAtOnce(to[done:], before)
		done += len(before)
		at += len(piece)
		if before = piece; len(piece) == 0 {
			break
		}
		if err := wait(); err != nil {
			return err
		}
	}
	return nil
}

// copyAtOnce is copy by several threads: one is slower than what connects a GPU.
func copyAtOnce(to, from []byte) {
	const atLeast = 1 << 20
	n := min(len(to), len(from))
	threads := max(1, min(4, runtime.GOMAXPROCS(0), n/atLeast))
	var group sync.WaitGroup
	for i := 1; i < threads; i++ {
		a, b := n*i/threads, n*(i+1)/threads
		group.Go(func() { copy(to[a:b], from[a:b]) })
	}
	copy(to[:n/threads], from[:n/threads])
	group.Wait()
}
