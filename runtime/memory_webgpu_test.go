//go:build webgpu

package runtime

import (
	"slices"
	"testing"

	"onering/models"
	"onering/models/optim/adamw"
	"onering/models/ports"
)

// devices are those whose memories tests check, by name. A process has one library, so
// the tests of other memories use WebGPU's library.
var devices = []string{"webgpu:0", "cpu", "stand-in-cuda", "stand-in-webgpu"}

// TestWebGPUInPlace: an update onto its input gives the same result as an update to other memory.
func TestWebGPUInPlace(t *testing.T) {
	e := openOn(t, "webgpu")
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
