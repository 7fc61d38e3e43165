package models

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/rand/v2"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"
)

// initBlock is the number of elements that one generator draws. Changing it
// changes every model that Init makes.
const initBlock = 1 << 16

// Init returns random weights as transformers makes them: matrices and embeddings normal with standard deviation
// InitRange, the padding token's embedding zero, biases zero, norms one, or zero where they multiply by 1 + weight;
// of the delta rule, dt_bias one and A_log the logarithm of uniform numbers from 0.01 to 16.
//
// Each block of 65,536 elements has a ChaCha8 generator keyed by the seed, the tensor's Hugging Face name and the
// block's number. The numbers depend on nothing else: not on the layout, not on the number of threads.
func (m Model) Init(seed uint64) (*Weights, error) {
	w, err := NewWeights(m.Layout())
	if err != nil {
		return nil, err
	}
	std := cmp.Or(m.InitRange, defaultInit)
	var fills []func()
	for _, t := range w.Tensors() {
		switch {
		case strings.HasSuffix(t.Name, ".bias"), m.names.ZeroNorms && isNorm(t) && !strings.HasSuffix(t.Name, gatedNorm): // the memory is zero already
		case strings.HasSuffix(t.Name, ".A_log"):
			fills = append(fills, func() {
				r := generator(seed, t.Name, 0)
				for i := range t.Data {
					t.Data[i] = float32(math.Log(0.01 + 15.99*r.Float64()))
				}
			})
		case isNorm(t), strings.HasSuffix(t.Name, ".dt_bias"):
			fills = append(fills, func() {
				for i := range t.Data {
					t.Data[i] = 1
				}
			})
		default:
			for first := 0; first < len(t.Data); first += initBlock {
				fills = append(fills, func() {
					block := t.Data[first:min(len(t.Data), first+initBlock)]
					drawNormal(block, std, seed, t.Name, first/initBlock)
				})
			}
		}
	}
	AtOnce(goruntime.GOMAXPROCS(0), len(fills), func(i int) { fills[i]() })
	if m.Pad != nil {
		embedding, shape, _ := w.View(m.names.Embedding)
		row := int(*m.Pad) * shape[1]
		clear(embedding[row : row+shape[1]])
	}
	return w, nil
}

// gatedNorm ends the name of a norm that multiplies by its weight in every model.
const gatedNorm = ".linear_attn.norm.weight"

// isNorm says whether a tensor is the weight of a norm.
func isNorm(t Tensor) bool { return strings.HasSuffix(t.Name, "norm.weight") }

// drawNormal fills one block of a tensor.
func drawNormal(block []float32, std float64, seed uint64, tensor string, number int) {
	r := generator(seed, tensor, number)
	for i := range block {
		block[i] = float32(r.NormFloat64() * std)
	}
}

// generator returns the random numbers of a block of a tensor.
func generator(seed uint64, tensor string, number int) *rand.Rand {
	key := make([]byte, 0, 128)
	key = binary.LittleEndian.AppendUint64(key, seed)
	key = binary.LittleEndian.AppendUint64(key, uint64(number))
	key = append(key, tensor...)
	return rand.New(rand.NewChaCha8(sha256.Sum256(key)))
}

// AtOnce calls run with each number below n, on several threads at once.
func AtOnce(threads, n int, run func(i int)) {
	var next atomic.Int64
	var group sync.WaitGroup
	work := func() {
		for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
			run(int(i))
		}
	}
	for range min(threads, n) - 1 {
		group.Go(work)
	}
	work()
	group.Wait()
}
