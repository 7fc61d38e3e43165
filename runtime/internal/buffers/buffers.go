// Package buffers is the memory in which sessions find their tensors. One Device
// serves every kind of GPU: it keeps the allocations, finds what is at an address,
// checks and stages copies, and counts what crosses between host and device. What is
// left to differ is a Driver.
package buffers

import (
	"errors"
	"unsafe"
)

// ErrLost is wrapped by the errors of a device that no longer answers.
var ErrLost = errors.New("the device is lost: its driver was reset, or it is gone")

// A Memory is the host's memory or a device's.
//
// Addresses. Alloc returns an address, and that of byte n is at + n. Those of a device
// may be numbers that stand for its buffers: Go code only passes them on. They are a
// multiple of 8 on the host, of 64 or more on a device. Bytes copied by one call are
// of one allocation.
//
// Copies. Upload copies from the host and Download to the host. Both are complete when
// they return, so the host's bytes may be changed or read at once. Zero sets bytes to
// 0. CopyRuns copies runs of width bytes within the memory: run i from
// from + i*fromStride to to + i*stride. Runs do not overlap.
//
// Order. All calls on one Memory, and all runs of sessions on it, take effect in the
// order in which they were made. Zero, CopyRuns and runs may return before they are
// complete. Upload, Download and Wait return after everything before them is complete.
type Memory interface {
	// Alloc reserves bytes, at least 1, of unknown content. edges are the first bytes
	// of the tensors that will be there, in order and from 0 on; nil means one tensor.
	// Where Cuts is false they have no meaning.
	Alloc(bytes int, edges []int) (unsafe.Pointer, error)
	// Free takes what Alloc returned, after the last run that uses it has been waited
	// for or ordered before.
	Free(at unsafe.Pointer)
	Upload(to, from unsafe.Pointer, bytes int) error
	Download(to, from unsafe.Pointer, bytes int) error
	Zero(at unsafe.Pointer, bytes int) error
	CopyRuns(to, from []unsafe.Pointer, runs ...Runs) error
	Wait() error
	// Check returns err, or where something failed and the device no longer answers an
	// error that wraps ErrLost; from then on that, also for nil and from all other calls.
	Check(err error) error

	// Tensor returns what ONNX Runtime is given as the address of a tensor. Within an
	// allocation it may begin at any multiple of its element's size or, if Cuts is
	// true, at the edges only.
	Tensor(at unsafe.Pointer, bytes int) (unsafe.Pointer, error)
	Cuts() bool
	// Aliases reports whether addresses are the host's: Go code reads and writes them,
	// and Upload and Download copy nothing if both addresses are the same.
	Aliases() bool

	// Count adds to what Crossed returns: the bytes copied from the host and those
	// copied to the host, of one copy. Upload and Download count theirs; the caller counts
	// those of the host's values that sessions read and write. The host's memory counts nothing.
	Count(up, down int)
	Crossed() (up, down int64)
	// Close frees everything that is still allocated.
	Close()
}

// A Driver is a device's own interface to its memory. A buffer is what it allocates,
// named by a pointer that is not nil. If the device has addresses, the pointer is the
// address of the buffer's first byte. Else it is a handle; sizes are then multiples of
// a grain, and what the methods say of handles holds.
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
	// CopyRuns is as that of Memory. Strides are at least a run's width.
	CopyRuns(to, from []Place, runs []Runs) error
}

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
	At     unsafe.Pointer // the Memory's address of the buffer's first byte
	Bytes  int            // the buffer's, without what rounds them up to the grain
	First  int            // the place in the buffer
}

// Address is the address of the place on a device that has addresses.
func (p Place) Address() unsafe.Pointer { return unsafe.Add(p.Buffer, p.First) }
