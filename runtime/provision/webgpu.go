package provision

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

// webgpuVersion is the newest ONNX Runtime that pip has with the WebGPU provider.
const (
	webgpuVersion = "1.27.0"
	webgpuRef     = "onnxruntime-webgpu==" + webgpuVersion
)

// WebGPUProvider is the provider's name. It is in every ONNX Runtime library;
// webgpuMark, the name of a setting, is in those that have the provider built in.
const (
	WebGPUProvider = "WebGpuExecutionProvider"
	webgpuMark     = "powerPreference"
)

// pluginRef is the provider as a library of its own, for ONNX Runtime 1.24.4 or newer.
const pluginRef = "onnxruntime-ep-webgpu==0.4.0"

var (
	pipWebGPU       = wheelSource(webgpuRef, webgpuVersion, webgpuWheels)
	pipWebGPUPlugin = wheelSource("onnxruntime=="+pinned, pinned, pluginWheels)
)

// kind is a library with the provider built in or beside it. Beside it is preferred
// for hardware that ONNX Runtime itself finds, which then needs no build of its own;
// software is not among that.
func (w WebGPU) kind() kind {
	k := kind{sources: []source{pipWebGPU, pipWebGPUPlugin}, mark: webgpuMark, plugin: webgpuPlugins[runtime.GOOS],
		what: WebGPUProvider, name: "with WebGPU", ref: webgpuRef}
	if w.hardware() == nil && w.discovers() {
		slices.Reverse(k.sources)
	}
	return k
}

var webgpuWheels = map[string]wheelBuild{
	"linux/amd64": {build{variant: "webgpu", member: "onnxruntime/capi/libonnxruntime.so.1.27.0", size: 25163729,
		sum: "882f54a76dde1b6c7e66ed353f29bf167c2a2d4e77875b093205074b31d2c7f4"}, "manylinux_2_28_x86_64"},
	"darwin/arm64": {build{variant: "webgpu", member: "onnxruntime/capi/libonnxruntime.1.27.0.dylib", size: 24081620,
		sum: "3d760e1d78599e10a8f608b64ef9e6e39b78ab61e5e3cf88d5ec98f11809c9a7"}, "macosx_14_0_arm64"},
	"windows/amd64": {build{variant: "webgpu", member: "onnxruntime/capi/onnxruntime.dll", size: 27226899,
		sum: "a2cb98408f9a10f8976c0ec4d933b8732c021e9edef348ef7d87a62d05cdd1bc",
		beside: []part{
			{member: "onnxruntime/capi/dxcompiler.dll", sum: "450adfba61a72ec3f8feaec38caa371692974b91ca20470a675214d30b7bf387"},
			{member: "onnxruntime/capi/dxil.dll", sum: "51326f698ac24e45d1d2f125868c66252b0c1c47b79b1427655c9ea50cfd4869"},
		}}, "win_amd64"},
}

// pluginWheels are the libraries for the CPU with the provider beside them.
var pluginWheels = map[string]wheelBuild{
	"linux/amd64":  plugged("linux/amd64", 6892120, "libonnxruntime_providers_webgpu.so", "9f76e3dc4459421958ad086a9da03bf7e5de9289e9a3a56e28bbb459773dec81"),
	"linux/arm64":  plugged("linux/arm64", 6096222, "libonnxruntime_providers_webgpu.so", "720e1288e7e465f924db44b88a98a9d1c543eba3fbb2ff801cf2545f5e7f0279"),
	"darwin/arm64": plugged("darwin/arm64", 5200679, "libonnxruntime_providers_webgpu.dylib", "894aa43c308c97afe58f6485b8411962181a39b27170f5f210cc7503adb52850"),
	"windows/amd64": plugged("windows/amd64", 13149847, "onnxruntime_providers_webgpu.dll", "85d7b2065b1968b846cd00d5d87d5286d3c44e8f6c557cd382d96300e524b6cb",
		"dxcompiler.dll", "d7e740883f8048233d15752bc5d4ba207fc03d835c78fffab26387d400892193",
		"dxil.dll", "0a0d059a51dd5e1916a4a9924817d70b5dbb8e0c103a102fa2c6c92cb748c27f"),
	"windows/arm64": plugged("windows/arm64", 14194630, "onnxruntime_providers_webgpu.dll", "e2a72894617c0519cae3080534ca1fc957c4ab607a993c05f326d83b322a581d",
		"dxcompiler.dll", "2c4895ad9707963390fba270a613cd37a038064fce5384bae025c695dc681601",
		"dxil.dll", "502a7c6b7660fa5520efbe5b9516a1aac06b9a8c6a7e26011856bead7f5770ed"),
}

