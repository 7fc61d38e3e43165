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

// WebGPUProvider is the provider's name. It is in every ONNX Runtime library;
// webgpuMark, the name of a setting, is in those that have the provider built in.
const (
	WebGPUProvider = "WebGpuExecutionProvider"
	webgpuMark     = "powerPreference"
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
func (w WebGPU) Report(library string) WebGPUReport { return w.report(library, false) }

// report is Report. told says that the absence of a library was said already.
func (w WebGPU) report(library string, told bool) WebGPUReport {
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
	case library == "" && told:
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
