package algebra

import (
	"maps"
	"math/big"

	"onering/verifier/internal/latex"
)

// mix is a hash of x; splitmix64's finaliser.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hashName is a hash of a string (FNV-1a, mixed).
func hashName(s string, seed uint64) uint64 {
	h := mix(seed) ^ 0xcbf29ce484222325 // a mixed seed, or a at 21 is b at 22
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return mix(h)
}

// A formula is an evaluation in a field at one random point.
type formula struct {
	c            *Checker
	field        *field
	seed         uint64
	conclusive   bool // only field operations on unknowns so far, so that a difference is proof
	spoiled      bool // a division by zero, or out of budget
	bound        []string
	limitsAround int             // depth of enclosing series, integrals and limits
	factors      map[string]bool // functions that are to be read as factors
}

// formulas reports whether a and b have the same value at two random points, and whether a difference would be proof.
func (c *Checker) formulas(a, b *latex.Node) (same, conclusive bool) {
	factors, pair := factorLetters(a, b), pairSeed(a, b)
	for _, seed := range [...]uint64{1, 2} {
		f := formula{c: c, field: fieldFor(pair + seed), seed: seed, conclusive: true, factors: factors}
		x, y := f.value(a), f.value(b)
		if f.spoiled {
			return false, false
		}
		if x != y {
			return false, f.conclusive
		}
		conclusive = f.conclusive
	}
	return true, conclusive
}

// value is the residue of n at the point: of field operations on the residues of its parts, of anything else an unknown
// that depends on them. Where there is none, spoiled is set and it is 0.
func (f *formula) value(n *latex.Node) uint64 {
	if f.c.budget--; f.c.budget < 0 || f.spoiled {
		f.spoiled = true
		return 0
	}
	if n == nil {
		return f.unknown(0, "nil")
	}
	switch n.Op {
	case latex.Root, latex.Fact, latex.Fact2, latex.Binom, latex.Abs, latex.Floor, latex.Ceil, latex.Sum, latex.Prod:
		if r, err := f.c.rational(n, nil); len(f.bound) == 0 && err == nil { // such as sqrt 4
			return f.ratio(r)
		}
	}
	switch n.Op {
	case latex.Num:
		return f.ratio(n.Rat)
	case latex.Sym:
		for i := len(f.bound) - 1; i >= 0; i-- {
			if f.bound[i] == n.Name {
				return mix(f.seed+uint64(i)+77) % f.field.p // by its depth: the name of an index does not matter
			}
		}
		return hashName(n.Name, f.seed) % f.field.p
	case latex.Const:
		switch n.Name {
		case "i":
			return f.field.root
		case "infty":
			if f.limitsAround == 0 { // infinity is no number, but may be a limit
				f.spoiled = true
				return 0
			}
		}
		return f.constant(n.Name)
	case latex.Unit:
		return hashName("unit "+n.Name, f.seed) % f.field.p
	case latex.Add:
		s := uint64(0)
		for _, arg := range n.Args {
			s = f.field.add(s, f.value(arg))
		}
		return s
	case latex.Mul:
		p := uint64(1)
		for _, arg := range n.Args {
			p = f.field.mul(p, f.value(arg))
		}
		return p
	case latex.Neg:
		return f.field.neg(f.value(n.Args[0]))
	case latex.Div:
		return f.field.mul(f.value(n.Args[0]), f.inverse(f.value(n.Args[1])))
	case latex.Percent:
		return f.field.mul(f.value(n.Args[0]), f.inverse(100))
	case latex.Degree:
		turn := f.constant("pi")
		return f.field.mul(f.value(n.Args[0]), f.field.mul(turn, f.inverse(180)))
	case latex.Pow:
		return f.power(n)
	case latex.Root:
		f.conclusive = false // equal values may have different hashes, so a difference proves nothing
		base := f.value(n.Args[0])
		// A root is hashed as a power, so that sqrt x and x^{1/2} are equal.
		return f.hash("pow", base, f.inverse(f.value(n.Args[1])))
	case latex.App:
		if f.factors[n.Name] && len(n.Args) == 1 { // h(a+b) is a product
			return f.field.mul(hashName(n.Name, f.seed)%f.field.p, f.value(n.Args[0]))
		}
	case latex.Func:
		if n.Name == "exp" && len(n.Args) == 1 {
			f.conclusive = false
			return f.hash("pow", f.constant("e"), f.value(n.Args[0]))
		}
		if n.Name == "log" && len(n.Args) == 1 {
			f.conclusive = false
			return f.hash("func log", f.value(n.Args[0]), 10) // as application has log_10
		}
	}
	return f.application(n)
}

