// Package kernels has the operators of package runtime/kernels for NVIDIA's GPUs. It is stock
// ONNX Runtime still: the kernels are loaded with the driver that the CUDA provider has in
// the process. Exported graphs know nothing of them.
//
// kernels.cu and attention.cu have their source, which compile.py turns into an image for
// each architecture. Products go to cublasLt, which can add what ONNX Runtime adds in further
// nodes. Tests run the same source on the CPU (package onhost).
package kernels

// #cgo linux LDFLAGS: -ldl
// #include <stdlib.h>
// #include "gpu.h"
import "C"

import (
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"io"
	"unsafe"

	"onering/runtime/kernels"
)

// The source is among the files so that TestImages finds it, and package onhost, which
// includes it, is compiled again when it changes.
//
//go:embed *.gz source.sha256 kernels.cu attention.cu
var files embed.FS

// The libraries that ONNX Runtime's CUDA provider has loaded.
const (
	driver = "libcuda.so.1"
	blas   = "libcublasLt.so.13"
)

// OnGPU loads the kernels on a GPU.
func OnGPU(number int, stream unsafe.Pointer) (*kernels.Device, error) {
	names := [2]*C.char{C.CString(driver), C.CString(blas)}
	defer C.free(unsafe.Pointer(names[0]))
	defer C.free(unsafe.Pointer(names[1]))
	var problem *C.char
	defer func() { C.free(unsafe.Pointer(problem)) }()
	var major, minor C.int
	g := C.onering_gpu_open(C.int(number), names[0], names[1], &major, &minor, &problem)
	if g == nil {
		return nil, errors.New(C.GoString(problem))
	}
	for kind, name := range []string{"bfloat16", "float16"} { // as C numbers them
		data, err := image(name, int(major), int(minor))
		if err != nil {
			return nil, err
		}
		image := C.CBytes(append(data, 0)) // PTX must end with a zero byte
		problem = C.onering_gpu_load(g, C.int(kind), image)
		C.free(image)
		if problem != nil {
			return nil, errors.New(C.GoString(problem))
		}
	}
	return kernels.New(unsafe.Pointer(g), stream), nil
}

// image returns the code for a GPU: compiled for its architecture, or for an older one of
// the same generation, or PTX, which the driver compiles.
func image(name string, major, minor int) ([]byte, error) {
	for ; minor >= 0; minor-- {
		if data, err := unzip(fmt.Sprintf("%s.sm_%d%d.cubin.gz", name, major, minor)); err == nil {
			return data, nil
		}
	}
	return unzip(name + ".ptx.gz")
}

func unzip(name string) ([]byte, error) {
	data, err := files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
