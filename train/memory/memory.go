// Package memory says how much memory this process uses and can use, in bytes.
package memory

import "fmt"

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
