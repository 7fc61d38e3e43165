package provision

import (
	"context"
	"errors"
	"time"

	"github.com/gofrs/flock"
)

// lock waits until this process alone holds the lock file at path. The system
// releases it when the process ends, however that happens.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	l := flock.New(path, flock.SetPermissions(0o644))
	if _, err := l.TryLockContext(ctx, 50*time.Millisecond); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return func() { l.Close() }, nil
}
