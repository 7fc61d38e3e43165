package models

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sharedHeader is the size in bytes of a shared file's header: the arguments of Share,
// ended by a zero. The elements follow, then those of Narrow.
const sharedHeader = 1 << 16

// Share reads the weights of the model in a folder, as LoadHeld does, into memory that
// other processes map with LoadShared, so that they all share one copy. key identifies
// it. The memory exists until this process closes the file and the others unmap it.
func Share(dir, key string, c Compute) (*os.File, error) {
	if len(key) >= sharedHeader {
		return nil, fmt.Errorf("models: share: the key %.40q... is too long", key)
	}
	fd, err := unix.MemfdCreate("onering-base", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("models: share: %w", err)
	}
	f := os.NewFile(uintptr(fd), "onering-base")
	_, w, err := load(dir, func(m Model, l *Layout) (*Weights, error) {
		size, err := sharedSize(m, l, c)
		if err != nil {
			return nil, err
		}
		if err := f.Truncate(size); err != nil {
			return nil, fmt.Errorf("models: share %.2f GB: %w", float64(size)*1e-9, err)
		}
		return mapShared(f, m, l, c, unix.PROT_READ|unix.PROT_WRITE)
	})
	if err == nil {
		_, err = f.WriteAt([]byte(key), 0)
		err = errors.Join(err, w.Close()) // which unmaps the weights; f keeps them
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// LoadShared maps the weights that Share read from the folder, with the same key and
// Compute. A write to them ends the process, since they are mapped for reading.
func LoadShared(f *os.File, dir, key string, c Compute) (Model, *Weights, error) {
	head := make([]byte, sharedHeader)
	if _, err := f.ReadAt(head, 0); err != nil {
		return Model{}, nil, fmt.Errorf("models: shared weights: %w", err)
	}
	if has := string(bytes.TrimRight(head, "\x00")); has != key {
		return Model{}, nil, fmt.Errorf("models: the shared weights are those of %q, not of %q", has, key)
	}
	m, err := ReadConfig(dir)
	if err != nil {
		return Model{}, nil, err
	}
	l := m.Layout()
	want, err := sharedSize(m, l, c)
	if err != nil {
		return Model{}, nil, err
	}
	if info, err := f.Stat(); err != nil || info.Size() != want {
		return Model{}, nil, errors.Join(fmt.Errorf("models: the shared weights are not those of the model in %s", dir), err)
	}
	w, err := mapShared(f, m, l, c, unix.PROT_READ)
	return m, w, err
}

// sharedSize is the size in bytes of a shared file.
func sharedSize(m Model, l *Layout, c Compute) (int64, error) {
	from, to, err := m.narrowRange(c)
	return sharedHeader + 4*int64(l.Size) + int64(NarrowBytes(c.Base, to-from)), err
}

// mapShared maps a shared file as weights: behind the header are Data and, if the Compute has a narrow
// range, the bytes of Narrow. Close unmaps it.
func mapShared(f *os.File, m Model, l *Layout, c Compute, protection int) (*Weights, error) {
	from, to, err := m.narrowRange(c)
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, sharedHeader+4*l.Size+NarrowBytes(c.Base, to-from), protection, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("models: map shared weights: %w", err)
	}
	rest := mem[sharedHeader:]
	w := &Weights{Layout: l, Data: unsafe.Slice((*float32)(unsafe.Pointer(&rest[0])), l.Size), free: func() error { return unix.Munmap(mem) }}
	if from < to {
		w.Narrow = newNarrow(c.Base, from, to, rest[4*l.Size:])
	}
	return w, nil
}
