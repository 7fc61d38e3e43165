package means_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"onering/objectives/means"
)

// TestPowerMean: the power mean is monotone in p, between the extremes and homogeneous,
// and its softmax is its derivative.
func TestPowerMean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		z := logRatios(t)
		p := rapid.Float64Range(0, 4).Draw(t, "p")
		q := rapid.Float64Range(p, 4).Draw(t, "q")
		a, b := means.LogPowerMean(z, p, nil), means.LogPowerMean(z, q, nil)
		lo, hi, sum := math.Inf(1), math.Inf(-1), 0.0
		for _, v := range z {
			lo, hi, sum = min(lo, v), max(hi, v), sum+v
		}
		slack := 1e-12 * max(1, hi-lo, math.Abs(hi))
		if a > b+slack || a < lo-slack || b > hi+slack || a < sum/float64(len(z))-slack {
			t.Fatalf("log M_%v = %v, log M_%v = %v, z in [%v, %v]", p, a, q, b, lo, hi)
		}
		shift := rapid.Float64Range(-5, 5).Draw(t, "shift")
		moved := make([]float64, len(z))
		for j, v := range z {
			moved[j] = v + shift
		}
		if x := means.LogPowerMean(moved, p, nil); math.Abs(x-a-shift) > 10*slack+1e-9*math.Abs(shift) {
			t.Fatalf("ratios times e^%v: log M = %v, want %v", shift, x, a+shift)
		}
		softmax := make([]float64, len(z))
		if x := means.LogPowerMean(z, p, softmax); math.Abs(x-a) > slack {
			t.Fatalf("log M = %v with softmax, %v without", x, a)
		}
		j := rapid.IntRange(0, len(z)-1).Draw(t, "j")
		at := z[j]
		slope := func(h float64) float64 {
			z[j] = at + h
			up := means.LogPowerMean(z, p, nil)
			z[j] = at - h
			down := means.LogPowerMean(z, p, nil)
			z[j] = at
			return (up - down) / (2 * h)
		}
		const h = 1e-3
		if x := (4*slope(h) - slope(2*h)) / 3; math.Abs(x-softmax[j]) > 1e-7+1e-12*(hi-lo)/h {
			t.Fatalf("softmax[%d] = %v, difference quotient %v", j, softmax[j], x)
		}
	})
}

// TestPowerMeanNearZero: log M_p = mean + p var/2 + O(p^2), to full precision.
func TestPowerMeanNearZero(t *testing.T) {
	z := []float64{0.3, -0.7, 0.05, 0, 0.4, -0.1}
	mean, variance := 0.0, 0.0
	for _, v := range z {
		mean += v / 6
	}
	for _, v := range z {
		variance += (v - mean) * (v - mean) / 6
	}
	for _, p := range []float64{1e-3, 1e-5, 1e-8, 1e-12, 1e-100, 0} {
		got, want := means.LogPowerMean(z, p, nil), mean+p*variance/2
		if math.Abs(got-want) > 0.05*p*p+1e-16 {
			t.Errorf("p = %v: log M = %.17g, want %.17g", p, got, want)
		}
	}
}

func TestPowerMeanOfOrderOne(t *testing.T) {
	got := means.LogPowerMean([]float64{math.Log(1), math.Log(2), math.Log(6)}, 1, nil)
	if want := math.Log(3); math.Abs(got-want) > 1e-15 {
		t.Errorf("log M_1 = %v, want %v", got, want)
	}
}
