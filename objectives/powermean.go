package objectives

import "math"

// LogPowerMean returns log M_p of the ratios e^z, the power mean of order p >= 0
// (paper, equation of the effective ratio):
//
//	log M_p = log(1/n sum e^(p z)) / p,   log M_0 = mean z
//
// Its derivative with respect to z is softmax(p z), which is stored in softmax
// unless that is nil. z must not be empty. There is no overflow for any finite z,
// and no cancellation as p goes to 0.
func LogPowerMean(z []float64, p float64, softmax []float64) float64 {
	n := float64(len(z))
	top, spread := bounds(z)
	if spread == 0 {
		fill(softmax, 1/n)
		return top
	}
	if p == 0 {
		fill(softmax, 1/n)
		return mean(z)
	}
	var sum float64
	if softmax != nil {
		sum = expFill(softmax, z, p, top, spread)
		for j := range softmax {
			softmax[j] /= sum
		}
	} else {
		sum, _ = expSums(z, p, top, spread)
	}
	if p*spread > 1e-3 {
		return top + math.Log(sum/n)/p
	}
	// For small p, log(1 + tiny)/p loses precision: subtract the mean of z first.
	m, tiny := mean(z), 0.0
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
