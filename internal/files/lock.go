package files

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// Lock waits until this process alone holds the file at path, with the kind of lock that Hugging Face's Python client
// takes. The system releases it when the process ends, however it ends. wait, which may be nil, is called once if
// another process holds the lock; its error ends the wait. On a file system without locks, Lock takes none.
func Lock(ctx context.Context, path string, wait func() error) (unlock func(), err error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, notRegular(path) // opening a pipe would wait
	}
	l := flock.New(path, flock.SetPermissions(0o664))
	locked, err := l.TryLock()
	if err == nil && !locked {
		if wait != nil {
			err = wait()
		}
		if err == nil {
			_, err = l.TryLockContext(ctx, 50*time.Millisecond)
		}
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.ENOLCK) {
		return nil, errors.Join(err, l.Close())
	}
	return func() { l.Close() }, nil
}
