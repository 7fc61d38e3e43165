package train

import (
	"fmt"
	"strings"
)

// isOutOfMemory says whether an error of ONNX Runtime is that an allocation
// failed. It has no code of its own for that.
func isOutOfMemory(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	for _, sign := range []string{"Failed to allocate memory", "bad_alloc", "bad allocation", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}

// smallestMicro is below what nothing is gained: a sequence is never split.
const smallestMicro = 64

// splitMicroBatches halves the micro-batches after an allocation failed, and
// says so; it returns false where they cannot be smaller.
func (t *Trainer) splitMicroBatches(err error) bool {
	if t.microTokens/2 < smallestMicro {
		return false
	}
	t.microTokens /= 2
	t.log.Warn("memory is short: micro-batches are halved and the step is computed again", "step", t.step+1, "micro_tokens", t.microTokens, "reason", err)
	return true
}

// checkMemory returns an error unless a third of the available memory is enough for
// so many bytes. Where the system does not say what is available it returns nil.
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
