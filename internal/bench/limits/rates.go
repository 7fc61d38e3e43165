package limits

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// A rate is what the parts of a round take with a model of the shape of Qwen2.5 in
// bfloat16. Times are in milliseconds, with all weights on the GPU.
type rate struct {
	parameters float64
	steps      []float64 // of decoding, by ratedRows, at a context of ratedContext tokens
	score      float64   // log-probs of ratedTokens tokens
	learn      float64   // forward and backward of as many, where the forward pass keeps all
	update     float64   // of an update by AdamW with its state on the GPU
}

// The figures of docs/gpu.md ("Speed and memory"), made by bench/gpu.sh in bfloat16 on an
// H100 of 80 GB: medians of steps. 7B was not measured at 256 rows (the figure goes on
// with the slope before it), nor an update of it with the state on the GPU (38 bytes a
// parameter at the speed of 1.5B's). Whoever measures anew changes them here: estimates of rounds rest on nothing else.
var rates = [...]rate{
	{1.544e9, []float64{2.9, 2.9, 3.1, 4.6}, 30, 102, 19},
	{7.616e9, []float64{7.3, 7.4, 7.9, 9.9}, 110, 347, 94},
}

var ratedRows = []float64{1, 16, 64, 256}

const (
	ratedContext = 256
	ratedTokens  = 4096
	// Bytes a second: of keys and values that attention reads as it decodes (256 rows, from
	// 256 to 3,000 tokens); between GPU and host in an update (174 GB in 2.0 s); of gradients between ranks by
	// MPI, and by NCCL (an estimate for NVLink).
	cacheRate, hostRate, rankRate, linkRate = 2.8e12, 87e9, 1.4e9, 300e9
)

// A Round says what a round of reinforcement learning has, of several ranks for each.
type Round struct {
	Parameters      int
	Responses       []int // the tokens of each
	Prompts, Prompt int   // of which the responses are, and the tokens of each
	Slots           int   // responses that are sampled at once
	TokenBytes      int64 // of a token's keys and values
	Learned, Steps  int   // tokens of the steps' passes; steps
	// Again is how often all forward passes are computed beside once for each step: as a
	// score, or in part for what they do not keep.
	Again float64
	// HostBytes cross between GPU and host, and Sent and Linked go to other ranks, by MPI and
	// by NCCL, in a step.
	HostBytes, Sent, Linked int64
}

// Seconds estimates how long the round takes. measured says whether the rates of the GPU,
// as its driver names it, and of models of nearly this size were measured: else they are
// those of the nearest.
func (r Round) Seconds(gpu string) (seconds float64, measured bool) {
	n, a, b := float64(r.Parameters), rates[0], rates[1]
	on := func(x, y float64) float64 { // the line through what the two models take
		return max(x*min(1, n/a.parameters), x+(n-a.parameters)*(y-x)/(b.parameters-a.parameters))
	}
	score := on(a.score, b.score) / ratedTokens
	ms := float64(r.Steps)*on(a.update, b.update) + float64(r.Learned)*(on(a.learn, b.learn)/ratedTokens+r.Again*score)
	ms += float64(r.Prompts*r.Prompt)*score + r.decode(func(rows, context float64) float64 {
		k := 0
		for k < len(ratedRows)-2 && rows > ratedRows[k+1] {
			k++
		}
		x, y := on(a.steps[k], b.steps[k]), on(a.steps[k+1], b.steps[k+1])
		return x + (rows-ratedRows[k])/(ratedRows[k+1]-ratedRows[k])*(y-x) + 1e3*(context-ratedContext*rows)*float64(r.TokenBytes)/cacheRate
	})
	seconds = ms/1e3 + float64(r.Steps)*(float64(r.HostBytes)/hostRate+float64(r.Sent)/rankRate+float64(r.Linked)/linkRate)
	known := strings.Contains(gpu, "H100") || strings.Contains(gpu, "H200")
	return seconds, known && n >= a.parameters/2 && n <= 2*b.parameters
}

// decode adds up the steps that sample the responses: a slot takes the next one when its
// own ends. step takes the rows and all tokens that they have in the cache.
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
		// One that ends is taken to have a mean share of the cache.
		context = (context + float64(next)*rows) * float64(len(left)) / rows
	}
	return sum
}

// Lengths are n lengths of responses with a mean, in an order of their own: those of a
// log-normal distribution at equal steps of probability, cut at three times the mean.
// They are the spread of a model's first answers to problems of mathematics.
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
