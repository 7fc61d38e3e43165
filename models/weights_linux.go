package models

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// adviseHuge asks for huge pages: filling the arena then takes 512 times fewer page faults and matrix products miss
// the TLB less. A kernel without them refuses, which costs speed only.
func adviseHuge(mem []byte) { _ = unix.Madvise(mem, unix.MADV_HUGEPAGE) }

// noHuge withdraws the request for the whole pages of a part of an arena.
func noHuge(part []float32) {
	page := uintptr(unix.Getpagesize())
	from := uintptr(unsafe.Pointer(unsafe.SliceData(part)))
	skip := (page - from%page) % page
	if n := 4*uintptr(len(part)) - skip; 4*uintptr(len(part)) > skip && n/page > 0 {
		_ = unix.Madvise(unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(part)), skip)), n/page*page), unix.MADV_NOHUGEPAGE)
	}
}
