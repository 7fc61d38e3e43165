package provision

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// TestFindWebGPU takes a library that has the provider, and an adapter of hardware
// where the device is chosen for the user.
func TestFindWebGPU(t *testing.T) {
	t.Setenv(envOffline, "1")
	t.Setenv("LD_LIBRARY_PATH", "")
	plain := stub(t, "1.99.0")
	with := stub(t, "1.98.0")
	f, err := os.OpenFile(with, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(webgpuMark); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
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
	if _, err := of(nil, hard).Find(t.Context(), o, "webgpu:0"); err == nil || !strings.Contains(err.Error(), webgpuMark+" is not in") || !strings.Contains(err.Error(), webgpuRef) {
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
