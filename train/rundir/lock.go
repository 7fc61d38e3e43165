package rundir

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/gofrs/flock"
)

// errLocked says that another process has the run folder open.
var errLocked = errors.New("another process is training in it; wait for its end, or choose another folder")

// lock locks a file until unlock is called or the process ends, however it
// ends. A network file system without locks gives none.
func lock(path string) (unlock func(), err error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path) // to open a pipe would wait
	}
	l := flock.New(path, flock.SetPermissions(0o644))
	locked, err := l.TryLock()
	switch {
	case err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.ENOLCK):
		return nil, errors.Join(err, l.Close())
	case err == nil && !locked:
		return nil, errLocked
	}
	return func() { l.Close() }, nil
}
