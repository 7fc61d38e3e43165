package runtime_test

import (
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"onering/models"
	"onering/runtime"
	"onering/runtime/kernels/host"
	"onering/runtime/runtimetest"
	"onering/sampler"
)

// TestCacheRows: each row has the bits that it has beside a copy of itself, whatever the lengths of
// the others, while rows begin, end and move, and again after the memory was given back.
func TestCacheRows(t *testing.T) {
	env := runtimetest.Test(t)
	if env.Device() != "cpu" {
		t.Skip("on a device the bits of a row depend on the number of slots")
	}
	for _, hidden := range []int{64, 576} {
		c := qwen2Of(models.Sizes{Hidden: hidden, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 12, FFN: 80, Vocab: 300, MaxPositions: 1000})
		c.Tied = true
		_, ring := madeUpRing(t, c, 1)
		cacheRows(t, env, ring)
	}
}

func cacheRows(t *testing.T, env *runtime.Env, ring *runtime.Ring) {
	t.Helper()
	d := must(env.NewDecoder(ring, 6, 701))(t)
	defer d.Close()
	d.SetInvariant(sampler.InvariantToSlots)
	all := decodeMixed(t, d)
	d.Release()
	if n := d.Capacity(); n != 0 {
		t.Errorf("room for %d tokens after Release", n)
	}
	for i, x := range decodeMixed(t, d) {
		sameBits(t, fmt.Sprintf("sequence %d after Release", i), x.got, all[i].got)
	}
	for i, x := range all {
		alone := must(env.NewDecoder(ring, 2, len(x.ids)+1))(t)
		alone.SetInvariant(sampler.InvariantToSlots)
		handle := must(alone.Prefill([][]int32{x.ids[:x.prompt]}))(t)[0]
		pair := rowsOf([]int{0, 1}, []int{handle, handle}, 0.5)
		check(t, alone.Begin(pair))
		var want []float32
		for _, id := range x.ids[x.prompt:] {
			pair[0].ID, pair[1].ID = id, id
			check(t, alone.Step(pair))
			want = append(want, pair[0].Out.LogProb, pair[0].Out.Entropy)
		}
		alone.Close()
		sameBits(t, fmt.Sprintf("sequence %d, of %d tokens and %d more, not beside a copy", i, x.prompt, len(x.ids)-x.prompt), x.got, want)
	}
}

// A mixedRow is a sequence that decodeMixed has decoded.
type mixedRow struct {
	ids    []int32 // the prompt and the tokens that were fed
	prompt int     // how many tokens the prompt has
	got    []float32
}

// decodeMixed decodes sequences of very different lengths while some end and others begin, and
// returns their log-probs and entropies.
func decodeMixed(t *testing.T, d *runtime.Decoder) (all []*mixedRow) {
	t.Helper()
	active := map[int]*mixedRow{}
	start := func(slot, length int) {
		x := &mixedRow{ids: make([]int32, length), prompt: length}
		for i := range x.ids {
			x.ids[i] = int32((31*i + 7*slot + length) % 300)
		}
		prefix := must(d.Prefill([][]int32{x.ids}))(t)
		check(t, d.Begin(rowsOf([]int{slot}, prefix, 0.5)))
		d.Drop(prefix[0])
		active[slot], all = x, append(all, x)
	}
	free := func(slots ...int) {
		for _, slot := range slots {
			d.Free(slot)
			delete(active, slot)
		}
	}
	for slot, length := range []int{3, 500, 5, 2, 460, 9} {
		start(slot, length)
	}
	for step := range 150 {
		switch step {
		case 40:
			free(0, 2)
		case 50:
			start(0, 600)
			start(2, 30)
		case 70:
			free(2, 3, 5) // what is left is long
		case 80:
			free(1, 4)
			start(3, 4)
			start(4, 6)
		case 100:
			free(0)
		}
		slots := slices.Sorted(maps.Keys(active))
		rows := rowsOf(slots, make([]int, len(slots)), 0.5)
		for i, slot := range slots {
			rows[i].ID = int32((17*step + 5*slot) % 300)
		}
		check(t, d.Step(rows))
		for i, slot := range slots {
			x := active[slot]
			x.ids, x.got = append(x.ids, rows[i].ID), append(x.got, rows[i].Out.LogProb, rows[i].Out.Entropy)
		}
	}
	d.Release() // does nothing yet
	free(slices.Collect(maps.Keys(active))...)
	return all
}

// TestForms: in every form and with every kind of kernels, log-probs and entropies are those of Direct, while
// rows end and their number falls.
func TestForms(t *testing.T) {
	env := runtimetest.Test(t)
	if env.Device() != "cpu" {
		t.Skip("a device has one form")
	}
	t.Cleanup(func() { host.Choose() })
	for _, width := range []int{12, 16} { // the width of a head; the cache has heads of 16
		c := qwen2Of(models.Sizes{Hidden: 48, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: width, FFN: 80, Vocab: 300, MaxPositions: 1000})
		c.Tied = true
		_, ring := madeUpRing(t, c, 1)
		var want []float32
		for _, kind := range []string{"avx512", "avx2", "plain"} {
			if host.Use(kind) != nil {
				continue // this processor has no such kind
			}
			for _, of := range []sampler.Invariance{sampler.InvariantToSlots, sampler.NoInvariance} {
				d := must(env.NewDecoder(ring, 70, 200))(t)
				d.SetInvariant(of)
				got := decodeFewer(t, d, 70)
				if forms := d.Forms(); (len(forms) == 2) != (of == sampler.NoInvariance && kind != "avx512") {
					t.Errorf("width %d, %s, invariance %d: steps in the forms %v", width, kind, of, forms)
				}
				d.Close()
				if want == nil {
					want = got
				}
				for i := range want {
					if diff := got[i] - want[i]; !(diff < 1e-5 && diff > -1e-5) {
						t.Fatalf("width %d, %s, invariance %d: number %d is %v, not %v", width, kind, of, i, got[i], want[i])
					}
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
	t.Cleanup(func() { host.Choose() })
	check(t, host.Use("plain")) // which has several forms
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
		n := max(1, rows-step/8) // the last ones are computed by another session than the first
		for len(slots) > n {
			d.Free(slots[n])
			slots = slots[:n]
		}
		check(t, d.Step(fed(all[:n])))
		replaced[d.CacheMemory()] = true
	}
	delete(replaced, d.CacheMemory())
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
