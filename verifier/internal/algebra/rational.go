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

// A point gives variables values. Sums bind their index by linking a new point in
// front.
type point struct {
	name  string
	value *big.Rat
	// turn, if not nil, makes the variable value·e^turn, which is transcendental: no sine
	// of a multiple of pi vanishes there, and no floor jumps.
	turn *big.Rat
	next *point
	ball ball.Real // value·e^turn with prec bits
	prec uint
}

// lookup is the point that gives name its value, nil if none does.
func (p *point) lookup(name string) *point {
	for ; p != nil && p.name != name; p = p.next {
	}
	return p
}

// spend takes the cost of one operation on numbers of so many bits.
func (c *Checker) spend(bits int) error {
	words := bits/64 + 1
	c.budget -= 1 + words + words*words/1500
	if c.budget < 0 {
		return errLimit
	}
	return nil
}

func bitsOf(r *big.Rat) int { return r.Num().BitLen() + r.Denom().BitLen() }

// checked charges for r and refuses it past maxBits.
func (c *Checker) checked(r *big.Rat) (*big.Rat, error) {
	bits := bitsOf(r)
	if bits > 2*maxBits {
		return nil, errLimit
	}
	if err := c.spend(bits); err != nil {
		return nil, err
	}
	if !r.IsInt() {
		// Fractions are reduced, in time quadratic in their length.
		words := bits/64 + 1
		c.budget -= words * words / 40
	}
	return r, nil
}

// rational evaluates n exactly at a point. It fails with errIrrational where
// the value is not rational or has unknowns, with errUndefined, or errLimit.
func (c *Checker) rational(n *latex.Node, at *point) (*big.Rat, error) {
	if n == nil {
		return nil, errIrrational
	}
	c.budget--
	switch n.Op {
	case latex.Num:
		return n.Rat, nil
	case latex.Sym:
		if p := at.lookup(n.Name); p != nil && p.turn == nil {
			return p.value, nil
		}
		return nil, errIrrational
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
		return nil, errIrrational
	}
	first, err := c.rational(n.Args[0], at)
	if err != nil {
		return nil, err
	}
	switch n.Op {
	case latex.Neg:
		return new(big.Rat).Neg(first), nil
	case latex.Percent:
		return c.checked(new(big.Rat).Mul(first, big.NewRat(1, 100)))
	case latex.Abs:
		return new(big.Rat).Abs(first), nil
	case latex.Floor:
		return new(big.Rat).SetInt(floorRat(first)), nil
	case latex.Ceil:
		f := floorRat(new(big.Rat).Neg(first))
		return new(big.Rat).SetInt(f.Neg(f)), nil
	case latex.Fact:
		return c.factorial(first, 1)
	case latex.Fact2:
		return c.factorial(first, 2)
	}
	total := new(big.Rat).Set(first)
	for _, arg := range n.Args[1:] {
		v, err := c.rational(arg, at)
		if err != nil {
			return nil, err
		}
		switch n.Op {
		case latex.Add:
			total.Add(total, v)
		case latex.Mul:
			total.Mul(total, v)
		case latex.Div:
			if v.Sign() == 0 {
				return nil, errUndefined
			}
			total.Quo(total, v)
		}
		if _, err := c.checked(total); err != nil {
			return nil, err
		}
	}
	return total, nil
}

// floorRat is the largest integer not above r.
func floorRat(r *big.Rat) *big.Int {
	return new(big.Int).Div(r.Num(), r.Denom()) // Euclidean: rounds down for a positive divisor
}

// factorial is the product of n, n-step, ... down to 1 or 2.
func (c *Checker) factorial(r *big.Rat, step int64) (*big.Rat, error) {
	if !r.IsInt() || r.Sign() < 0 {
		return nil, errUndefined
	}
	if !r.Num().IsInt64() || r.Num().Int64() > maxFact {
		return nil, errLimit
	}
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
	return c.checked(new(big.Rat).SetInt(v))
}

