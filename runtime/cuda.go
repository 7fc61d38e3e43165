package runtime

// #include <stdlib.h>
// #include "cuda.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// A gpu is one device as the NVIDIA driver describes it.
type gpu struct {
	name         string
	bytes        uint64
	major, minor int // compute capability
}

func (g gpu) String() string {
	return fmt.Sprintf("%s, %.1f GiB, compute capability %d.%d", g.name, float64(g.bytes)/(1<<30), g.major, g.minor)
}

// cudaDriver opens the driver's library and lists its GPUs. version is that of
// the newest CUDA it supports, as 1000*major + 10*minor.
func cudaDriver(library string) (gpus []gpu, version int, err error) {
	name := C.CString(library)
	defer C.free(unsafe.Pointer(name))
	var list [64]C.onering_gpu
	var v C.int
	var msg *C.char
	n := C.onering_cuda_driver(name, &list[0], C.int(len(list)), &v, &msg)
	if n < 0 {
		defer C.free(unsafe.Pointer(msg))
		return nil, int(v), errors.New(C.GoString(msg))
	}
	for _, g := range list[:min(int(n), len(list))] {
		gpus = append(gpus, gpu{C.GoString(&g.name[0]), uint64(g.bytes), int(g.major), int(g.minor)})
	}
	return gpus, int(v), nil
}

// preload loads a library, by its name where the system's loader is to find it
// or by its path, so that whatever is loaded later and needs a library of that
// name gets this one. It returns the path.
func preload(library string) (string, error) {
	name := C.CString(library)
	defer C.free(unsafe.Pointer(name))
	var msg *C.char
	path := C.onering_preload(name, &msg)
	if path == nil {
		defer C.free(unsafe.Pointer(msg))
		return "", errors.New(C.GoString(msg))
	}
	defer C.free(unsafe.Pointer(path))
	return C.GoString(path), nil
}