// plugged is the library for the CPU with files of the plug-in's package, given as
// names and SHA-256.
func plugged(platform string, size int64, files ...string) wheelBuild {
	w := wheels[platform]
	w.variant, w.size = "webgpu-plugin", w.size+size
	for i := 0; i < len(files); i += 2 {
		w.beside = append(w.beside, part{"onnxruntime_ep_webgpu/" + files[i], files[i+1], pluginRef})
	}
	return w
}

// An Adapter is a GPU as the system's graphics interface shows it, or a driver that
// computes in software.
type Adapter struct {
	Name     string `json:"name"`
	Driver   string `json:"driver"`
	Software bool   `json:"software"`
	Float16  bool   `json:"float16"` // whether kernels compute in it; of Vulkan's adapters
	// Limits of a kernel: the bytes of a buffer, the bytes that a workgroup shares,
	// and how many invocations it has. 0 is not known.
	MaxBuffer    int64 `json:"max_buffer"`
	MaxAlloc     int64 `json:"max_alloc"` // the bytes of any buffer, however many of them a kernel takes
	MaxShared    int64 `json:"max_shared"`
	MaxWorkgroup int64 `json:"max_workgroup"`
}

// A WebGPUReport says what running on a GPU through WebGPU needs and what of it is
// here.
type WebGPUReport struct {
	Adapters []Adapter `json:"adapters"`
	Plugin   string    `json:"plugin,omitempty"` // the provider's own library; "" if it is built in
	Missing  []string  `json:"missing"`          // in sentences with the remedy
}

// WebGPU finds and checks what running on a GPU through WebGPU needs.
type WebGPU struct {
	// Adapters lists what the provider can choose from.
	Adapters func() ([]Adapter, error)
	// cards is a pattern of what ONNX Runtime finds GPUs by on Linux; that of the
	// kernel if it is "".
	cards string
}

// ErrNoAdapter is wrapped by the errors of FindHardware and CheckHardware where there is
// no adapter, or software alone.
var ErrNoAdapter = errors.New("Vulkan shows no GPU")

// hardware returns an error unless there is an adapter that is not software.
func (w WebGPU) hardware() error {
	adapters, err := w.Adapters()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoAdapter, err)
	}
	for _, a := range adapters {
		if !a.Software {
			return nil
		}
	}
	return ErrNoAdapter
}

// A Buffer is one that a run needs on a GPU.
type Buffer struct {
	What  string // such as "the logits of a micro-batch"
	Bytes int64
	// Pieces says that all kernels which take it do so in pieces, so that only the largest
	// buffer there can be bounds it. Others take whole buffers: ScatterND, which adds rows
	// and writes the cache, Softmax and TopK.
	Pieces bool
	// Setting decides its size, which grows with Value; below Least it does not help.
	Setting      string
	Value, Least int64
	Otherwise    string // what helps where no Setting does
}

// MaxBuffer returns the largest buffer that a kernel takes and the largest that there can
// be, with the name of their adapter; 0 where that is not known. Which of several GPUs the
// provider takes is not known either, so the largest limit counts, and that of software
// only where there is no GPU.
func (w WebGPU) MaxBuffer() (whole, alloc int64, adapter string) {
	adapters, err := w.Adapters()
	if err != nil {
		return 0, 0, "" // Check says so
	}
	software := w.hardware() != nil
	var best Adapter
	for _, a := range adapters {
		switch {
		case a.Software && !software:
			continue
		case a.MaxBuffer == 0:
			return 0, 0, ""
		case a.MaxBuffer > best.MaxBuffer:
			best = a
		}
	}
	return best.MaxBuffer, best.MaxAlloc, best.Name
}

