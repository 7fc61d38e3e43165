//go:build !linux

package train

// peakBytes is the most memory that this process has had resident; 0 where the
// system does not tell.
func peakBytes() int64 { return 0 }
