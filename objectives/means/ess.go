package means

import "math"

// ESS returns the normalized effective sample size of softmax(p z),
//
//	(sum e^(p z))^2 / (n sum e^(2 p z))  in [1/n, 1],
//
// which is 1 at p = 0 and falls as p moves away from 0 on either side (paper, appendix on
// monotonicity; D40). It is 1 for equal or no z.
func ESS(z []float64, p float64) float64 { return newESSCurve(z).at(p) }

// An essCurve is ESS as a function of p for one z.
type essCurve struct {
	z      []float64
	lo, hi float64
}

func newESSCurve(z []float64) essCurve {
	lo, hi := bounds(z)
	return essCurve{z, lo, hi}
}

func (c essCurve) flat() bool { return len(c.z) == 0 || c.lo == c.hi }

func (c essCurve) at(p float64) float64 {
	if c.flat() {
		return 1
	}
	s1, s2 := expSums(c.z, p, c.lo, c.hi)
	return s1 * s1 / (s2 * float64(len(c.z)))
}

// floor returns a lower bound of at(p) without reading z: numbers whose largest is e^x
// times the smallest have (sum)^2 / (n sum of squares) >= 1/cosh^2(x/2) (Polya and
// Szego), which is at least 1/n.
func (c essCurve) floor(p float64) float64 {
	h := math.Cosh(p * (c.hi - c.lo) / 2)
	return max(1/(h*h), 1/float64(len(c.z)))
}

// A Solver finds the exponent at which ESS meets a target (D9): the largest p in [PMin,
// PMax] with ESS(p) >= eta, up to the width of the last bracket. If there is none, it is
// the p of the range with the largest ESS, which is nearest to 0. Lower exponents are
// never the answer, so Solve searches from there (D40): ESS rises with p below 0, so a
// search from a negative PMin would end on the wrong side.
//
// The answer is that of plain bisection, bit for bit: halve [PMin, PMax]
// Bisections times, keeping the upper half where ESS(middle) >= eta, and return
// the middle of what is left. But ESS falls as p rises, so two evaluations, at the
// ends of the last bracket, decide every halving that leads to it. The solver
// guesses the bracket by interpolation and checks those two.
type Solver struct {
	PMin, PMax float64
	// Bisections is the number of halvings, 10 in the paper.
	Bisections int
	// Tolerance, unless 0, replaces Bisections: halve until the bracket is no wider.
	Tolerance float64
}

// tie is by how much ESS may miss the target at either end and still meet it.
const tie = 1e-12

// Solve returns p for the target eta. With equal z, one z or none, every p has
// ESS 1 and the answer is PMax.
func (s Solver) Solve(z []float64, eta float64) float64 {
	s.PMin = max(s.PMin, min(0, s.PMax))
	c := newESSCurve(z)
	if c.flat() {
		return s.PMax
	}
	// the margin allows for rounding in floor itself
	if c.floor(s.PMax) >= eta+tie || eta <= 1/float64(len(z)) {
		return s.PMax
	}
	return s.solve(c, eta, c.at(s.PMax))
}

// SolveAttainable returns p and the target eta = ESS(PMax) + f (ESS(PMin) -
// ESS(PMax)), which lies in the range of ESS for every f in [0, 1]. With PMin < 0 it
// interpolates sign(p) (1 - ESS(p)) instead, which rises over all p, and eta is the ESS
// there (D41).
func (s Solver) SolveAttainable(z []float64, f float64) (p, eta float64) {
	c := newESSCurve(z)
	if c.flat() {
		return s.PMax, 1
	}
	if s.PMin < 0 {
		return s.solveSigned(c, f)
	}
	eta, top := s.attainable(c, f)
	return s.solve(c, eta, top), eta
}

// Attainable returns the target of SolveAttainable without the exponent.
func (s Solver) Attainable(z []float64, f float64) (eta float64) {
	c := newESSCurve(z)
	switch {
	case c.flat():
		return 1
	case s.PMin < 0:
		_, _, goal := s.signedGoal(c, f)
		return 1 - math.Abs(goal)
	}
	eta, _ = s.attainable(c, f)
	return eta
}

// attainable is the target for PMin >= 0, beside ESS(PMax).
func (s Solver) attainable(c essCurve, f float64) (eta, top float64) {
	top = c.at(s.PMax)
	return top + f*(c.at(s.PMin)-top), top
}

// signedGoal interpolates sign(p) (1 - ESS(p)) between its values at PMax and PMin.
func (s Solver) signedGoal(c essCurve, f float64) (most, least, goal float64) {
	most, least = c.signed(s.PMax), c.signed(s.PMin)
	return most, least, most + f*(least-most)
}

