package algebra

import (
	"errors"
	"math/big"

	"onering/verifier/internal/ball"
	"onering/verifier/internal/latex"
)

var (
	errIrrational = errors.New("algebra: not a rational constant")
	errUndefined  = errors.New("algebra: undefined")
	errLimit      = errors.New("algebra: too large")
)

// Limits of exact arithmetic.
const (
	maxBits  = 70_000 // of a numerator or denominator
	maxFact  = 5_000  // n of n!
	maxTerms = 3_000  // of a sum
)

// A point gives variables values. Sums bind their index by linking a new point in front.
type point struct {
	name  string
	value *big.Rat
	// logFactor, if not nil, makes the variable value·e^logFactor, which is transcendental: no sine
	// of a multiple of pi vanishes there, and no floor jumps.
	logFactor *big.Rat
	next      *point
	ball      ball.Real // value·e^logFactor with prec bits
	prec      uint
}

// lookup is the point that gives name its value, nil if none does.
func (p *point) lookup(name string) *point {
	for ; p != nil && p.name != name; p = p.next {
	}
	return p
}

// afford spends the cost of one operation on numbers of so many bits, and reports whether the budget allowed it.
func (c *Checker) afford(bits int) bool {
	words := bits/64 + 1
	c.budget -= 1 + words + words*words/1500
	return c.budget >= 0
}

// spend is afford that fails.
func (c *Checker) spend(bits int) { ball.FailIf(!c.afford(bits), errLimit) }

func bitsOf(r *big.Rat) int { return r.Num().BitLen() + r.Denom().BitLen() }

// charged charges for r and refuses it past maxBits.
func (c *Checker) charged(r *big.Rat) *big.Rat {
	bits := bitsOf(r)
	ball.FailIf(bits > 2*maxBits, errLimit)
	c.spend(bits)
	if !r.IsInt() {
		// Fractions are reduced, in time quadratic in their length.
		words := bits/64 + 1
		c.budget -= words * words / 40
	}
	return r
}

// rational evaluates n exactly at a point. It fails with errIrrational where
// the value is not rational or has unknowns, with errUndefined, or errLimit.
func (c *Checker) rational(n *latex.Node, at *point) (r *big.Rat, err error) {
	return ball.Try(func() *big.Rat { return c.exact(n, at) })
}

// exact is the value of n at a point. It panics, for ball.Try, with the errors of rational.
func (c *Checker) exact(n *latex.Node, at *point) *big.Rat {
	ball.FailIf(n == nil, errIrrational)
	c.budget-- // charged and spend notice when it is used up; charged also refuses numbers that are too large
	switch n.Op {
	case latex.Num:
		return n.Rat
	case latex.Sym:
		p := at.lookup(n.Name)
		ball.FailIf(p == nil || p.logFactor != nil, errIrrational) // a logFactor makes the value transcendental
		return p.value
	case latex.Add, latex.Mul, latex.Div, latex.Neg, latex.Percent, latex.Abs, latex.Floor, latex.Ceil, latex.Fact, latex.Fact2:
	case latex.Pow:
		return c.rationalPower(n, at)
	case latex.Root:
		return c.rationalRoot(n, at)
	case latex.Binom:
		return c.rationalBinomial(n, at)
	case latex.Sum, latex.Prod:
		return c.rationalSeries(n, at)
	case latex.Func:
		return c.rationalFunction(n, at)
	default:
		ball.Fail(errIrrational)
	}
	first := c.exact(n.Args[0], at)
	if n.Op != latex.Add && n.Op != latex.Mul && n.Op != latex.Div {
		return c.unary(n.Op, first)
	}
	total := new(big.Rat).Set(first)
	for _, arg := range n.Args[1:] {
		v := c.exact(arg, at)
		switch n.Op {
		case latex.Add:
			total.Add(total, v)
		case latex.Mul:
			total.Mul(total, v)
		case latex.Div:
			ball.FailIf(v.Sign() == 0, errUndefined)
			total.Quo(total, v)
		}
		c.charged(total)
	}
	return total
}

// unary is the operation op of x.
func (c *Checker) unary(op latex.Op, x *big.Rat) *big.Rat {
	switch op {
	case latex.Neg:
		return new(big.Rat).Neg(x)
	case latex.Percent:
		return c.charged(new(big.Rat).Mul(x, big.NewRat(1, 100)))
	case latex.Abs:
		return new(big.Rat).Abs(x)
	case latex.Floor:
		return new(big.Rat).SetInt(floorRat(x))
	case latex.Ceil:
		f := floorRat(new(big.Rat).Neg(x))
		return new(big.Rat).SetInt(f.Neg(f))
	case latex.Fact:
		return c.factorial(x, 1)
	}
	return c.factorial(x, 2)
}

