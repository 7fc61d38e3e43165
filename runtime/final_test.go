package runtime_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"onering/runtime"
)

// TestFinal: gradients that a backward pass reports as final keep their bits. It reports
// each layer once, from the last to the first, for an adapter too.
func TestFinal(t *testing.T) {
	dirs := append(goldens(t), allGoldens(t)...)
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	onDevices(t, func(t *testing.T, env *runtime.Env) {
		for _, dir := range dirs {
			if testing.Short() && !strings.Contains(dir, "tied") {
				continue
			}
			m := open(t, env, dir)
			type told struct {
				first int
				data  []float32
			}
			var said []told
			var l *runtime.Learner
			l, err := env.NewLearner(m.ring, runtime.LearnerOptions{StashBytes: everything, Final: func(first int) {
				check(t, env.Download(l.Gradients))
				said = append(said, told{first, slices.Clone(l.Gradients.Data)})
			}})
			check(t, err)
			defer l.Close()
			l.ZeroGradients()
			p, err := l.Forward(m.sequences, 1, true)
			check(t, err)
			check(t, p.Backward(m.w[0], nil))
			p.Release()
			check(t, env.Download(l.Gradients))
			layout, layers := l.Gradients.Layout, m.arch.Geometry().Layers
			if len(said) != layers+2 || said[len(said)-1].first != 0 {
				t.Fatalf("%s: told %d times of %d layers", dir, len(said), layers)
			}
			for i, x := range said {
				if !slices.Equal(x.data[x.first:], l.Gradients.Data[x.first:]) {
					t.Errorf("%s: gradients from element %d on changed after they were final", dir, x.first)
				}
				if i == 0 || i > layers {
					continue
				}
				// The report has all tensors of the layer, and no tensor of a layer below.
				prefix := m.arch.LayerPrefix(layers - i)
				for _, name := range layout.Names() {
					place, _ := layout.Find(name)
					if strings.Contains(name, prefix) && place.Offset < x.first {
						t.Errorf("%s: %s is not final after its layer", dir, name)
					}
				}
				if x.first > said[i-1].first {
					t.Errorf("%s: final from %d, then from %d", dir, said[i-1].first, x.first)
				}
			}
		}
	})
}

// TestShare: parts get whole ranges, every range once, and about the same share of every
// bucket but the last.
func TestShare(t *testing.T) {
	draw := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		bounds, parts, bucket, size := []int{0}, 1+draw.IntN(9), 1+draw.IntN(500), 1+draw.IntN(60)
		for range draw.IntN(200) {
			n := size
			if draw.IntN(20) == 0 { // for instance, before a 16-bit copy begins
				n = 1 + draw.IntN(size)
			}
			bounds = append(bounds, bounds[len(bounds)-1]+n)
		}
		owner, buckets := runtime.Share(bounds, parts, bucket)
		at, ranges := 0, 0
		for i, b := range buckets {
			if len(b) != parts+1 || b[0] != at || !slices.IsSorted(b) {
				t.Fatalf("bucket %d of %d parts after %d is %v", i, parts, at, b)
			}
			for part := range parts {
				for ; ranges < len(owner) && bounds[ranges] < b[part+1]; ranges++ {
					if owner[ranges] != part || bounds[ranges+1] > b[part+1] {
						t.Fatalf("range %v is part %d's, and between %v", bounds[ranges:ranges+2], owner[ranges], b)
					}
				}
				if even := (b[parts] - at) / parts; i+1 < len(buckets) && (b[part+1]-b[part] > even+2*size || b[part+1]-b[part] < even-2*size) {
					t.Errorf("part %d has %d of %d elements in %d parts", part, b[part+1]-b[part], b[parts]-at, parts)
				}
			}
			at = b[parts]
		}
		if at != bounds[len(bounds)-1] || ranges != len(owner) {
			t.Fatalf("buckets end at %d of %d", at, bounds[len(bounds)-1])
		}
	}
}
