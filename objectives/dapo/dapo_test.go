package dapo_test

import (
	"math"
	"strings"
	"testing"

	"onering/objectives"
	"onering/objectives/dapo"
	"onering/objectives/objectivetest"
)

func TestConformance(t *testing.T) { objectivetest.Run(t, "dapo") }

func newDAPO(t *testing.T, set func(*dapo.DAPO)) *dapo.DAPO {
	t.Helper()
	o, err := objectives.New("dapo")
	if err != nil {
		t.Fatal(err)
	}
	set(o.(*dapo.DAPO))
	return o.(*dapo.DAPO)
}

// TestVariantsConform runs the suite on settings other than the defaults.
func TestVariantsConform(t *testing.T) {
	for name, set := range map[string]func(*dapo.DAPO){
		"overlong":            func(o *dapo.DAPO) { o.OverlongLength, o.OverlongCache = 10, 4 },
		"no dynamic sampling": func(o *dapo.DAPO) { o.DynamicSampling = false },
		"KL, entropy":         func(o *dapo.DAPO) { o.KLBeta, o.EntropyBonus = 0.04, 0.01 },
	} {
		t.Run(name, func(t *testing.T) {
			objectivetest.RunNew(t, func() objectives.Objective { return newDAPO(t, set) })
		})
	}
}

func TestShape(t *testing.T) {
	o := newDAPO(t, func(o *dapo.DAPO) { o.OverlongLength, o.OverlongCache = 10, 4 })
	for n, want := range map[int]float64{0: 1, 5: 1, 6: 1, 7: 0.75, 9: 0.25, 10: 0, 11: 0, 100: 0} {
		if got := o.Shape(objectives.Trajectory{Reward: 1, LogProb: make([]float64, n)}); math.Abs(got-want) > 1e-15 {
			t.Errorf("length %d: reward %v, want %v", n, got, want)
		}
	}
	o.OverlongLength = 0
	if got := o.Shape(objectives.Trajectory{Reward: 1, LogProb: make([]float64, 100)}); got != 1 {
		t.Errorf("without punishment: reward %v", got)
	}
}

func TestKeep(t *testing.T) {
	same, mixed := []objectives.Trajectory{{Reward: 1}, {Reward: 1}}, []objectives.Trajectory{{Reward: 1}, {Reward: 0}}
	for dynamic, keepsSame := range map[bool]bool{true: false, false: true} {
		o := newDAPO(t, func(o *dapo.DAPO) { o.DynamicSampling = dynamic })
		if o.Keep(same) != keepsSame || o.Keep(nil) != keepsSame || !o.Keep(mixed) {
			t.Errorf("dynamic_sampling = %v: equal rewards %v, different ones %v", dynamic, o.Keep(same), o.Keep(mixed))
		}
	}
}

func TestValidate(t *testing.T) {
	for want, set := range map[string]func(*dapo.DAPO){
		"overlong_length = -1":     func(o *dapo.DAPO) { o.OverlongLength = -1 },
		"overlong_cache = 512":     func(o *dapo.DAPO) { o.OverlongLength = 100 },
		"overlong_cache = 0":       func(o *dapo.DAPO) { o.OverlongLength, o.OverlongCache = 100, 0 },
		"must be 0 with advantage": func(o *dapo.DAPO) { o.OverlongLength, o.OverlongCache, o.Advantage = 10, 4, "gdpo" },
		"clip_high":                func(o *dapo.DAPO) { o.ClipHigh = -1 },
	} {
		if err := objectives.Check(newDAPO(t, set)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if err := objectives.Check(newDAPO(t, func(o *dapo.DAPO) { o.OverlongLength, o.OverlongCache = 512, 512 })); err != nil {
		t.Error(err)
	}
}