// rationalPower is base^exponent where that is rational.
func (c *Checker) rationalPower(n *latex.Node, at *point) (*big.Rat, error) {
	base, err := c.rational(n.Args[0], at)
	if err != nil {
		return nil, err
	}
	exp, err := c.rational(n.Args[1], at)
	if err != nil {
		return nil, err
	}
	if exp.IsInt() {
		return c.integerPower(base, exp.Num())
	}
	// a^(p/q) where a is a q-th power.
	if !exp.Denom().IsInt64() || exp.Denom().Int64() > 1000 {
		return nil, errIrrational
	}
	root, err := c.exactRoot(base, exp.Denom().Int64())
	if err != nil {
		return nil, err
	}
	return c.integerPower(root, exp.Num())
}

// integerPower is base^exp. 0^0 is 1, as everywhere in combinatorics.
func (c *Checker) integerPower(base *big.Rat, exp *big.Int) (*big.Rat, error) {
	one := big.NewRat(1, 1)
	switch {
	case exp.Sign() == 0 || base.Cmp(one) == 0:
		return one, nil
	case base.Sign() == 0 && exp.Sign() < 0:
		return nil, errUndefined
	case base.Sign() == 0:
		return new(big.Rat), nil
	case base.Cmp(big.NewRat(-1, 1)) == 0:
		if exp.Bit(0) == 0 {
			return one, nil
		}
		return base, nil
	}
	size := new(big.Int).Abs(exp)
	if !size.IsInt64() || size.Int64() > maxBits || int64(max(base.Num().BitLen(), base.Denom().BitLen())-1)*size.Int64() > maxBits {
		return nil, errLimit
	}
	num := new(big.Int).Exp(base.Num(), size, nil)
	den := new(big.Int).Exp(base.Denom(), size, nil)
	if exp.Sign() < 0 {
		num, den = den, num
		if den.Sign() < 0 {
			num.Neg(num)
			den.Neg(den)
		}
	}
	if err := c.spend(num.BitLen() + den.BitLen()); err != nil {
		return nil, err
	}
	// Powers of coprime numbers are coprime. SetFrac would look for a common
	// divisor all the same, at great cost, so the parts are set one by one.
	power := big.NewRat(1, 2)
	power.Num().Set(num)
	power.Denom().Set(den)
	return power, nil
}

// rationalRoot is a root that is rational.
func (c *Checker) rationalRoot(n *latex.Node, at *point) (*big.Rat, error) {
	x, err := c.rational(n.Args[0], at)
	if err != nil {
		return nil, err
	}
	index, err := c.rational(n.Args[1], at)
	if err != nil {
		return nil, err
	}
	if !index.IsInt() || !index.Num().IsInt64() {
		return nil, errIrrational
	}
	k := index.Num().Int64()
	if k < 1 || k > 1000 {
		return nil, errIrrational
	}
	return c.exactRoot(x, k)
}

// exactRoot is the k-th root of x if it is rational; odd roots of negative
// numbers are real.
func (c *Checker) exactRoot(x *big.Rat, k int64) (*big.Rat, error) {
	if x.Sign() < 0 && k%2 == 0 {
		return nil, errIrrational
	}
	num, ok := c.integerRoot(new(big.Int).Abs(x.Num()), k)
	if !ok {
		return nil, errIrrational
	}
	den, ok := c.integerRoot(x.Denom(), k)
	if !ok {
		return nil, errIrrational
	}
	if x.Sign() < 0 {
		num.Neg(num)
	}
	return new(big.Rat).SetFrac(num, den), nil
}

// integerRoot is the k-th root of x >= 0 if it is an integer.
func (c *Checker) integerRoot(x *big.Int, k int64) (*big.Int, bool) {
	if x.BitLen() <= 1 || k == 1 {
		return new(big.Int).Set(x), true
	}
	if x.BitLen() > maxBits || c.spend(8*x.BitLen()) != nil {
		return nil, false
	}
	if k == 2 {
		r := new(big.Int).Sqrt(x)
		return r, new(big.Int).Mul(r, r).Cmp(x) == 0
	}
	if int64(x.BitLen()) <= k {
		return nil, false // between 1 and 2
	}
	if x.BitLen() > 4000 {
		return nil, false
	}
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
		if c.spend(8*x.BitLen()) != nil {
			return nil, false
		}
	}
	return r, new(big.Int).Exp(r, bigK, nil).Cmp(x) == 0
}

