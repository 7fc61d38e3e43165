package hub

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// lock waits until this process alone holds the file at path, with the kind of
// lock that the Python client takes. The system releases it when the process
// ends, however it ends. waiting is called once if another process has it. A
// file system without such locks gives none: a wrong file is still found by its
// checksum.
func lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	l := flock.New(path, flock.SetPermissions(0o664))
	locked, err := l.TryLock()
	if err == nil && !locked {
		waiting()
		_, err = l.TryLockContext(ctx, 50*time.Millisecond)
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.ENOLCK) {
		return nil, errors.Join(err, l.Close())
	}
	return func() { l.Close() }, nil
}
