package runtime_test

import (
	"slices"
	"testing"

	"onering/models"
	"onering/runtime"
	"onering/sampler"
)

// TestCacheInParts: rows that lie in two parts of the cache have the bits that they have
// in one, while rows grow, move, end and begin. A step reads less than the longest row
// for each, and the capacity shrinks when the long rows have ended.
func TestCacheInParts(t *testing.T) {
	env := onCPU(t)
	if env.Device() != "cpu" {
		t.Skip("a device takes the cache in one part")
	}
	for _, hidden := range []int{64, 576} { // Direct and Wide; Paired
		c := qwen2Of(models.Sizes{Hidden: hidden, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 12, FFN: 80, Vocab: 300, MaxPositions: 1000})
		c.Tied = true
		_, ring := madeUpRing(t, c, 1)
		var want [][]float32
		for _, parts := range []bool{false, true} {
			d, err := env.NewDecoder(ring, 6, 900)
			check(t, err)
			defer d.Close()
			if parts {
				d.PartsAlways()
			}
			got, seen := decodeMixed(t, d)
			if parts != (seen.inTwo > 100) || seen.onlyLong == 0 != !parts {
				t.Errorf("hidden %d, parts %t: %d steps in two parts, %d with long rows alone", hidden, parts, seen.inTwo, seen.onlyLong)
			}
			if seen.last > 300 {
				t.Errorf("hidden %d, parts %t: the capacity is %d after the long rows have ended", hidden, parts, seen.last)
			}
			if parts && 10*seen.places > 9*seen.dense {
				t.Errorf("hidden %d: steps in two parts read %d places, with the longest row's for each %d", hidden, seen.places, seen.dense)
			}
			if want == nil {
				want = got
			}
			// A second time in memory that was given back and taken again.
			d.Release()
			if rows, capacity := d.Parts(); rows != [2]int{} || capacity != [2]int{} {
				t.Errorf("hidden %d, parts %t: rows %v with room for %v tokens after Release", hidden, parts, rows, capacity)
			}
			again, _ := decodeMixed(t, d)
			for i := range want {
				if !slices.Equal(got[i], want[i]) || !slices.Equal(again[i], want[i]) {
					t.Fatalf("hidden %d, parts %t: step %d gives %v, after Release %v, in one part %v", hidden, parts, i, got[i], again[i], want[i])
				}
			}
		}
	}
}

// whatParts is what decodeMixed has seen of the cache.
type whatParts struct {
	inTwo, onlyLong int // steps
	places, dense   int // read in steps with two parts; rows times the larger capacity
	last            int // the capacity at the end
}

// decodeMixed decodes rows of very different lengths, of which some end and others
// begin, and returns the log-probs and entropies of each step by slot.
func decodeMixed(t *testing.T, d *runtime.Decoder) (all [][]float32, seen whatParts) {
	t.Helper()
	check(t, d.SetSampling(sampler.Plain(1)))
	active := []int{}
	start := func(slot, length int) {
		prompt := make([]int32, length)
		for i := range prompt {
			prompt[i] = int32((31*i + 7*slot + length) % 300)
		}
		prefix, err := d.Prefill([][]int32{prompt})
		check(t, err)
		one, logp := make([]int32, 1), make([]float32, 1)
		check(t, d.Start(prefix, []int{slot}, []float32{0.5}, one, logp, make([]float32, 1)))
		d.Drop(prefix[0])
		active = append(active, slot)
		slices.Sort(active)
	}
	free := func(slots ...int) {
		for _, slot := range slots {
			d.Free(slot)
			active = slices.DeleteFunc(active, func(s int) bool { return s == slot })
		}
	}
	for slot, length := range []int{3, 500, 5, 2, 460, 9} {
		start(slot, length)
	}
	for step := range 330 {
		switch step {
		case 70:
			free(0, 2)
		case 90:
			start(0, 600)
			start(2, 30)
		case 150:
			free(2, 3, 5) // what is left is long
			seen.onlyLong++
			if rows, _ := d.Parts(); rows[0] > 0 {
				seen.onlyLong = 0
			}
		case 160:
			free(1, 4)
			start(3, 4)
			start(4, 6)
		case 200:
			free(0)
		}
		n := len(active)
		ids, uniforms, next := make([]int32, n), make([]float32, n), make([]int32, n)
		logp, entropy := make([]float32, n), make([]float32, n)
		for i, slot := range active {
			ids[i], uniforms[i] = int32((17*step+5*slot)%300), 0.5
		}
		check(t, d.Step(active, ids, uniforms, next, logp, entropy))
		all = append(all, append(logp, entropy...))
		rows, capacity := d.Parts()
		if rows[1] > 0 {
			seen.inTwo++
			seen.places += rows[0]*capacity[0] + rows[1]*capacity[1]
			seen.dense += n * max(capacity[0], capacity[1])
		}
		seen.last = capacity[0]
	}
	d.Release() // does nothing yet
	free(slices.Clone(active)...)
	return all, seen
}

