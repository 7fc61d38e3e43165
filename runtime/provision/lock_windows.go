package provision

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// sharingViolation is ERROR_SHARING_VIOLATION: another process has the file open.
const sharingViolation = syscall.Errno(32)

// lock waits until it can open the lock file at path without sharing it with
// other processes. The system closes the file when the process ends.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	for {
		h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
		if err == nil {
			return func() { syscall.CloseHandle(h) }, nil
		}
		if !errors.Is(err, sharingViolation) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
