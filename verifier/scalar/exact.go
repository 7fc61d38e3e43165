package scalar

import (
	"math/big"

	"onering/verifier/latex"
)

// A point gives every free symbol a rational value.
type point map[string]*big.Rat

// evaluator computes values of trees at a point.
type evaluator struct {
	*budget
	at      point
	maxBits int // of exact values
	reals   bool
	bound   int // depth of bound variables
}

func bits(r *big.Rat) int { return r.Num().BitLen() + r.Denom().BitLen() }

// sized returns r unless it grew past the limit; larger values are left to
// approximate arithmetic.
func (v *evaluator) sized(r *big.Rat) (*big.Rat, error) {
	n := bits(r)
	if n > v.maxBits {
		return nil, errInexact
	}
	return r, v.spendExact(n, r.IsInt())
}

// exact is the rational value of n. It ends with errInexact where the value is
// not rational, is not known to be, or is too long.
func (v *evaluator) exact(n *latex.Node) (*big.Rat, error) {
	if n == nil {
		return nil, ErrForeign
	}
	switch n.Op {
	case latex.Num:
		return v.sized(n.Rat)
	case latex.Sym, latex.Unit:
		return v.symbol(n)
	case latex.Const:
		if n.Name == "infty" {
			return v.symbol(n)
		}
		return nil, errInexact
	case latex.Sum, latex.Prod:
		return v.exactSeries(n)
	case latex.App, latex.Index, latex.Opaque, latex.Mod:
		return v.hashed(n)
	}
	args := make([]*big.Rat, len(n.Args))
	for i, arg := range n.Args {
		x, err := v.exact(arg)
		if err != nil {
			return nil, err
		}
		args[i] = x
	}
	if f := exactRules[n.Op]; f != nil && arity(n) {
		return f(v, n, args)
	}
	if n.Op.Scalar() && n.Op != latex.PlusMinus && n.Op != latex.MinusPlus {
		return nil, errInexact
	}
	return nil, ErrForeign
}

// arity reports whether n has the arguments that its kind needs.
func arity(n *latex.Node) bool {
	switch n.Op {
	case latex.Div, latex.Pow, latex.Root, latex.Binom:
		return len(n.Args) == 2
	case latex.Neg, latex.Fact, latex.Fact2, latex.Abs, latex.Floor, latex.Ceil, latex.Percent, latex.Degree:
		return len(n.Args) == 1
	}
	return len(n.Args) > 0
}

var exactRules = map[latex.Op]func(*evaluator, *latex.Node, []*big.Rat) (*big.Rat, error){
	latex.Add:     (*evaluator).exactSum,
	latex.Mul:     (*evaluator).exactProduct,
	latex.Div:     (*evaluator).exactQuotient,
	latex.Pow:     (*evaluator).exactPower,
	latex.Root:    (*evaluator).exactRoot,
	latex.Fact:    (*evaluator).exactFactorial,
	latex.Fact2:   (*evaluator).exactFactorial,
	latex.Binom:   (*evaluator).exactBinomial,
	latex.Func:    (*evaluator).exactFunction,
	latex.Neg:     unary(func(x *big.Rat) *big.Rat { return x.Neg(x) }),
	latex.Abs:     unary(func(x *big.Rat) *big.Rat { return x.Abs(x) }),
	latex.Percent: unary(func(x *big.Rat) *big.Rat { return x.Quo(x, big.NewRat(100, 1)) }),
	latex.Floor:   unary(floor),
	latex.Ceil:    unary(func(x *big.Rat) *big.Rat { return x.Neg(floor(x.Neg(x))) }),
}

// unary is a rule of one argument; f may change its argument.
func unary(f func(*big.Rat) *big.Rat) func(*evaluator, *latex.Node, []*big.Rat) (*big.Rat, error) {
	return func(v *evaluator, _ *latex.Node, args []*big.Rat) (*big.Rat, error) {
		return v.sized(f(new(big.Rat).Set(args[0])))
	}
}

// floor rounds down: Div by a positive denominator is Euclidean.
func floor(x *big.Rat) *big.Rat {
	return new(big.Rat).SetInt(new(big.Int).Div(x.Num(), x.Denom()))
}

