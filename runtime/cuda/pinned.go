package cuda

import (
	"runtime"
	"sync"
	"unsafe"

	"onering/models"
)

// pinned is memory of the host that a device reads and writes by itself. Copies of other
// memory go through it in pieces: while the device moves one, the host copies the next.
// For other memory the device's own copy lets one thread do both alternately.
type pinned struct {
	mu    sync.Mutex
	parts [2][]byte
}

// pinnedPart is how many bytes a piece has at most. Moving it takes the device longer
// than starting and waiting for a copy. There are two pieces.
const pinnedPart = 8 << 20

// pinnedFrom is the least number of bytes for staged copies: smaller copies are as fast without.
const pinnedFrom = 1 << 20

// newPinned returns a pinned of 2*pinnedPart bytes that the device knows.
func newPinned(at unsafe.Pointer) *pinned {
	all := unsafe.Slice((*byte)(at), 2*pinnedPart)
	return &pinned{parts: [2][]byte{all[:pinnedPart], all[pinnedPart:]}}
}

// stages reports whether a copy of so many bytes should go through p, which may be nil.
func (p *pinned) stages(bytes int) bool { return p != nil && bytes >= pinnedFrom }

// up copies bytes of the host (from) to a device, by the two pieces in turn. start begins to copy a piece to byte at of
// the target, and wait returns when it has been copied.
func (p *pinned) up(from []byte, start func(at int, piece []byte) error, wait func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, at := 0, 0; at < len(from); i++ {
		piece := p.parts[i%2][:min(pinnedPart, len(from)-at)]
		copyAtOnce(piece, from[at:]) // while the device moves the previous piece
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

// down copies bytes of a device to those of the host (to), by the two pieces in turn. start begins to copy from byte at
// of the source to a piece, and wait returns when it has been copied.
func (p *pinned) down(to []byte, start func(piece []byte, at int) error, wait func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var before []byte // a piece that has arrived and goes to to[done:]
	for i, at, done := 0, 0, 0; at < len(to) || before != nil; i++ {
		piece := p.parts[i%2][:min(pinnedPart, len(to)-at)]
		if len(piece) > 0 {
			if err := start(piece, at); err != nil {
				return err
			}
		}
		copyAtOnce(to[done:], before) // while the device moves the next piece
		done += len(before)
		at += len(piece)
		before = piece
		if len(piece) == 0 { // the last piece has been copied
			break
		}
		if err := wait(); err != nil {
			return err
		}
	}
	return nil
}

// copyAtOnce copies with several threads: one thread is slower than the connection to a GPU.
func copyAtOnce(to, from []byte) {
	const atLeast = 1 << 20
	n := min(len(to), len(from))
	threads := max(1, min(4, runtime.GOMAXPROCS(0), n/atLeast))
	models.AtOnce(threads, threads, func(i int) { copy(to[n*i/threads:n*(i+1)/threads], from[n*i/threads:]) })
}
