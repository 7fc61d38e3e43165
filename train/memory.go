package train

import "fmt"

// checkMemory returns an error unless a third of the available memory is enough for
// so many bytes. It returns nil if the system does not say what is available.
func checkMemory(bytes int64) error {
	if free := availableBytes(); free > 0 && bytes > free/3 {
		return fmt.Errorf("it takes %s, and %s are available", bytesText(bytes), bytesText(free))
	}
	return nil
}

// bytesText is a size as people read it.
func bytesText(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%d kB", (n+999)/1000)
}
