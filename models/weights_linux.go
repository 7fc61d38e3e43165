package models

import "golang.org/x/sys/unix"

// adviseHuge asks for huge pages: filling the arena then takes 512 times fewer
// page faults and matrix products miss the TLB less. A kernel without them
// refuses, which costs speed only.
func adviseHuge(mem []byte) { _ = unix.Madvise(mem, unix.MADV_HUGEPAGE) }
