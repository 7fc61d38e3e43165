package runtime

// #include <stdlib.h>
// #include "cuda.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// cudaDriver opens the NVIDIA driver's library and describes its GPUs as
// provision.Loader.GPUs does.
func cudaDriver(library string) (gpus []string, version int, err error) {
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
		gpus = append(gpus, fmt.Sprintf("%s, %.1f GiB, compute capability %d.%d", C.GoString(&g.name[0]), float64(g.bytes)/(1<<30), g.major, g.minor))
	}
	return gpus, int(v), nil
}

// preload does what provision.Loader.Preload says.
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
