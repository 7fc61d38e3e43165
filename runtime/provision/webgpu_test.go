package provision

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// appendTo writes a text to the end of a file.
func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestWebGPUPlugin: the provider's own library beside one for the CPU is as good as
// one with the provider built in, and is fetched for hardware that ONNX Runtime finds.
func TestWebGPUPlugin(t *testing.T) {
	t.Setenv(envOffline, "1")
	cards := t.TempDir()
	appendTo(t, filepath.Join(cards, "card0"), "0x1002")
	for _, c := range []struct {
		adapter Adapter
		cards   string
		plugin  bool
	}{
		{Adapter{Name: "hard"}, cards + "/card*", true},
		{Adapter{Name: "hard"}, cards + "/none*", runtime.GOOS != "linux"}, // such as a container that has no /sys/class/drm
		{Adapter{Name: "soft", Software: true}, cards + "/card*", false},
	} {
		w := WebGPU{Adapters: func() ([]Adapter, error) { return []Adapter{c.adapter}, nil }, cards: c.cards}
		b, ok := w.kind().sources[0].build("linux", "amd64")
		if !ok || (b.variant == "webgpu-plugin") != c.plugin {
			t.Errorf("%v with %s: first %+v", c.adapter, c.cards, b)
		}
		if _, ok := w.kind().sources[1].build("linux", "amd64"); !ok {
			t.Errorf("%v with %s: there is no second source", c.adapter, c.cards)
		}
	}
	lib := stub(t, "1.99.0")
	t.Setenv(envLibrary, lib)
	w := WebGPU{Adapters: func() ([]Adapter, error) { return []Adapter{{Name: "hard"}}, nil }}
	if _, err := w.Find(t.Context(), Options{}, "webgpu:0"); err == nil {
		t.Error("a library without the provider is taken")
	}
	plugin := filepath.Join(filepath.Dir(lib), webgpuPlugins[runtime.GOOS])
	appendTo(t, plugin, webgpuMark)
	if at, err := w.Find(t.Context(), Options{}, "webgpu:0"); err != nil || at.Path != lib {
		t.Errorf("with the plug-in: %v, %v", at, err)
	}
	if r := w.Report(lib); r.Plugin != plugin || len(r.Missing) > 0 {
		t.Errorf("with the plug-in: %+v", r)
	}
	for gpu, want := range [][]string{nil, {WebGPUPluginSeesNone}} {
		r := Diagnose(t.Context(), Options{Cache: t.TempDir()}, CUDA{Loader: &fakeLoader{}}, w, Target{WebGPU: true, GPU: gpu})
		if !slices.Equal(r.Problems, want) && len(r.Problems)+len(want) > 0 {
			t.Errorf("webgpu:%d: problems %q, want %q", gpu, r.Problems, want)
		}
	}
	t.Setenv(envLibrary, "")
	t.Setenv("LD_LIBRARY_PATH", "")
	if r := Diagnose(t.Context(), Options{Cache: t.TempDir()}, CUDA{Loader: &fakeLoader{}}, w, Target{WebGPU: true}); len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "no ONNX Runtime library with WebGPU: a run with --device webgpu fetches") {
		t.Errorf("without a library: problems %q", r.Problems)
	}
	wrong := filepath.Join(t.TempDir(), "none.so")
	if r := Diagnose(t.Context(), Options{Library: wrong, Cache: t.TempDir()}, CUDA{Loader: &fakeLoader{}}, w, Target{WebGPU: true}); len(r.Problems) != 1 || !strings.Contains(r.Problems[0], wrong) || len(r.WebGPU.Adapters) != 1 {
		t.Errorf("with a name of no library: problems %q, adapters %v", r.Problems, r.WebGPU.Adapters)
	}
	if r := Diagnose(t.Context(), Options{Library: wrong, Cache: t.TempDir()}, CUDA{Loader: &fakeLoader{}}, w, Target{CUDA: true}); !strings.Contains(r.Problems[0], wrong) || slices.ContainsFunc(r.Problems, func(p string) bool { return strings.Contains(p, "fetches") }) {
		t.Errorf("with a name of no library: problems %q", r.Problems)
	}
	appendTo(t, lib, webgpuMark)
	if got := WebGPUPlugin(lib); got != "" {
		t.Errorf("the provider is built in and beside: %q is loaded", got)
	}
}

