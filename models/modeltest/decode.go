package modeltest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
	"onering/models/ports"
)

// A decoding is a set of prompts being decoded, with the inputs of Decode.
type decoding struct {
	interpreted
	sequences [][]int
	idle      []bool // rows that the newest step left alone
	cached    []int  // how many tokens of each prompt are in the cache
	capacity  int    // number of places that each row of the cache has
	in        tensors
}

// checkDecode compares the states of prompts and of later tokens with the states that the training layers give.
func checkDecode(t testing.TB, _ string, m models.Model, w *models.Weights) {
	r := rand.New(rand.NewPCG(9, 10))
	sequences := make([][]int, 3)
	for i, n := range []int{7, 3, 6} {
		for range n {
			sequences[i] = append(sequences[i], r.IntN(m.Vocab))
		}
	}
	for _, a := range architectures(t, m, nil) {
		interpret(a, w).checkDecoding(t, "", sequences)
	}
}

// checkDecoding is checkDecode for one way of computing: it prefills a part of each sequence, adds
// the other tokens one by one, and compares the newest state of each row. name is for messages.
func (m interpreted) checkDecoding(t testing.TB, name string, sequences [][]int) {
	t.Helper()
	want := m.forward(t, sequences, oneBlock)
	check := func(what string, hidden graphtest.Tensor, d *decoding) {
		t.Helper()
		start, cached := 0, d.cached // start: where want has the first token of the sequence
		for row, s := range sequences {
			if d.idle != nil && d.idle[row] { // it has no new state
				start += len(s)
				continue
			}
			what := fmt.Sprintf("%v, %s%s, row %d, token %d: state ", m.Compute, name, what, row, cached[row]-1)
			// graphs hold the scale of attention in float32
			near(t, what, hidden.Row(row), want.Row(start+cached[row]-1), 1e-6)
			start += len(s)
		}
	}
	for _, form := range models.Forms {
		if form != models.Direct && m.Compute != models.F32 {
			continue // Decode has only the direct form in 16 bits
		}
		d := &decoding{interpreted: m, sequences: sequences, cached: []int{5, 1, 3}, capacity: 9} // prompts of 5, 1 and 3 tokens
		check("prompts", d.prefill(t), d)
		for i := range 5 {
			firstRests := i == 1
			check(fmt.Sprintf("form %d", form), d.step(t, form, firstRests), d)
		}
	}
}

// prefill computes the prompts and returns the states of their last tokens.
func (d *decoding) prefill(t testing.TB) graphtest.Tensor {
	B, T := len(d.sequences), slices.Max(d.cached)
	ids, pos, lengths, last := make([]int, B*T), make([]int, B*T), make([]int, B), make([]int, B)
	for b, s := range d.sequences {
		copy(ids[b*T:], s[:d.cached[b]])
		lengths[b], last[b] = d.cached[b]-1, b*T+d.cached[b]-1 // the port counts the tokens before the newest
		for t := range T {
			pos[b*T+t] = t
		}
	}
	d.in = tensors{
		ports.TokenIDs: graphtest.Ints(ids, B, T), ports.Positions: graphtest.Ints(pos, B*T, 1), ports.LastTokens: graphtest.Ints(last),
		ports.CacheLengths: graphtest.Int32(lengths, B), ports.CacheTotal: graphtest.Int32([]int{T}),
		ports.Mask: causal(T, 0), ports.Band: causal(T, d.Kinds.Window()),
	}
	valid, taps := graphtest.Zeros(B, T, 1), d.WindowTokens()
	for b, n := range d.cached {
		for t := range n {
			valid.Row(b)[t] = 1
		}
	}
	var window []int // the last taps tokens of each prompt, in rows that taps zeros precede
	for b := range B {
		for j := range taps {
			window = append(window, d.cached[b]+j)
		}
	}
	d.in[ports.Valid], d.in[ports.PromptWindow] = valid, graphtest.Ints(window, B, taps)
	for kind := range d.Kinds {
		d.in[models.OfKind(ports.Cos, kind)], d.in[models.OfKind(ports.Sin, kind)] = d.angles(d.capacity, kind)
	}
	p := must(d.Prefill())(t)
	d.fillCache(t, math.NaN()) // old values may not be read
	hidden := d.runAndKeep(t, p)
	for _, in := range d.in { // only caches have NaN, where no token is; Decode multiplies that by zero, so it must be finite
		for i := range in.Data {
			if math.IsNaN(in.Data[i]) {
				in.Data[i] = 50 // far from other numbers, so that it shows if it counts
			}
		}
	}
	return hidden
}

