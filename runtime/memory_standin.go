package runtime

// #include "ort.h"
import "C"

import (
	"fmt"
	"math"
	"sync"
	"unsafe"
)

// A standIn is a memory for tests. It is host memory that claims not to be: Go code
// reaches it through upload and download only, as if it were a GPU's, and these
// count what they copy. Its sessions run on the CPU, so tests get the bits of the
// CPU from the code that serves a GPU. New memory is full of NaN.
type standIn struct {
	hostMemory
	mu          sync.Mutex
	allocations map[unsafe.Pointer][]byte
	unordered   bool // see addsInOrder; many rows the CPU's kernel adds in several threads
}

func newStandIn() *standIn { return &standIn{allocations: make(map[unsafe.Pointer][]byte)} }

func (s *standIn) alloc(bytes int) (unsafe.Pointer, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("stand-in: allocating %d bytes", bytes)
	}
	data := newBytes(bytes)
	nan := math.Float32bits(float32(math.NaN()))
	for i := range data {
		data[i] = byte(nan >> (8 * (i % 4)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := unsafe.Pointer(&data[0])
	s.allocations[at] = data
	return at, nil
}

func (s *standIn) free(at unsafe.Pointer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.allocations[at] == nil {
		panic("runtime: freed what was not allocated")
	}
	delete(s.allocations, at)
}

func (s *standIn) aliases() bool { return false }

func (s *standIn) upload(to, from unsafe.Pointer, bytes int) error {
	s.count(bytes, 0)
	return s.hostMemory.upload(to, from, bytes)
}

func (s *standIn) download(to, from unsafe.Pointer, bytes int) error {
	s.count(0, bytes)
	return s.hostMemory.download(to, from, bytes)
}

func (s *standIn) elementwise() int  { return elementwiseOnDevice }
func (s *standIn) addsInOrder() bool { return !s.unordered }
func (s *standIn) String() string    { return "stand-in" }
