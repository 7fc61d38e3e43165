package runtime_test

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"onering/models"
	"onering/models/decoder"
	"onering/runtime"
	"onering/runtime/kernels/host"
	"onering/sampler"
)

// TestInvariant decodes the same sequence together with different numbers of
// others: from two rows on, its log-probs and entropies must have the same bits.
// On a device they must have them for a fixed number of slots, as Beside promises
// everywhere. The model's sums are longer than a block of the matrix kernels.
func TestInvariant(t *testing.T) { inTypes(t, testInvariant) }

func testInvariant(t *testing.T, env *runtime.Env, set func(*decoder.Architecture)) {
	c := qwen2Of(models.Sizes{Hidden: 576, Layers: 2, Heads: 9, KVHeads: 3, HeadDim: 64, FFN: 1100, Vocab: 3000, MaxPositions: 512})
	c.Tied, c.RopeTheta = true, 1e6
	set(&c)
	_, ring := madeUpRing(t, c, 1)

	others, length := []int{3, 4, 8, 16, 17, 65}, 24
	if os.Getenv("ONERING_LONG") != "" {
		others = []int{3, 4, 7, 8, 9, 16, 17, 33, 64, 65, 100}
	}
	if env.Device() == "cpu" && host.Kind() != "plain" {
		others = append(others, 1) // by our own operators a single row is like others
	}
	room := slices.Max(others)
	switch {
	case strings.HasPrefix(env.Device(), "stand-in"):
		others, room = others[:5], 17 // The CPU's work does not depend on the other rows.
	}
	decode := func(n int, of sampler.Invariance) (bits []uint32) {
		room := room
		if env.Device() == "cpu" {
			room = n
		}
		d, err := env.NewDecoder(ring, room, 64)
		check(t, err)
		defer d.Close()
		d.SetInvariant(of)
		r := rand.New(rand.NewPCG(1, 2))
		ids := func(r *rand.Rand, n int) []int32 {
			x := make([]int32, n)
			for i := range x {
				x[i] = int32(r.IntN(c.Vocab))
			}
			return x
		}
		prompt, fed := ids(r, 9), ids(r, length)
		other := rand.New(rand.NewPCG(3, uint64(n)))
		at := n / 2 // the row of the sequence that is compared
		var prompts [][]int32
		for range n {
			prompts = append(prompts, ids(other, 1+other.IntN(20)))
		}
		prompts[at] = prompt
		slots := make([]int, n)
		for i := range slots {
			slots[i] = i
		}
		prefixes, err := d.Prefill(prompts)
		check(t, err)
		rows := rowsOf(slots, prefixes, 0.5)
		check(t, d.Begin(rows))
		for step := range length {
			bits = append(bits, math.Float32bits(rows[at].Out.LogProb), math.Float32bits(rows[at].Out.Entropy))
			for i, id := range ids(other, n) {
				rows[i].ID = id
			}
			rows[at].ID = fed[step]
			check(t, d.Step(rows))
		}
		return bits
	}
	for _, of := range []sampler.Invariance{sampler.InvariantToSlots, sampler.InvariantToNeighbours} {
		want := decode(2, of)
		for _, n := range others {
			if of == sampler.InvariantToNeighbours && n > 16 {
				continue // A step of this number of rows has another form.
			}
			for i, got := range decode(n, of) {
				if got != want[i] {
					t.Errorf("invariance %d, %d rows: number %d is %v, of 2 rows %v", of, n, i, math.Float32frombits(got), math.Float32frombits(want[i]))
					break
				}
			}
		}
		if env.Device() != "cpu" {
			break // where both are the same
		}
	}
}
