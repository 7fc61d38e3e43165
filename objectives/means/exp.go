package means

import "math"

// The ESS solver and the final softmax spend nearly all their time in e^x for x in
// (-708, 0]. The loops below evaluate it in line, twice as fast as calls of
// math.Exp and to within two units in the last place:
//
//	e^x = 2^(k/128) e^r,  k = round(128 x / ln 2),  |r| <= ln 2 / 256
//
// with 2^(k/128) from a table and a polynomial of degree 5 for e^r, whose error is
// r^6/720 < 6e-19. Adding k << 45 to the table's bits adds k/128 to the exponent.

const (
	invLn2N   = 128 / math.Ln2
	ln2HiN    = 6.93147180369123816490e-01 / 128 // ends in zero bits, so that k ln2HiN is exact
	ln2LoN    = 1.90821492927058770002e-10 / 128
	roundBy   = 0x1.8p52 // adding it rounds x, and leaves round(x) in the low bits of the sum
	expDomain = 708      // e^-708 is the smallest normal power
)

var expTable = func() (t [128]uint64) {
	for j := range t {
		t[j] = math.Float64bits(math.Exp2(float64(j)/128)) - uint64(j)<<45
	}
	return t
}()

// anchor returns the z in [lo, hi] with the largest p z: relative to it, no exponent is
// positive.
func anchor(p, lo, hi float64) float64 {
	if p < 0 {
		return lo
	}
	return hi
}

// expSums returns the sums of e^x and e^2x over x = p (z - anchor). Every z lies in [lo, hi]. An e^x is 2^(k/128), from a
// table, times a short series for the rest r; where it may be below the smallest normal number it is math.Exp's.
func expSums(z []float64, p, lo, hi float64) (s1, s2 float64) {
	top := anchor(p, lo, hi)
	if math.Abs(p)*(hi-lo) >= expDomain {
		for _, v := range z {
			e := math.Exp(p * (v - top))
			s1 += e
			s2 += e * e
		}
		return s1, s2
	}
	for _, v := range z {
		x := p * (v - top)
		k := x*invLn2N + roundBy
		bits := math.Float64bits(k) // whose low bits are the whole number k
		k -= roundBy                // k as a number
		r := x - k*ln2HiN - k*ln2LoN
		s := math.Float64frombits(expTable[bits&127] + bits<<45) // 2^(k/128); the table has taken off k%128 << 45
		r2 := r * r
		e := s + s*(r+r2*(0.5+r*(1.0/6))+r2*r2*(1.0/24+r*(1.0/120)))
		s1 += e
		s2 += e * e
	}
	return s1, s2
}

// expFill sets e to e^(p (z - anchor)) and returns the sum. It computes each power as expSums does, by a table
// of 2^(k/128) and a short series.
func expFill(e, z []float64, p, lo, hi float64) (sum float64) {
	e, top := e[:len(z)], anchor(p, lo, hi)
	if math.Abs(p)*(hi-lo) >= expDomain {
		for j, v := range z {
			e[j] = math.Exp(p * (v - top))
			sum += e[j]
		}
		return sum
	}
	for j, v := range z {
		x := p * (v - top)
		k := x*invLn2N + roundBy
		bits := math.Float64bits(k) // whose low bits are the whole number k
		k -= roundBy                // k as a number
		r := x - k*ln2HiN - k*ln2LoN
		s := math.Float64frombits(expTable[bits&127] + bits<<45) // 2^(k/128); the table has taken off k%128 << 45
		r2 := r * r
		e[j] = s + s*(r+r2*(0.5+r*(1.0/6))+r2*r2*(1.0/24+r*(1.0/120)))
		sum += e[j]
	}
	return sum
}

// bounds returns the smallest and the largest element of z.
func bounds(z []float64) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, v := range z {
		if v < lo {
			lo = v
		}
		if v > hi {
			hi = v
		}
	}
	return lo, hi
}
