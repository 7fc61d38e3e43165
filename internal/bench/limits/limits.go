// Package limits says how far the phases of a round are from the limits of the machine: it compares their times with
// the least time for their operations and their bytes, at the measured speed of a matrix product and of memory.
package limits

import (
	"fmt"
	"math"
	"runtime/debug"
	"time"

	"onering/models"
	"onering/models/graph"
	"onering/runtime"
)

// Peaks are the highest speeds of the machine, measured while it is idle.
type Peaks struct {
	// FLOPS is the number of floating-point operations a second in a product of two
	// square matrices of float32 by ONNX Runtime.
	FLOPS float64 `json:"gemm_flops_per_second"`
	// Bytes is the number of bytes that a copy between two arrays, larger than caches, or a sum onto one of them
	// reads and writes in a second, with as many threads as ONNX Runtime uses. A copy may also read what it
	// overwrites, a sum onto an array, as an optimizer's update, reads and writes the same places.
	Bytes float64 `json:"memory_bytes_per_second"`
}

// Most returns the higher of both speeds, each, of two measurements.
func (p Peaks) Most(q Peaks) Peaks { return Peaks{max(p.FLOPS, q.FLOPS), max(p.Bytes, q.Bytes)} }

// Sizes of the measurements of Machine. The fastest of several repeats counts, since
// other programs can only slow one down.
const (
	peakWidth   = 1024 // and twice as much
	peakFloats  = 16 << 20
	peakRepeats = 5
)

// Machine measures the peaks for a second, on the CPU: the products of matrices of two sizes, and a copy and a sum of
// arrays, each on all threads.
func Machine(env *runtime.Env) (Peaks, error) {
	var p Peaks
	for _, n := range []int{peakWidth, 2 * peakWidth} {
		seconds, err := productSeconds(env, n)
		if err != nil {
			return p, fmt.Errorf("limits: the product of matrices: %w", err)
		}
		p.FLOPS = max(p.FLOPS, 2*math.Pow(float64(n), 3)/seconds)
	}
	from, to := make([]float32, peakFloats), make([]float32, peakFloats)
	for i := range from {
		from[i] = float32(i) // touch it, else all of it could be one page of zeros
	}
	threads := env.Threads()
	measure := func(bytesOfElement float64, f func(to, from []float32)) {
		seconds := fastest(func() {
			models.AtOnce(threads, threads, func(i int) {
				f(to[i*peakFloats/threads:(i+1)*peakFloats/threads], from[i*peakFloats/threads:(i+1)*peakFloats/threads])
			})
		})
		p.Bytes = max(p.Bytes, bytesOfElement*peakFloats/seconds)
	}
	measure(8, func(to, from []float32) { copy(to, from) }) // 4 bytes read and 4 written
	measure(12, func(to, from []float32) {                  // 8 bytes read and 4 written
		for i, x := range from[:len(to)] {
			to[i] += x
		}
	})
	from, to = nil, nil
	debug.FreeOSMemory() // else both arrays would stay in memory
	return p, nil
}

// productSeconds returns how many seconds ONNX Runtime takes for a product of two matrices [n,n].
func productSeconds(env *runtime.Env, n int) (float64, error) {
	program, err := graph.Build("product", func(g *graph.Graph) {
		g.Output("y", graph.MatMul(g.Float("a", n, n), g.Float("b", n, n), false, false, 1)) // none transposed, times 1
	})
	if err != nil {
		return 0, err
	}
	session, err := env.Load(program)
	if err != nil {
		return 0, err
	}
	defer session.Close()
	binding, err := session.NewBinding()
	if err != nil {
		return 0, err
	}
	for _, name := range []string{"a", "b", "y"} {
		data := make([]float32, n*n)
		for i := range data {
			data[i] = float32(i%7) - 3
		}
		v, err := runtime.NewValue(data, int64(n), int64(n))
		if err != nil {
			return 0, err
		}
		defer v.Close()
		bind := binding.Input
		if name == "y" {
			bind = binding.Output
		}
		if err := bind(name, v); err != nil {
			return 0, err
		}
	}
	seconds := fastest(func() {
		if err == nil {
			err = binding.Run()
		}
	})
	return seconds, err
}