// TestManyRows: steps of many rows, which another graph computes, give the log-probs and
// entropies of those graphs that compute few, while rows end and their number falls.
func TestManyRows(t *testing.T) {
	env := onCPU(t)
	if env.Device() != "cpu" {
		t.Skip("a device has one graph for all numbers of rows")
	}
	for _, width := range []int{12, 16} { // of a head; the cache has heads of 16
		c := qwen2Of(models.Sizes{Hidden: 48, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: width, FFN: 80, Vocab: 300, MaxPositions: 1000})
		c.Tied = true
		_, ring := madeUpRing(t, c, 1)
		const rows = 70
		var want []float32
		for _, invariant := range []bool{true, false} {
			d, err := env.NewDecoder(ring, rows, 200)
			check(t, err)
			defer d.Close()
			d.SetInvariant(invariant)
			check(t, d.SetSampling(sampler.Plain(1)))
			got := decodeFewer(t, d, rows)
			if many := d.ManySteps(); many != !invariant {
				t.Errorf("width %d, invariant %t: steps by the graph for many rows: %t", width, invariant, many)
			}
			if want == nil {
				want = got
			}
			for i := range want {
				if diff := got[i] - want[i]; !(diff < 1e-5 && diff > -1e-5) {
					t.Fatalf("width %d: number %d is %v by the graph for many rows, %v by that for few", width, i, got[i], want[i])
				}
			}
		}
	}
}

// decodeFewer decodes rows of different lengths, of which one ends at each step, and
// returns all log-probs and entropies.
func decodeFewer(t *testing.T, d *runtime.Decoder, rows int) (all []float32) {
	t.Helper()
	var prompts [][]int32
	slots := make([]int, rows)
	for i := range slots {
		slots[i] = i
		prompts = append(prompts, make([]int32, 1+i*37%90))
		for j := range prompts[i] {
			prompts[i][j] = int32((31*i + 7*j) % 300)
		}
	}
	prefixes, err := d.Prefill(prompts)
	check(t, err)
	ids, uniforms, next := make([]int32, rows), make([]float32, rows), make([]int32, rows)
	logp, entropy := make([]float32, rows), make([]float32, rows)
	check(t, d.Start(prefixes, slots, uniforms, next, logp, entropy))
	for step := 0; len(slots) > 2; step++ {
		n := len(slots)
		all = append(all, append(logp[:n:n], entropy[:n]...)...)
		for i, slot := range slots {
			ids[i] = int32((17*step + 5*slot) % 300)
		}
		check(t, d.Step(slots, ids[:n], uniforms[:n], next[:n], logp[:n], entropy[:n]))
		at := step * 13 % n
		d.Free(slots[at])
		slots = slices.Delete(slots, at, at+1)
	}
	return all
}
