package provision

import (
	"bytes"
	"context"
	"fmt"
	"os"
)

// webgpuVersion is the newest ONNX Runtime that pip has with the WebGPU provider.
const (
	webgpuVersion = "1.27.0"
	webgpuRef     = "onnxruntime-webgpu==" + webgpuVersion
)

// webgpuMark is in the library if the provider is built in.
const webgpuMark = "WebGpuExecutionProvider"

var webgpuKind = kind{sources: []source{wheelSource(webgpuRef, webgpuVersion, webgpuWheels)}, mark: webgpuMark, name: "with WebGPU", ref: webgpuRef}

var webgpuWheels = map[string]wheelBuild{
	"linux/amd64": {build{variant: "webgpu", member: "onnxruntime/capi/libonnxruntime.so.1.27.0", size: 25163729,
		sum: "882f54a76dde1b6c7e66ed353f29bf167c2a2d4e77875b093205074b31d2c7f4"}, "manylinux_2_28_x86_64"},
	"darwin/arm64": {build{variant: "webgpu", member: "onnxruntime/capi/libonnxruntime.1.27.0.dylib", size: 24081620,
		sum: "3d760e1d78599e10a8f608b64ef9e6e39b78ab61e5e3cf88d5ec98f11809c9a7"}, "macosx_14_0_arm64"},
	"windows/amd64": {build{variant: "webgpu", member: "onnxruntime/capi/onnxruntime.dll", size: 27226899,
		sum: "a2cb98408f9a10f8976c0ec4d933b8732c021e9edef348ef7d87a62d05cdd1bc",
		beside: []part{
			{"onnxruntime/capi/dxcompiler.dll", "450adfba61a72ec3f8feaec38caa371692974b91ca20470a675214d30b7bf387"},
			{"onnxruntime/capi/dxil.dll", "51326f698ac24e45d1d2f125868c66252b0c1c47b79b1427655c9ea50cfd4869"},
		}}, "win_amd64"},
}

// An Adapter is a GPU as the system's graphics interface shows it, or a driver that
// computes in software.
type Adapter struct {
	Name     string `json:"name"`
	Driver   string `json:"driver"`
	Software bool   `json:"software"`
	// Limits of a kernel: the bytes of a buffer, the bytes that a workgroup shares,
	// and how many invocations it has.
	MaxBuffer    int64 `json:"max_buffer"`
	MaxShared    int64 `json:"max_shared"`
	MaxWorkgroup int64 `json:"max_workgroup"`
}

// A WebGPUReport says what running on a GPU through WebGPU needs and what of it is
// here.
type WebGPUReport struct {
	Adapters []Adapter `json:"adapters"`
	Missing  []string  `json:"missing"` // in sentences with the remedy
}

// WebGPU finds and checks what running on a GPU through WebGPU needs.
type WebGPU struct {
	// Adapters lists what the provider can choose from.
	Adapters func() ([]Adapter, error)
}

// Find finds the library with the WebGPU provider, and checks that there is an
// adapter. It fetches a library only if there is one.
func (w WebGPU) Find(ctx context.Context, o Options, device string) (Location, error) {
	at, err := look(o, webgpuKind)
	if err != nil {
		return Location{}, err
	}
	if at.Path == "" {
		if adapters, _ := w.Adapters(); len(adapters) > 0 { // Check says why there is none
			if at, err = find(ctx, o, webgpuKind); err != nil {
				return Location{}, err
			}
		}
	}
	return at, w.Check(at.Path, device)
}

// FindHardware is Find for a machine with an adapter that is not software.
func (w WebGPU) FindHardware(ctx context.Context, o Options, device string) (Location, error) {
	adapters, err := w.Adapters()
	if err != nil {
		return Location{}, fmt.Errorf("no adapter of Vulkan: %w", err)
	}
	for _, a := range adapters {
		if !a.Software {
			return w.Find(ctx, o, device)
		}
	}
	return Location{}, fmt.Errorf("Vulkan shows no GPU")
}

// Check returns an *UnusableGPUError if something keeps the library from using a GPU.
func (w WebGPU) Check(library, device string) error {
	if r := w.Report(library); len(r.Missing) > 0 {
		return &UnusableGPUError{Device: device, Missing: r.Missing}
	}
	return nil
}

// Report looks for adapters, and for the provider in the library, whose path is "" if
// there is none.
func (w WebGPU) Report(library string) WebGPUReport {
	r := WebGPUReport{Adapters: []Adapter{}, Missing: []string{}}
	adapters, err := w.Adapters()
	switch {
	case err != nil:
		r.Missing = append(r.Missing, fmt.Sprintf("no adapter can be reached: %v: install the GPU's Vulkan driver and libvulkan1, or name a driver with VK_ICD_FILENAMES", err))
	case len(adapters) == 0:
		r.Missing = append(r.Missing, "Vulkan shows no adapter: install the GPU's Vulkan driver, or name one with VK_ICD_FILENAMES")
	default:
		r.Adapters = adapters
	}
	switch {
	case library == "":
		r.Missing = append(r.Missing, fmt.Sprintf("there is no ONNX Runtime library with WebGPU: a run with --device webgpu fetches pip's %s, or name one with %s", webgpuRef, envLibrary))
	case webgpuKind.lacks(library) != "":
		r.Missing = append(r.Missing, fmt.Sprintf("%q has no %s: leave out its name, or name the library of pip's %s", library, webgpuMark, webgpuRef))
	}
	return r
}

// marked reports whether the file at path has a text in it.
func marked(path, text string) bool {
	data, err := os.ReadFile(path)
	return err == nil && bytes.Contains(data, []byte(text))
}
