//go:build !windows

package train

import (
	"errors"
	"os"
	"syscall"
)

// errLocked is that another process has the run folder open.
var errLocked = errors.New("another process is training in it; wait for its end, or choose another folder")

// lock takes a lock file, which the system gives back when the process ends,
// however that happens.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	switch {
	case err == nil:
		return func() { f.Close() }, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = errLocked
	case errors.Is(err, syscall.ENOLCK), errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EOPNOTSUPP):
		return func() { f.Close() }, nil // a network file system without locks
	}
	f.Close()
	return nil, err
}