// fillCache makes a cache in which every number is v, with the names of Decode.
func (d *decoding) fillCache(t testing.TB, v float64) {
	p := must(d.Decode(models.Direct))(t)
	for _, port := range p.Inputs {
		for _, s := range d.States {
			if s.Role != port.Role || s.Layer != port.Layer {
				continue
			}
			var dims []int
			for _, n := range s.Dims(len(d.sequences), d.capacity) {
				dims = append(dims, int(n))
			}
			d.in[port.Name] = graphtest.Zeros(dims...)
			for i := range d.in[port.Name].Data {
				d.in[port.Name].Data[i] = v
			}
		}
	}
}

// recurs reports whether a state of the cache is not of keys and values.
func (d *decoding) recurs() bool {
	return slices.ContainsFunc(d.States, func(s models.State) bool { return !s.Grows() })
}

// step gives each row its next token, and returns the states; a finished row gets its last token again. In a model
// with states that a token changes, a finished row is idle, and with firstRests the first row is, too: what it would
// write lies beyond its end.
func (d *decoding) step(t testing.TB, form models.Form, firstRests bool) graphtest.Tensor {
	B := len(d.sequences)
	d.idle = make([]bool, B)
	active := graphtest.Zeros(B, 1)
	ids, pos, places := make([]int, B), make([]int, B), []int(nil)
	for b, s := range d.sequences {
		d.idle[b] = d.recurs() && (d.cached[b] == len(s) || firstRests && b == 0)
		if d.cached[b] == len(s) && !d.idle[b] { // the last token again, at the same place
			d.cached[b]--
		}
		pos[b] = d.cached[b]
		if !d.idle[b] {
			ids[b], active.Data[b] = s[d.cached[b]], 1
		}
		for h := range d.KVHeads {
			places = append(places, b, h, d.cached[b])
		}
		if !d.idle[b] {
			d.cached[b]++
		}
	}
	indices := make([]int, d.capacity)
	for i := range indices {
		indices[i] = i
	}
	d.in[ports.TokenIDs], d.in[ports.Positions] = graphtest.Ints(ids, B, 1), graphtest.Ints(pos, B, 1)
	d.in[ports.CachePlaces], d.in[ports.CacheIndices], d.in[ports.Active] = graphtest.Ints(places, B, d.KVHeads, 3), graphtest.Ints(indices), active
	d.in[ports.CacheLengths], d.in[ports.CacheTotal] = graphtest.Int32(pos, B), graphtest.Int32([]int{slices.Max(pos) + 1})
	p := must(d.Decode(form))(t)
	return d.runAndKeep(t, p)
}

// runAndKeep runs a Program, stores its keys and values in the cache, and returns the states. A returned cache
// replaces the old one; keys and values of prompts alone go to the start of each row.
func (d *decoding) runAndKeep(t testing.TB, p models.Program) graphtest.Tensor {
	t.Helper()
	out := d.run(t, p, "", d.in)
	for _, port := range p.Outputs {
		if !strings.HasPrefix(port.Name, "present_") {
			continue
		}
		x := out[port.Name]
		if past, ok := p.Alias[port.Name]; ok {
			d.in[past] = x
			continue
		}
		if port.Role == models.Window || port.Role == models.Memory {
			d.in[d.cache(t, port.Use)] = x
			continue
		}
		cache := d.in[d.cache(t, port.Use)]
		row := x.Dims[2] * x.Dims[3] // x is [B,G,T,K], the cache [B,G,S,K]
		for i := range x.Dims[0] * x.Dims[1] {
			copy(cache.Data[i*cache.Dims[2]*x.Dims[3]:], x.Data[i*row:(i+1)*row])
		}
	}
	return out[ports.Hidden]
}

// cache returns Decode's name for the keys or values of a layer.
func (d *decoding) cache(t testing.TB, use models.Use) string {
	p := must(d.Decode(models.Direct))(t)
	for _, port := range p.Inputs {
		if port.Use == use {
			return port.Name
		}
	}
	t.Fatalf("Decode has no cache of layer %d", use.Layer)
	return ""
}