// TestFindWebGPU takes a library that has the provider, and an adapter of hardware
// where the device is chosen for the user.
func TestFindWebGPU(t *testing.T) {
	t.Setenv(envOffline, "1")
	t.Setenv("LD_LIBRARY_PATH", "")
	plain := stub(t, "1.99.0")
	with := stub(t, "1.98.0")
	appendTo(t, with, webgpuMark)
	appendTo(t, plain, WebGPUProvider) // which is in every library
	o := Options{Cache: t.TempDir()}
	of := func(err error, a ...Adapter) WebGPU {
		return WebGPU{Adapters: func() ([]Adapter, error) { return a, err }}
	}
	soft, hard := Adapter{Name: "soft", Software: true}, Adapter{Name: "hard"}

	t.Setenv(envLibrary, with)
	if at, err := of(nil, soft).Find(t.Context(), o, "webgpu:0"); err != nil || at.Path != with {
		t.Errorf("a named device in software: %v, %v", at, err)
	}
	if _, err := of(nil, soft).FindHardware(t.Context(), o, "webgpu:0"); err == nil {
		t.Error("auto takes a device in software")
	}
	if at, err := of(nil, soft, hard).FindHardware(t.Context(), o, "webgpu:0"); err != nil || at.Path != with {
		t.Errorf("auto with hardware: %v, %v", at, err)
	}
	var unusable *UnusableGPUError
	for _, w := range []WebGPU{of(nil), of(errors.New("none.so"))} {
		if _, err := w.Find(t.Context(), o, "webgpu:1"); !errors.As(err, &unusable) || !strings.HasPrefix(err.Error(), "provision: webgpu:1 cannot be used: ") {
			t.Errorf("without an adapter: %v", err)
		}
	}
	t.Setenv(envLibrary, plain)
	if _, err := of(nil, hard).Find(t.Context(), o, "webgpu:0"); err == nil || !strings.Contains(err.Error(), WebGPUProvider+" is not in") || !strings.Contains(err.Error(), webgpuRef) {
		t.Errorf("a library without the provider: %v", err)
	}
	if err := of(nil, hard).Check(plain, "webgpu:0"); !errors.As(err, &unusable) {
		t.Errorf("a loaded library without the provider: %v", err)
	}
	t.Setenv(envLibrary, "")
	if _, err := of(nil, hard).Find(t.Context(), o, "webgpu:0"); err == nil || !strings.Contains(err.Error(), "no ONNX Runtime library with WebGPU") {
		t.Errorf("offline and without a library: %v", err)
	}
}

// TestCheckBuffers: a buffer that no adapter has is refused, with its name, the adapter's
// and the remedy, which is enough; what is not known refuses nothing.
func TestCheckBuffers(t *testing.T) {
	const embedding = 544 << 20
	soft, small := Adapter{Name: "soft", Software: true, MaxBuffer: 1 << 30}, Adapter{Name: "small", MaxBuffer: 128 << 20, MaxAlloc: 1 << 30}
	large, unknown := Adapter{Name: "large", MaxBuffer: 4 << 30, MaxAlloc: 2 << 30}, Adapter{Name: "unknown"}
	for _, c := range []struct {
		adapters []Adapter
		bytes    int64
		pieces   bool
		refused  bool
	}{
		{[]Adapter{small}, embedding, false, true},
		{[]Adapter{small}, 128<<20 + 1, false, true},
		{[]Adapter{small}, 128 << 20, false, false},
		{[]Adapter{small}, embedding, true, false},
		{[]Adapter{small}, 2 << 30, true, true},
		{[]Adapter{small, soft}, embedding, false, true}, // which takes the GPU
		{[]Adapter{soft}, embedding, false, false},
		{[]Adapter{soft}, 8 << 30, true, false}, // of which it is not said
		{[]Adapter{small, large}, embedding, false, false},
		{[]Adapter{large}, embedding, false, false},
		{[]Adapter{large}, 3 << 30, false, true},
		{[]Adapter{small, unknown}, embedding, false, false},
		{nil, embedding, false, false},
	} {
		w := WebGPU{Adapters: func() ([]Adapter, error) { return c.adapters, nil }}
		b := Buffer{What: "the cache", Bytes: c.bytes, Pieces: c.pieces, Setting: "rollout.slots", Value: 1000, Least: 200, Otherwise: "take less"}
		err := w.CheckBuffers("webgpu:0", Buffer{What: "nothing", Bytes: 1}, b)
		if (err != nil) != c.refused {
			t.Errorf("%d bytes on %v: %v", c.bytes, c.adapters, err)
		}
		if err == nil {
			continue
		}
		whole, alloc, name := w.MaxBuffer()
		if c.pieces || alloc < whole {
			whole = alloc
		}
		most, remedy := 1000*whole/c.bytes, "take less"
		if most >= 200 {
			remedy = fmt.Sprintf("set rollout.slots = %d or less", most)
		}
		for _, part := range []string{"webgpu:0", "the cache", name, fmt.Sprintf("%d MiB", whole>>20), remedy} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q lacks %q", err, part)
			}
		}
		if strings.Contains(err.Error(), "nothing") {
			t.Errorf("%q names what is small", err)
		}
	}
}
