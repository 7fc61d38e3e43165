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

// Text writes a size for people, such as "1.5 GB".
func Text(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%d kB", (n+999)/1000)
}

// TakesTurns says whether the cache of rollouts and the activations of steps share the host's memory in turn, for a
// model with this number of parameters. A smaller model has little of either, and short rounds.
func TakesTurns(parameters int) bool { return parameters >= 16<<20 }

// GiveBack returns memory that from releases to the system if TakesTurns: the cache during steps, and activations
// during sampling. It also collects Go's garbage, which nothing else would do, since a step allocates little.
func GiveBack(parameters int, from interface{ Release() }) {
	if TakesTurns(parameters) {
		from.Release()
		debug.FreeOSMemory()
	}
}
