package runtime

import (
	"fmt"
	"math"
	"sync"
	"unsafe"
)

// A standIn is a device whose memory is apart from the host's only by
// convention: sessions on the CPU provider read and write it, and nothing else
// does but the calls that would be copies. Fresh memory is full of NaN. Tests run
// on it what runs on a GPU; its bits are those of the CPU.
type standIn struct {
	mu     sync.Mutex
	blocks map[unsafe.Pointer][]uint64
}

func newStandIn() *standIn { return &standIn{blocks: make(map[unsafe.Pointer][]uint64)} }

func (s *standIn) alloc(bytes int) (unsafe.Pointer, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("%d bytes", bytes)
	}
	block := make([]uint64, (bytes+7)/8)
	nan := uint64(math.Float32bits(float32(math.NaN())))
	for i := range block {
		block[i] = nan<<32 | nan
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := unsafe.Pointer(&block[0])
	s.blocks[at] = block
	return at, nil
}

func (s *standIn) free(at unsafe.Pointer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blocks[at] == nil {
		panic("runtime: freed what was not allocated")
	}
	delete(s.blocks, at)
}

func (s *standIn) move(to, from unsafe.Pointer, bytes int) error {
	copy(unsafe.Slice((*byte)(to), bytes), unsafe.Slice((*byte)(from), bytes))
	return nil
}

func (s *standIn) upload(to, from unsafe.Pointer, bytes int) error   { return s.move(to, from, bytes) }
func (s *standIn) download(to, from unsafe.Pointer, bytes int) error { return s.move(to, from, bytes) }

func (s *standIn) zero(at unsafe.Pointer, bytes int) error {
	clear(unsafe.Slice((*byte)(at), bytes))
	return nil
}

func (s *standIn) copyRuns(to unsafe.Pointer, stride int, from unsafe.Pointer, fromStride, width, runs int) error {
	for i := range runs {
		s.move(unsafe.Add(to, i*stride), unsafe.Add(from, i*fromStride), width)
	}
	return nil
}

func (s *standIn) wait() error { return nil }
