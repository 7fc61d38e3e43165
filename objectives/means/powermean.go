package means

import (
	"math"
	"slices"
)

// LogPowerMean returns log M_p of the ratios e^z, the power mean of any finite order p
// (paper, equation of the effective ratio; D32):
//
//	log M_p = log(1/n sum e^(p z)) / p,   log M_0 = mean z
//
// Its derivative with respect to z is softmax(p z), which is stored in softmax
// unless that is nil. z must not be empty. M_p rises with p. There is no overflow for any
// finite z, and no cancellation as p goes to 0.
func LogPowerMean(z []float64, p float64, softmax []float64) float64 {
	n := float64(len(z))
	if p == 0 && slices.ContainsFunc(z, func(v float64) bool { return v != z[0] }) { // equal z have an exact mean below
		fill(softmax, 1/n)
		return Mean(z, nil)
	}
	lo, hi := bounds(z)
	if lo == hi {
		fill(softmax, 1/n)
		return lo
	}
	var sum float64
	if softmax != nil {
		sum = expFill(softmax, z, p, lo, hi)
		for j := range softmax {
			softmax[j] /= sum
		}
	} else {
		sum, _ = expSums(z, p, lo, hi)
	}
	if math.Abs(p) > 1e-3 && math.Abs(p)*(hi-lo) > 1e-3 {
		return anchor(p, lo, hi) + math.Log(sum/n)/p // sum is of e^(p (z - anchor)), which cannot overflow
	}
	// For small p, log(1 + tiny)/p loses precision: subtract the mean of z first.
	m, tiny := Mean(z, nil), 0.0
	for _, v := range z {
		tiny += math.Expm1(p * (v - m))
	}
	return m + math.Log1p(tiny/n)/p
}

func fill(x []float64, v float64) {
	for j := range x {
		x[j] = v
	}
}
