package verifier

import (
	"math/big"
	"slices"

	"onering/verifier/internal/latex"
)

// ratios compares ratios a:b:c and times of day. 9:15 may be either: against another time it is a time, else a ratio. A
// time that can only be one may be said as an hour, 5 p.m. as 5; a ratio of two may be said as a quotient.
func (c *comparer) ratios(g, a *latex.Node) bool {
	if g.Op == latex.Clock && a.Op == latex.Clock {
		return c.decide(sameTime(g, a), "times of day")
	}
	for _, n := range [...][2]*latex.Node{{g, a}, {a, g}} { // 5 p.m. and 5
		clock, hours := n[0], n[1]
		isClock := clock.Op == latex.Clock && (clock.Name != "" || len(clock.Args) == 0) // 5 p.m. or noon, which is no ratio
		if isClock && hours.Op == latex.Num && hours.Rat.IsInt() && hours.Rat.Sign() > 0 {
			hour := &latex.Node{Op: latex.Clock, Rat: new(big.Rat).Mul(hours.Rat, big.NewRat(60, 1))} // in minutes
			return c.decide(sameTime(clock, hour), "times of day") && c.relax(unitOmitted)
		}
	}
	g, a = asRatio(g), asRatio(a) // 9:15 becomes a ratio, 5 p.m. nil, and what is no time stays
	switch {
	case g == nil || a == nil:
		return c.decide(false, "a time of day against something else")
	case g.Op == latex.Ratio && a.Op == latex.Ratio:
		return c.twoRatios(g, a)
	case g.Op == latex.Ratio && len(g.Args) == 2 && a.Op.Scalar():
		return c.expressions(&latex.Node{Op: latex.Div, Args: g.Args}, a)
	case a.Op == latex.Ratio && len(a.Args) == 2 && g.Op.Scalar():
		return c.expressions(g, &latex.Node{Op: latex.Div, Args: a.Args})
	case g.Op == latex.Text || a.Op == latex.Text:
		return c.texts(g, a)
	}
	return c.decide(false, "a ratio against something else")
}

// asRatio returns a clock time as a ratio, nil if it cannot be one; it returns anything else unchanged.
func asRatio(n *latex.Node) *latex.Node {
	if n.Op != latex.Clock {
		return n
	}
	if n.Name != "" || len(n.Args) == 0 {
		return nil
	}
	return n.Args[0]
}

// sameTime reports whether two times agree; 4:30 may be 4:30 p.m. Rat is minutes after midnight, and Name "am", "pm",
// or "" where the text does not say; from 13:00 on, it needs no p.m.
func sameTime(g, a *latex.Node) bool {
	if g.Rat.Cmp(a.Rat) == 0 {
		return true
	}
	bare, _ := swapped(a.Name == "", g, a)
	if (g.Name == "") == (a.Name == "") || bare.Rat.Cmp(big.NewRat(13*60, 1)) >= 0 {
		return false
	}
	d := new(big.Rat).Sub(g.Rat, a.Rat)
	return d.Abs(d).Cmp(big.NewRat(12*60, 1)) == 0
}

// twoRatios compares ratios of two or more terms up to a common factor.
func (c *comparer) twoRatios(g, a *latex.Node) bool {
	if len(g.Args) != len(a.Args) {
		return c.decide(false, "ratios of different lengths")
	}
	unfit := func(arg *latex.Node) bool { return !arg.Op.Scalar() || isZero(c, arg) }
	if slices.ContainsFunc(g.Args, unfit) || slices.ContainsFunc(a.Args, unfit) {
		return c.elementwise(g, a, "ratios")
	}
	for i := 1; i < len(g.Args); i++ {
		if !c.expressions(product(g.Args[i], a.Args[0]), product(a.Args[i], g.Args[0])) {
			return c.decide(false, "different ratios")
		}
	}
	return c.decide(true, "equal ratios")
}
