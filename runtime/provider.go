package runtime

import (
	"context"
	"unsafe"

	"onering/models"
	"onering/runtime/provision"
)

// A Provider is a kind of device: an execution provider of ONNX Runtime, what it needs of
// the system, and its memory.
type Provider interface {
	// Name begins the names of the devices, which have numbers: of "cuda", "cuda" is
	// number 0 and "cuda:1" the next.
	Name() string
	// Names says in words which names there are; "" keeps them out of messages. Has reports
	// whether there may be a device of a number.
	Names() string
	Has(number int) bool
	// ForRank returns the device for a rank of a run, by its place among those of its host,
	// where the run names none by its number. asked is false where any device would do.
	ForRank(local int, asked bool) (number int, ok bool)

	// Graphs says whose kernels graphs are made for. Refuses says why no model computes in
	// a type, "" if models do or that depends on the device.
	Graphs() models.Provider
	Refuses(models.DType) string
	// Taken is what a process takes of a device's memory before it allocates anything.
	Taken() int64
	// Room returns what the driver calls a device and what of its memory is free, 0 if that
	// is not known.
	Room(number int) (model string, free int64)
	// Limits bound the buffers of the devices.
	Limits() Limits

	// Library is the kind of ONNX Runtime library that has the provider.
	Library() provision.Kind
	// Present returns an error where the system shows no device that auto should be.
	Present() error
	// Report says what runs on a device need and what of it is here, beside a library whose
	// path is "" if there is none. told says that its absence counts for nothing: it is
	// going to be fetched, or was reported already.
	Report(ctx context.Context, library string, number int, told bool) Report

	// Open opens a device, for the loaded library.
	Open(o Options, number int, library string) (*Backend, error)
}

// A Report says what running on a provider's devices needs and what of it is here.
type Report struct {
	Name    string // the provider's; Diagnose sets it, and Asked, whether the run is to be on its device
	Asked   bool
	Devices []string       // those that the system shows
	Missing []string       // in sentences with the remedy
	Facts   map[string]any // what doctor --json says besides
	// Rows are those of doctor's table, a name that may be "" and a text. asked is whether
	// the run is to be on such a device.
	Rows func(asked bool) [][2]string
}

// providers are those that were registered, in the order in which auto tries them.
var providers []Provider

// RegisterProvider makes the devices of a provider known. Packages do so when the program
// starts, which goes by their paths.
func RegisterProvider(p Provider) { providers = append(providers, p) }

// cpu is the provider of the host, which is always there.
type cpu struct{}

func (cpu) Name() string                  { return "cpu" }
func (cpu) Names() string                 { return "cpu" }
func (cpu) Has(int) bool                  { return true }
func (cpu) ForRank(int, bool) (int, bool) { return 0, false }
func (cpu) Graphs() models.Provider       { return models.CPU }
func (cpu) Limits() Limits                { return Limits{} }
func (cpu) Library() provision.Kind       { return provision.Kind{} }
func (cpu) Room(int) (string, int64)      { return "", 0 }
func (cpu) Present() error                { return nil }

// Taken is the program with ONNX Runtime and its sessions, as measured.
func (cpu) Taken() int64 { return 85e6 }

func (cpu) Refuses(d models.DType) string {
	if d == models.BF16 {
		return "ONNX Runtime has no products of bfloat16 on the CPU: compute in float32, or in float16, or on a GPU (cuda:0)"
	}
	return ""
}

func (cpu) Report(context.Context, string, int, bool) Report {
	return Report{Rows: func(bool) [][2]string { return nil }}
}

func (cpu) Open(Options, int, string) (*Backend, error) { return &Backend{}, nil }

// A Backend is an open device as its provider describes it. Its zero value is the host.
type Backend struct {
	// Driver is the device's own interface to its memory; nil if ONNX Runtime allocates its
	// buffers and copies between them and the host. Grain is 0 if buffers have addresses,
	// else how many bytes sizes are multiples of; see Driver.
	Driver Driver
	Grain  int
	// Kind is ONNX Runtime's name of the memory; "" is the host's. Borrowed is that of the
	// host's memory which runs that return before they are complete hold; "" if none do.
	// ID is ONNX Runtime's number of both.
	Kind, Borrowed string
	ID             int

	// Execution is the provider's name in ONNX Runtime, "" for the CPU's, and Settings are
	// those of its sessions. It is in the library under the name Short, or in the library
	// Plugin, or Append adds it to the options of a session by ONNX Runtime's functions.
	Execution, Short, Plugin string
	Settings                 map[string]string
	Append                   func(functions, options unsafe.Pointer) error
	// Unseen says what to do if the library Plugin finds no device.
	Unseen string
	// Entries configure sessions.
	Entries map[string]string
	// Arena says that sessions share one allocator, for the reason that shareArena has.
	Arena bool

	// InOrder reports whether ScatterND adds rows of the same index in the order in which
	// they come. Else the last bits of their sum change from run to run.
	InOrder bool
	// Float16 says what devices need to compute in float16, which is tried; "" if all do.
	Float16 string
	// Wrote is called for the outputs of each run in the device's memory; it may be nil.
	Wrote func(at Place, bytes int)
	// Kernels are what the device computes by other means than ONNX Runtime's operators; nil
	// if there are none.
	Kernels Kernels
}

