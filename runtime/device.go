package runtime

// #include <stdlib.h>
// #include "cuda.h"
// #include "ort.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"onering/models"
	"onering/runtime/provision"
)

// A device is what Sessions run on: the CPU, or one GPU.
type device struct {
	auto    bool // a GPU if one can be used, else the CPU
	cuda    bool
	standIn bool // see openStandIn
	grain   int  // of a stand-in
	lost    int  // after how many calls a stand-in is; 0 is never
	webgpu  bool
	id      int // CUDA's number of the GPU; of WebGPU 0 for the fastest, 1 for the most frugal
}

// gpu reports whether the device is a GPU.
func (d device) gpu() bool { return d.cuda || d.webgpu }

// parseDevice reads "cpu" (also ""), "cuda", "cuda:N", "webgpu", "webgpu:N" or "auto",
// and for tests "stand-in".
func parseDevice(s string) (device, error) {
	switch kind, n, numbered := strings.Cut(s, ":"); {
	case s == "" || s == "cpu":
		return device{}, nil
	case s == "stand-in":
		return device{standIn: true}, nil
	case s == "stand-in:handles":
		return device{standIn: true, grain: webgpuGrain}, nil
	case strings.HasPrefix(s, "stand-in:lost:"):
		if calls, err := strconv.ParseUint(strings.TrimPrefix(s, "stand-in:lost:"), 10, 31); err == nil {
			return device{standIn: true, lost: int(calls)}, nil
		}
	case s == "auto":
		return device{auto: true}, nil
	case s == "cuda":
		return device{cuda: true}, nil
	case kind == "cuda" && numbered:
		// ParseUint: no sign, which Atoi would take.
		if id, err := strconv.ParseUint(n, 10, 16); err == nil {
			return device{cuda: true, id: int(id)}, nil
		}
	case s == "webgpu" || s == "webgpu:0":
		return device{webgpu: true}, nil
	case s == "webgpu:1":
		return device{webgpu: true, id: 1}, nil
	}
	return device{}, fmt.Errorf("runtime: device %q: want cpu, cuda, cuda:N with the number of a GPU, webgpu for the fastest GPU of the system, webgpu:1 for the most frugal, or auto", s)
}

func (d device) String() string {
	switch {
	case d.auto:
		return "auto"
	case d.grain > 0:
		return "stand-in:handles"
	case d.standIn:
		return "stand-in"
	case d.cuda:
		return fmt.Sprintf("cuda:%d", d.id)
	case d.webgpu:
		return fmt.Sprintf("webgpu:%d", d.id)
	}
	return "cpu"
}

// choose decides what "auto" is and finds the library for the device. If auto
// comes out as the CPU, Notice is told the reason in one line.
func choose(ctx context.Context, o Options, d device, c provision.CUDA, w provision.WebGPU) (device, provision.Location, error) {
	if d.webgpu {
		at, err := w.Find(ctx, o.Options, d.String())
		return d, at, err
	}
	if d.cuda {
		at, err := c.Find(ctx, o.Options, d.id)
		return d, at, err
	}
	if d.auto {
		var at provision.Location
		var why string
		d, why = resolve(
			func() (err error) { at, err = c.FindIfPresent(ctx, o.Options); return err },
			func() (err error) { at, err = w.FindHardware(ctx, o.Options, "webgpu:0"); return err },
		)
		if why == "" {
			return d, at, nil
		}
		o.onCPU(why)
	}
	at, err := provision.Find(ctx, o.Options)
	return d, at, err
}

// resolve decides what "auto" is by what keeps CUDA and WebGPU from being used: the CPU is
// last. why is the reason for the CPU in one line: CUDA's and, where there is an adapter
// for it, WebGPU's.
func resolve(cuda, webgpu func() error) (d device, why string) {
	lacks := cuda()
	if lacks == nil {
		return device{cuda: true}, ""
	}
	none := webgpu()
	if none == nil {
		return device{webgpu: true}, ""
	}
	reasons := []error{lacks}
	if !errors.Is(none, provision.ErrNoAdapter) {
		reasons = append(reasons, none)
	}
	var texts []string
	for _, err := range reasons {
		text, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "provision: "), "\n")
		texts = append(texts, text)
	}
	return device{}, strings.Join(texts, "; ")
}

// onCPU tells Notice why the device "auto" is the CPU.
func (o Options) onCPU(why string) {
	if o.Notice != nil {
		o.Notice("running on the CPU: " + why)
	}
}

// Foresee returns what the device of a run will be: o.Device, with auto resolved as Open
// would, and if that is the CPU the reason. It fetches nothing: a library that is not here
// yet is taken to come.
func Foresee(ctx context.Context, o Options) (device, reason string, err error) {
	d, err := parseDevice(o.Device)
	if err != nil {
		return "", "", err
	}
	d, reason = foresee(ctx, o, d, cuda, webgpu)
	return d.String(), reason, nil
}

func foresee(ctx context.Context, o Options, d device, c provision.CUDA, w provision.WebGPU) (resolved device, reason string) {
	if !d.auto {
		return d, ""
	}
	return resolve(
		func() error { return c.Foresee(ctx, o.Options) },
		func() error { return w.Foresee(o.Options, "webgpu:0") },
	)
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
	return withOptions(cudaOptions(id, tf32), func(keys, values **C.char, n C.size_t) *C.OrtStatus {
		return C.onering_use_cuda(o, keys, values, n, stream)
	})
}

