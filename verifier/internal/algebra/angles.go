package algebra

import (
	"math/big"

	"onering/verifier/internal/ball"
	"onering/verifier/internal/latex"
)

// halfTurns is the rational r of an angle written as r pi or in degrees; zero
// is one. It fails with errIrrational for any other.
func (c *Checker) halfTurns(n *latex.Node, at *point) *big.Rat {
	c.budget--
	ball.FailIf(c.budget < 0, errLimit)
	switch n.Op {
	case latex.Const:
		if n.Name == "pi" {
			return big.NewRat(1, 1)
		}
	case latex.Degree:
		return new(big.Rat).Mul(c.exact(n.Args[0], at), big.NewRat(1, 180))
	case latex.Neg:
		return new(big.Rat).Neg(c.halfTurns(n.Args[0], at))
	case latex.Add:
		sum := new(big.Rat)
		for _, arg := range n.Args {
			sum.Add(sum, c.halfTurns(arg, at))
		}
		return c.checked(sum)
	case latex.Div:
		r := c.halfTurns(n.Args[0], at)
		d, err := c.rational(n.Args[1], at)
		ball.FailIf(err != nil || d.Sign() == 0, errIrrational)
		return c.checked(new(big.Rat).Quo(r, d))
	case latex.Mul:
		product, angle := big.NewRat(1, 1), false
		for _, arg := range n.Args {
			r, err := c.rational(arg, at)
			switch {
			case err != nil && angle:
				ball.Fail(err)
			case err != nil:
				r, angle = c.halfTurns(arg, at), true
			}
			c.checked(product.Mul(product, r))
		}
		if angle {
			return product
		}
	}
	r, err := c.rational(n, at)
	ball.FailIf(err != nil || r.Sign() != 0, errIrrational)
	return r
}

// sines and tangents are the values at k/12 half turns that are rational; a tangent that is
// nil is undefined.
var (
	sines = map[int64]*big.Rat{
		0: new(big.Rat), 2: big.NewRat(1, 2), 6: big.NewRat(1, 1), 10: big.NewRat(1, 2),
		12: new(big.Rat), 14: big.NewRat(-1, 2), 18: big.NewRat(-1, 1), 22: big.NewRat(-1, 2),
	}
	tangents = map[int64]*big.Rat{0: new(big.Rat), 3: big.NewRat(1, 1), 6: nil, 9: big.NewRat(-1, 1)}
)

// rationalAngle is the sine, cosine or tangent of a rational multiple of pi
// where it is rational: a multiple of one half (Niven's theorem).
func (c *Checker) rationalAngle(name string, angle *latex.Node, at *point) *big.Rat {
	twelfths := new(big.Rat).Mul(c.halfTurns(angle, at), big.NewRat(12, 1))
	ball.FailIf(!twelfths.IsInt(), errIrrational)
	k := new(big.Int).Mod(twelfths.Num(), big.NewInt(24)).Int64()
	value, ok := sines[k]
	switch name {
	case "tan":
		value, ok = tangents[k%12]
	case "cos":
		value, ok = sines[(k+6)%24]
	}
	switch {
	case !ok:
		ball.Fail(errIrrational)
	case value == nil:
		ball.Fail(errUndefined)
	}
	return value
}

// zeros are the points where functions are zero, which no ball can prove.
var zeros = map[string]*big.Rat{
	"ln": big.NewRat(1, 1), "log": big.NewRat(1, 1), "acos": big.NewRat(1, 1),
	"asin": new(big.Rat), "atan": new(big.Rat), "sinh": new(big.Rat), "tanh": new(big.Rat),
}

// rationalZero is zero where n is a function at its zero.
func (c *Checker) rationalZero(n *latex.Node, at *point) *big.Rat {
	zero, ok := zeros[n.Name]
	ball.FailIf(!ok || c.exact(n.Args[0], at).Cmp(zero) != 0, errIrrational)
	if len(n.Args) > 1 { // the base of a logarithm
		b, err := c.rational(n.Args[1], at)
		ball.FailIf(err == nil && (b.Sign() <= 0 || b.Cmp(zero) == 0), errUndefined)
	}
	return new(big.Rat)
}
