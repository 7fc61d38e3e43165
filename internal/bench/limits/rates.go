package limits

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// A rate has the times of a round's parts for a model of the shape of Qwen2.5 in
// bfloat16. Times are in milliseconds, with all weights on the GPU.
type rate struct {
	parameters float64
	steps      []float64 // one step of decoding, by ratedRows, at a context of ratedContext tokens
	score      float64   // the log-probs of ratedTokens tokens
	learn      float64   // forward and backward pass of ratedTokens tokens, where all activations are stored
	update     float64   // an update by AdamW with its state on the GPU
}

// The figures of docs/lab/gpu.md ("Speed and memory"), made by bench/gpu.sh in bfloat16 on an
// H100 of 80 GB: medians of steps. Two figures of 7B are extrapolated: 256 rows (by the
// slope before it), and the update with the state on the GPU (38 bytes a parameter at the
// speed of 1.5B's). New measurements belong here: estimates of rounds use no other figures.
var rates = [...]rate{
	{1.544e9, []float64{2.9, 2.9, 3.1, 4.6}, 30, 102, 19},
	{7.616e9, []float64{7.3, 7.4, 7.9, 9.9}, 110, 347, 94},
}

var ratedRows = []float64{1, 16, 64, 256}

const (
	ratedContext = 256
	ratedTokens  = 4096
	// Speeds in bytes a second: of reading keys and values in decoding (256 rows, from
	// 256 to 3,000 tokens); between GPU and host in an update (174 GB in 2.0 s); of
	// gradients between ranks by MPI, and by NCCL (an estimate for NVLink).
	cacheRate, hostRate, rankRate, linkRate = 2.8e12, 87e9, 1.4e9, 300e9
)

// A Round states the sizes of a round of reinforcement learning, for each of its ranks.
type Round struct {
	Parameters      int
	Responses       []int // the number of tokens of each response
	Prompts, Prompt int   // the number of prompts, and the tokens of each
	Slots           int   // number of responses sampled at once
	TokenBytes      int64 // bytes of a token's keys and values
	Learned, Steps  int   // tokens in the passes of the steps; number of steps
	// Again is how often all forward passes are computed in addition to one for each
	// step: for a score, or in part for activations that are not stored.
	Again float64
	// HostBytes cross between GPU and host in a step; Sent and Linked go to other ranks, by MPI and by NCCL.
	HostBytes, Sent, Linked int64
}

// Seconds estimates how long the round takes: by the rates of two models its updates, passes, prompts and steps of
// decoding, and then what crosses between memories and ranks. measured says whether rates were measured on this GPU, as
// its driver names it, and for models of nearly this size: otherwise the nearest serve.
func (r Round) Seconds(gpu string) (seconds float64, measured bool) {
	n, small, large := float64(r.Parameters), rates[0], rates[1]
	at := func(x, y float64) float64 { // on the line through the times x and y of the two models, and below small in proportion
		return max(x*min(1, n/small.parameters), x+(n-small.parameters)*(y-x)/(large.parameters-small.parameters))
	}
	score := at(small.score, large.score) / ratedTokens // for a token
	ms := float64(r.Steps)*at(small.update, large.update) + float64(r.Learned)*(at(small.learn, large.learn)/ratedTokens+r.Again*score)
	ms += float64(r.Prompts*r.Prompt)*score + r.decode(func(rows, context float64) float64 {
		k := 0 // the measured numbers of rows k and k+1 are those around rows, or the nearest
		for k < len(ratedRows)-2 && rows > ratedRows[k+1] {
			k++
		}
		x, y := at(small.steps[k], large.steps[k]), at(small.steps[k+1], large.steps[k+1])
		longer := context - ratedContext*rows // tokens in the cache beyond those of the measured steps
		return x + (rows-ratedRows[k])/(ratedRows[k+1]-ratedRows[k])*(y-x) + 1e3*longer*float64(r.TokenBytes)/cacheRate
	})
	seconds = ms/1e3 + float64(r.Steps)*(float64(r.HostBytes)/hostRate+float64(r.Sent)/rankRate+float64(r.Linked)/linkRate)
	known := strings.Contains(gpu, "H100") || strings.Contains(gpu, "H200")
	return seconds, known && n >= small.parameters/2 && n <= 2*large.parameters
}

// What a core of a CPU does: products and bytes a second, and seconds between the runs of a
// step. A core with AVX-512 is nearly twice as fast, an old one half.
const coreFLOPS, hostBytes, stepOverhead = 1e11, 2e10, 5e-4

// SecondsOnCPU estimates how long the round takes on so many cores, to a factor of about two: the weights, of 4
// bytes, are read in each step of sampling, a product is 2 operations for each weight, a learned token passes the
// weights forward twice and backward, which counts twice, and an update reads and writes 28 bytes a parameter.
func (r Round) SecondsOnCPU(cores int) float64 {
	n, rate := float64(r.Parameters), coreFLOPS*float64(max(1, cores))
	seconds := r.decode(func(rows, context float64) float64 {
		return stepOverhead + max(4*n/hostBytes, 2*n*rows/rate) + context*float64(r.TokenBytes)/hostBytes
	})
	seconds += 2 * n / rate * (float64(r.Prompts*r.Prompt) + float64(r.Learned)*(4+r.Again))
	return seconds + float64(r.Steps)*28*n/hostBytes
}

// decode adds up the steps that sample the responses: a slot takes the next response when its own ends. step returns
// the time for a step of so many rows with so many tokens in the cache in all (context).
func (r Round) decode(step func(rows, context float64) float64) (sum float64) {
	var left []int // tokens of the responses in slots
	context, begun := 0.0, 0
	for begun < len(r.Responses) || len(left) > 0 {
		for ; len(left) < max(1, r.Slots) && begun < len(r.Responses); begun++ {
			left, context = append(left, r.Responses[begun]), context+float64(r.Prompt)
		}
		next, rows := slices.Min(left), float64(len(left))
		sum += float64(next) * step(rows, context+float64(next)*rows/2)
		for i := range left {
			left[i] -= next
		}
		left = slices.DeleteFunc(left, func(n int) bool { return n <= 0 })
		// A response that ends is taken to have a mean share of the cache.
		context = (context + float64(next)*rows) * float64(len(left)) / rows
	}
	return sum
}

// Lengths returns n lengths of responses with a mean, shuffled: those of a log-normal distribution at equal steps of
// probability, cut at three times the mean. A model's first answers to mathematical problems spread so.
func Lengths(n, mean int) []int {
	const sigma = 0.6
	out := make([]int, n)
	for i := range out {
		z := math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/float64(n)-1)
		x := float64(mean) * math.Exp(sigma*z-sigma*sigma/2)
		out[i] = max(1, int(math.Round(min(x, 3*float64(mean)))))
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
