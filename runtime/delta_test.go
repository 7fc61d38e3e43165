package runtime_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"onering/internal/graphtest"
	"onering/runtime/runtimetest"
)

// TestDeltaRule: in float32 the delta rule in chunks gives what its definition gives in
// float64, for short and long rows and around the edges of chunks.
func TestDeltaRule(t *testing.T) {
	e := runtimetest.Test(t)
	for _, T := range []int{1, 31, 32, 33, 64, 65, 400, 3000} {
		for _, alike := range []bool{false, true} {
			d := must(graphtest.NewDelta(rand.New(rand.NewPCG(uint64(T), 3)), T, alike))(t)
			g := must(graphtest.Load(d.Program))(t)
			for name, x := range d.In {
				d.In[name] = x.As(x.Type)
			}
			d.Want = d.ByTokens()
			_, got := runBoth(t, e, g, d.Program, d.In)
			for name, want := range d.Want {
				scale, worst := 1.0, 0.0
				for i, v := range want.Data {
					scale, worst = max(scale, math.Abs(v)), max(worst, math.Abs(got[name].Data[i]-v))
				}
				if !(worst <= 1e-6*scale) {
					t.Errorf("%d tokens, alike %v: %s is up to %.2g off, of %.2g", T, alike, name, worst, scale)
				}
			}
		}
	}
}
