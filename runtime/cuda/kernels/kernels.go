// Package kernels computes on NVIDIA's GPUs what ONNX Runtime has no operator for, or needs
// several for. It is stock ONNX Runtime still: the kernels are loaded with the driver that
// the CUDA provider has in the process, and are operators in the domain "onering" of the
// sessions that are opened for CUDA. Exported graphs know nothing of them.
//
// A kernel reaches a graph so: kernels.cu or attention.cu has its source, which compile.py
// turns into an image for each architecture; ops.c makes an operator of one or several
// launches; fuse.go puts the operator in the place of the nodes that it computes, as one line
// of rules says. Products go to cublasLt, which can add what ONNX Runtime adds in further nodes.
//
// Tests run the same source on the CPU (package onhost).
package kernels

// #cgo linux LDFLAGS: -ldl
// #include <stdlib.h>
// #include "kernels.h"
import "C"

import (
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"io"
	"sync"
	"unsafe"

	"onering/models"
	"onering/models/ports"
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

// A Device runs the kernels on one device.
type Device struct {
	device *C.onering_device
	stream unsafe.Pointer
}

// New returns a Device for an onering_device made in C, whose work is ordered by a stream.
func New(device, stream unsafe.Pointer) *Device {
	return &Device{(*C.onering_device)(device), stream}
}

// OnGPU loads the kernels on a GPU.
func OnGPU(number int, stream unsafe.Pointer) (*Device, error) {
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
	for half, name := range []string{"bfloat16", "float16"} {
		data, err := image(name, int(major), int(minor))
		if err != nil {
			return nil, err
		}
		image := C.CBytes(append(data, 0)) // PTX must end with a zero byte
		problem = C.onering_gpu_load(g, C.int(half), image)
		C.free(image)
		if problem != nil {
			return nil, errors.New(C.GoString(problem))
		}
	}
	return New(unsafe.Pointer(g), stream), nil
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

// adding is held while operators are made, once for each device.
var adding sync.Mutex

// AddTo adds the operators to the options of a session, by ONNX Runtime's functions.
func (d *Device) AddTo(functions, options unsafe.Pointer) error {
	adding.Lock()
	defer adding.Unlock()
	problem := C.onering_ops(d.device, (*unsafe.Pointer)(functions), options)
	if problem == nil {
		return nil
	}
	defer C.free(unsafe.Pointer(problem))
	return errors.New(C.GoString(problem))
}

// Fuse implements runtime.Kernels.
func (*Device) Fuse(p models.Program) models.Program { return fuseAll(p) }

// numbers are the scalars of AdamW in the order of kernels.cu.
var numbers = []string{ports.Beta1, ports.Beta1Rest, ports.Beta2, ports.Beta2Rest, ports.Eps, ports.Rate, ports.SecondScale, ports.Keep, ports.Clip}

// Updates implements runtime.Kernels: there is a kernel for AdamW.
func (*Device) Updates(program string) bool { return program == "adamw" || program == "adamw.copy" }

// Update implements runtime.Kernels.
func (d *Device) Update(n int, at map[string]unsafe.Pointer, half bool, scalars map[string]float64) error {
	var s [9]C.float
	for i, name := range numbers {
		x, ok := scalars[name]
		if !ok {
			return fmt.Errorf("kernels: the update has no %q", name)
		}
		s[i] = C.float(x)
	}
	return said("update", C.onering_adamw(d.device, (*C.float)(at[ports.Param]), (*C.float)(at[ports.Grad]),
		(*C.float)(at[ports.First]), (*C.float)(at[ports.Second]),
		at[ports.Copy], C.int64_t(n), &s[0], flag(half), d.stream))
}

// Squares implements runtime.Kernels.
func (d *Device) Squares(g unsafe.Pointer, n int, scale float64, sum unsafe.Pointer) error {
	return said("sum of squares", C.onering_squares(d.device, (*C.float)(g), C.int64_t(n), C.float(scale), (*C.float)(sum), d.stream))
}

// said turns a message of C into an error.
func said(what string, problem *C.char) error {
	if problem == nil {
		return nil
	}
	return fmt.Errorf("kernels: %s: %s", what, C.GoString(problem))
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
