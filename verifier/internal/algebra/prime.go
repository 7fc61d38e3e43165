package algebra

import (
	"math/big"
	"math/bits"
	"sync"

	"onering/verifier/internal/latex"
)

// A field is the integers modulo a prime p near 2^62. p is 1 modulo 4, so -1 has a square root, which i is mapped to.
type field struct{ p, root uint64 }

// fieldCount is the number of fields to choose from.
const fieldCount = 64

// fields are the fields of the largest suitable primes below 2^62. With a single, known
// prime, x^p could be passed off as x.
var fields = sync.OnceValue(func() (all [fieldCount]field) {
	p := uint64(1)<<62 - 3
	for i := range all {
		for !new(big.Int).SetUint64(p).ProbablyPrime(0) { // no error below 2^64
			p -= 4
		}
		f := field{p: p}
		for g := uint64(2); f.root == 0; g++ {
			if r := f.pow(g, (p-1)/4); f.mul(r, r) == p-1 {
				f.root = r
			}
		}
		all[i] = f
		p -= 4
	}
	return all
})

// fieldFor returns the field of a seed.
func fieldFor(seed uint64) *field {
	all := fields()
	return &all[mix(seed)%fieldCount]
}

// pairSeed is a seed that depends on all of the expressions, so that the author of one
// expression cannot choose the seed.
func pairSeed(nodes ...*latex.Node) uint64 {
	h := uint64(0)
	for _, n := range nodes {
		h = hashName(n.String(), h)
	}
	return h
}

func (f *field) add(a, b uint64) uint64 {
	s := a + b
	if s >= f.p {
		s -= f.p
	}
	return s
}

func (f *field) neg(a uint64) uint64 {
	if a == 0 {
		return 0
	}
	return f.p - a
}

func (f *field) mul(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	_, rem := bits.Div64(hi, lo, f.p)
	return rem
}

func (f *field) pow(a, n uint64) uint64 {
	r := uint64(1)
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			r = f.mul(r, a)
		}
		a = f.mul(a, a)
	}
	return r
}

// inverse is 1/a for a nonzero a: a^(p-1) = 1.
func (f *field) inverse(a uint64) uint64 { return f.pow(a, f.p-2) }

// residue is n modulo p.
func (f *field) residue(n *big.Int) uint64 {
	if n.IsInt64() {
		v := n.Int64()
		if v >= 0 {
			return uint64(v) % f.p
		}
		return f.neg(uint64(-v) % f.p)
	}
	return new(big.Int).Mod(n, new(big.Int).SetUint64(f.p)).Uint64()
}

// mostBits is the height up to which equal residues count as equal formulas: a number of
// so many bits has at most five of the primes as divisors.
const mostBits = 300

// height bounds the bits of the integers that n consists of when it is written out
// as a quotient of polynomials, and its degree. It is at most mostBits+1.
func height(n *latex.Node) int {
	h := 1
	switch {
	case n.Op == latex.Num:
		h = n.Rat.Num().BitLen() + n.Rat.Denom().BitLen()
	case n.Op == latex.Pow && n.Args[1].Is(latex.Num):
		e := n.Args[1].Rat
		if e.Num().BitLen() > 20 {
			return mostBits + 1
		}
		k := int(new(big.Int).Abs(e.Num()).Int64())
		h = max(1, k) * min(height(n.Args[0]), mostBits+1)
	default:
		for _, arg := range n.Args {
			h += height(arg)
			if n.Op == latex.Pow && arg == n.Args[1] && len(Variables(arg)) == 0 && !arg.Is(latex.Num) {
				return mostBits + 1 // a computed exponent
			}
		}
	}
	return min(h, mostBits+1)
}
