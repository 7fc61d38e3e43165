package scalar

import (
	"errors"
	"math/big"
	"slices"

	"onering/verifier/latex"
)

// Sampling: two expressions that agree at enough random points are the same
// function. The points are fixed by the symbols' sorted names.

const (
	wantPoints = 4  // points at which both sides must have a value
	triedReal  = 32 // points tried for that
	wantWhole  = 10 // the same with variables that are whole numbers
	triedWhole = 26
)

// symbolKind says what values a symbol takes.
type symbolKind uint8

const (
	whole    symbolKind = 1 << iota // a natural number
	constant                        // a unit or infinity: positive
)

// symbols are the free symbols of expressions.
type symbols struct {
	names   map[string]symbolKind
	complex bool // i occurs
	bound   []string
}

// collect adds the symbols of n; whole says that they stand where only whole
// numbers make sense.
func (s *symbols) collect(n *latex.Node, isWhole bool) {
	if n == nil {
		return
	}
	if s.names == nil {
		s.names = map[string]symbolKind{}
	}
	mark := func(kind symbolKind) {
		if n.Op == latex.Sym && slices.Contains(s.bound, n.Name) {
			return
		}
		if isWhole && kind == 0 {
			kind = whole
		}
		s.names[key(n)] |= kind
	}
	switch n.Op {
	case latex.Sym:
		mark(0)
	case latex.Unit:
		mark(constant)
	case latex.Const:
		switch n.Name {
		case "i":
			s.complex = true
		case "infty":
			mark(constant)
		}
	case latex.Fact, latex.Fact2, latex.Binom, latex.Mod:
		isWhole = true
	case latex.Func:
		isWhole = isWhole || n.Name == "gcd" || n.Name == "lcm"
	case latex.Pow:
		if len(n.Args) == 2 {
			s.collect(n.Args[0], isWhole)
			s.collect(n.Args[1], isWhole || negative(n.Args[0]))
			return
		}
	case latex.Sum, latex.Prod:
		if len(n.Args) == 4 {
			s.collect(n.Args[2], true)
			s.collect(n.Args[3], true)
			if n.Args[1].Is(latex.Sym) {
				s.bound = append(s.bound, n.Args[1].Name)
				defer func() { s.bound = s.bound[:len(s.bound)-1] }()
			}
			s.collect(n.Args[0], false)
			return
		}
	}
	for _, arg := range n.Args {
		s.collect(arg, isWhole)
	}
}

// negative reports whether n is written as a negative number.
func negative(n *latex.Node) bool {
	switch {
	case n.Is(latex.Neg) && len(n.Args) == 1:
		return n.Args[0].Is(latex.Num)
	case n.Is(latex.Num):
		return n.Rat.Sign() < 0
	}
	return n.Is(latex.Const) && n.Name == "i"
}

// contains reports whether f holds for a node of n.
func contains(n *latex.Node, f func(*latex.Node) bool) bool {
	if n == nil {
		return false
	}
	return f(n) || slices.ContainsFunc(n.Args, func(arg *latex.Node) bool { return contains(arg, f) })
}

// point is the j-th sample point.
func (s *symbols) point(j int) point {
	names := make([]string, 0, len(s.names))
	for name := range s.names {
		names = append(names, name)
	}
	slices.Sort(names)
	p := make(point, len(names)+2)
	for i, name := range names {
		r := mix(uint64(j)<<32 | uint64(i))
		switch kind := s.names[name]; {
		case kind&constant != 0:
			p[name] = big.NewRat(int64(r%9973)+3, 101)
		case kind&whole != 0:
			// All residues come: parity matters to (-1)^n.
			p[name] = new(big.Rat).SetInt64(int64(1 + (5*j+3*i)%13))
		default:
			p[name] = real(j, r)
		}
	}
	return p
}

// real is a rational between bounds that depend on the point: some points have
// all variables small and positive, where roots, logarithms and inverse sines
// are all defined, others go further.
func real(j int, r uint64) *big.Rat {
	const q = 1009
	low, high := int64(-3*q), int64(3*q)
	switch j % 8 {
	case 0:
		low, high = 0, q
	case 3:
		low, high = q, 6*q
	case 5:
		low, high = -q, q
	case 6:
		low, high = 5*q, 60*q
	case 7:
		low, high = -40*q, -q
	}
	return big.NewRat(low+1+int64(r%uint64(high-low-1)), q)
}

// mix is a step of SplitMix64 (Steele, Lea and Flood 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// sample compares a and b at sample points: over the reals where both have
// real values anywhere, else over the complex numbers.
func sample(a, b *latex.Node, s *symbols, work *budget) (bool, string, error) {
	want, tried := wantPoints, triedReal
	for _, kind := range s.names {
		if kind&whole != 0 {
			want, tried = wantWhole, triedWhole
		}
	}
	domains := []bool{true, false}
	if s.complex {
		domains = domains[1:]
	}
	var last error
	for _, reals := range domains {
		agreed := 0
		for j := 0; j < tried && agreed < want; j++ {
			v := &evaluator{budget: work, at: s.point(j), maxBits: maxPointBits, reals: reals}
			same, how, err := v.compare(a, b)
			switch {
			case errors.Is(err, ErrLimit) && agreed >= 2 && work.steps >= 0:
				continue // a large value at this point only
			case outward(err) != nil:
				return false, how, outward(err)
			case err != nil:
				last = err
				continue
			case !same:
				return false, how + " at a sample point", nil
			}
			agreed++
		}
		if agreed >= min(want, 2) {
			return true, "equal at random points", nil
		}
	}
	if last != nil {
		return false, "no common domain: " + last.Error(), nil
	}
	return false, "no common domain", nil
}
