package runtime

import (
	"context"
	"fmt"
	"math"
	"testing"
	"unsafe"
)

// A standIn is a device whose memory is apart from the host's only by
// convention: sessions on the CPU provider read and write it, and nothing else
// does but the calls that would be copies. Fresh memory is full of NaN.
type standIn struct {
	blocks map[unsafe.Pointer][]uint64
	copies int
}

// OpenStandIn opens another Env beside e, on a stand-in for a device.
func OpenStandIn(t testing.TB, e *Env) *Env {
	t.Helper()
	on, err := Open(context.Background(), Options{Threads: e.Threads()})
	if err != nil {
		t.Fatal(err)
	}
	s := &standIn{blocks: make(map[unsafe.Pointer][]uint64)}
	on.memory, on.info = s, process.memory
	t.Cleanup(func() {
		if n := len(s.blocks); n > 0 {
			t.Errorf("%d blocks of the device's memory were not freed", n)
		}
		if err := on.Close(); err != nil {
			t.Error(err)
		}
	})
	return on
}

func (s *standIn) alloc(bytes int) (unsafe.Pointer, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("%d bytes", bytes)
	}
	block := make([]uint64, (bytes+7)/8)
	nan := uint64(math.Float32bits(float32(math.NaN())))
	for i := range block {
		block[i] = nan<<32 | nan
	}
	at := unsafe.Pointer(&block[0])
	s.blocks[at] = block
	return at, nil
}

func (s *standIn) free(at unsafe.Pointer) {
	if s.blocks[at] == nil {
		panic("freed what was not allocated")
	}
	delete(s.blocks, at)
}

func (s *standIn) move(to, from unsafe.Pointer, bytes int) error {
	s.copies++
	copy(unsafe.Slice((*byte)(to), bytes), unsafe.Slice((*byte)(from), bytes))
	return nil
}

func (s *standIn) upload(to, from unsafe.Pointer, bytes int) error   { return s.move(to, from, bytes) }
func (s *standIn) download(to, from unsafe.Pointer, bytes int) error { return s.move(to, from, bytes) }

func (s *standIn) zero(at unsafe.Pointer, bytes int) error {
	clear(unsafe.Slice((*byte)(at), bytes))
	return nil
}

func (s *standIn) wait() error { return nil }

// Slices returns how many slices the optimizer's step runs on.
func (o *Optimizer) Slices() int { return len(o.slices) }

// Packed returns how many rows of how many tokens attention sees in the pass, in
// how many blocks, and the response tokens.
func (p *Pass) Packed() (batch, longest, blocks, rows int) {
	return int(p.buffers.seqRows.shape[0]), p.longest, p.blocks, p.rows
}

// Passes returns over how many slices of the vocabulary the head runs.
func (l *Learner) Passes() int { return len(l.slices) }