// rationalBinomial is n over k for integer k; n may be any rational.
func (c *Checker) rationalBinomial(n *latex.Node, at *point) (*big.Rat, error) {
	top, err := c.rational(n.Args[0], at)
	if err != nil {
		return nil, err
	}
	k, err := c.rational(n.Args[1], at)
	if err != nil {
		return nil, err
	}
	if !k.IsInt() {
		return nil, errIrrational
	}
	if k.Sign() < 0 {
		return new(big.Rat), nil
	}
	if top.IsInt() && top.Sign() >= 0 {
		if top.Cmp(k) < 0 {
			return new(big.Rat), nil
		}
		if other := new(big.Rat).Sub(top, k); other.Cmp(k) < 0 {
			k = other
		}
	}
	if !k.Num().IsInt64() || k.Num().Int64() > maxFact/2 || int64(bitsOf(top))*k.Num().Int64() > maxBits {
		return nil, errLimit
	}
	v := big.NewRat(1, 1)
	for i := range k.Num().Int64() {
		v.Mul(v, new(big.Rat).Sub(top, big.NewRat(i, 1)))
		v.Quo(v, big.NewRat(i+1, 1))
		if _, err := c.checked(v); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// bounds are the integer bounds of a sum.
func (c *Checker) bounds(n *latex.Node, at *point) (low, high int64, err error) {
	l, err := c.rational(n.Args[2], at)
	if err != nil {
		return 0, 0, err
	}
	h, err := c.rational(n.Args[3], at)
	if err != nil {
		return 0, 0, err
	}
	if !l.IsInt() || !h.IsInt() {
		return 0, 0, errUndefined
	}
	if !l.Num().IsInt64() || !h.Num().IsInt64() {
		return 0, 0, errLimit
	}
	low, high = l.Num().Int64(), h.Num().Int64()
	if d := new(big.Int).Sub(h.Num(), l.Num()); d.Cmp(big.NewInt(maxTerms)) > 0 {
		return 0, 0, errLimit
	}
	return low, high, nil
}

// rationalSeries adds or multiplies the terms of a finite sum or product.
func (c *Checker) rationalSeries(n *latex.Node, at *point) (*big.Rat, error) {
	low, high, err := c.bounds(n, at)
	if err != nil {
		return nil, err
	}
	total := new(big.Rat)
	if n.Op == latex.Prod {
		total.SetInt64(1)
	}
	for k := low; k <= high; k++ {
		v, err := c.rational(n.Args[0], &point{name: n.Args[1].Name, value: big.NewRat(k, 1), next: at})
		if err != nil {
			return nil, err
		}
		if n.Op == latex.Prod {
			total.Mul(total, v)
		} else {
			total.Add(total, v)
		}
		if _, err := c.checked(total); err != nil {
			return nil, err
		}
	}
	return total, nil
}

// rationalFunction evaluates the functions that keep numbers rational.
func (c *Checker) rationalFunction(n *latex.Node, at *point) (*big.Rat, error) {
	switch n.Name {
	case "gcd", "lcm", "max", "min", "sgn":
	case "sin", "cos", "tan":
		return c.rationalAngle(n.Name, n.Args[0], at)
	default:
		return c.rationalZero(n, at)
	}
	var total *big.Rat
	for _, arg := range n.Args {
		v, err := c.rational(arg, at)
		if err != nil {
			return nil, err
		}
		switch {
		case n.Name == "sgn":
			return big.NewRat(int64(v.Sign()), 1), nil
		case total == nil:
			total = v
		case n.Name == "max" && v.Cmp(total) > 0, n.Name == "min" && v.Cmp(total) < 0:
			total = v
		case n.Name == "gcd" || n.Name == "lcm":
			if !v.IsInt() || !total.IsInt() {
				return nil, errUndefined
			}
			a, b := new(big.Int).Abs(total.Num()), new(big.Int).Abs(v.Num())
			if err := c.spend(8 * (a.BitLen() + b.BitLen())); err != nil {
				return nil, err
			}
			g := new(big.Int).GCD(nil, nil, a, b)
			if n.Name == "lcm" && g.Sign() != 0 {
				g.Quo(a.Mul(a, b), g)
			}
			total = new(big.Rat).SetInt(g)
		}
	}
	if total == nil {
		return nil, errUndefined
	}
	return total, nil
}
