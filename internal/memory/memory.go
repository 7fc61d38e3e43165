// Package memory says how much memory this process uses and can use, in bytes.
package memory

import (
	"fmt"
	"runtime/debug"
)

// Fits returns an error unless a third of the available memory is enough for
// so many bytes. It returns nil if the system does not say what is available.
func Fits(bytes int64) error {
	if free := Available(); free > 0 && bytes > free/3 {
		return fmt.Errorf("it takes %s, and %s are available", Text(bytes), Text(free))
	}
	return nil
}

// Text returns a size as people read it.
func Text(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%d kB", (n+999)/1000)
}

// TakesTurns says whether the cache of rollouts and the activations of steps take turns in
// the host's memory, with a model of so many parameters: those of a smaller one are little,
// and its rounds short.
func TakesTurns(parameters int) bool { return parameters >= 16<<20 }

// GiveBack gives what from releases back to the system, if it TakesTurns: the cache while
// steps are taken, and activations while responses are sampled. Garbage goes with it: a step
// allocates little of Go's, so nothing else would collect it.
func GiveBack(parameters int, from interface{ Release() }) {
	if TakesTurns(parameters) {
		from.Release()
		debug.FreeOSMemory()
	}
}
