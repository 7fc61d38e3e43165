package runtime

import (
	"context"
	"unsafe"

	"onering/models"
	"onering/runtime/kernels"
	"onering/runtime/nccl"
	"onering/runtime/provision"
)

// A Provider is a kind of device: an execution provider of ONNX Runtime, its needs on the system, and its memory.
type Provider interface {
	// Name begins the names of the devices: "cuda" is device 0 and "cuda:1" device 1 of "cuda".
	Name() string
	// Names lists the possible names for messages; "" leaves the provider out. Has
	// reports whether a device of a number may exist.
	Names() string
	Has(number int) bool
	// ForRank returns the device for a rank of a run, by its place among the ranks of its
	// host, if the run names no number. asked is false if any device is acceptable.
	ForRank(local int, asked bool) (number int, ok bool)

	// Graphs says for whose kernels graphs are made.
	Graphs() models.Provider
	// Taken is how much of a device's memory a process takes before it allocates anything.
	Taken() int64
	// Room returns the driver's name of a device and its free memory, 0 if that is unknown.
	Room(number int) (model string, free int64)

	// Library is the kind of ONNX Runtime library that has the provider.
	Library() provision.Kind
	// Present returns an error if the system shows no device that auto should use.
	Present() error
	// Report says what runs on a device need and what of it is present, beside a library whose path is "" if there is
	// none. ignore says to ignore that absence: the library will be downloaded, or was reported already.
	Report(ctx context.Context, library string, number int, ignore bool) Report

	// Open opens a device, for the loaded library.
	Open(o Options, number int, library string) (*Backend, error)
}

// A Report says what a provider's devices need and what of it is present.
type Report struct {
	Name    string // the provider's name; Diagnose sets it, and Asked, which says whether the run uses its device
	Asked   bool
	Devices []string       // the devices that the system shows
	Missing []string       // what is missing, in sentences with the remedy
	Facts   map[string]any // further facts for doctor --json
	// Rows are rows of doctor's table: a name that may be "" and a text. asked says
	// whether the run uses such a device.
	Rows func(asked bool) [][2]string
}

// providers are the registered ones, in the order in which auto tries them.
var providers []Provider

// RegisterProvider registers a kind of device. Packages call it from init, so their paths decide the order.
func RegisterProvider(p Provider) { providers = append(providers, p) }

// cpu is the provider of the host, which always exists.
type cpu struct{}

func (cpu) Name() string                  { return "cpu" }
func (cpu) Names() string                 { return "cpu" }
func (cpu) Has(int) bool                  { return true }
func (cpu) ForRank(int, bool) (int, bool) { return 0, false }
func (cpu) Graphs() models.Provider       { return models.CPU }
func (cpu) Library() provision.Kind       { return provision.Kind{} }
func (cpu) Room(int) (string, int64)      { return "", 0 }
func (cpu) Present() error                { return nil }

// Taken is the measured memory of the program with ONNX Runtime and its sessions.
func (cpu) Taken() int64 { return 90e6 }

func (cpu) Report(context.Context, string, int, bool) Report {
	return Report{Rows: func(bool) [][2]string { return nil }}
}

func (cpu) Open(Options, int, string) (*Backend, error) { return &Backend{}, nil }

// A Backend is an open device as its provider describes it. Its zero value is the host.
type Backend struct {
	// Driver is the device's own interface to its memory.
	Driver Driver
	// Execution is the provider's name in ONNX Runtime, "" for the CPU's, and Kind its name of
	// the memory: KindPinned is the host memory that unfinished runs hold. ID is its number of
	// both. Append adds the provider to the options of a session by ONNX Runtime's functions.
	Execution, Kind string
	ID              int
	Append          func(functions, options unsafe.Pointer) error

	// InOrder reports whether ScatterND adds rows of the same index in their order.
	// Otherwise the last bits of their sum change from run to run.
	InOrder bool
	// Cleared reports whether Alloc of the Driver makes memory of zeros.
	Cleared bool
	// Kernels are operators of our own; nil if there are none.
	Kernels *kernels.Device
	// NCCL opens the library that links the device with those of other processes, for the
	// stream of its runs, and names its card uniquely on the machine; nil if there is none.
	NCCL func(ctx context.Context) (library *nccl.Library, card string, err error)
}

// A Driver is a device's own interface to its memory, in order with its runs. Addresses are the device's.
type Driver interface {
	// Alloc makes memory of unknown content.
	Alloc(bytes int) (at unsafe.Pointer, err error)
	Free(at unsafe.Pointer)
	// Write and Read copy between the host and the device, and are complete when they return.
	Write(to unsafe.Pointer, from []byte) error
	Read(to []byte, from unsafe.Pointer) error
	// Zero sets bytes to 0.
	Zero(at unsafe.Pointer, bytes int) error
	// CopyRuns copies runs from each address to the address of the same number. Strides are at least a run's width.
	CopyRuns(to, from []unsafe.Pointer, runs []Runs) error
	// Wait returns after everything before it is complete.
	Wait() error
	// Close is called once, after all memory has been freed.
	Close()
}

// Streams are a Driver that also copies between device and host while the device computes.
// Each stream does its work in order. One goroutine at a time uses Streams.
type Streams interface {
	// Lock lets the device access bytes of the host directly, until Unlock.
	Lock(host []byte) error
	Unlock(host []byte)
	// Begin begins to copy locked bytes, to the device on StreamUp and from it on StreamDown.
	Begin(stream int, device unsafe.Pointer, host []byte) error
	// Mark records the work begun on a stream so far. Follow makes a stream wait until
	// the work last recorded by a mark is complete; an unused mark has no effect.
	Mark(stream, mark int) error
	Follow(stream, mark int) error
	// Settle returns when everything on StreamUp and StreamDown is complete.
	Settle() error
}

// The streams of a device: its computation, and copies to it and from it.
const (
	StreamComputes = iota
	StreamUp
	StreamDown
)

// Runs are Count runs of Width bytes: run i is copied from byte From + i*FromStride of
// one address to byte To + i*Stride of another.
type Runs struct {
	To, Stride, From, FromStride, Width, Count int
}
