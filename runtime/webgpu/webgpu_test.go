package webgpu

import (
	"errors"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"

	"onering/models"
	"onering/runtime"
	"onering/runtime/provision"
)

// shows returns a provider on a machine with these adapters.
func shows(a ...adapter) *provider {
	return &provider{adapters: func() ([]adapter, error) { return a, nil }}
}

// written writes a text to a file and returns its path.
func written(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLibrary: the provider's own library beside one for the CPU is as good as one with the
// provider built in, and is preferred for hardware that ONNX Runtime finds.
func TestLibrary(t *testing.T) {
	cards := t.TempDir()
	written(t, filepath.Join(cards, "card0"), "0x1002")
	for _, c := range []struct {
		adapter adapter
		cards   string
		plugged bool
	}{
		{adapter{Name: "hard"}, cards + "/card*", true},
		{adapter{Name: "hard"}, cards + "/none*", goruntime.GOOS != "linux"}, // for instance a container without /sys/class/drm
		{adapter{Name: "soft", Software: true}, cards + "/card*", false},
	} {
		w := shows(c.adapter)
		w.cards = c.cards
		if got := w.plugged(); got != c.plugged || len(w.Library().Sources) != 2 {
			t.Errorf("%v with %s: a library of its own is preferred: %v, of %d sources", c.adapter, c.cards, got, len(w.Library().Sources))
		}
	}
	dir := t.TempDir()
	lib := written(t, filepath.Join(dir, "lib.so"), execution) // a name that every library contains
	w := shows(adapter{Name: "hard"})
	if r := w.Report(t.Context(), lib, 0, false); len(r.Missing) != 1 || !strings.Contains(r.Missing[0], "has no "+execution) || !strings.Contains(r.Missing[0], ref) {
		t.Errorf("without the provider: %q", r.Missing)
	}
	plugin := written(t, filepath.Join(dir, plugins[goruntime.GOOS]), mark)
	if r := w.Report(t.Context(), lib, 0, false); len(r.Missing) > 0 || r.Facts["plugin"] != plugin {
		t.Errorf("with the plug-in: %+v", r)
	}
	written(t, lib, execution+mark)
	if r := w.Report(t.Context(), lib, 0, false); len(r.Missing) > 0 || r.Facts["plugin"] != nil {
		t.Errorf("the provider is built in and beside: %+v", r)
	}
	for told, want := range map[bool]int{false: 1, true: 0} {
		if r := w.Report(t.Context(), "", 0, told); len(r.Missing) != want || want > 0 && !strings.Contains(r.Missing[0], "no ONNX Runtime library with WebGPU: a run with --device webgpu fetches") {
			t.Errorf("without a library, told %v: %q", told, r.Missing)
		}
	}
}

// TestAdapters: a named device may be a software one; otherwise only hardware is chosen.
func TestAdapters(t *testing.T) {
	soft, hard := adapter{Name: "soft", Software: true}, adapter{Name: "hard"}
	broken := shows()
	broken.adapters = func() ([]adapter, error) { return nil, errors.New("none.so") }
	for _, c := range []struct {
		w       *provider
		present bool
		missing string
	}{
		{shows(soft), false, ""},
		{shows(soft, hard), true, ""},
		{shows(), false, "Vulkan shows no adapter"},
		{broken, false, "no adapter can be reached: none.so"},
	} {
		if err := c.w.Present(); (err == nil) != c.present {
			t.Errorf("present: %v", err)
		}
		r := c.w.Report(t.Context(), "", 1, true)
		if strings.Join(r.Missing, "") != c.missing && (c.missing == "" || !strings.HasPrefix(r.Missing[0], c.missing)) {
			t.Errorf("missing %q, want %q", r.Missing, c.missing)
		}
		rows := r.Rows(true)
		if adapters, _ := c.w.adapters(); len(adapters) == 0 && (len(rows) != 1 || rows[0] != [2]string{"webgpu", "no adapter"}) || len(r.Rows(false)) != len(adapters) {
			t.Errorf("doctor says %q", rows)
		}
	}
}

// TestLimits: of several adapters the largest limit counts, and a software adapter's
// limit only if there is no GPU.
func TestLimits(t *testing.T) {
	soft, small := adapter{Name: "soft", Software: true, MaxBuffer: 1 << 30}, adapter{Name: "small", MaxBuffer: 128 << 20, MaxAlloc: 1 << 30}
	large, unknown := adapter{Name: "large", MaxBuffer: 4 << 30, MaxAlloc: 2 << 30}, adapter{Name: "unknown"}
	for _, c := range []struct {
		adapters []adapter
		want     runtime.Limits
	}{
		{[]adapter{small}, runtime.Limits{Whole: 128 << 20, Any: 1 << 30, Of: "small"}},
		{[]adapter{small, soft}, runtime.Limits{Whole: 128 << 20, Any: 1 << 30, Of: "small"}}, // which takes the GPU
		{[]adapter{soft}, runtime.Limits{Whole: 1 << 30, Of: "soft"}},
		{[]adapter{small, large}, runtime.Limits{Whole: 4 << 30, Any: 2 << 30, Of: "large"}},
		{[]adapter{small, unknown}, runtime.Limits{}},
		{nil, runtime.Limits{}},
	} {
		if got := shows(c.adapters...).Limits(); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.adapters, got, c.want)
		}
	}
}

// TestPip fetches the real packages with pip.
func TestPip(t *testing.T) {
	if os.Getenv("ONERING_TEST_NETWORK") == "" {
		t.Skip("set ONERING_TEST_NETWORK=1 to download some 60 MB")
	}
	k := shows().Library()
	for i, source := range k.Sources {
		one := k
		one.Sources = []provision.Source{source}
		at, err := provision.Find(t.Context(), provision.Options{Cache: t.TempDir()}, one)
		if err != nil || k.Lacks(at.Path) != "" || (k.PluginOf(at.Path) != "") != (i == 1) {
			t.Error(at, err)
		}
	}
}

func TestRefuses(t *testing.T) {
	w := shows()
	if w.Refuses(models.F32) != "" || w.Refuses(models.F16) != "" || w.Refuses(models.BF16) == "" {
		t.Errorf("bfloat16: %q", w.Refuses(models.BF16))
	}
}
