// Package nccl moves bytes between the GPUs of several ranks by NVIDIA's NCCL. The
// library is opened by name at run time, and the program is built without it. It only
// moves bytes: NCCL's own sums add in an order of its choice, so they are not used.
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

// Variable is the environment variable that names a library if none is found.
const Variable = "ONERING_NCCL"

// A Library is an open NCCL for one GPU.
type Library struct {
	Version string // for example 2.27.3
	lib     C.onering_nccl
	stream  unsafe.Pointer
	use     func() error
}

// Open opens the library of a path, or of a name that the system's loader knows. stream
// is the CUDA stream for all transfers, and use selects its GPU on the calling thread.
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

// call calls the library on a thread on which the GPU is selected: otherwise NCCL would
// select the first GPU afterwards, and take memory there.
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
	return fmt.Errorf("NCCL %s: %s: %s (code %d); NCCL_DEBUG=WARN in the environment says more", l.Version, doing,
		C.GoString(C.onering_nccl_text(&l.lib, code)), int(code))
}

// ID makes the identifier with which all ranks join.
func (l *Library) ID() ([]byte, error) {
	id := make([]byte, C.onering_nccl_id_bytes)
	return id, l.call("making an id for the ranks", func() C.int { return C.onering_nccl_id(&l.lib, (*C.char)(unsafe.Pointer(&id[0]))) })
}

// A Comm is this rank's part of the connection between ranks. One goroutine calls
// Exchange and Gather, in the same order on all ranks; they may return before their work
// in the stream is done. Abort and Check may be called at any time.
type Comm struct {
	library *Library
	comm    unsafe.Pointer
	rank    int
	mu      sync.Mutex  // held during calls into the library
	aborted atomic.Bool // all calls fail
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

// errAborted is the error of calls after Abort.
var errAborted = errors.New("NCCL: the link to the other ranks was cut")

// call calls the library, unless Abort was called, also during the call, or the communicator was given back.
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

// A Move is a range of bytes on the GPU that goes to a rank, or comes from it.
type Move struct {
	Peer  int
	At    unsafe.Pointer
	Bytes int
}

// Exchange sends and receives at the same time. Two ranks must list their mutual moves in
// the same order, with the same sizes.
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

// Gather gives every rank the parts of all ranks, which lie one after the other from at
// on and have this many bytes each.
func (c *Comm) Gather(at unsafe.Pointer, bytes int) error {
	defer runtime.KeepAlive(at)
	return c.call("gathering", func() C.int {
		return C.onering_nccl_gather(&c.library.lib, c.comm, C.uintptr_t(uintptr(at)), C.size_t(bytes), C.int(c.rank), c.library.stream)
	})
}

// Check returns the error of work in the stream so far. It returns nil during a call.
func (c *Comm) Check() error {
	if !c.aborted.Load() {
		if !c.mu.TryLock() {
			return nil
		}
		c.mu.Unlock()
	}
	return c.call("moving bytes", func() C.int { return C.onering_nccl_check(&c.library.lib, c.comm) })
}

// patience is how long Abort waits for a call to return by itself, and Close for the other ranks.
const patience = time.Second

// Abort ends all work, in calls and in the stream, and all later calls, when the other ranks are gone or have failed.
func (c *Comm) Abort() {
	if !c.aborted.CompareAndSwap(false, true) {
		return
	}
	for began := time.Now(); time.Since(began) < patience; time.Sleep(time.Millisecond) {
		if c.mu.TryLock() {
			defer c.mu.Unlock()
			break
		}
	} // otherwise a call would wait for a rank, which only this can end
	c.giveBack("cutting the link", func() C.int { return C.onering_nccl_abort(&c.library.lib, c.comm) })
}

// giveBack returns the communicator to the library, once.
func (c *Comm) giveBack(doing string, f func() C.int) error {
	if !c.given.CompareAndSwap(false, true) {
		return nil
	}
	return c.library.call(doing, f)
}

// Close ends this rank's part after all work in the stream is done. All ranks call it; if
// no other rank answers, the end of the process frees this part.
func (c *Comm) Close() error {
	over := make(chan error, 1)
	go func() {
		c.mu.Lock()
		err := c.giveBack("leaving the other ranks", func() C.int { return C.onering_nccl_destroy(&c.library.lib, c.comm) })
		c.mu.Unlock() // release mu before Close returns: Check needs the lock, which is held during a call
		over <- err
	}()
	select {
	case err := <-over:
		return err
	case <-time.After(patience):
		return nil
	}
}
