package mpi

// #include <stdlib.h>
// #include "mpi.h"
import "C"

import (
	"math/bits"
	"sync"
	"unsafe"
)

// Messages pass through memory of C's. A library may register the memory of a message
// with the network card and remember that for the next message at the same address;
// it notices when C gives memory back to the system, but not when Go's collector does,
// and would then send what was there before. The copies are made by the goroutines
// that send and receive.

const (
	// partBytes is how much of a message one MPI message takes. The library works on
	// a message only while its parts are tested; a part that ends says that both
	// ends are at work, so that it pays to test without a pause.
	partBytes = 512 << 10
	window    = 8        // parts of a message that are under way at once
	keptBytes = 16 << 20 // larger buffers are not kept for the next message
)

// A parcel is the memory of a message: its bytes and its parts under way.
type parcel struct {
	bytes unsafe.Pointer
	class int // of 1<<class bytes
	parts *[window]C.onering_part
}

// parts is how many parts a message of n bytes has.
func parts(n int) int { return n/partBytes + 1 }

// A store keeps parcels for the next messages, by class.
type store struct {
	mu   sync.Mutex
	free map[int][]*parcel
}

// get returns memory for the parts of a message of n bytes. Each has room for partBytes,
// as much as a part of a message of any other length can have: Open MPI 4 writes over
// the end of a buffer that is shorter than what comes, where it copies from the memory
// of the other process, before it says that the message was truncated.
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