// floorRat is the largest integer not above r.
func floorRat(r *big.Rat) *big.Int {
	return new(big.Int).Div(r.Num(), r.Denom()) // Euclidean: rounds down for a positive divisor
}

// factorial is the product of n, n-step, ... down to 1 or 2.
func (c *Checker) factorial(r *big.Rat, step int64) *big.Rat {
	ball.FailIf(!r.IsInt() || r.Sign() < 0, errUndefined)
	ball.FailIf(!r.Num().IsInt64() || r.Num().Int64() > maxFact, errLimit)
	n := r.Num().Int64()
	v := big.NewInt(1)
	if step == 1 {
		v.MulRange(1, n)
	} else {
		for k := n; k > 1; k -= step {
			v.Mul(v, big.NewInt(k))
		}
	}
	c.budget -= int(n) / 4
	return c.charged(new(big.Rat).SetInt(v))
}

// rationalPower is base^exponent where that is rational.
func (c *Checker) rationalPower(n *latex.Node, at *point) *big.Rat {
	base, exp := c.exact(n.Args[0], at), c.exact(n.Args[1], at)
	if exp.IsInt() {
		return c.integerPower(base, exp.Num())
	}
	// a^(p/q) where a is a q-th power.
	ball.FailIf(!exp.Denom().IsInt64() || exp.Denom().Int64() > 1000, errIrrational)
	return c.integerPower(c.exactRoot(base, exp.Denom().Int64()), exp.Num())
}

// integerPower is base^exp. 0^0 is 1, as everywhere in combinatorics.
func (c *Checker) integerPower(base *big.Rat, exp *big.Int) *big.Rat {
	one := big.NewRat(1, 1)
	switch {
	case exp.Sign() == 0 || base.Cmp(one) == 0:
		return one
	case base.Sign() == 0 && exp.Sign() < 0:
		ball.Fail(errUndefined)
	case base.Sign() == 0:
		return new(big.Rat)
	case base.Cmp(big.NewRat(-1, 1)) == 0:
		if exp.Bit(0) == 0 {
			return one
		}
		return base
	}
	size := new(big.Int).Abs(exp)
	// A number of k bits to the power m has at least (k-1)m bits.
	ball.FailIf(!size.IsInt64() || size.Int64() > maxBits || int64(max(base.Num().BitLen(), base.Denom().BitLen())-1)*size.Int64() > maxBits, errLimit)
	num := new(big.Int).Exp(base.Num(), size, nil)
	den := new(big.Int).Exp(base.Denom(), size, nil)
	if exp.Sign() < 0 {
		num, den = den, num
		if den.Sign() < 0 {
			num.Neg(num)
			den.Neg(den)
		}
	}
	c.spend(num.BitLen() + den.BitLen())
	// Powers of coprime numbers are coprime. SetFrac would still look for a common
	// divisor, at great cost, so the parts are set separately.
	power := big.NewRat(1, 2) // not 1: Denom of an integer is a copy
	power.Num().Set(num)
	power.Denom().Set(den)
	return power
}

// rationalRoot is a root that is rational.
func (c *Checker) rationalRoot(n *latex.Node, at *point) *big.Rat {
	x, index := c.exact(n.Args[0], at), c.exact(n.Args[1], at)
	ball.FailIf(!index.IsInt() || !index.Num().IsInt64() || index.Num().Int64() < 1 || index.Num().Int64() > 1000, errIrrational)
	return c.exactRoot(x, index.Num().Int64())
}

// exactRoot is the k-th root of x if it is rational; odd roots of negative numbers are real.
func (c *Checker) exactRoot(x *big.Rat, k int64) *big.Rat {
	ball.FailIf(x.Sign() < 0 && k%2 == 0, errIrrational)
	num := c.integerRoot(new(big.Int).Abs(x.Num()), k)
	if x.Sign() < 0 {
		num.Neg(num)
	}
	return new(big.Rat).SetFrac(num, c.integerRoot(x.Denom(), k))
}