func (v *evaluator) exactSum(_ *latex.Node, args []*big.Rat) (*big.Rat, error) {
	sum := new(big.Rat)
	for _, x := range args {
		var err error
		if sum, err = v.sized(sum.Add(sum, x)); err != nil {
			return nil, err
		}
	}
	return sum, nil
}

func (v *evaluator) exactProduct(_ *latex.Node, args []*big.Rat) (*big.Rat, error) {
	product := big.NewRat(1, 1)
	for _, x := range args {
		var err error
		if product, err = v.sized(product.Mul(product, x)); err != nil {
			return nil, err
		}
	}
	return product, nil
}

func (v *evaluator) exactQuotient(_ *latex.Node, args []*big.Rat) (*big.Rat, error) {
	if args[1].Sign() == 0 {
		return nil, errUndefined
	}
	return v.sized(new(big.Rat).Quo(args[0], args[1]))
}

func (v *evaluator) exactPower(_ *latex.Node, args []*big.Rat) (*big.Rat, error) {
	base, exp := args[0], args[1]
	switch {
	case exp.Sign() == 0:
		return big.NewRat(1, 1), nil // 0^0 = 1, as in a polynomial
	case base.Sign() == 0 && exp.Sign() < 0:
		return nil, errUndefined
	case base.Sign() == 0 || base.Cmp(big.NewRat(1, 1)) == 0:
		return base, nil
	case !exp.IsInt():
		return nil, errInexact
	}
	if base.IsInt() && base.Num().CmpAbs(big.NewInt(1)) == 0 {
		if exp.Num().Bit(0) == 0 {
			return big.NewRat(1, 1), nil
		}
		return base, nil
	}
	if !exp.Num().IsInt64() {
		return nil, errInexact
	}
	e := exp.Num().Int64()
	if e < 0 {
		e = -e
	}
	if e <= 0 || e > int64(v.maxBits) || int64(bits(base))*e > int64(v.maxBits) {
		return nil, errInexact
	}
	// The powers of coprime numbers are coprime.
	num := new(big.Int).Exp(base.Num(), big.NewInt(e), nil)
	den := new(big.Int).Exp(base.Denom(), big.NewInt(e), nil)
	if exp.Sign() < 0 {
		num, den = den, num
	}
	return v.sized(new(big.Rat).SetFrac(num, den))
}

// exactRoot knows square roots of squares; the rest is left to approximation.
func (v *evaluator) exactRoot(_ *latex.Node, args []*big.Rat) (*big.Rat, error) {
	x, index := args[0], args[1]
	if !index.IsInt() || !index.Num().IsInt64() || index.Num().Int64() != 2 || x.Sign() < 0 {
		return nil, errInexact
	}
	num, den := new(big.Int).Sqrt(x.Num()), new(big.Int).Sqrt(x.Denom())
	if new(big.Int).Mul(num, num).Cmp(x.Num()) != 0 || new(big.Int).Mul(den, den).Cmp(x.Denom()) != 0 {
		return nil, errInexact
	}
	return v.sized(new(big.Rat).SetFrac(num, den))
}

// exactFactorial is x! or x!!.
func (v *evaluator) exactFactorial(n *latex.Node, args []*big.Rat) (*big.Rat, error) {
	x := args[0]
	if !x.IsInt() || x.Sign() < 0 {
		return nil, errUndefined
	}
	if !x.Num().IsInt64() || x.Num().Int64() > maxFactorial {
		return nil, ErrLimit
	}
	k := x.Num().Int64()
	if n.Op == latex.Fact {
		if err := v.spend(int(k)/8+1, 0); err != nil {
			return nil, err
		}
		return v.sized(new(big.Rat).SetInt(new(big.Int).MulRange(1, k)))
	}
	product := big.NewInt(1)
	for ; k > 1; k -= 2 {
		product.Mul(product, big.NewInt(k))
		if err := v.spend(1, product.BitLen()/8); err != nil {
			return nil, err
		}
	}
	return v.sized(new(big.Rat).SetInt(product))
}

