package runtime

// #include <stdlib.h>
// #include "ort.h"
import "C"

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"unicode/utf16"
	"unsafe"

	"onering/models"
)

// A Session is a loaded Program. Several goroutines may run it at once, each with its own Binding.
type Session struct {
	env       *Env
	name      string
	alias     map[string]string // from an output to the input whose memory it may use
	ports     [2][]port         // ports of inputs, of outputs
	index     [2]map[string]int // index of a port by name
	sizeNames []string          // names of varying dimensions, such as "B"

	unwaited atomic.Int64 // number of runs since one that waited for the device

	mu       sync.Mutex
	ptr      *C.OrtSession
	bindings map[*Binding]bool
}

// The two sides of a Session: indices of ports, index and bound, here and in ort.c.
const (
	input  = 0
	output = 1
)

var sides = [2]string{input: "input", output: "output"}

type port struct {
	models.Port
	cname *C.char
	dims  []dim
}

// A dim is one dimension of a port: a fixed size, or one of the sizes that vary.
type dim struct {
	fixed int64 // -1 if the size varies
	size  int   // index into Session.sizeNames
}

// dims reads the dimensions of a port. Names of varying ones, such as "B", are numbered in s.sizeNames over all ports.
func (s *Session) dims(p models.Port) []dim {
	dims := make([]dim, len(p.Shape))
	for i, text := range p.Shape {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
			dims[i] = dim{fixed: n}
			continue
		}
		at := slices.Index(s.sizeNames, text)
		if at < 0 {
			at = len(s.sizeNames)
			s.sizeNames = append(s.sizeNames, text)
		}
		dims[i] = dim{fixed: -1, size: at}
	}
	return dims
}

// Load makes a Session of p, in whose graph it first puts the device's own operators (Fuse). With the option
// KeepSessions it takes the compiled graph of an earlier Session of the same Program, if there was one.
func (e *Env) Load(p models.Program) (*Session, error) {
	if len(p.Nodes) == 0 {
		return nil, fmt.Errorf("runtime: program %q has no graph", p.Name)
	}
	err := e.memory.Check(nil) // an error if the device was lost earlier
	var env *C.OrtEnv
	if err == nil {
		env, err = e.acquire() // release or s.Close gives it back
	}
	if err != nil {
		return nil, fmt.Errorf("runtime: program %q: %w", p.Name, err)
	}
	p = e.memory.Kernels.Fuse(p)
	s := &Session{env: e, name: p.Name, alias: maps.Clone(p.Alias), bindings: map[*Binding]bool{}}
	if e.options.KeepSessions {
		s.ptr, err = e.kept.load(e, env, p)
	} else {
		s.ptr, err = e.load(env, p, p.ONNX().Encode())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("runtime: program %q: loading its graph: %w", p.Name, err), release())
	}
	if err := s.setPorts(p); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// loading is held while ONNX Runtime makes a session: the first ones with operators of ours enter these
// into a table of the process, which several at once would do twice.
var loading sync.Mutex

// load makes a session of p, which is given encoded.
func (e *Env) load(env *C.OrtEnv, p models.Program, model []byte) (ptr *C.OrtSession, err error) {
	loading.Lock()
	defer loading.Unlock()
	o, err := e.sessionOptions(p)
	if err == nil {
		e.memory.do(func() {
			err = check(C.onering_session(env, unsafe.Pointer(&model[0]), C.size_t(len(model)), o, &ptr))
		})
		C.onering_release_options(o)
	}
	return ptr, err
}

// keptSessions are the sessions for Options.KeepSessions, by a digest of graph and options.
type keptSessions struct {
	sync.Mutex
	by map[[sha256.Size]byte]*C.OrtSession
}

// load returns the session of p: the one that it has kept for the same graph, options and threads, or a new one.
func (k *keptSessions) load(e *Env, env *C.OrtEnv, p models.Program) (ptr *C.OrtSession, err error) {
	model := p.ONNX().Encode()
	digest := sha256.Sum256(fmt.Append(model, p.Options, e.noPool))
	k.Lock()
	defer k.Unlock()
	if ptr = k.by[digest]; ptr != nil {
		return ptr, nil
	}
	if ptr, err = e.load(env, p, model); err == nil {
		if k.by == nil {
			k.by = map[[sha256.Size]byte]*C.OrtSession{}
		}
		k.by[digest] = ptr
	}
	return ptr, err
}

// close releases all kept sessions.
func (k *keptSessions) close(e *Env) {
	for _, ptr := range k.by {
		e.memory.do(func() { C.onering_release_session(ptr) })
	}
	k.by = nil
}

