package runtime

// #include <stdlib.h>
// #include "ort.h"
import "C"

import (
	"fmt"
	"unsafe"

	"onering/models"
	"onering/models/moves"
	"onering/runtime/internal/buffers"
	"onering/runtime/provision"
)

// A webgpuBuffers is the memory of a GPU that ONNX Runtime's WebGPU provider reaches. Its
// buffers have handles and no addresses. ONNX Runtime allocates them, and copies
// between the host and their beginning; graphs do what it has no function for.
type webgpuBuffers struct {
	thread
	memory    *memory
	allocator *C.OrtAllocator // of a session
	fence     buffers.Place   // a buffer that nothing writes
}

// webgpuGrain is how many bytes the provider rounds copies up to.
const webgpuGrain = 16

// openWebGPU returns the memory of a GPU: 0 is the fastest of the system, 1 the most
// frugal.
func openWebGPU(id int) (*memory, error) {
	m := &memory{name: fmt.Sprintf("webgpu:%d", id), thread: newThread(), elementwise: elementwiseOnDevice}
	m.largest, _, _ = webgpu.MaxBuffer()
	d := &webgpuBuffers{thread: m.thread, memory: m}
	m.moves = &graphMoves{memory: m}
	m.Memory, m.load = buffers.New(m.name, d, m.moves, webgpuGrain), d.load
	options := map[string]string{
		// Indices are int64. The provider's kernels read their low 32 bits.
		"enableInt64":     "1",
		"powerPreference": [...]string{"high-performance", "low-power"}[id],
	}
	if plugin := provision.WebGPUPlugin(process.path); plugin != "" {
		return m, m.plugIn(plugin, options)
	}
	m.provider = func(o *C.OrtSessionOptions) error { return useProvider(o, "WebGPU", options) }
	return m, m.describe("WebGPU_Buffer", 0)
}

// plugIn makes sessions run on the provider's own library, beside an ONNX Runtime
// without WebGPU.
func (m *memory) plugIn(path string, options map[string]string) error {
	cname, cpath := C.CString(provision.WebGPUProvider), systemPath(path)
	defer C.free(unsafe.Pointer(cname))
	defer C.free(cpath)
	if !process.plugged {
		if err := check(C.onering_register(process.env, cname, cpath)); err != nil {
			return fmt.Errorf("runtime: %s: loading %q: %w", m, path, err)
		}
		process.plugged = true
	}
	var device *C.OrtEpDevice
	if err := check(C.onering_find_device(process.env, cname, &device)); err != nil {
		return fmt.Errorf("runtime: %s: %w", m, err)
	}
	if device == nil {
		return &provision.UnusableGPUError{Device: m.name, Missing: []string{provision.WebGPUPluginSeesNone}}
	}
	m.info = (*C.OrtMemoryInfo)(unsafe.Pointer(C.onering_device_info(device)))
	m.provider = func(o *C.OrtSessionOptions) error {
		return withOptions(options, func(keys, values **C.char, n C.size_t) *C.OrtStatus {
			return C.onering_use_device(o, process.env, device, keys, values, n)
		})
	}
	return nil
}

// CheckFloat16 returns an error if the device of e does not compute in float16: on WebGPU
// that is left to the adapter. It tries, since only Vulkan can be asked.
func CheckFloat16(e *Env) error {
	if !e.device.webgpu {
		return nil
	}
	refuse := func(why error) error {
		return fmt.Errorf("runtime: %s does not compute in float16, for which its adapter needs shader-f16 (onering doctor --device webgpu): compute in float32: %w", e.memory, why)
	}
	half, err := loadBinding(e, moves.Half())
	if err != nil {
		return refuse(err)
	}
	defer half.s.Close()
	number, rounded := hostBuffer(models.F32), hostBuffer(models.F32)
	b := binder{b: half}
	in := fill[float32](&b, moves.Number, &number, 1)
	out := take[float32](&b, moves.Rounded, &rounded, 1)
	if in != nil {
		in[0] = 1 + 0x1p-12
	}
	if err := b.run(); err != nil {
		return refuse(err)
	}
	if out[0] != 1 {
		return refuse(fmt.Errorf("1.000244 rounded to it is %v", out[0]))
	}
	return nil
}

// load makes the sessions of the memory, of which one has the allocator.
func (d *webgpuBuffers) load(e *Env) error {
	err := d.memory.moves.load(e)
	if err == nil {
		err = check(C.onering_allocator(d.memory.moves.clear[1].s.ptr, d.memory.info, &d.allocator))
	}
	if err == nil {
		d.fence.Buffer, err = d.Alloc(webgpuGrain)
	}
	if err != nil {
		return fmt.Errorf("runtime: the memory of %s: %w", d.memory, err)
	}
	return nil
}

func (d *webgpuBuffers) Alloc(bytes int) (buffer unsafe.Pointer, err error) {
	d.do(func() { err = check(C.onering_allocate(d.allocator, C.size_t(bytes), &buffer)) })
	return buffer, err
}

func (d *webgpuBuffers) Free(buffer unsafe.Pointer) {
	d.do(func() { _ = check(C.onering_deallocate(d.allocator, buffer)) }) // it has no error to give
}

func (d *webgpuBuffers) Write(to buffers.Place, from []byte) error {
	return d.copy(to.Buffer, from, func(device, host *C.OrtValue) *C.OrtStatus { return C.onering_copy(process.env, host, device) })
}

func (d *webgpuBuffers) Read(to []byte, from buffers.Place) error {
	return d.copy(from.Buffer, to, func(device, host *C.OrtValue) *C.OrtStatus { return C.onering_copy(process.env, device, host) })
}

// copy calls f with tensors of bytes that are the beginning of a buffer and the host's.
func (d *webgpuBuffers) copy(buffer unsafe.Pointer, data []byte, f func(device, host *C.OrtValue) *C.OrtStatus) (err error) {
	d.do(func() {
		var device, local *C.OrtValue
		if device, err = rawTensor(d.memory.info, buffer, len(data)); err != nil {
			return
		}
		defer C.onering_release_value(device)
		if local, err = rawTensor(host.info, unsafe.Pointer(unsafe.SliceData(data)), len(data)); err != nil {
			return
		}
		defer C.onering_release_value(local)
		err = check(f(device, local))
	})
	return err
}

// rawTensor returns a tensor of bytes, which the caller releases.
func rawTensor(info *C.OrtMemoryInfo, at unsafe.Pointer, bytes int) (v *C.OrtValue, err error) {
	shape := C.int64_t(bytes)
	return v, check(C.onering_value(info, at, C.size_t(bytes), &shape, 1, C.int(models.U8.ONNX()), &v))
}

// Wait reads from a buffer, which waits for what was queued before.
func (d *webgpuBuffers) Wait() error { return d.Read(make([]byte, webgpuGrain), d.fence) }

func (d *webgpuBuffers) Close() {
	if d.allocator != nil {
		if d.fence.Buffer != nil {
			d.Free(d.fence.Buffer)
		}
		C.onering_release_allocator(d.allocator)
		d.allocator = nil
	}
}
