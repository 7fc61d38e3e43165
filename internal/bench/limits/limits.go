// Package limits says how far the phases of a round are from what the machine can do:
// from the time that the operations of their products and the bytes that they have to
// read and write would take at the measured speed of a product of matrices and of a copy.
package limits

import (
	"fmt"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"onering/models"
	"onering/models/graph"
	"onering/runtime"
	"onering/train/metrics"
)

// Peaks are what the machine does at its best, measured with nothing else to do.
type Peaks struct {
	// FLOPS are the floating-point operations a second of a product of two square
	// matrices by ONNX Runtime.
	FLOPS float64 `json:"gemm_flops_per_second"`
	// Bytes are those that a copy between two arrays reads and writes in a second, by
	// as many threads as ONNX Runtime has. The arrays are larger than caches.
	Bytes float64 `json:"copy_bytes_per_second"`
}

// The sizes of what Machine does. The fastest of several repeats counts, since other
// programs can only make one slower.
const (
	peakWidth   = 1024
	peakFloats  = 16 << 20
	peakRepeats = 5
)

var machine struct {
	sync.Mutex
	peaks map[int]Peaks // by threads
}

// Machine measures the peaks for a fifth of a second, on the CPU, once in a process.
func Machine(env *runtime.Env) (Peaks, error) {
	machine.Lock()
	defer machine.Unlock()
	n := env.Threads()
	if p, ok := machine.peaks[n]; ok {
		return p, nil
	}
	p, err := measure(env)
	if err == nil {
		if machine.peaks == nil {
			machine.peaks = make(map[int]Peaks)
		}
		machine.peaks[n] = p
	}
	return p, err
}

func measure(env *runtime.Env) (Peaks, error) {
	var p Peaks
	seconds, err := product(env, peakWidth)
	if err != nil {
		return p, fmt.Errorf("limits: the product of matrices: %w", err)
	}
	p.FLOPS = 2 * math.Pow(peakWidth, 3) / seconds
	from, to := make([]float32, peakFloats), make([]float32, peakFloats)
	for i := range from {
		from[i] = float32(i) // else all of it could be one page of zeros
	}
	threads := env.Threads()
	seconds = fastest(func() {
		models.AtOnce(threads, threads, func(i int) { copy(to[i*peakFloats/threads:(i+1)*peakFloats/threads], from[i*peakFloats/threads:]) })
	})
	p.Bytes = 8 * peakFloats / seconds
	from, to = nil, nil
	debug.FreeOSMemory() // else both would lie beside the next round
	return p, nil
}

// Smallest is the number of parameters from which a model's phases are compared with
// limits: a smaller one lies in caches, whose speed Machine does not measure.
const Smallest = 16 << 20

