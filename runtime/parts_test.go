package runtime_test

import (
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"onering/models"
	"onering/runtime"
	"onering/runtime/runtimetest"
	"onering/sampler"
)

// TestCacheInParts: rows that lie in two parts of the cache have the bits that they have
// in one, while rows grow, move, end and begin. A step reads less than the longest row
// for each, and the capacity shrinks when the long rows have ended.
func TestCacheInParts(t *testing.T) {
	env := runtimetest.Test(t)
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
			// The second time, the memory was given back and taken again.
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

// whatParts counts the states of the cache that decodeMixed has seen.
type whatParts struct {
	inTwo, onlyLong int // steps
	places, dense   int // places read in steps with two parts; rows times the larger capacity
	last            int // the capacity at the end
}

// decodeMixed decodes rows of very different lengths while some end and others begin, and
// returns the log-probs and entropies of each step by slot.
func decodeMixed(t *testing.T, d *runtime.Decoder) (all [][]float32, seen whatParts) {
	t.Helper()
	active := []int{}
	start := func(slot, length int) {
		prompt := make([]int32, length)
		for i := range prompt {
			prompt[i] = int32((31*i + 7*slot + length) % 300)
		}
		prefix, err := d.Prefill([][]int32{prompt})
		check(t, err)
		check(t, d.Begin(rowsOf([]int{slot}, prefix, 0.5)))
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
		fed := rowsOf(active, make([]int, n), 0.5)
		for i, slot := range active {
			fed[i].ID = int32((17*step + 5*slot) % 300)
		}
		check(t, d.Step(fed))
		logp, entropy := outs(fed)
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

// TestManyRows: steps of many rows, which another graph computes, give the same log-probs
// and entropies as the graphs for few rows, while rows end and their number falls.
func TestManyRows(t *testing.T) {
	env := runtimetest.Test(t)
	if env.Device() != "cpu" {
		t.Skip("a device has one graph for all numbers of rows")
	}
	for _, width := range []int{12, 16} { // the width of a head; the cache has heads of 16
		c := qwen2Of(models.Sizes{Hidden: 48, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: width, FFN: 80, Vocab: 300, MaxPositions: 1000})
		c.Tied = true
		_, ring := madeUpRing(t, c, 1)
		const rows = 70
		var want []float32
		for _, invariant := range []bool{true, false} {
			d, err := env.NewDecoder(ring, rows, 200)
			check(t, err)
			defer d.Close()
			if invariant {
				d.SetInvariant(sampler.Slots)
			}
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

// TestCacheIsFreed: a cache that was replaced by a larger one is garbage, even if the
// session that used it last has not run since.
func TestCacheIsFreed(t *testing.T) {
	env := runtimetest.Test(t)
	if env.Device() != "cpu" {
		t.Skip("a device's memory is freed whoever has bound it")
	}
	c := qwen2Of(models.Sizes{Hidden: 48, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 12, FFN: 80, Vocab: 300, MaxPositions: 1000})
	c.Tied = true
	_, ring := madeUpRing(t, c, 1)
	const rows = 30
	d, err := env.NewDecoder(ring, rows, 300)
	check(t, err)
	defer d.Close()
	slots, prompts := make([]int, rows), make([][]int32, rows)
	for i := range slots {
		slots[i], prompts[i] = i, []int32{int32(i)}
	}
	all := rowsOf(slots, must(d.Prefill(prompts))(t), 0)
	check(t, d.Begin(all))
	replaced := map[weak.Pointer[byte]]bool{}
	for step := range 250 {
		n := rows - step/10 // From step 70 on other sessions compute the steps.
		for len(slots) > n {
			d.Free(slots[n])
			slots = slots[:n]
		}
		check(t, d.Step(fed(all[:n])))
		for _, at := range d.CacheMemory() {
			replaced[at] = true
		}
	}
	for _, at := range d.CacheMemory() {
		delete(replaced, at)
	}
	goruntime.GC()
	if len(replaced) < 2 {
		t.Errorf("%d caches were replaced: the test wants more", len(replaced))
	}
	for at := range replaced {
		if at.Value() != nil {
			t.Error("a cache that was replaced is kept alive")
		}
	}
	for _, slot := range slots {
		d.Free(slot)
	}
	if err := d.Step(nil); err == nil {
		t.Error("a step over no sequence")
	}
}

// TestCacheRunsOut: where a device's memory ends while the cache grows, steps return the
// error until all sequences have ended. Then new sequences begin as in a new decoder.
func TestCacheRunsOut(t *testing.T) {
	c := qwen2Of(models.Sizes{Hidden: 48, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 12, FFN: 80, Vocab: 300, MaxPositions: 1000})
	c.Tied = true
	env := runtime.OpenStandIn(t, runtimetest.Test(t), "stand-in-cuda")
	_, ring := madeUpRing(t, c, 1)
	d, err := env.NewDecoder(ring, 3, 300)
	check(t, err)
	defer d.Close()
	var entropies []float32
	start := func() {
		prefixes := must(d.Prefill([][]int32{{1, 2, 3}, {4, 5}, {6}}))(t)
		check(t, d.Begin(rowsOf([]int{0, 1, 2}, prefixes, 0)))
		for _, x := range prefixes {
			d.Drop(x)
		}
	}
	step := func(slots ...int) error {
		rows := rowsOf(slots, make([]int, len(slots)), 0)
		err := d.Step(rows)
		_, entropies = outs(rows)
		return err
	}
	var want []float32
	for allocations := range 4 { // of four
		start()
		for range 80 - 3 { // until the longest row is full
			check(t, step(0, 1, 2))
		}
		if allocations == 0 {
			want = slices.Clone(entropies)
		}
		if n := d.Capacity(); n != 80 || !slices.Equal(entropies, want) {
			t.Errorf("after memory has ended, entropies in a cache of %d are %v, before %v", n, entropies, want)
		}
		empty := runtime.Full(env, allocations)
		err := step(0, 1, 2)
		if err == nil || !strings.Contains(err.Error(), "the memory is full") {
			t.Fatalf("%d of four allocations: error %v", allocations, err)
		}
		d.Free(0)
		if again := step(1, 2); again == nil || again.Error() != err.Error() {
			t.Fatalf("a second step: error %v, the first's was %v", again, err)
		}
		empty()
		d.Free(1)
		d.Free(2)
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
	left := rowsOf(slots, prefixes, 0)
	check(t, d.Begin(left))
	for step := 0; len(left) > 2; step++ {
		logp, entropy := outs(left)
		all = append(all, append(logp, entropy...)...)
		for i := range left {
			left[i].ID = int32((17*step + 5*left[i].Slot) % 300)
		}
		check(t, d.Step(left))
		at := step * 13 % len(left)
		d.Free(left[at].Slot)
		left = slices.Delete(left, at, at+1)
	}
	return all
}
