//go:build unix

package dataset

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// A mapping is a file mapped into memory for reading.
type mapping struct{ data []byte }

func mapFile(f *os.File) (*mapping, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	size := int(info.Size())
	if size <= 0 || int64(size) != info.Size() {
		return nil, errors.New("not a size that can be mapped")
	}
	data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &mapping{data}, nil
}

// drop gives the memory of the pages read so far back; they are read again
// when they are touched.
func (m *mapping) drop() { unix.Madvise(m.data, unix.MADV_DONTNEED) } // only advice

func (m *mapping) close() error { return unix.Munmap(m.data) }
