package runtime

// #include <stdlib.h>
// #include "rest.h"
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"onering/models/moves"
)

// A resting is what the threads of the pool run before they rest.
type resting struct {
	sync.Mutex
	session *Session // nil before the first rest
	size    *Value
	names   [2]*C.char // of the input and the output
}

// Rest has the threads of the pool sleep until wake is called. After their last work they
// look for more of it for about 40 ms, and take time from lanes meanwhile, which have a
// thread of their own each. Sessions of the pool may run all the same, each on the thread
// that calls it.
func (e *Env) Rest() (wake func(), err error) {
	threads := e.Threads()
	if threads == 1 || e.options.NoSpin || e.device.gpu() {
		return func() {}, nil
	}
	session, err := e.resting.open(e)
	if err != nil {
		return nil, err
	}
	var r *C.rest
	err = check(C.onering_rest(session.ptr, (**C.char)(&e.resting.names[0]), e.resting.size.ptr, C.int(threads-1), &r))
	if err != nil {
		C.onering_wake(r)
		return nil, fmt.Errorf("runtime: sending the threads of ONNX Runtime's pool to sleep: %w", err)
	}
	return func() { C.onering_wake(r) }, nil
}

// open returns the session, which it loads the first time.
func (r *resting) open(e *Env) (*Session, error) {
	r.Lock()
	defer r.Unlock()
	if r.session != nil {
		return r.session, nil
	}
	size, err := NewValue([]int64{1}, 1)
	if err != nil {
		return nil, err
	}
	session, err := e.Load(moves.Clear(1))
	if err != nil {
		size.Close()
		return nil, err
	}
	r.session, r.size = session, size
	r.names = [2]*C.char{C.CString(moves.Name(moves.Size, 0)), C.CString(moves.Name(moves.Zeros, 0))}
	return session, nil
}

func (r *resting) close() error {
	r.Lock()
	defer r.Unlock()
	if r.session == nil {
		return nil
	}
	err := r.session.Close()
	r.size.Close()
	for _, name := range r.names {
		C.free(unsafe.Pointer(name))
	}
	r.session = nil
	return err
}
