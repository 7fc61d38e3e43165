package runtime

// #include <stdlib.h>
// #include "ort.h"
import "C"

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"onering/runtime/provision"
)

// A device is what Sessions run on: the CPU, or one GPU.
type device struct {
	auto    bool // a GPU if one can be used, else the CPU
	cuda    bool
	standIn bool // see the type standIn
	id      int  // CUDA's number of the GPU
}

// parseDevice reads "cpu" (also ""), "cuda", "cuda:N" or "auto", and for tests
// "stand-in".
func parseDevice(s string) (device, error) {
	switch kind, n, numbered := strings.Cut(s, ":"); {
	case s == "" || s == "cpu":
		return device{}, nil
	case s == "stand-in":
		return device{standIn: true}, nil
	case s == "auto":
		return device{auto: true}, nil
	case s == "cuda":
		return device{cuda: true}, nil
	case kind == "cuda" && numbered:
		// ParseUint: no sign, which Atoi would take.
		if id, err := strconv.ParseUint(n, 10, 16); err == nil {
			return device{cuda: true, id: int(id)}, nil
		}
	}
	return device{}, fmt.Errorf("runtime: device %q: want cpu, cuda, cuda:N with the number of a GPU, or auto", s)
}

func (d device) String() string {
	switch {
	case d.auto:
		return "auto"
	case d.standIn:
		return "stand-in"
	case d.cuda:
		return fmt.Sprintf("cuda:%d", d.id)
	}
	return "cpu"
}

// choose decides what "auto" is and finds the library for the device. If auto
// comes out as the CPU, Notice is told the reason in one line.
func choose(ctx context.Context, o Options, d device, c provision.CUDA) (device, provision.Location, error) {
	if d.cuda {
		at, err := c.Find(ctx, o.Options, d.id)
		return d, at, err
	}
	if d.auto {
		at, err := c.FindIfPresent(ctx, o.Options)
		if err == nil {
			return device{cuda: true}, at, nil
		}
		o.onCPU(err)
		d = device{}
	}
	at, err := provision.Find(ctx, o.Options)
	return d, at, err
}

// onCPU tells Notice why the device "auto" is the CPU.
func (o Options) onCPU(why error) {
	if o.Notice != nil {
		text, _, _ := strings.Cut(strings.TrimPrefix(why.Error(), "provision: "), "\n")
		o.Notice("running on the CPU: " + text)
	}
}

// cudaOptions are the settings of the CUDA provider.
func cudaOptions(id int, tf32 bool) map[string]string {
	options := map[string]string{
		"device_id": strconv.Itoa(id),
		// Allocators grow by as much as is asked for. By default they double, which
		// would keep up to twice the memory in use.
		"arena_extend_strategy": "kSameAsRequested",
		// TF32 has 11 bits of precision. Without it log-probs and gradients can be
		// compared with the CPU's.
		"use_tf32":                  "0",
		"do_copy_in_default_stream": "1", // one stream
		"cudnn_conv_algo_search":    "DEFAULT",
	}
	if tf32 {
		options["use_tf32"] = "1"
	}
	return options
}

// useCUDA adds the CUDA provider to the options of a session. Nodes for which it
// has no kernel run on the CPU.
func useCUDA(o *C.OrtSessionOptions, id int, stream unsafe.Pointer, tf32 bool) error {
	options := cudaOptions(id, tf32)
	var keys, values []*C.char
	for _, k := range slices.Sorted(maps.Keys(options)) {
		keys, values = append(keys, C.CString(k)), append(values, C.CString(options[k]))
	}
	defer func() {
		for i := range keys {
			C.free(unsafe.Pointer(keys[i]))
			C.free(unsafe.Pointer(values[i]))
		}
	}()
	return check(C.onering_use_cuda(o, &keys[0], &values[0], C.size_t(len(keys)), stream))
}
