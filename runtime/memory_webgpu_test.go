//go:build webgpu

package runtime

import (
	"errors"
	"slices"
	"testing"
	"unsafe"

	"onering/models"
	"onering/models/adamw"
	"onering/models/ports"
	"onering/runtime/provision"
)

// openWebGPU opens the device, or skips.
func openWebGPU(t *testing.T) *Env {
	t.Helper()
	e, err := Open(t.Context(), Options{Device: "webgpu"})
	var unusable *provision.UnusableGPUError
	if errors.As(err, &unusable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m := e.memory.(*webgpuMemory)
		m.rows.close()
		if n := len(m.spans); n > 0 {
			t.Errorf("%d allocations of the device's memory were not freed", n)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// deviceMemories returns the memories of devices that TestMemories checks too.
func deviceMemories(t *testing.T) []memory { return []memory{openWebGPU(t).memory} }

// TestWebGPUCuts: an allocation that is cut has a buffer from each edge on, and copies
// go over the edges.
func TestWebGPUCuts(t *testing.T) {
	e := openWebGPU(t)
	m := e.memory
	at, err := m.alloc(40)
	if err != nil {
		t.Fatal(err)
	}
	defer m.free(at)
	m.cut(at, []int{0, 12, 16})
	from := []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	to := make([]float32, 10)
	check := func(want ...float32) {
		t.Helper()
		if err := m.download(unsafe.Pointer(&to[0]), at, 40); err != nil || !slices.Equal(to, want) {
			t.Errorf("%v, %v, want %v", to, err, want)
		}
	}
	if err := m.upload(at, unsafe.Pointer(&from[0]), 40); err != nil {
		t.Fatal(err)
	}
	check(from...)
	// Parts of two buffers: the rest stays.
	if err := m.upload(unsafe.Add(at, 8), unsafe.Pointer(&from[7]), 12); err != nil {
		t.Fatal(err)
	}
	check(1, 2, 8, 9, 10, 6, 7, 8, 9, 10)
	if err := m.zero(unsafe.Add(at, 4), 16); err != nil {
		t.Fatal(err)
	}
	check(1, 0, 0, 0, 0, 6, 7, 8, 9, 10)
	if err := m.copyRuns(unsafe.Add(at, 16), 0, unsafe.Add(at, 28), 0, 8, 1); err != nil {
		t.Fatal(err)
	}
	check(1, 0, 0, 0, 8, 9, 7, 8, 9, 10)
	if _, err := newValue(m, models.F32, unsafe.Add(at, 4), 8, []int64{2}); err == nil {
		t.Error("a Value inside a buffer was made")
	}
	if _, err := newValue(m, models.F32, at, 16, []int64{4}); err == nil {
		t.Error("a Value over two buffers was made")
	}
}

// TestWebGPUInPlace: an update of an input's memory gives what one of other memory does.
func TestWebGPUInPlace(t *testing.T) {
	e := openWebGPU(t)
	rule := adamw.Default()
	p, err := rule.Program(nil, models.F32)
	if err != nil {
		t.Fatal(err)
	}
	b, err := loadBinding(e, p)
	if err != nil {
		t.Fatal(err)
	}
	defer closeSessions(b)
	const n = 5000
	var results [2][]float32
	for i := range results {
		bind := binder{b: b}
		var all []*buffer
		put := func(name string, scale float32) {
			x := e.buffer(models.F32)
			all = append(all, &x)
			data, v, err := sized[float32](&x, n)
			if err != nil {
				t.Fatal(err)
			}
			for j := range data {
				data[j] = scale * float32(j%97+1)
			}
			if err := x.push(); err != nil {
				t.Fatal(err)
			}
			bind.in(name, v, nil)
			if name == ports.Grad {
				return
			}
			out := &x
			if i == 1 {
				y := e.buffer(models.F32)
				all = append(all, &y)
				out = &y
				v, err = y.of(n)
			}
			name += "1"
			if name == ports.Param+"1" {
				name = ports.ParamOut
			}
			bind.out(name, v, err)
			if name == ports.ParamOut {
				defer func() { all[0], all[len(all)-1] = out, all[0] }()
			}
		}
		put(ports.Param, 0.5)
		for _, s := range rule.State() {
			put(s.Port, 0.01)
		}
		put(ports.Grad, 0.1)
		scalars := rule.Scalars(1, 0.01)
		scalars[ports.Clip] = 1
		for name, x := range scalars {
			s := hostBuffer(models.F32)
			all = append(all, &s)
			if data := fill[float32](&bind, name, &s); data != nil {
				data[0] = float32(x)
			}
		}
		if err := bind.run(); err != nil {
			t.Fatal(err)
		}
		got, err := pulled[float32](all[0])
		if err != nil {
			t.Fatal(err)
		}
		results[i] = slices.Clone(got)
		for _, x := range all {
			x.close()
		}
	}
	if !slices.Equal(results[0], results[1]) {
		t.Errorf("in place %v, beside %v", results[0][:5], results[1][:5])
	}
	if results[0][0] == 0.5 {
		t.Error("nothing was updated")
	}
}
