package mpi

// #include <stdlib.h>
// #include "mpi.h"
import "C"

import (
	"math/bits"
	"sync"
	"unsafe"
)

// Messages pass through C's memory. A library may register the memory of a message with the network card and reuse
// the registration for the same address; it notices when C returns memory to the system, but not when Go's collector
// does, and would then send old content. The copies are made by the goroutines that send and receive.

const (
	// partBytes is how much of a message one MPI message takes. The library works on a message only while its parts
	// are tested; when a part ends, both sides are active, so that testing without a pause is worthwhile.
	partBytes = 512 << 10
	window    = 8        // number of parts of a message under way at the same time
	keptBytes = 16 << 20 // larger buffers are freed at once
)

// A parcel is the memory of a message: its bytes and its parts under way.
type parcel struct {
	bytes unsafe.Pointer
	class int // the memory has 1<<class bytes
	parts *[window]C.onering_part
}

// parts returns how many parts a message of n bytes has.
func parts(n int) int { return n/partBytes + 1 }

// A store keeps freed parcels for later messages, by class.
type store struct {
	mu   sync.Mutex
	free map[int][]*parcel
}

// get returns memory for the parts of a message of n bytes. Each has room for partBytes,
// the largest part of any message: if a message is longer than the buffer, Open MPI 4
// writes over its end when it copies from another process, before it reports truncation.
func (s *store) get(n int) *parcel {
	class := bits.Len(uint(parts(n)*partBytes - 1))
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.free[class]; len(f) > 0 {
		s.free[class] = f[:len(f)-1]
		return f[len(f)-1]
	}
	window := (*[window]C.onering_part)(C.malloc(window * C.sizeof_onering_part))
	return &parcel{C.malloc(1 << class), class, window}
}

func (s *store) put(p *parcel) {
	if 1<<p.class > keptBytes {
		C.free(p.bytes)
		C.free(unsafe.Pointer(p.parts))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free[p.class] = append(s.free[p.class], p)
}

// slice returns the first n bytes.
func (p *parcel) slice(n int) []byte { return unsafe.Slice((*byte)(p.bytes), n) }
