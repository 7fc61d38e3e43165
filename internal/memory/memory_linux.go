package memory

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// Peak returns the most memory that this process has had resident, 0 if that is unknown.
func Peak() int64 { return procBytes("/proc/self/status", "VmHWM:") }

// Available returns the memory that this process may still take without
// swapping: the machine's, or its control group's if that is less; 0 if unknown.
func Available() int64 {
	free := procBytes("/proc/meminfo", "MemAvailable:")
	limit := number("/sys/fs/cgroup/memory.max")
	used := number("/sys/fs/cgroup/memory.current") - statBytes("/sys/fs/cgroup/memory.stat", "inactive_file")
	if limit > 0 && limit-used < free {
		free = max(1, limit-used)
	}
	return free
}

// procBytes reads a value from a line such as "VmHWM: 123 kB".
func procBytes(file, name string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if fields := bytes.Fields(line); len(fields) >= 2 && string(fields[0]) == name {
			kib, _ := strconv.ParseInt(string(fields[1]), 10, 64)
			return kib << 10
		}
	}
	return 0
}

func statBytes(file, name string) int64 {
	text, _ := os.ReadFile(file)
	for line := range bytes.Lines(text) {
		if fields := bytes.Fields(line); len(fields) == 2 && string(fields[0]) == name {
			n, _ := strconv.ParseInt(string(fields[1]), 10, 64)
			return n
		}
	}
	return 0
}

// number reads a file that holds one number. It returns 0 if the file has none.
func number(file string) int64 {
	text, _ := os.ReadFile(file)
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n
}