// constant returns the residue for pi or e, about which nothing is assumed. It is the
// same for every seed, so that a factor of pi stays one factor.
func (f *formula) constant(name string) uint64 { return hashName("const "+name, 97) % f.field.p }

// application is the residue of a function of the residues of n's arguments.
func (f *formula) application(n *latex.Node) uint64 {
	f.conclusive = false // equal values may have different hashes, so a difference proves nothing
	switch n.Op {
	case latex.Sum, latex.Prod, latex.Opaque: // an integral or the like: infinity may be a limit
		f.limitsAround++
		defer func() { f.limitsAround-- }()
	}
	name := n.Op.String() + " " + n.Name
	switch n.Op {
	case latex.Sum, latex.Prod:
		low, high := f.value(n.Args[2]), f.value(n.Args[3])
		f.bound = append(f.bound, n.Args[1].Name)
		term := f.value(n.Args[0])
		f.bound = f.bound[:len(f.bound)-1]
		return f.hash(name, term, low, high)
	case latex.Text, latex.Dots, latex.Named:
		return f.unknown(0, name)
	case latex.Rel:
		for _, op := range n.Ops {
			name += op
		}
	case latex.Clock:
		return f.unknown(f.ratio(n.Rat), name)
	}
	h := uint64(len(n.Args))
	symmetric := n.Op == latex.Func && (n.Name == "gcd" || n.Name == "lcm" || n.Name == "max" || n.Name == "min" || n.Name == "dot") ||
		n.Op == latex.Set || n.Op == latex.Union || n.Op == latex.Intersect
	for _, arg := range n.Args {
		v := f.value(arg)
		if symmetric {
			h += mix(v)
		} else {
			h = mix(h ^ v)
		}
	}
	return f.unknown(h, name)
}

func (f *formula) hash(name string, values ...uint64) uint64 {
	h := uint64(len(values))
	for _, v := range values {
		h = mix(h ^ v)
	}
	return f.unknown(h, name)
}

func (f *formula) unknown(h uint64, name string) uint64 {
	f.conclusive = false
	return hashName(name, f.seed^h) % f.field.p
}

// ratio is the residue of a rational.
func (f *formula) ratio(r *big.Rat) uint64 {
	num := f.field.residue(r.Num())
	if r.IsInt() {
		return num
	}
	return f.field.mul(num, f.inverse(f.field.residue(r.Denom())))
}

// inverse is 1/a; of zero it spoils the point.
func (f *formula) inverse(a uint64) uint64 {
	if a == 0 {
		f.spoiled = true
		return 0
	}
	return f.field.inverse(a)
}

// power is base^exponent: a field operation where the exponent is an integer, else an unknown that depends on both.
func (f *formula) power(n *latex.Node) uint64 {
	base := f.value(n.Args[0])
	var exp *big.Rat
	if len(f.bound) == 0 || isNumeric(n.Args[1]) {
		if e, err := f.c.rational(n.Args[1], nil); err == nil {
			exp = e
		} else if err == errLimit && isNumeric(n.Args[1]) { // an exponent too large to compute
			f.spoiled = true
			return 0
		}
	}
	if exp == nil || !exp.IsInt() {
		if exp != nil && exp.Sign() < 0 {
			// x^{-1/2} is 1/x^{1/2}
			f.conclusive = false // of hashes a difference proves nothing
			return f.inverse(f.hash("pow", base, f.ratio(new(big.Rat).Neg(exp))))
		}
		f.conclusive = false
		return f.hash("pow", base, f.value(n.Args[1]))
	}
	if exp.Sign() < 0 {
		base = f.inverse(base)
	}
	if base == 0 && exp.Sign() != 0 {
		return 0
	}
	// Since a^(p-1) = 1, the exponent counts modulo p-1.
	e := new(big.Int).Abs(exp.Num())
	e.Mod(e, new(big.Int).SetUint64(f.field.p-1))
	return f.field.pow(base, e.Uint64())
}

// isNumeric reports whether n has no names in it.
func isNumeric(n *latex.Node) bool {
	return !n.Contains(latex.Sym, latex.App, latex.Index, latex.Opaque, latex.Text, latex.Const, latex.Unit)
}

// factorLetters are the letters before a bracket in a or b (h(a+b)) that also occur
// alone: their bracket means multiplication.
func factorLetters(nodes ...*latex.Node) map[string]bool {
	applied, bare := map[string]bool{}, map[string]bool{}
	for _, n := range nodes {
		for m := range n.All() {
			switch m.Op {
			case latex.App:
				applied[m.Name] = true
			case latex.Sym:
				bare[m.Name] = true
			}
		}
	}
	maps.DeleteFunc(applied, func(name string, _ bool) bool { return !bare[name] })
	return applied
}
