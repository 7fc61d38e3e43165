package algebra

import (
	"math/big"

	"onering/verifier/internal/ball"
	"onering/verifier/internal/latex"
)

// Difference is a - b.
func Difference(a, b *latex.Node) *latex.Node {
	return &latex.Node{Op: latex.Add, Args: []*latex.Node{a, {Op: latex.Neg, Args: []*latex.Node{b}}}}
}

// Variables are the names of the variables in nodes.
func Variables(nodes ...*latex.Node) []string { return survey(nodes...).names }

// Proportional reports whether a is a constant multiple of b, neither of them
// a constant, and the sign of the factor (0 if it is not real).
func (c *Checker) Proportional(a, b *latex.Node) (sign int, ok bool) {
	s := survey(a, b)
	if len(s.names) == 0 || s.hasInfinity {
		return 0, false
	}
	proportional, possible := c.proportionalFormulas(a, b, s.factors)
	if !possible {
		return 0, false
	}
	factor, ok := c.commonFactor(a, b, s, proportional)
	if !ok {
		return 0, false
	}
	if !factor.IsReal() {
		return 0, true
	}
	return factor.Re.KnownSign(), true
}

// proportionalFormulas reports whether a and b are proportional as formulas: their quotient is the same at two
// random points of the field. possible is false if that is disproved, or if one of them is zero or undefined.
func (c *Checker) proportionalFormulas(a, b *latex.Node, factors map[string]bool) (proportional, possible bool) {
	var x, y [2]uint64
	conclusive := true
	in := fieldFor(pairSeed(a, b))
	for i := range x {
		f := formula{c: c, field: in, seed: uint64(i + 21), conclusive: true, factors: factors}
		x[i], y[i] = f.value(a), f.value(b)
		if f.spoiled {
			return false, false
		}
		conclusive = conclusive && f.conclusive
	}
	proportional = in.mul(x[0], y[1]) == in.mul(x[1], y[0])
	return proportional, x[0] != 0 && y[0] != 0 && (proportional || !conclusive)
}

// commonFactor is a/b at the first point where both are defined. Unless proved says that the factor is constant,
// it must be equal at two or more other points, on both sides of corners, and a must vary between the points.
func (c *Checker) commonFactor(a, b *latex.Node, s variables, proved bool) (factor ball.Complex, ok bool) {
	ctx := &ball.Context{Prec: precisions[0] + uint(4*s.digits), Budget: &c.budget}
	if !proved {
		if a, b, ok = c.withoutSteps(a, b); !ok {
			return factor, false
		}
		s = survey(a, b) // withoutSteps may have put unknowns in the place of terms
	}
	points, enough := append(s.fractions(), s.naturals()...), 4 // enough is how many other points have to agree
	if s.hasSteps || s.hasBars {
		enough = len(points) // only some of them lie beyond a corner
	}
	found, aVaries, agreed := false, proved, 0 // with a proof, a need not vary
	var first ball.Complex                     // a where the factor was found
	for _, at := range points {
		e := numeric{c: c, ball: ctx, at: at, factors: s.factors, complex: s.hasI}
		u, errU := e.try(a)
		v, errV := e.try(b)
		if !proved && (e.lostSummand || errU == ball.ErrUndecided || errV == ball.ErrUndecided) {
			return factor, false
		}
		if undefined := errU != nil || errV != nil || e.leftReals && !s.hasI; undefined {
			continue
		}
		if !found {
			q, err := ball.Try(func() ball.Complex { return ctx.CQuo(u, v) })
			if err == nil && !q.Re.ContainsZero() {
				factor, first, found = q, u, true
			}
			if found && proved {
				break
			}
			continue
		}
		if !nearlyEqual(ctx, u, ctx.CMul(factor, v), e.scale) {
			return factor, false
		}
		different, _ := ctx.Differ(u.Re, first.Re, u.Re.Larger(first.Re), agreement)
		aVaries = aVaries || different
		if agreed++; agreed >= enough {
			break
		}
	}
	return factor, found && aVaries && (proved || agreed >= 2)
}

// nearlyEqual reports whether u is w, a product with a factor that is not exact: ten bits
// less than elsewhere have to agree. scale is that of the summands in u.
func nearlyEqual(ctx *ball.Context, u, w ball.Complex, scale ball.Real) bool {
	for _, pair := range [...][2]ball.Real{{u.Re, w.Re}, {u.Im, w.Im}} {
		different, tight := ctx.Differ(pair[0], pair[1], scale.Larger(u.Re.Larger(u.Im)), agreement-10)
		if different || !tight {
			return false
		}
	}
	return true
}

// Compare is the order of two real constants, infinity among them; ok is false
// if one of them is not a real constant, or if they cannot be told apart.
func (c *Checker) Compare(a, b *latex.Node) (order int, ok bool) {
	infA, infB := Infinite(a), Infinite(b)
	if infA != 0 || infB != 0 {
		return infA - infB, true
	}
	x, errX := c.rational(a, nil)
	y, errY := c.rational(b, nil)
	if errX == nil && errY == nil {
		return x.Cmp(y), true
	}
	s := survey(a, b)
	if len(s.names) > 0 || s.hasInfinity {
		return 0, false
	}
	if same, _ := c.formulas(a, b); same {
		return 0, true
	}
	for _, prec := range precisions[:2] { // numbers, below, also tries the last one
		e := numeric{c: c, ball: &ball.Context{Prec: prec, Budget: &c.budget}, complex: s.hasI} // constants need no point
		z, err := e.try(Difference(a, b))
		if err == ball.ErrUndecided {
			continue
		}
		if err != nil || !z.IsReal() {
			return 0, false
		}
		if k := z.Re.KnownSign(); k != 0 || z.Re.IsZero() {
			return k, true
		}
	}
	if outcome, _ := c.numbers(a, b); outcome == Equal {
		return 0, true
	}
	return 0, false
}

// Infinite is 1 for infinity, -1 for its negative, 0 for anything else.
func Infinite(n *latex.Node) int {
	switch {
	case n.Is(latex.Const) && n.Name == "infty":
		return 1
	case n.Is(latex.Neg):
		return -Infinite(n.Args[0])
	}
	return 0
}

// Linear writes n as slope*name + offset with rational coefficients; ok is false if it is not linear, or constant.
func (c *Checker) Linear(n *latex.Node, name string) (slope, offset *big.Rat, ok bool) {
	zero, err := c.rational(n, &point{name: name, value: new(big.Rat)})
	one, err2 := c.rational(n, &point{name: name, value: big.NewRat(1, 1)})
	if err != nil || err2 != nil || one.Cmp(zero) == 0 {
		return nil, nil, false
	}
	slope, offset = new(big.Rat).Sub(one, zero), new(big.Rat).Set(zero)
	line := &latex.Node{Op: latex.Add, Args: []*latex.Node{{Op: latex.Mul, Args: []*latex.Node{Rational(slope), {Op: latex.Sym, Name: name}}}, Rational(zero)}}
	same, conclusive := c.formulas(n, line)
	return slope, offset, same && conclusive
}

// Rational is the numeral of r.
func Rational(r *big.Rat) *latex.Node { return &latex.Node{Op: latex.Num, Rat: r, Places: -1} }
