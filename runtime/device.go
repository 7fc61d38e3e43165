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
)

// A device is what Sessions run on: the CPU, or one GPU.
type device struct {
	auto    bool // a GPU where there is one that can be used, else the CPU
	cuda    bool
	standIn bool // see standIn
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

func (d device) kind() kind {
	if d.cuda {
		return cudaKind
	}
	return cpuKind
}

// choose settles what "auto" is and finds the library for the device. Where
// auto is the CPU it says why in one line.
func choose(ctx context.Context, o Options, d device, c cudaSearch) (device, place, error) {
	if !d.auto && !d.cuda {
		at, err := find(ctx, o, cpuKind)
		return d, at, err
	}
	because := func(why string) (device, place, error) {
		if o.Notice != nil {
			o.Notice("running on the CPU: " + why)
		}
		at, err := find(ctx, o, cpuKind)
		return device{}, at, err
	}
	gpus, _, err := cudaDriver(c.driver)
	if d.auto && (err != nil || len(gpus) == 0) {
		why := "the NVIDIA driver shows no GPU"
		if err != nil {
			why = "no GPU can be reached: " + err.Error()
		}
		return because(why)
	}
	at, err := look(o, cudaKind)
	if err == nil && at.path == "" && len(gpus) > d.id { // else there is no use in fetching it
		at, err = find(ctx, o, cudaKind)
	}
	if err == nil {
		err = c.usable(at.path, d.id)
	}
	if d.auto && err != nil {
		why, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "runtime: "), "\n")
		return because(why)
	}
	return device{cuda: true, id: d.id}, at, err
}

// usable is an error that names everything that keeps the GPU from being used
// by the library.
func (c cudaSearch) usable(library string, id int) error {
	r := c.report(library)
	if len(r.Missing) == 0 && id >= len(r.Devices) {
		r.Missing = append(r.Missing, fmt.Sprintf("there is no GPU %d: the driver shows %d, numbered from 0", id, len(r.Devices)))
	}
	if len(r.Missing) == 0 {
		return nil
	}
	return fmt.Errorf("runtime: cuda:%d cannot be used: %s", id, strings.Join(r.Missing, "; "))
}

// cudaOptions are the settings of the CUDA provider.
func cudaOptions(id int, tf32 bool) map[string]string {
	options := map[string]string{
		"device_id": strconv.Itoa(id),
		// Arenas grow by what is asked for, as on the CPU: doubling would keep
		// up to twice the memory in use.
		"arena_extend_strategy": "kSameAsRequested",
		// Products of float32 in float32, not in the 11 bits of TF32, where log-probs
		// and gradients are held against the CPU's.
		"use_tf32":                  "0",
		"do_copy_in_default_stream": "1", // one stream
		"cudnn_conv_algo_search":    "DEFAULT",
	}
	if tf32 {
		options["use_tf32"] = "1"
	}
	return options
}

// tryCUDA lets the library at path load its CUDA provider.
func tryCUDA(ctx context.Context, path string, id int) error {
	e, err := Open(ctx, Options{Library: path})
	if err != nil {
		return err
	}
	defer e.Close()
	var o *C.OrtSessionOptions
	if err := check(C.onering_options(&o)); err != nil {
		return err
	}
	defer C.onering_release_options(o)
	return useCUDA(o, id, nil, false)
}

// useCUDA adds the CUDA provider to the options of a session. Nodes that it has
// no kernel for run on the CPU.
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
