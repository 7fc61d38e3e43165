//go:build !linux

package memory

// Peak returns the most memory that this process has had resident, 0 if that is unknown.
func Peak() int64 { return 0 }

// Available returns the memory that this process may still take, 0 if that is unknown.
func Available() int64 { return 0 }
