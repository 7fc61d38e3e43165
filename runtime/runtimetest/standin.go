package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"unsafe"

	"onering/models"
	"onering/runtime"
	"onering/runtime/nccl"
)

// A standIn is a provider of devices for tests, made of the host's memory: sessions run
// on the CPU, but Go code accesses their memory as if it were a GPU's. Device N is lost
// after N calls, except device 0.
type standIn struct {
	runtime.Provider                        // the CPU's provider, for methods not defined here
	Kind             string                 // the result of Name
	For              models.Provider        // the provider whose graphs it runs
	Kernels          func(*runtime.Backend) // adds them; nil if it has none
}

func init() {
	cpu := runtime.ProviderOf("cpu")
	runtime.RegisterProvider(&standIn{cpu, "stand-in", models.CPU, nil})
	runtime.RegisterProvider(&standIn{cpu, "stand-in-cuda", models.CUDA, nil})
}

func (s *standIn) Name() string            { return s.Kind }
func (s *standIn) Names() string           { return "" }
func (s *standIn) Graphs() models.Provider { return s.For }
func (s *standIn) Present() error          { return errors.New("a stand-in is for tests") }

// Open returns the host as a device, with streams that copy as late as possible.
func (s *standIn) Open(_ runtime.Options, number int, _ string) (*runtime.Backend, error) {
	h := Host{Streams: &Streams{marks: make(map[int]*op), locked: make(map[*byte]int)}}
	if number > 0 {
		h.Calls = new(atomic.Int64)
		h.Calls.Store(int64(number))
	}
	b := &runtime.Backend{Driver: h, InOrder: true, NCCL: h.link}
	if s.Kernels != nil {
		s.Kernels(b)
	}
	return b, nil
}

// Host is the Driver of a stand-in. New memory is full of NaN. Calls, if not nil, counts
// down, and at zero the device is lost.
type Host struct {
	runtime.Heap
	Calls *atomic.Int64
	*Streams
}

// Streams of a stand-in copy as late as possible: when something waits for them.
// Computation is complete at once.
type Streams struct {
	newest [3]*op // the newest op by stream
	marks  map[int]*op
	locked map[*byte]int // number of locked bytes from each first one on
	most   int           // largest number of locked ranges; 0 for no limit
}

// An op is a piece of work on a stream that follows another one.
type op struct {
	before *op
	f      func() error // nil once it was called
}

// do does all work up to o, which may be nil.
func (o *op) do() error {
	if o == nil || o.f == nil {
		return nil
	}
	err, f := o.before.do(), o.f
	o.before, o.f = nil, nil
	if err != nil {
		return err
	}
	return f()
}

// Locked returns how many ranges are locked, and sets the largest number from now on; 0
// means any number.
func (s *Streams) Locked(most int) int {
	s.most = most
	return len(s.locked)
}

func (s *Streams) Lock(host []byte) error {
	if s.locked[&host[0]] > 0 || s.most > 0 && len(s.locked) >= s.most {
		return errors.New("the stand-in locks no more")
	}
	s.locked[&host[0]] = len(host)
	return nil
}

func (s *Streams) Unlock(host []byte) {
	if s.locked[&host[0]] != len(host) {
		panic("what is unlocked was not locked")
	}
	delete(s.locked, &host[0])
}

func (s *Streams) Mark(stream, mark int) error {
	s.marks[mark] = s.newest[stream]
	return nil
}

func (s *Streams) Follow(stream, mark int) error {
	if stream == runtime.StreamComputes {
		return s.marks[mark].do()
	}
	s.newest[stream] = &op{s.newest[stream], s.marks[mark].do}
	return nil
}

func (s *Streams) Settle() error {
	return errors.Join(s.newest[runtime.StreamUp].do(), s.newest[runtime.StreamDown].do())
}

// Begin implements runtime.Streams: it notes a copy between host memory, which must be locked, and the device. The copy
// is done after the stream's earlier ones, when something waits for it.
func (h Host) Begin(stream int, device unsafe.Pointer, host []byte) error {
	inside := false
	for first, n := range h.locked {
		at := uintptr(unsafe.Pointer(&host[0])) - uintptr(unsafe.Pointer(first))
		inside = inside || at+uintptr(len(host)) <= uintptr(n)
	}
	if !inside {
		return fmt.Errorf("%d bytes of the host are not locked", len(host))
	}
	to, from := unsafe.Slice((*byte)(device), len(host)), host
	if stream == runtime.StreamDown {
		to, from = from, to
	}
	h.newest[stream] = &op{h.newest[stream], func() error { copy(to, from); return h.call() }}
	return nil
}

// call returns an error if the device is lost.
func (h Host) call() error {
	if h.Calls != nil && h.Calls.Add(-1) < 0 {
		return errors.New("the stand-in was reset")
	}
	return nil
}

func (h Host) Alloc(bytes int) (unsafe.Pointer, error) {
	words := make([]uint64, (bytes+7)/8+1)
	if uintptr(unsafe.Pointer(unsafe.SliceData(words)))%16 != 0 {
		words = words[1:] // kernels read 16 bytes at once
	}
	nan := uint64(math.Float32bits(float32(math.NaN())))
	for i := range words {
		words[i] = nan<<32 | nan
	}
	return unsafe.Pointer(unsafe.SliceData(words)), h.call()
}

func (h Host) Write(to unsafe.Pointer, from []byte) error {
	h.Heap.Write(to, from)
	return h.call()
}

func (h Host) Read(to []byte, from unsafe.Pointer) error {
	h.Heap.Read(to, from)
	return h.call()
}

func (h Host) Zero(at unsafe.Pointer, bytes int) error {
	h.Heap.Zero(at, bytes)
	return h.call()
}

// cards counts the names given to NCCL: ranks of one process share a device as if each
// had its own, and so do processes.
var cards atomic.Int64

// link returns the NCCL library that the environment names.
func (h Host) link(context.Context) (*nccl.Library, string, error) {
	if os.Getenv(nccl.Variable) == "" {
		return nil, "", errors.New("a stand-in has no NCCL but that of " + nccl.Variable)
	}
	l, err := nccl.Open(os.Getenv(nccl.Variable), nil, h.call)
	return l, fmt.Sprint(os.Getpid(), " ", cards.Add(1)), err
}

func (h Host) Wait() error { return h.call() }