// sessionOptions returns the options for the session of p: those of p, threads and allocator by noPool, the device's
// provider, and the file of Options.Profile. The caller releases them.
func (e *Env) sessionOptions(p models.Program) (*C.OrtSessionOptions, error) {
	var o *C.OrtSessionOptions
	entries := map[string]string{
		// Prepacking copies a weight, and updates in place would not reach the copy.
		"session.disable_prepacking": "1",
	}
	threads := 0 // use the pool of the process
	if e.noPool {
		threads = 1 // and an allocator of its own; see withoutPool
	} else {
		entries["session.use_env_allocators"] = "1" // use the arena of shareArena
	}
	err := check(C.onering_options(&o, C.int(threads)))
	maps.Copy(entries, p.Options)
	for _, k := range slices.Sorted(maps.Keys(entries)) {
		if err == nil {
			key, value := C.CString(k), C.CString(entries[k])
			err = check(C.onering_option(o, key, value))
			C.free(unsafe.Pointer(key))
			C.free(unsafe.Pointer(value))
			if err != nil {
				err = fmt.Errorf("%q = %q: %w", k, entries[k], err)
			}
		}
	}
	if err == nil {
		err = e.memory.provide(o, p)
	}
	if err == nil && e.options.Profile != "" {
		prefix := systemPath(e.options.Profile + "-" + p.Name)
		err = check(C.onering_profile(o, prefix))
		C.free(prefix)
	}
	if err != nil {
		if o != nil {
			C.onering_release_options(o)
		}
		return nil, fmt.Errorf("session options: %w", err)
	}
	return o, nil
}

// setPorts copies the ports of p with their C names, which Close frees, and checks that aliases name some.
func (s *Session) setPorts(p models.Program) error {
	for side, ports := range [2][]models.Port{input: p.Inputs, output: p.Outputs} {
		s.index[side] = map[string]int{}
		for i, q := range ports {
			s.index[side][q.Name] = i
			s.ports[side] = append(s.ports[side], port{q, C.CString(q.Name), s.dims(q)})
		}
	}
	for _, out := range slices.Sorted(maps.Keys(s.alias)) {
		in := s.alias[out]
		if _, ok := s.index[output][out]; !ok {
			return fmt.Errorf("runtime: program %q: alias of an output %q that it does not have", s.name, out)
		}
		if _, ok := s.index[input][in]; !ok {
			return fmt.Errorf("runtime: program %q: output %q is an alias of an input %q that it does not have", s.name, out, in)
		}
	}
	return nil
}

// Close closes s and its Bindings. No Run may be in progress. Closing twice is fine. With KeepSessions the compiled
// graph stays with the Env.
func (s *Session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ptr == nil {
		return nil
	}
	for b := range s.bindings {
		b.free()
	}
	m := s.env.memory
	borrowed, err := s.keepBorrowed() // host memory that runs still hold; nil if there is none
	if !s.env.options.KeepSessions {
		m.do(func() { C.onering_release_session(s.ptr) })
	}
	if borrowed != nil {
		err = errors.Join(err, m.Wait())
		C.onering_release_allocator(borrowed)
	}
	s.ptr = nil
	for side := range s.ports {
		for _, p := range s.ports[side] {
			C.free(unsafe.Pointer(p.cname))
		}
	}
	return errors.Join(err, release())
}

// keepBorrowed keeps the host memory that runs have borrowed alive until the caller has waited for the device and
// releases it. The session returns it in a callback on CUDA's stream, which may not be its last holder: freeing it
// there is an error that ends the process. nil means that nothing is borrowed.
func (s *Session) keepBorrowed() (a *C.OrtAllocator, err error) {
	if m := s.env.memory; m.borrowed != nil {
		if err = check(C.onering_allocator(s.ptr, m.borrowed, &a)); err != nil {
			err = fmt.Errorf("runtime: program %q: pinned memory of %s: %w", s.name, m, err)
		}
	}
	return a, err
}

// systemPath returns a path in ONNX Runtime's form: on Windows UTF-16 with a zero at the end. Free it with C.free.
func systemPath(path string) unsafe.Pointer {
	if goruntime.GOOS != "windows" {
		return unsafe.Pointer(C.CString(path))
	}
	wide := append(utf16.Encode([]rune(path)), 0)
	p := C.malloc(C.size_t(2 * len(wide)))
	copy(unsafe.Slice((*uint16)(p), len(wide)), wide)
	return p
}
