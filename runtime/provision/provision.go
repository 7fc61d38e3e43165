// Package provision gets the ONNX Runtime library: it looks for one on this machine,
// downloads one if there is none, and reports what it finds (Diagnose). It is pure Go and
// loads no library itself. Code for a single provider is in the provider's folder.
package provision

import (
	"fmt"
	"os"
	"strings"
)

// MinAPI is the oldest version of ONNX Runtime's C interface that onering runs on; library version 1.N.x has
// interface N. It is the one that the Go binding onnxruntime_go asks for.
const MinAPI = 24

// Environment variables that say where the library is.
const (
	LibraryVariable = "ONNXRUNTIME_LIB" // a library, or the folder that holds it
	envCache        = "ONERING_CACHE"   // replaces the folder "onering" in the user's cache folder
	envOffline      = "ONERING_OFFLINE" // if not empty, no library is downloaded
)

// Options say where to look for the library and whether to fetch one. The zero value is the default.
type Options struct {
	// Library is the path of an ONNX Runtime shared library, or of the folder
	// that holds it. If it is empty, Find looks in the usual places.
	Library string
	// Cache is the folder in which libraries are stored. The default is ONERING_CACHE, or
	// "onering" in the user's cache folder.
	Cache string
	// Offline forbids fetching a library, as ONERING_OFFLINE does.
	Offline bool
	// Progress, if not nil, is called while a library is fetched: with the current
	// action, such as "onnxruntime 1.31.1 with pip", and bytes. total is 0 while unknown.
	Progress func(step string, done, total int64)
	// Notice, if not nil, is called with one sentence that says which library was fetched and from where.
	Notice func(string)
}

// Fetches reports whether a missing library may be downloaded.
func (o Options) Fetches() bool { return !o.Offline && os.Getenv(envOffline) == "" }

// A Location is where a library lies and how it was found.
type Location struct {
	// Path is absolute, or "" if there is no library.
	Path string
	// Found is "--library", "ONNXRUNTIME_LIB", "cache", "system", or the name of the source of a new download.
	Found string
}

// An UnusableGPUError names everything that keeps ONNX Runtime from using a GPU.
type UnusableGPUError struct {
	Device  string // the device's name as in Options
	Missing []string
}

func (e *UnusableGPUError) Error() string {
	// The first missing part, the driver, is often the reason for the others.
	text := fmt.Sprintf("provision: %s cannot be used: %s", e.Device, e.Missing[0])
	if n := len(e.Missing); n > 1 {
		text += fmt.Sprintf("\n%d more is missing: onering doctor --device %s says what, and where it comes from", n-1, strings.TrimSuffix(e.Device, ":0"))
	}
	return text + "\nwithout a GPU: --device cpu, or device = \"cpu\" in [runtime]"
}
