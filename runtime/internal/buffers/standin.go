package buffers

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"
)

// StandIn is a Driver and a Mover for tests. Its buffers are the host's memory, so sessions on the
// CPU can run on it, but Go code reaches them as if they were a GPU's. New buffers are
// full of NaN. With a grain it has handles, refuses what these need not do, and Spills.
// Where Calls is not nil it counts down, and at zero the device is lost.
type StandIn struct {
	Grain int
	Calls *atomic.Int64
}

// call returns an error if the device is lost.
func (s StandIn) call() error {
	if s.Calls != nil && s.Calls.Add(-1) < 0 {
		return errors.New("the stand-in was reset")
	}
	return nil
}

func (s StandIn) Alloc(bytes int) (unsafe.Pointer, error) {
	words := make([]uint64, (bytes+7)/8)
	nan := uint64(math.Float32bits(float32(math.NaN())))
	for i := range words {
		words[i] = nan<<32 | nan
	}
	return unsafe.Pointer(unsafe.SliceData(words)), s.call()
}

// Free does nothing: the garbage collector frees what the Device forgets.
func (StandIn) Free(unsafe.Pointer) {}

// at returns the bytes of a place.
func (s StandIn) at(p Place, n int) ([]byte, error) {
	if n < 0 || p.First < 0 || p.First+n > p.Bytes || s.Grain > 0 && p.First != 0 {
		return nil, fmt.Errorf("%d bytes at %d of a buffer of %d", n, p.First, p.Bytes)
	}
	return unsafe.Slice((*byte)(p.Address()), n), s.call()
}

func (s StandIn) Write(to Place, from []byte) error {
	data, err := s.at(to, len(from))
	if s.Grain > 0 && len(from)%s.Grain != 0 && len(from) != to.Bytes {
		err = fmt.Errorf("writing %d of %d bytes", len(from), to.Bytes)
	}
	if err == nil {
		copy(data, from)
	}
	return err
}

func (s StandIn) Read(to []byte, from Place) error {
	data, err := s.at(from, len(to))
	if err == nil {
		copy(to, data)
	}
	return err
}

func (s StandIn) Zero(at []Place, bytes []int) error {
	for i, n := range bytes {
		data, err := s.at(at[i], n)
		if s.Grain > 0 && n%4 != 0 {
			err = fmt.Errorf("clearing %d bytes", n)
		}
		if err != nil {
			return err
		}
		clear(data)
	}
	return nil
}

func (s StandIn) CopyRuns(to, from []Place, runs []Runs) error {
	for i := range to {
		for _, r := range runs {
			r.Each(func(a, b int) {
				copy(unsafe.Slice((*byte)(unsafe.Add(to[i].Address(), a)), r.Width), unsafe.Slice((*byte)(unsafe.Add(from[i].Address(), b)), r.Width))
			})
		}
	}
	return nil
}

// Spill writes NaN behind so many bytes of a buffer, up to the grain, where kernels that
// write several elements at once leave anything.
func (s StandIn) Spill(p Place, bytes int) {
	whole := (bytes + s.Grain - 1) / s.Grain * s.Grain
	for i := bytes; i+4 <= min(whole, p.Bytes); i += 4 {
		*(*float32)(unsafe.Add(p.Buffer, i)) = float32(math.NaN())
	}
}

func (s StandIn) Wait() error { return s.call() }
func (StandIn) Close()        {}
