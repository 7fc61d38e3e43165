// Package kernels has operators of our own for what ONNX Runtime has no operator for, or needs several for. They are
// operators in the domain "onering" of the sessions of a device, on the stock library.
//
// A kernel reaches a graph so: ops.c makes an operator of one or several launches; fuse.go
// puts the operator in the place of the nodes that it computes, as one line of rules says.
// The launches are a device's: package runtime/cuda/kernels has those of GPUs.
package kernels

// #include <stdlib.h>
// #include "kernels.h"
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"onering/models"
	"onering/models/onnx"
	"onering/models/ports"
)

// A Device runs the kernels on one device. Those of a GPU also update weights and sum squares, in
// order with the work on its stream; the addresses that they take are the GPU's.
type Device struct {
	device    *C.onering_device
	stream    unsafe.Pointer
	host      bool
	floatRows func() int
}

// New returns a Device for an onering_device made in C, whose work is ordered by a stream.
func New(device, stream unsafe.Pointer) *Device {
	return &Device{(*C.onering_device)(device), stream, false, nil}
}

// NewHost is New for the host's processor, whose operators are in bfloat16 and, for decode steps and for matrices
// in fewer bits, in float32, and take rows of any width. rows says up to how many rows products in float32 are no
// slower by them than by ONNX Runtime; 0 is never, and with math.MaxInt they compute prompts, too.
func NewHost(device unsafe.Pointer, rows func() int) *Device {
	return &Device{(*C.onering_device)(device), nil, true, rows}
}

// FloatRows returns up to how many rows our operators compute decode steps in float32 faster than ONNX Runtime's;
// 0 if they do not compute any.
func (d *Device) FloatRows() int {
	if d == nil || !d.host {
		return 0
	}
	return d.floatRows()
}

// In reports whether a Program has operators of ours.
func In(p models.Program) bool {
	return slices.ContainsFunc(p.Nodes, func(n onnx.Node) bool { return n.Domain == domain })
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

// Fuse replaces nodes of a loaded Program by the operators. A nil Device has none.
func (d *Device) Fuse(p models.Program) models.Program {
	switch {
	case d == nil:
		return p
	case d.host:
		return d.fuseOnHost(p)
	}
	return fuseAll(p)
}

// numbers are the scalars of AdamW in the order of kernels.cu.
var numbers = []string{ports.Beta1, ports.Beta1Rest, ports.Beta2, ports.Beta2Rest, ports.Eps, ports.Rate, ports.SecondScale, ports.Keep, ports.Clip}

// Updates reports whether there is a kernel for an optimizer's Program, by its name: for AdamW on a GPU.
func (d *Device) Updates(program string) bool {
	return d != nil && !d.host && (program == "adamw" || program == "adamw.copy")
}

// Update does the work of that Program, with the same bits: for n elements, with its inputs and
// the optional output Copy at the addresses given by port. half says whether Copy is float16.
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

// Squaring reports whether Squares has a kernel.
func (d *Device) Squaring() bool { return d != nil && !d.host }

// Squares writes the sum of the squares of n gradients times scale to sum, a float32, in the same order in every run.
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