// solveSigned is SolveAttainable for PMin < 0.
func (s Solver) solveSigned(c essCurve, f float64) (p, eta float64) {
	most, least, goal := s.signedGoal(c, f)
	eta = 1 - math.Abs(goal)
	switch {
	case most <= goal+tie:
		return s.PMax, eta
	case least >= goal-tie:
		return s.PMin, eta
	case math.Abs(goal) <= tie:
		return 0, eta
	}
	lo, hi := s.halve(func(p float64) bool { return c.signed(p) <= goal })
	return 0.5 * (lo + hi), eta
}

// signed returns sign(p) (1 - ESS(p)).
func (c essCurve) signed(p float64) float64 { return math.Copysign(1-c.at(p), p) }

// solve is Solve, given ESS(PMax). Since each value of ESS reads all tokens, it guesses the last interval that bisecting
// [PMin, PMax] would leave and evaluates only its ends: ESS must meet eta at the lower one and miss it at the upper one.
func (s Solver) solve(c essCurve, eta, atMax float64) float64 {
	if atMax >= eta-tie { // PMax is the largest p, and meets eta within rounding
		return s.PMax
	}
	if c.floor(s.PMin) <= eta+2*tie && c.at(s.PMin) <= eta+tie { // no p does; floor, a lower bound, reads no token
		return s.PMin
	}
	b := essBracket{
		curve: c, eta: eta,
		meets: s.PMin, misses: s.PMax,
		older: essPoint{0, math.Log(Variance(c.z))}, newer: newESSPoint(s.PMax, atMax), // the curve at p = 0, its limit, and at PMax
	}
	for range 12 { // it bounds the work where no guess comes close
		guess := b.guess()
		lo, hi := s.halve(func(mid float64) bool { return mid <= guess }) // the interval that has guess
		if lo > b.meets && !b.narrow(lo) {
			continue // the bracket is narrower for the next guess
		}
		if hi < b.misses && b.narrow(hi) {
			continue // ESS meets eta above the interval, too
		}
		return 0.5 * (lo + hi)
	}
	// Interpolation did not find the bracket: bisect.
	lo, hi := s.halve(func(mid float64) bool { return mid <= b.meets || mid < b.misses && b.narrow(mid) })
	return 0.5 * (lo + hi)
}

// halve bisects [PMin, PMax], keeping the upper half where upper(middle) is true, and
// returns the remaining interval.
func (s Solver) halve(upper func(mid float64) bool) (lo, hi float64) {
	lo, hi = s.PMin, s.PMax
	for i := 0; s.needsHalving(i, lo, hi); i++ {
		if mid := 0.5 * (lo + hi); upper(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo, hi
}

// needsHalving reports whether to halve [lo, hi] an i+1st time.
func (s Solver) needsHalving(i int, lo, hi float64) bool {
	if mid := 0.5 * (lo + hi); mid <= lo || mid >= hi {
		return false // adjacent floating-point numbers
	}
	if s.Tolerance > 0 {
		return hi-lo > s.Tolerance
	}
	return i < s.Bisections
}

// An essBracket encloses the point where a curve crosses eta:
// ESS(meets) >= eta > ESS(misses).
type essBracket struct {
	curve         essCurve
	eta           float64
	meets, misses float64  // the ends, values of p
	older, newer  essPoint // the last two evaluations
}

// An essPoint is one evaluation in coordinates in which the curve is nearly a
// straight line: g = log(-log ESS(p) / p^2), which at p = 0 is the log of the
// variance of z.
type essPoint struct{ p, g float64 }

func newESSPoint(p, ess float64) essPoint {
	return essPoint{p, math.Log(-math.Log(ess)) - 2*math.Log(p)}
}

// narrow evaluates the curve at p, reports whether the ESS meets the target there, and moves
// that end of the bracket to p.
func (b *essBracket) narrow(p float64) bool {
	ess := b.curve.at(p)
	b.older, b.newer = b.newer, newESSPoint(p, ess)
	if ess >= b.eta {
		b.meets = p
		return true
	}
	b.misses = p
	return false
}

// guess returns a p strictly inside the bracket, near where ESS crosses eta. It takes g = log(-log ESS) - 2 log p for the
// line through the last two points, and solves g + 2 log p = log(-log eta) by Newton's method, without reading any token.
func (b *essBracket) guess() float64 {
	slope := (b.newer.g - b.older.g) / (b.newer.p - b.older.p)
	goal := math.Log(-math.Log(b.eta))
	p := b.newer.p
	for range 8 {
		miss := b.newer.g + slope*(p-b.newer.p) + 2*math.Log(p) - goal
		step := miss / (slope + 2/p)
		// A step in log p keeps p positive.
		p *= math.Exp(-step / p)
		if math.Abs(step) < 1e-15*p {
			break
		}
	}
	if !(p > b.meets && p < b.misses) { // also if the step is NaN
		p = 0.5 * (b.meets + b.misses)
	}
	return p
}

// Variance returns the mean of the squared distances from the mean, NaN if there are no
// values.
func Variance(z []float64) float64 {
	m, sum := Mean(z, nil), 0.0
	for _, v := range z {
		sum += (v - m) * (v - m)
	}
	return sum / float64(len(z))
}
