package cuda

// #include "cuda.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"onering/runtime"
)

// Lock implements runtime.Streams: it pins bytes of the host (cudaHostRegister). The first call makes the two
// streams for copies, which exist until the process ends.
func (m *memory) Lock(host []byte) error {
	if os.Getenv(unpinned) != "" {
		return fmt.Errorf("%s is set", unpinned)
	}
	for i := range m.copies {
		if m.copies[i] == nil {
			if code := C.onering_cuda_stream(m.id, &m.copies[i]); code != 0 {
				return streamsError(code)
			}
		}
	}
	return streamsError(C.onering_cuda_lock(m.id, unsafe.Pointer(unsafe.SliceData(host)), C.size_t(len(host))))
}

// streamsError is cudaError for functions that the runtime's library may lack.
func streamsError(code C.int) error {
	if code < 0 {
		return errors.New("CUDA's runtime lacks cudaHostRegister or a function for events")
	}
	return cudaError(code)
}

func (m *memory) Unlock(host []byte) {
	C.onering_cuda_unlock(m.id, unsafe.Pointer(unsafe.SliceData(host)))
}

// on returns a stream by its number in package runtime.
func (m *memory) on(stream int) unsafe.Pointer {
	if stream == runtime.StreamComputes {
		return m.stream
	}
	return m.copies[stream-runtime.StreamUp]
}

func (m *memory) Begin(stream int, device unsafe.Pointer, host []byte) error {
	at := unsafe.Pointer(unsafe.SliceData(host))
	if stream == runtime.StreamUp {
		return m.start(device, at, len(host), toDevice, m.on(stream))
	}
	return m.start(at, device, len(host), toHost, m.on(stream))
}

func (m *memory) Mark(stream, mark int) error {
	for len(m.events) <= mark {
		var event unsafe.Pointer
		if err := cudaError(C.onering_cuda_event(m.id, &event)); err != nil {
			return err
		}
		m.events = append(m.events, event)
	}
	return cudaError(C.onering_cuda_mark(m.id, m.on(stream), m.events[mark]))
}

func (m *memory) Follow(stream, mark int) error {
	if mark >= len(m.events) {
		return nil
	}
	return cudaError(C.onering_cuda_follow(m.id, m.on(stream), m.events[mark]))
}

func (m *memory) Settle() (err error) {
	for _, stream := range m.copies {
		err = errors.Join(err, cudaError(C.onering_cuda_wait(m.id, stream)))
	}
	return err
}
