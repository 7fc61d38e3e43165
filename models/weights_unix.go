//go:build unix

package models

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugeFrom is the least arena size, in bytes, for huge pages: a smaller arena would be
// rounded up to a page of 2 MB.
const hugeFrom = 64 << 20

// allocate maps n zeroed elements outside the Go heap. Pages count as resident only once they are written.
func allocate(n int) ([]float32, func() error, error) {
	if n == 0 {
		return nil, func() error { return nil }, nil
	}
	mem, err := unix.Mmap(-1, 0, n*4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, nil, err
	}
	if len(mem) >= hugeFrom {
		adviseHuge(mem)
	}
	data := unsafe.Slice((*float32)(unsafe.Pointer(&mem[0])), n)
	return data, func() error { return unix.Munmap(mem) }, nil
}

// forget tells the system that the pages of an arena from allocate are no longer
// needed. If the system ignores this advice, nothing breaks.
func forget(data []float32) {
	unix.Madvise(unsafe.Slice((*byte)(unsafe.Pointer(&data[0])), 4*len(data)), unix.MADV_DONTNEED)
}