// Kernels compute on a device, in order with its Driver and runs. Addresses are the device's.
type Kernels interface {
	// Fuse puts operators of its own in the place of nodes of a Program that is loaded.
	Fuse(p models.Program) models.Program
	// Whole reports whether an operator computes the attention of a layer's Program that
	// takes the queries in one block, and holds no scores.
	Whole(p models.Program) bool
	// Updates reports whether there is a kernel for an optimizer's Program, by its name.
	Updates(program string) bool
	// Update does what that Program does, with the same bits: for n elements, with its
	// inputs and the output Copy, which may be missing, at the addresses given by port. half
	// is whether Copy is float16.
	Update(n int, at map[string]unsafe.Pointer, half bool, scalars map[string]float64) error
	// Squares writes the sum of the squares of n gradients times scale to sum, a float32, in
	// the same order in every run.
	Squares(g unsafe.Pointer, n int, scale float64, sum unsafe.Pointer) error
}

// A Driver is a device's own interface to its memory. A buffer is what it allocates,
// named by a pointer that is not nil. If the device has addresses, the pointer is the
// address of the buffer's first byte, and the Driver is a Mover too. Else it is a handle;
// sizes are then multiples of a grain, what the methods say of handles holds, and graphs
// change bytes within the device.
type Driver interface {
	// Alloc makes a buffer of unknown content.
	Alloc(bytes int) (buffer unsafe.Pointer, err error)
	Free(buffer unsafe.Pointer)
	// Write and Read copy between the host and a place, and are complete when they
	// return. With handles the place is a buffer's beginning, and what Write copies is a
	// multiple of the grain or the whole buffer.
	Write(to Place, from []byte) error
	Read(to []byte, from Place) error
	// Wait returns after everything before it is complete.
	Wait() error
	// Close is called once, after all buffers have been freed.
	Close()
}

// A Mover changes bytes within a device, in order with what its Driver and runs do.
type Mover interface {
	// Zero sets bytes[i] bytes at at[i] to 0. With handles, these begin where the buffer
	// does and are a multiple of 4.
	Zero(at []Place, bytes []int) error
	// CopyRuns copies runs from each place to the one of the same number. Strides are at
	// least a run's width.
	CopyRuns(to, from []Place, runs []Runs) error
}

// Streams are a Driver, of a device with addresses, that also copies between it and the
// host beside what the device computes. What is begun on a stream is done in order. One
// goroutine at a time uses them.
type Streams interface {
	// Lock lets the device reach bytes of the host by itself, until Unlock.
	Lock(host []byte) error
	Unlock(host []byte)
	// Begin begins to copy bytes that are locked, to the device on StreamUp and from it on
	// StreamDown.
	Begin(stream int, device unsafe.Pointer, host []byte) error
	// Mark notes what has been begun on a stream until now. Follow has a stream go on only
	// when what a mark noted last is complete; a mark that noted nothing is no matter.
	Mark(stream, mark int) error
	Follow(stream, mark int) error
	// Settle returns when everything on StreamUp and StreamDown is complete.
	Settle() error
}

// The streams of a device: what it computes, and copies to it and from it.
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

// Each calls f with the first bytes of each run.
func (r Runs) Each(f func(to, from int)) {
	for i := range r.Count {
		f(r.To+i*r.Stride, r.From+i*r.FromStride)
	}
}

// A Place is where bytes lie on a device.
type Place struct {
	Buffer unsafe.Pointer // as the Driver's Alloc returned it
	At     unsafe.Pointer // the memory's address of the buffer's first byte
	Bytes  int            // the buffer's, without what rounds them up to the grain
	First  int            // the place in the buffer
}

// Address is the address of the place on a device that has addresses.
func (p Place) Address() unsafe.Pointer { return unsafe.Add(p.Buffer, p.First) }
