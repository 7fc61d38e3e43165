package train

import (
	"bytes"
	"os"
	"strconv"
)

// peakBytes is the most memory that this process has had resident; 0 where the
// system does not tell.
func peakBytes() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(status) {
		fields := bytes.Fields(line)
		if len(fields) >= 2 && string(fields[0]) == "VmHWM:" {
			kib, _ := strconv.ParseInt(string(fields[1]), 10, 64)
			return kib << 10
		}
	}
	return 0
}