// fastest calls f once to warm up, then several times, and returns the least time.
func fastest(f func()) float64 {
	f()
	best := math.Inf(1)
	for range peakRepeats {
		began := time.Now()
		f()
		best = min(best, time.Since(began).Seconds())
	}
	return best
}

// Work is what a phase must do in any program: the operations of its products and the bytes to read and write.
type Work struct{ FLOPs, Bytes float64 }

// Seconds is the least time that a machine with these peaks needs.
func (w Work) Seconds(p Peaks) float64 { return max(w.FLOPs/p.FLOPS, w.Bytes/p.Bytes) }

// Add returns the sum of two Works.
func (w Work) Add(x Work) Work { return Work{w.FLOPs + x.FLOPs, w.Bytes + x.Bytes} }

// A Model has the figures that decide the Work of a phase.
type Model struct {
	layers, head float64 // elements of the matrices by which every token is multiplied
	attention    float64 // operations for each pair of a token and a token that it attends to
	cached       float64 // bytes of keys and values of a token
	weight       float64 // bytes of a weight as the graphs read it
	update       float64 // bytes that an optimizer update reads and writes
	gradients    float64 // how many products the backward pass has for each of the forward pass
}

// ModelOf returns the Model of a geometry of which an optimizer trains this number of parameters. If frozen is true,
// they are an adapter's, and the matrices have no gradients.
func ModelOf(g models.Geometry, parameters int, optimizer models.Optimizer, frozen bool) Model {
	// The widths of the stream, of all queries, and of all keys or values.
	d, a, kv, layers := float64(g.Hidden), float64(g.Heads*g.HeadDim), float64(g.KVHeads*g.HeadDim), float64(g.Layers)
	size := float64(max(2, g.Compute.Size()))
	gradients := 2.0
	if frozen {
		gradients = 1
	}
	return Model{
		layers: layers * (d*(a+2*kv) + a*d + 3*d*float64(g.FFN)), head: d * float64(g.Vocab),
		attention: layers * 4 * a, cached: layers * 2 * float64(g.KVHeads*g.CacheWidth) * size,
		weight: size, gradients: gradients,
		update: float64(parameters) * float64(12+8*len(optimizer.State())),
	}
}

// Prompt is a pass over the tokens of a prompt: a multiplication and an addition for each
// weight and each token, and attention.
func (m Model) Prompt(tokens int) Work {
	n := float64(tokens)
	return Work{FLOPs: 2*m.layers*n + m.attention*n*(n+1)/2}
}

// Response is the Work of a pass over a response behind its prompt, with log-probs.
func (m Model) Response(prompt, tokens int) Work {
	w, n := m.Prompt(tokens), float64(tokens)
	w.FLOPs += m.attention*n*float64(prompt) + 2*m.head*n
	return w
}

// Backward is the Work of the gradients of a forward pass: two products for each.
// Activations that are computed again do not count.
func (m Model) Backward(forward Work) Work { return Work{FLOPs: m.gradients * forward.FLOPs} }

// Decode is the Work of a step of sequences with this total of tokens: the weights and
// the cache of each sequence are read once, and each row is multiplied by all weights.
func (m Model) Decode(rows, cached int) Work {
	return Work{
		FLOPs: 2*(m.layers+m.head)*float64(rows) + m.attention*float64(cached),
		Bytes: m.weight*(m.layers+m.head) + m.cached*float64(cached),
	}
}

// Update is the Work of an update in float32. It reads weight, gradient and state of each
// parameter, and writes weight and state: 28 bytes with AdamW.
func (m Model) Update() Work { return Work{Bytes: m.update} }