// integerRoot is the k-th root of x >= 0, which fails if it is not an integer, or if finding it would cost too much.
func (c *Checker) integerRoot(x *big.Int, k int64) *big.Int {
	if x.BitLen() <= 1 || k == 1 {
		return new(big.Int).Set(x)
	}
	ball.FailIf(x.BitLen() > maxBits || !c.afford(8*x.BitLen()), errIrrational)
	if k == 2 {
		r := new(big.Int).Sqrt(x)
		ball.FailIf(new(big.Int).Mul(r, r).Cmp(x) != 0, errIrrational)
		return r
	}
	ball.FailIf(int64(x.BitLen()) <= k || x.BitLen() > 4000, errIrrational) // with so few bits the root is between 1 and 2
	// Newton's iteration from above.
	r := new(big.Int).Lsh(big.NewInt(1), uint((int64(x.BitLen())+k-1)/k))
	bigK, bigK1 := big.NewInt(k), big.NewInt(k-1)
	for {
		t := new(big.Int).Exp(r, bigK1, nil)
		t.Quo(x, t)
		t.Add(t, new(big.Int).Mul(r, bigK1))
		t.Quo(t, bigK)
		if t.Cmp(r) >= 0 {
			break
		}
		r = t
		ball.FailIf(!c.afford(8*x.BitLen()), errIrrational)
	}
	ball.FailIf(new(big.Int).Exp(r, bigK, nil).Cmp(x) != 0, errIrrational)
	return r
}

// rationalBinomial is n over k for whole numbers.
func (c *Checker) rationalBinomial(n *latex.Node, at *point) *big.Rat {
	top, k := c.exact(n.Args[0], at), c.exact(n.Args[1], at)
	ball.FailIf(!k.IsInt() || !top.IsInt() || top.Sign() < 0, errIrrational)
	if k.Sign() < 0 || top.Cmp(k) < 0 {
		return new(big.Rat)
	}
	if other := new(big.Rat).Sub(top, k); other.Cmp(k) < 0 {
		k = other // n over k is n over n-k
	}
	ball.FailIf(!top.Num().IsInt64() || !k.Num().IsInt64() || k.Num().Int64() > maxFact/2 || int64(bitsOf(top))*k.Num().Int64() > maxBits, errLimit)
	c.spend(bitsOf(top) * int(k.Num().Int64()))
	return c.charged(new(big.Rat).SetInt(new(big.Int).Binomial(top.Num().Int64(), k.Num().Int64())))
}

// bounds are the integer bounds of a sum.
func (c *Checker) bounds(n *latex.Node, at *point) (low, high int64) {
	l, h := c.exact(n.Args[2], at), c.exact(n.Args[3], at)
	ball.FailIf(!l.IsInt() || !h.IsInt(), errUndefined)
	d := new(big.Int).Sub(h.Num(), l.Num())
	ball.FailIf(!l.Num().IsInt64() || !h.Num().IsInt64() || d.Cmp(big.NewInt(maxTerms)) > 0, errLimit)
	return l.Num().Int64(), h.Num().Int64()
}

// rationalSeries adds or multiplies the terms of a finite sum or product.
func (c *Checker) rationalSeries(n *latex.Node, at *point) *big.Rat {
	low, high := c.bounds(n, at)
	total := new(big.Rat)
	if n.Op == latex.Prod {
		total.SetInt64(1)
	}
	for k := low; k <= high; k++ {
		v := c.exact(n.Args[0], &point{name: n.Args[1].Name, value: big.NewRat(k, 1), next: at})
		if n.Op == latex.Prod {
			total.Mul(total, v)
		} else {
			total.Add(total, v)
		}
		c.charged(total)
	}
	return total
}

// rationalFunction evaluates the functions that keep numbers rational; others fail with errIrrational.
func (c *Checker) rationalFunction(n *latex.Node, at *point) *big.Rat {
	switch n.Name {
	case "gcd", "lcm", "max", "min", "sgn":
	default:
		ball.Fail(errIrrational)
	}
	var total *big.Rat
	for _, arg := range n.Args {
		v := c.exact(arg, at)
		switch {
		case n.Name == "sgn":
			return big.NewRat(int64(v.Sign()), 1)
		case total == nil:
			total = v
		case n.Name == "max" && v.Cmp(total) > 0, n.Name == "min" && v.Cmp(total) < 0:
			total = v
		case n.Name == "gcd" || n.Name == "lcm":
			ball.FailIf(!v.IsInt() || !total.IsInt(), errUndefined)
			a, b := new(big.Int).Abs(total.Num()), new(big.Int).Abs(v.Num())
			c.spend(8 * (a.BitLen() + b.BitLen()))
			g := new(big.Int).GCD(nil, nil, a, b)
			if n.Name == "lcm" && g.Sign() != 0 {
				g.Quo(a.Mul(a, b), g)
			}
			total = new(big.Rat).SetInt(g)
		}
	}
	ball.FailIf(total == nil, errUndefined)
	return total
}
