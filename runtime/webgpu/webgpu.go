// Package webgpu runs models on any GPU, by ONNX Runtime's WebGPU provider.
package webgpu

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"sync"

	"onering/models"
	"onering/runtime"
	"onering/runtime/provision"
)

func init() {
	runtime.RegisterProvider(&provider{adapters: sync.OnceValues(adapters), cards: "/sys/class/drm/card*/device/vendor"})
}

// A provider finds, checks and opens GPUs. Tests replace its queries of the system.
type provider struct {
	// adapters lists the adapters from which the provider can choose.
	adapters func() ([]adapter, error)
	// cards is a pattern of the files by which ONNX Runtime finds GPUs on Linux.
	cards string
}

func (*provider) Name() string                  { return "webgpu" }
func (*provider) Names() string                 { return "webgpu for the fastest GPU, webgpu:1 for the most frugal" }
func (*provider) Has(number int) bool           { return number < 2 }
func (*provider) Graphs() models.Provider       { return models.WebGPU }
func (*provider) ForRank(int, bool) (int, bool) { return 0, false }

// Taken estimates the memory of its device, the kernels and reusable buffers.
func (*provider) Taken() int64 { return 300e6 }

// Room is unknown: WebGPU does not tell it.
func (*provider) Room(int) (string, int64) { return "", 0 }

func (*provider) Refuses(d models.DType) string {
	if d == models.BF16 {
		return "WebGPU has no bfloat16: compute in float32, or in float16 where the adapter has it (onering doctor --device webgpu says so)"
	}
	return ""
}

// execution is the provider's name, which is in every ONNX Runtime library; mark, the
// name of a setting, is only in libraries with the provider built in.
const (
	execution = "WebGpuExecutionProvider"
	mark      = "powerPreference"
)

// plugins are the file names of the provider's separate library, by system.
var plugins = map[string]string{
	"linux":   "libonnxruntime_providers_webgpu.so",
	"darwin":  "libonnxruntime_providers_webgpu.dylib",
	"windows": "onnxruntime_providers_webgpu.dll",
}

// Library is a library with the provider built in or beside it. A separate library is
// preferred for hardware that ONNX Runtime itself finds, which excludes software
// adapters.
func (w *provider) Library() provision.Kind {
	k := provision.Kind{Sources: []provision.Source{builtIn, besideCPU}, Mark: mark, Plugin: plugins[goruntime.GOOS],
		What: execution, Name: "with WebGPU", Ref: ref}
	if w.plugged() {
		slices.Reverse(k.Sources)
	}
	return k
}

// plugged reports whether there is a GPU that ONNX Runtime finds by itself, as the
// plug-in requires.
func (w *provider) plugged() bool {
	cards, _ := filepath.Glob(w.cards) // only a malformed pattern gives an error
	return w.Present() == nil && (len(cards) > 0 || goruntime.GOOS != "linux")
}

// Present returns an error unless there is a hardware adapter.
func (w *provider) Present() error {
	adapters, err := w.adapters()
	if err != nil {
		return fmt.Errorf("Vulkan shows no GPU: %w", err)
	}
	for _, a := range adapters {
		if !a.Software {
			return nil
		}
	}
	return errors.New("Vulkan shows no GPU")
}

// Limits are the largest limits of an adapter. The provider may take any of several GPUs,
// so the largest counts; software adapters count only without a GPU.
func (w *provider) Limits() runtime.Limits {
	adapters, err := w.adapters()
	if err != nil {
		return runtime.Limits{} // Report reports that error
	}
	software := w.Present() != nil
	var best adapter
	for _, a := range adapters {
		switch {
		case a.Software && !software:
			continue
		case a.MaxBuffer == 0:
			return runtime.Limits{}
		case a.MaxBuffer > best.MaxBuffer:
			best = a
		}
	}
	return runtime.Limits{Whole: best.MaxBuffer, Any: best.MaxAlloc, Of: best.Name}
}

// Report looks for adapters, and for the provider in the library.
func (w *provider) Report(_ context.Context, library string, _ int, told bool) runtime.Report {
	missing, plugin := []string{}, ""
	lacks := func(format string, args ...any) { missing = append(missing, fmt.Sprintf(format, args...)) }
	adapters, err := w.adapters()
	switch {
	case err != nil:
		lacks("no adapter can be reached: %v: install the GPU's Vulkan driver and libvulkan1, or name a driver with VK_ICD_FILENAMES", err)
	case len(adapters) == 0:
		lacks("Vulkan shows no adapter: install the GPU's Vulkan driver, or name one with VK_ICD_FILENAMES")
	}
	switch k := w.Library(); {
	case library == "" && told:
	case library == "":
		lacks("there is no ONNX Runtime library with WebGPU: a run with --device webgpu fetches pip's %s, or name one with %s", ref, provision.LibraryVariable)
	case k.Lacks(library) != "":
		lacks("%q has no %s: leave out its name, name the library of pip's %s, or put that of %s beside it", library, execution, ref, pluginRef)
	default:
		plugin = k.PluginOf(library)
	}
	r := runtime.Report{Missing: missing, Facts: map[string]any{"adapters": append([]adapter{}, adapters...)}}
	if plugin != "" {
		r.Facts["plugin"] = plugin
	}
	r.Rows = func(asked bool) [][2]string { return rows(adapters, plugin, asked) }
	return r
}

// rows says what can be reached. It reports that there is no GPU only if one was asked for.
func rows(adapters []adapter, plugin string, asked bool) (rows [][2]string) {
	row := func(name, format string, args ...any) {
		rows = append(rows, [2]string{name, fmt.Sprintf(format, args...)})
	}
	if len(adapters) == 0 && asked {
		row("webgpu", "no adapter")
	}
	for _, a := range adapters {
		kind := "GPU"
		if a.Software {
			kind = "in software"
		}
		row("webgpu", "%s (%s), driver %s", a.Name, kind, a.Driver)
		if a.MaxBuffer == 0 {
			continue // only Vulkan can be asked
		}
		row("", "buffers up to %d MiB in a kernel, %d KiB and %d invocations a workgroup", a.MaxBuffer>>20, a.MaxShared>>10, a.MaxWorkgroup)
		row("", "computes in %s", map[bool]string{true: "float32 and float16", false: "float32 only: it has no shaders of 16 bits"}[a.Float16])
	}
	if plugin != "" {
		row("", "provider %s", plugin)
	}
	return rows
}

// Open opens a GPU: 0 is the fastest of the system, 1 the most frugal.
func (w *provider) Open(_ runtime.Options, number int, library string) (*runtime.Backend, error) {
	return &runtime.Backend{
		Grain: 16, Kind: "WebGPU_Buffer", Execution: execution, Short: "WebGPU", Plugin: w.Library().PluginOf(library),
		Unseen: "the plug-in onnxruntime-ep-webgpu finds no GPU (ONNX Runtime looks for them in /sys/class/drm on Linux): install the GPU's driver or, to test in software, set ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER=1",
		Settings: map[string]string{
			// Indices are int64. The provider's kernels read their low 32 bits.
			"enableInt64":     "1",
			"powerPreference": [...]string{"high-performance", "low-power"}[number],
		},
		// A node without a kernel of the provider is an error; otherwise it would run on
		// the CPU, with its operands copied there and back.
		Entries: map[string]string{"session.disable_cpu_ep_fallback": "1"},
		Float16: "its adapter needs shader-f16 (onering doctor --device webgpu)", // only Vulkan can be asked about adapters
	}, nil
}
