package runtime

// #include <stdlib.h>
// #include "cuda.h"
// #include "ort.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"onering/runtime/provision"
)

// loader lets package provision ask libraries that this package loads.
type loader struct{}

var cuda = provision.CUDA{Loader: loader{}}

// Diagnose says what onering finds on this machine. It loads the library that
// Open would load with the same options, so a later Open is bound to it, but it
// fetches none.
func Diagnose(ctx context.Context, o Options) (provision.Report, error) {
	d, err := parseDevice(o.Device)
	if err != nil {
		return provision.Report{}, err
	}
	r := provision.Diagnose(ctx, o.Options, cuda, d.cuda, d.id)
	r.Threads = o.threads()
	return r, nil
}

func (loader) GPUs() ([]string, int, error) { return cudaDriver(provision.CUDADriverLibrary) }

func (loader) Preload(name string) (string, error) { return preload(name) }

func (loader) Describe(ctx context.Context, library string) (version string, providers []string, err error) {
	e, err := Open(ctx, Options{Options: provision.Options{Library: library}})
	if err != nil {
		return "", nil, err
	}
	version = e.Version()
	providers, err = e.Providers()
	return version, providers, errors.Join(err, e.Close())
}

func (loader) TryCUDA(ctx context.Context, library string, gpu int) error {
	e, err := Open(ctx, Options{Options: provision.Options{Library: library}})
	if err != nil {
		return err
	}
	defer e.Close()
	var o *C.OrtSessionOptions
	if err := check(C.onering_options(&o)); err != nil {
		return err
	}
	defer C.onering_release_options(o)
	return useCUDA(o, gpu, nil, false)
}

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
