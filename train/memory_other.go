//go:build !linux

package train

// peakBytes is the most memory that this process has had resident, 0 if
// that is unknown.
func peakBytes() int64 { return 0 }

// residentBytes is the memory that this process has resident now, 0 if that
// is unknown.
func residentBytes() int64 { return 0 }

// availableBytes is the memory that this process may still take, 0 if that is
// unknown.
func availableBytes() int64 { return 0 }
