package files

import (
	"os"

	"golang.org/x/sys/unix"
)

// startWriteback asks the system to begin writing n bytes of a file, from byte from on, to
// the disk. It does not wait. A system that refuses begins when the file is synced.
func startWriteback(f *os.File, from, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), from, n, unix.SYNC_FILE_RANGE_WRITE)
}