// useProvider adds a provider that is built into the library to the options of a
// session.
func useProvider(o *C.OrtSessionOptions, name string, options map[string]string) error {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	return withOptions(options, func(keys, values **C.char, n C.size_t) *C.OrtStatus {
		return C.onering_use_provider(o, cname, keys, values, n)
	})
}

// withOptions calls f with the settings of a provider as C has them.
func withOptions(options map[string]string, f func(keys, values **C.char, n C.size_t) *C.OrtStatus) error {
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
	return check(f(&keys[0], &values[0], C.size_t(len(keys))))
}

// loader lets package provision ask libraries that this package loads.
type loader struct{}

var (
	cuda   = provision.CUDA{Loader: loader{}}
	webgpu = provision.WebGPU{Adapters: adapters}
)

// A Buffer is one that a run needs on a device.
type Buffer = provision.Buffer

// CheckBuffers returns an error if device, as in Options, is a GPU behind WebGPU that
// cannot have one of the buffers.
func CheckBuffers(device string, buffers ...Buffer) error {
	d, err := parseDevice(device)
	if err != nil || !d.webgpu {
		return err
	}
	if err := webgpu.CheckBuffers(d.String(), buffers...); err != nil {
		return fmt.Errorf("runtime: %w", err)
	}
	return nil
}

// TrainedBuffer is the largest buffer of gradients of a layout.
func TrainedBuffer(l *models.Layout) Buffer {
	largest, size := l.Largest()
	return Buffer{What: fmt.Sprintf("the gradients of %q", largest), Bytes: 4 * int64(size),
		Otherwise: "train an adapter (--lora), a model with a smaller vocabulary, or on another device"}
}

// CacheBuffer is the keys of a layer in the cache of a Decoder, or its values.
func CacheBuffer(g models.Geometry, slots, tokens int) Buffer {
	return Buffer{What: fmt.Sprintf("the cache of a layer's keys, for %d rows of %d tokens,", slots, tokens),
		Bytes:   int64(slots) * int64(tokens) * int64(g.KVHeads*g.CacheWidth*g.Compute.Size()),
		Setting: "rollout.slots", Value: int64(slots), Least: 1,
		Otherwise: "set a smaller rollout.max_prompt_tokens or rollout.max_new_tokens"}
}

// PromptBuffer is the scores of attention within one prompt that is computed for sampling.
func PromptBuffer(g models.Geometry, tokens int) Buffer {
	return Buffer{What: fmt.Sprintf("the scores of attention in a prompt of %d tokens", tokens),
		Bytes: 4 * int64(g.Heads) * int64(tokens) * int64(tokens), Setting: "rollout.max_prompt_tokens", Value: int64(tokens), Least: 1}
}

// Diagnose says what onering finds on this machine. It loads the library that
// Open would load with the same options, so a later Open is bound to it, but it
// fetches none.
func Diagnose(ctx context.Context, o Options) (provision.Report, error) {
	d, err := parseDevice(o.Device)
	if err != nil {
		return provision.Report{}, err
	}
	d, reason := foresee(ctx, o, d, cuda, webgpu)
	r := provision.Diagnose(ctx, o.Options, cuda, webgpu, provision.Target{CUDA: d.cuda, WebGPU: d.webgpu, GPU: d.id})
	r.Device = provision.DeviceReport{Name: d.String(), Reason: reason}
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
	if err := check(C.onering_options(&o, 0)); err != nil {
		return err
	}
	defer C.onering_release_options(o)
	return useCUDA(o, gpu, nil, false)
}

func (loader) TryWebGPU(ctx context.Context, library string, gpu int) error {
	e, err := Open(ctx, Options{Options: provision.Options{Library: library}, Device: device{webgpu: true, id: gpu}.String()})
	if err != nil {
		return err
	}
	return e.Close()
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

// adapters lists what Vulkan shows. Where its loader is not among the system's
// libraries, it may lie beside the driver that the user names, as in Debian's chromium.
// On other systems than Linux the GPU is that of the system, and is not looked at.
func adapters() ([]provision.Adapter, error) {
	switch goruntime.GOOS {
	case "darwin":
		return []provision.Adapter{{Name: "the system's GPU", Driver: "Metal"}}, nil
	case "windows":
		return []provision.Adapter{{Name: "the system's GPU", Driver: "Direct3D 12"}}, nil
	}
	found, err := vulkan("libvulkan.so.1")
	for _, variable := range []string{"VK_DRIVER_FILES", "VK_ICD_FILENAMES"} {
		if err != nil && os.Getenv(variable) != "" {
			dir := filepath.Dir(filepath.SplitList(os.Getenv(variable))[0])
			if beside, besideErr := vulkan(filepath.Join(dir, "libvulkan.so.1")); besideErr == nil {
				return beside, nil
			}
		}
	}
	return found, err
}

// vulkan lists the adapters that a loader of Vulkan shows.
func vulkan(library string) (found []provision.Adapter, err error) {
	name := C.CString(library)
	defer C.free(unsafe.Pointer(name))
	var list [16]C.onering_adapter
	var msg *C.char
	n := C.onering_vulkan(name, &list[0], C.int(len(list)), &msg)
	if n < 0 {
		defer C.free(unsafe.Pointer(msg))
		return nil, errors.New(C.GoString(msg))
	}
	for _, a := range list[:n] {
		found = append(found, provision.Adapter{
			Name: C.GoString(&a.name[0]), Driver: strings.TrimSpace(C.GoString(&a.driver[0])), Software: a.software != 0, Float16: a.half != 0,
			MaxBuffer: int64(a.storage), MaxAlloc: int64(a.largest), MaxShared: int64(a.shared), MaxWorkgroup: int64(a.invocations),
		})
	}
	return found, nil
}
