// Package nccl moves bytes between the GPUs of several ranks by NVIDIA's NCCL. The library
// is opened by name at run time, and the program is built without it. It only moves: NCCL's
// own sums add in an order of its choice, so nothing here adds.
package nccl

// #cgo linux LDFLAGS: -ldl
// #include <stdlib.h>
// #include "nccl.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Variable names a library in the environment where the right one is not found.
const Variable = "ONERING_NCCL"

// A Library is an open NCCL for one GPU.
type Library struct {
	Version string // such as 2.27.3
	lib     C.onering_nccl
	stream  unsafe.Pointer
	use     func() error
}

// Open opens the library of a path, or of a name that the system's loader knows. stream is
// the CUDA stream for all that is moved, and use makes its GPU that of the calling thread.
func Open(path string, stream unsafe.Pointer, use func() error) (*Library, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	l := &Library{stream: stream, use: use}
	if message := C.onering_nccl_open(name, &l.lib); message != nil {
		defer C.free(unsafe.Pointer(message))
		return nil, fmt.Errorf("NCCL cannot be opened from %q: %s", path, strings.TrimSpace(C.GoString(message)))
	}
	v := int(l.lib.version)
	l.Version = fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
	return l, nil
}

// call calls the library on a thread whose GPU is the right one: on another, NCCL would put
// back the first GPU afterwards, and take memory there.
func (l *Library) call(doing string, f func() C.int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := l.use(); err != nil {
		return err
	}
	code := f()
	if code == 0 {
		return nil
	}
	return fmt.Errorf("NCCL %s: %s: %s (code %d); NCCL_DEBUG=WARN in the environment says more", l.Version, doing, C.GoString(C.onering_nccl_text(&l.lib, code)), int(code))
}

// ID makes what all ranks need to join each other.
func (l *Library) ID() ([]byte, error) {
	id := make([]byte, C.onering_nccl_id_bytes)
	return id, l.call("making an id for the ranks", func() C.int { return C.onering_nccl_id(&l.lib, (*C.char)(unsafe.Pointer(&id[0]))) })
}

// A Comm is this rank's part of what links the ranks. Exchange and Gather are called by one
// goroutine, in the same order on all ranks, and may return before their work in the stream
// is done. Abort and Check may be called at any time.
type Comm struct {
	library *Library
	comm    unsafe.Pointer
	rank    int
	mu      sync.Mutex  // held by calls into the library
	aborted atomic.Bool // calls fail
	given   atomic.Bool // the communicator was given back to the library
}

// Join waits until all ranks have joined with one ID.
func (l *Library) Join(id []byte, rank, size int) (*Comm, error) {
	if len(id) != C.onering_nccl_id_bytes {
		return nil, fmt.Errorf("an id of %d bytes for NCCL, which has %d", len(id), C.onering_nccl_id_bytes)
	}
	c := &Comm{library: l, rank: rank}
	if err := l.call("joining the other ranks", func() C.int {
		return C.onering_nccl_join(&l.lib, (*C.char)(unsafe.Pointer(&id[0])), C.int(rank), C.int(size), &c.comm)
	}); err != nil {
		return nil, err
	}
	return c, nil
}

// errAborted is what calls return after Abort.
var errAborted = errors.New("NCCL: the link to the other ranks was cut")

// call is the library's, unless there was an Abort.
func (c *Comm) call(doing string, f func() C.int) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.given.Load() && !c.aborted.Load() {
		err = c.library.call(doing, f)
	}
	if c.given.Load() || c.aborted.Load() {
		return errAborted
	}
	return err
}

// A Move is bytes on the GPU that go to a rank, which may be this one, or come from it.
type Move struct {
	Peer  int
	At    unsafe.Pointer
	Bytes int
}

// Exchange sends and receives at once. What one rank sends another, in order, is what that
// receives of it, with the same sizes.
func (c *Comm) Exchange(out, in []Move) error {
	moves := make([]C.onering_nccl_move, 0, len(out)+len(in))
	for _, m := range append(out[:len(out):len(out)], in...) {
		moves = append(moves, C.onering_nccl_move{at: C.uintptr_t(uintptr(m.At)), bytes: C.size_t(m.Bytes), peer: C.int(m.Peer)})
	}
	defer runtime.KeepAlive([][]Move{out, in})
	return c.call("sending and receiving", func() C.int {
		return C.onering_nccl_exchange(&c.library.lib, c.comm, unsafe.SliceData(moves), C.int(len(out)), C.int(len(in)), c.library.stream)
	})
}

// Gather gives every rank the parts of all, of so many bytes each, which lie one after the
// other from at on.
func (c *Comm) Gather(at unsafe.Pointer, bytes int) error {
	defer runtime.KeepAlive(at)
	return c.call("gathering", func() C.int {
		return C.onering_nccl_gather(&c.library.lib, c.comm, C.uintptr_t(uintptr(at)), C.size_t(bytes), C.int(c.rank), c.library.stream)
	})
}

// Check returns what work in the stream has met so far. It returns nil while a call is
// under way.
func (c *Comm) Check() error {
	if !c.aborted.Load() {
		if !c.mu.TryLock() {
			return nil
		}
		c.mu.Unlock()
	}
	return c.call("moving bytes", func() C.int { return C.onering_nccl_check(&c.library.lib, c.comm) })
}

// patience is how long Abort waits for a call to return by itself, and Close for the other
// ranks.
const patience = time.Second

// Abort ends what is under way, in calls and in the stream, and all later calls: the other
// ranks are gone, or wait for something else.
func (c *Comm) Abort() {
	if !c.aborted.CompareAndSwap(false, true) {
		return
	}
	for began := time.Now(); time.Since(began) < patience; time.Sleep(time.Millisecond) {
		if c.mu.TryLock() {
			defer c.mu.Unlock()
			break
		}
	} // else a call waits for a rank, which only this ends
	c.giveBack("cutting the link", func() C.int { return C.onering_nccl_abort(&c.library.lib, c.comm) })
}

// giveBack gives the communicator back to the library, unless that was done.
func (c *Comm) giveBack(doing string, f func() C.int) error {
	if !c.given.CompareAndSwap(false, true) {
		return nil
	}
	return c.library.call(doing, f)
}

// Close ends this rank's part after all work in the stream is done. All ranks call it; one
// that no other answers leaves its part to the end of the process.
func (c *Comm) Close() error {
	over := make(chan error, 1)
	go func() {
		c.mu.Lock()
		err := c.giveBack("leaving the other ranks", func() C.int { return C.onering_nccl_destroy(&c.library.lib, c.comm) })
		c.mu.Unlock() // before Close returns: Check takes a lock that is held for a call under way
		over <- err
	}()
	select {
	case err := <-over:
		return err
	case <-time.After(patience):
		return nil
	}
}