// CheckBuffers returns an error that names those buffers which are too large for every
// adapter. It returns nil where an adapter does not say its limits.
func (w WebGPU) CheckBuffers(device string, buffers ...Buffer) error {
	whole, alloc, adapter := w.MaxBuffer()
	var wrong []error
	for _, b := range buffers {
		limit, who := whole, "a kernel of "+adapter
		if b.Pieces || alloc > 0 && alloc < whole {
			limit, who = alloc, adapter
		}
		if limit == 0 || b.Bytes <= limit {
			continue
		}
		remedy := b.Otherwise
		if b.Setting != "" {
			if most := int64(float64(b.Value) * float64(limit) / float64(b.Bytes)); most >= b.Least {
				remedy = fmt.Sprintf("set %s = %d or less", b.Setting, most)
			}
		}
		wrong = append(wrong, fmt.Errorf("%s: %s would be a buffer of %d MiB, and %s takes those of up to %d MiB (onering doctor --device webgpu): %s",
			device, b.What, (b.Bytes+1<<20-1)>>20, who, limit>>20, remedy))
	}
	return errors.Join(wrong...)
}

// discovers reports whether ONNX Runtime finds a GPU, which the plug-in asks it for.
func (w WebGPU) discovers() bool {
	if runtime.GOOS != "linux" {
		return true
	}
	cards, _ := filepath.Glob(cmp.Or(w.cards, "/sys/class/drm/card*/device/vendor")) // errs only on a malformed pattern
	return len(cards) > 0
}

// Find finds the library with the WebGPU provider, and checks that there is an
// adapter. It fetches a library only if there is one.
func (w WebGPU) Find(ctx context.Context, o Options, device string) (Location, error) {
	at, err := look(o, w.kind())
	if err != nil {
		return Location{}, err
	}
	if at.Path == "" {
		if adapters, _ := w.Adapters(); len(adapters) > 0 { // Check says why there is none
			if at, err = find(ctx, o, w.kind()); err != nil {
				return Location{}, err
			}
		}
	}
	return at, w.Check(at.Path, device)
}

// Foresee is FindHardware without fetching: a library that is not here yet is taken to
// come.
func (w WebGPU) Foresee(o Options, device string) error {
	if err := w.hardware(); err != nil {
		return err
	}
	at, err := look(o, w.kind())
	if err != nil || at.Path == "" && !o.offline() {
		return err
	}
	return w.Check(at.Path, device)
}

// FindHardware is Find for a machine with an adapter that is not software.
func (w WebGPU) FindHardware(ctx context.Context, o Options, device string) (Location, error) {
	if err := w.hardware(); err != nil {
		return Location{}, err
	}
	return w.Find(ctx, o, device)
}

// CheckHardware is Check for a machine with an adapter that is not software.
func (w WebGPU) CheckHardware(library, device string) error {
	if err := w.hardware(); err != nil {
		return err
	}
	return w.Check(library, device)
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
	case w.kind().lacks(library) != "":
		r.Missing = append(r.Missing, fmt.Sprintf("%q has no %s: leave out its name, name the library of pip's %s, or put that of %s beside it", library, WebGPUProvider, webgpuRef, pluginRef))
	default:
		r.Plugin = WebGPUPlugin(library)
	}
	return r
}

// webgpuPlugins are the file names of the provider as a library of its own, by system.
var webgpuPlugins = map[string]string{
	"linux":   "libonnxruntime_providers_webgpu.so",
	"darwin":  "libonnxruntime_providers_webgpu.dylib",
	"windows": "onnxruntime_providers_webgpu.dll",
}

// WebGPUPlugin returns the path of the provider's own library beside an ONNX Runtime
// library, or "" if there is none or the provider is built in.
func WebGPUPlugin(library string) string {
	if marked(library, webgpuMark) {
		return ""
	}
	return besideLibrary(library, webgpuPlugins[runtime.GOOS])
}

// WebGPUPluginSeesNone says that the provider's own library shows no device.
const WebGPUPluginSeesNone = "the plug-in onnxruntime-ep-webgpu finds no GPU (ONNX Runtime looks for them in /sys/class/drm on Linux): install the GPU's driver or, to test in software, set ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER=1"

// remedyOf says in a sentence why a GPU was tried in vain.
func remedyOf(err error) string {
	var unusable *UnusableGPUError
	if errors.As(err, &unusable) {
		return unusable.Missing[0]
	}
	return fmt.Sprintf("ONNX Runtime does not run on it: %v", err)
}

// marked reports whether the file at path has a text in it.
func marked(path, text string) bool {
	data, err := os.ReadFile(path)
	return err == nil && bytes.Contains(data, []byte(text))
}