// product returns the seconds of a product of two matrices [n,n].
func product(env *runtime.Env, n int) (float64, error) {
	program, err := graph.Build("product", func(g *graph.Graph) {
		g.Output("y", graph.MatMul(g.Float("a", n, n), g.Float("b", n, n), false, false, 1))
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

// fastest calls f once to warm up and several times by the clock.
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

// A Work is what a phase cannot do without, whatever the program: operations of its
// products and bytes that it must read and write.
type Work struct{ FLOPs, Bytes float64 }

// Seconds are the least that a machine with these peaks needs.
func (w Work) Seconds(p Peaks) float64 { return max(w.FLOPs/p.FLOPS, w.Bytes/p.Bytes) }

// Add returns the sum of two.
func (w Work) Add(x Work) Work { return Work{w.FLOPs + x.FLOPs, w.Bytes + x.Bytes} }

// A Model is what the Work of a phase depends on.
type Model struct {
	layers, head float64 // elements of the matrices that every token is multiplied with
	attention    float64 // operations for each pair of a token and one that it attends to
	cached       float64 // bytes of keys and values of a token
	weight       float64 // bytes of a weight as the graphs read it
	update       float64 // bytes that an update reads and writes
	gradients    float64 // products of the backward pass for each of the forward pass
}

// ModelOf returns the Model of a geometry, of which so many parameters are trained by an
// optimizer. If frozen is true they are an adapter's, and the matrices have no gradients.
func ModelOf(g models.Geometry, parameters int, optimizer models.Optimizer, frozen bool) Model {
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

// Prompt is a pass over the tokens of a prompt: a multiplication and an addition for
// each weight of the layers and each token, and attention.
func (m Model) Prompt(tokens int) Work {
	n := float64(tokens)
	return Work{FLOPs: 2*m.layers*n + m.attention*n*(n+1)/2}
}

// Response is a pass over the tokens of a response behind a prompt, with their
// log-probs.
func (m Model) Response(prompt, tokens int) Work {
	w, n := m.Prompt(tokens), float64(tokens)
	w.FLOPs += m.attention*n*float64(prompt) + 2*m.head*n
	return w
}

// Backward is the gradients of a forward pass: of each product two, those of its
// operands. What is computed again because it was not kept does not count.
func (m Model) Backward(forward Work) Work { return Work{FLOPs: m.gradients * forward.FLOPs} }

// Decode is a step of sequences that have so many tokens together: the weights are read
// once, the cache of each sequence once, and each row is multiplied with all weights.
func (m Model) Decode(rows, cached int) Work {
	return Work{
		FLOPs: 2*(m.layers+m.head)*float64(rows) + m.attention*float64(cached),
		Bytes: m.weight*(m.layers+m.head) + m.cached*float64(cached),
	}
}

// Update is an update in float32. It reads weight, gradient and state of each parameter,
// and writes all but the gradient: 28 bytes with AdamW.
func (m Model) Update() Work { return Work{Bytes: m.update} }

// A Sequence is a response in an optimizer step.
type Sequence struct {
	Problem          int  // sequences of one problem have the same prompt
	Prompt, Response int  // tokens
	Live             bool // whether it has gradients
}

// A Tally is the Work of the phases of a round so far.
type Tally struct {
	Model                              Model
	rollout, forward, backward, update Work
}

// Rollout adds a rollout: how many steps it took, the sum of their rows, the tokens of
// each prompt, and prompt and length of each response.
func (t *Tally) Rollout(steps, rows int, prompts []int, responses []Sequence) {
	for _, n := range prompts {
		t.rollout = t.rollout.Add(t.Model.Prompt(n))
	}
	cached := 0 // token k of a response, from 1, is computed with Prompt + k in the cache
	for _, x := range responses {
		cached += (x.Response-1)*x.Prompt + (x.Response-1)*x.Response/2
	}
	w := t.Model.Decode(rows, cached)
	w.Bytes += float64(steps-1) * t.Model.weight * (t.Model.layers + t.Model.head)
	t.rollout = t.rollout.Add(w)
}

// Step adds an optimizer step. A prompt has to be computed once in it, and backward
// where one of its responses is live.
func (t *Tally) Step(sequences []Sequence) {
	asked, live := map[int]bool{}, map[int]bool{}
	var backward Work
	for _, x := range sequences {
		w, prompt := t.Model.Response(x.Prompt, x.Response), t.Model.Prompt(x.Prompt)
		if t.forward = t.forward.Add(w); !asked[x.Problem] {
			asked[x.Problem], t.forward = true, t.forward.Add(prompt)
		}
		if !x.Live {
			continue
		}
		if backward = backward.Add(w); !live[x.Problem] {
			live[x.Problem], backward = true, backward.Add(prompt)
		}
	}
	t.backward = t.backward.Add(t.Model.Backward(backward))
	t.update = t.update.Add(t.Model.Update())
}

// Shares returns which share of the seconds of each phase the machine needs for its
// work, as limit/PHASE, and begins the next round. A phase at its limit has 1.
func (t *Tally) Shares(p Peaks, times metrics.Record) (r metrics.Record) {
	for _, x := range []struct {
		phase metrics.Phase
		work  Work
	}{
		{metrics.PhaseRollout, t.rollout}, {metrics.PhaseScore, t.forward}, {metrics.PhaseBackward, t.backward}, {metrics.PhaseOptimizer, t.update},
	} {
		if seconds := times.Float("seconds/" + string(x.phase)); seconds > 0 {
			r = r.With("limit/"+string(x.phase), x.work.Seconds(p)/seconds)
		}
	}
	*t = Tally{Model: t.Model}
	return r
}
