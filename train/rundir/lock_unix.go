//go:build !windows

package rundir

import (
	"errors"
	"os"
	"syscall"
)

// errLocked says that another process has the run folder open.
var errLocked = errors.New("another process is training in it; wait for its end, or choose another folder")

// lock locks a file until unlock is called or the process ends, however it ends.
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
		return func() { f.Close() }, nil // as network file systems without locks return
	}
	f.Close()
	return nil, err
}