// exactBinomial is n(n-1)...(n-k+1)/k! for a whole k; 0 where k is negative.
func (v *evaluator) exactBinomial(_ *latex.Node, args []*big.Rat) (*big.Rat, error) {
	n, k := args[0], args[1]
	if !k.IsInt() {
		return nil, errUndefined
	}
	if k.Sign() < 0 {
		return new(big.Rat), nil
	}
	if n.IsInt() && n.Sign() >= 0 {
		if k.Cmp(n) > 0 {
			return new(big.Rat), nil
		}
		if rest := new(big.Rat).Sub(n, k); rest.Cmp(k) < 0 {
			k = rest
		}
	}
	if !k.Num().IsInt64() || k.Num().Int64() > maxFactorial {
		return nil, ErrLimit
	}
	product := big.NewRat(1, 1)
	factor := new(big.Rat).Set(n)
	one := big.NewRat(1, 1)
	for j := int64(1); j <= k.Num().Int64(); j++ {
		product.Mul(product, factor)
		product.Quo(product, new(big.Rat).SetInt64(j))
		factor.Sub(factor, one)
		var err error
		if product, err = v.sized(product); err != nil {
			if err == errInexact {
				return nil, ErrLimit
			}
			return nil, err
		}
	}
	return product, nil
}

// exactFunction knows the functions that take rationals to rationals.
func (v *evaluator) exactFunction(n *latex.Node, args []*big.Rat) (*big.Rat, error) {
	switch n.Name {
	case "max", "min":
		best := args[0]
		for _, x := range args[1:] {
			if c := x.Cmp(best); c > 0 == (n.Name == "max") {
				best = x
			}
		}
		return best, nil
	case "gcd", "lcm":
		result := new(big.Int)
		for i, x := range args {
			if !x.IsInt() {
				return nil, errUndefined
			}
			a := new(big.Int).Abs(x.Num())
			g := new(big.Int).GCD(nil, nil, result, a)
			switch {
			case i == 0:
				result = a
			case n.Name == "gcd":
				result = g
			case g.Sign() != 0:
				result = a.Mul(a, result.Quo(result, g))
			}
		}
		return v.sized(new(big.Rat).SetInt(result))
	case "sgn":
		return new(big.Rat).SetInt64(int64(args[0].Sign())), nil
	case "re":
		return args[0], nil
	case "im":
		return new(big.Rat), nil
	}
	return nil, errInexact
}

// limits are the whole numbers between which a series runs.
func (v *evaluator) limits(n *latex.Node) (low, high int64, err error) {
	if len(n.Args) != 4 {
		return 0, 0, ErrForeign
	}
	var ends [2]int64
	for i, arg := range n.Args[2:] {
		x, err := v.exact(arg)
		if err != nil {
			return 0, 0, err
		}
		if !x.IsInt() {
			return 0, 0, errUndefined
		}
		if !x.Num().IsInt64() {
			return 0, 0, ErrLimit
		}
		ends[i] = x.Num().Int64()
	}
	if ends[1] >= ends[0] && uint64(ends[1]-ends[0]) >= maxTerms {
		return 0, 0, ErrLimit
	}
	return ends[0], ends[1], nil
}

// endless reports whether a series runs to infinity or has no limits.
func endless(n *latex.Node) bool {
	for _, arg := range n.Args[min(2, len(n.Args)):] {
		if arg == nil || contains(arg, func(m *latex.Node) bool { return m.Op == latex.Const && m.Name == "infty" }) {
			return true
		}
	}
	return len(n.Args) != 4
}

// exactSeries adds or multiplies the terms of a finite series.
func (v *evaluator) exactSeries(n *latex.Node) (*big.Rat, error) {
	if endless(n) || !n.Args[1].Is(latex.Sym) {
		return v.hashed(n)
	}
	low, high, err := v.limits(n)
	if err != nil {
		return nil, err
	}
	total := new(big.Rat)
	if n.Op == latex.Prod {
		total.SetInt64(1)
	}
	defer v.bind(n.Args[1].Name, nil)()
	for k := low; k <= high; k++ {
		v.at[n.Args[1].Name] = new(big.Rat).SetInt64(k)
		x, err := v.exact(n.Args[0])
		if err != nil {
			return nil, err
		}
		if n.Op == latex.Prod {
			total.Mul(total, x)
		} else {
			total.Add(total, x)
		}
		if total, err = v.sized(total); err != nil {
			return nil, err
		}
	}
	return total, nil
}

// bind gives name a value until the function it returns is called.
func (v *evaluator) bind(name string, value *big.Rat) (undo func()) {
	old, had := v.at[name]
	v.at[name] = value
	v.bound++
	return func() {
		v.bound--
		if had {
			v.at[name] = old
		} else {
			delete(v.at, name)
		}
	}
}
