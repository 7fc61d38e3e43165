package algebra

import (
	"math/big"

	"onering/verifier/internal/latex"
)

// halfTurns is the rational r of an angle written as r pi or in degrees; zero
// is one. It fails with errIrrational for any other.
func (c *Checker) halfTurns(n *latex.Node, at *point) (*big.Rat, error) {
	if c.budget--; c.budget < 0 {
		return nil, errLimit
	}
	switch n.Op {
	case latex.Const:
		if n.Name == "pi" {
			return big.NewRat(1, 1), nil
		}
	case latex.Degree:
		d, err := c.rational(n.Args[0], at)
		if err != nil {
			return nil, err
		}
		return new(big.Rat).Mul(d, big.NewRat(1, 180)), nil
	case latex.Neg:
		r, err := c.halfTurns(n.Args[0], at)
		if err != nil {
			return nil, err
		}
		return new(big.Rat).Neg(r), nil
	case latex.Add:
		sum := new(big.Rat)
		for _, arg := range n.Args {
			r, err := c.halfTurns(arg, at)
			if err != nil {
				return nil, err
			}
			sum.Add(sum, r)
		}
		return c.checked(sum)
	case latex.Div:
		r, err := c.halfTurns(n.Args[0], at)
		if err != nil {
			return nil, err
		}
		d, err := c.rational(n.Args[1], at)
		if err != nil || d.Sign() == 0 {
			return nil, errIrrational
		}
		return c.checked(new(big.Rat).Quo(r, d))
	case latex.Mul:
		product, angle := big.NewRat(1, 1), false
		for _, arg := range n.Args {
			r, err := c.rational(arg, at)
			if err != nil && !angle {
				r, err = c.halfTurns(arg, at)
				angle = true
			}
			if err != nil {
				return nil, err
			}
			product.Mul(product, r)
			if _, err := c.checked(product); err != nil {
				return nil, err
			}
		}
		if angle {
			return product, nil
		}
	}
	if r, err := c.rational(n, at); err == nil && r.Sign() == 0 {
		return r, nil
	}
	return nil, errIrrational
}

// rationalAngle is the sine, cosine or tangent of a rational multiple of pi
// where it is rational: a multiple of one half (Niven's theorem).
func (c *Checker) rationalAngle(name string, angle *latex.Node, at *point) (*big.Rat, error) {
	r, err := c.halfTurns(angle, at)
	if err != nil {
		return nil, err
	}
	twelfths := new(big.Rat).Mul(r, big.NewRat(12, 1))
	if !twelfths.IsInt() {
		return nil, errIrrational
	}
	k := new(big.Int).Mod(twelfths.Num(), big.NewInt(24)).Int64() // the angle is k/12 half turns
	if name == "tan" {
		switch k % 12 {
		case 0:
			return new(big.Rat), nil
		case 3:
			return big.NewRat(1, 1), nil
		case 6:
			return nil, errUndefined
		case 9:
			return big.NewRat(-1, 1), nil
		}
		return nil, errIrrational
	}
	if name == "cos" {
		k = (k + 6) % 24
	}
	switch k {
	case 0, 12:
		return new(big.Rat), nil
	case 2, 10:
		return big.NewRat(1, 2), nil
	case 6:
		return big.NewRat(1, 1), nil
	case 14, 22:
		return big.NewRat(-1, 2), nil
	case 18:
		return big.NewRat(-1, 1), nil
	}
	return nil, errIrrational
}

// zeros are where functions are zero, so that no ball can tell their value.
var zeros = map[string]*big.Rat{
	"ln": big.NewRat(1, 1), "log": big.NewRat(1, 1), "acos": big.NewRat(1, 1), "acosh": big.NewRat(1, 1),
	"asin": new(big.Rat), "atan": new(big.Rat), "asinh": new(big.Rat), "atanh": new(big.Rat), "sinh": new(big.Rat), "tanh": new(big.Rat),
}

// rationalZero is zero where n is a function at its zero.
func (c *Checker) rationalZero(n *latex.Node, at *point) (*big.Rat, error) {
	zero, ok := zeros[n.Name]
	if !ok {
		return nil, errIrrational
	}
	x, err := c.rational(n.Args[0], at)
	if err != nil {
		return nil, err
	}
	if x.Cmp(zero) != 0 {
		return nil, errIrrational
	}
	if len(n.Args) > 1 { // the base of a logarithm
		if b, err := c.rational(n.Args[1], at); err == nil && (b.Sign() <= 0 || b.Cmp(zero) == 0) {
			return nil, errUndefined
		}
	}
	return new(big.Rat), nil
}
