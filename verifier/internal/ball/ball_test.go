package ball

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// Float64 returns the middle of a.
func (a Real) Float64() float64 {
	f, _ := a.float().Float64()
	return f
}

func context(prec uint) *Context {
	budget := 1 << 30
	return &Context{Prec: prec, Budget: &budget}
}

// radius is the radius of a.
func radius(a Real) *big.Float {
	r := a.radius()
	if r == none {
		return new(big.Float).SetPrec(2000)
	}
	whole := math.Floor(float64(r))
	x := new(big.Float).SetPrec(2000).SetFloat64(math.Exp2(float64(r) - whole))
	return x.SetMantExp(x, int(whole))
}

// encloses reports whether the ball contains the value of fine, which is known much better.
func encloses(a, fine Real) bool {
	d := new(big.Float).SetPrec(2000).Sub(a.float(), fine.float())
	r := radius(a)
	return d.Abs(d).Cmp(r.Add(r, radius(fine))) <= 0
}

// tried returns the result of f as a real, or its error.
func tried(c *Context, f func() Real) (Real, error) {
	z, err := Try(func() Complex { return Complex{Re: f()} })
	return z.Re, err
}

// rational draws a rational of very different sizes.
func rational(t *rapid.T, label string) *big.Rat {
	r := big.NewRat(rapid.Int64Range(-1_000_000, 1_000_000).Draw(t, label+" numerator"), rapid.Int64Range(1, 100_000).Draw(t, label+" denominator"))
	scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(rapid.Int64Range(0, 12).Draw(t, label+" scale")), nil))
	if rapid.Bool().Draw(t, label+" small") {
		return r.Quo(r, scale)
	}
	return r.Mul(r, scale)
}

// TestEnclosure checks each function at 100 bits against 400 bits: the coarse
// ball must hold the fine value, and be small.
func TestEnclosure(t *testing.T) {
	unary := map[string]func(*Context, Real) Real{
		"exp":     (*Context).Exp,
		"log":     (*Context).Log,
		"atan":    (*Context).Atan,
		"sqrt":    (*Context).Sqrt,
		"sin":     func(c *Context, a Real) Real { s, _ := c.SinCos(a); return s },
		"cos":     func(c *Context, a Real) Real { _, s := c.SinCos(a); return s },
		"inverse": func(c *Context, a Real) Real { return c.Quo(c.Int(1), a) },
		"cube":    func(c *Context, a Real) Real { return c.CPowInt(Complex{Re: a}, 3).Re },
	}
	for name, f := range unary {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			r := rational(t, "x")
			coarse, fine := context(100), context(400)
			a, errA := tried(coarse, func() Real { return f(coarse, coarse.Rat(r)) })
			b, errB := tried(fine, func() Real { return f(fine, fine.Rat(r)) })
			if (errA == nil) != (errB == nil) {
				t.Fatalf("%s(%v): %v at 100 bits, %v at 400", name, r, errA, errB)
			}
			if errA != nil {
				return
			}
			if !encloses(a, b) {
				t.Fatalf("%s(%v): %v does not hold %v", name, r, a, b)
			}
			if x := a.Float64(); math.Abs(x) > 1e-3 && math.Abs(x) < 1e300 {
				arg, _ := r.Float64()
				if rad, _ := radius(a).Float64(); rad > 1e-25*math.Max(1, math.Abs(arg))*math.Max(1, math.Abs(x)) {
					t.Fatalf("%s(%v) = %v ± %v: too wide", name, r, x, rad)
				}
			}
		}))
	}
}

// TestFloat64 checks the functions against package math.
func TestFloat64(t *testing.T) {
	c := context(100)
	for _, x := range []float64{0.001, 0.1, 0.5, 1, 1.5, 2, math.Pi, 10, 123.456, 1e6} {
		a := c.Rat(new(big.Rat).SetFloat64(x))
		sin, cos := c.SinCos(a)
		log, atan, root := c.Log(a), c.Atan(a), c.Sqrt(a)
		exp := c.Exp(c.Rat(new(big.Rat).SetFloat64(-x / 1000)))
		for _, v := range [][2]float64{{sin.Float64(), math.Sin(x)}, {cos.Float64(), math.Cos(x)}, {log.Float64(), math.Log(x)},
			{atan.Float64(), math.Atan(x)}, {root.Float64(), math.Sqrt(x)}, {exp.Float64(), math.Exp(-x / 1000)}} {
			if math.Abs(v[0]-v[1]) > 1e-14*math.Max(1, math.Abs(v[1])) {
				t.Errorf("at %v: %v, package math says %v", x, v[0], v[1])
			}
		}
	}
	if got := c.Pi().Float64(); got != math.Pi {
		t.Errorf("Pi = %v", got)
	}
}

// TestComplexIdentities checks complex functions against each other.
func TestComplexIdentities(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := context(200)
		part := func(label string) Real {
			return c.Rat(big.NewRat(rapid.Int64Range(-3000, 3000).Draw(t, label), 1000))
		}
		z := Complex{part("re"), part("im")}
		if z.IsZero() {
			return
		}
		meet := func(name string, a func() Complex, b Complex) {
			d, err := Try(func() Complex { return c.CAdd(a(), c.CNeg(b)) })
			if err == ErrUndecided {
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !d.Re.ContainsZero() || !d.Im.ContainsZero() {
				t.Fatalf("%s: it is %v from %v at %v", name, d, b, z)
			}
		}
		meet("exp log", func() Complex { return c.CExp(c.CLog(z)) }, z)
		meet("square of the root", func() Complex { root := c.CSqrt(z); return c.CMul(root, root) }, z)
		meet("sin^2 + cos^2", func() Complex {
			sin, cos := c.CSinCos(z)
			return c.CAdd(c.CMul(sin, sin), c.CMul(cos, cos))
		}, c.FromRat(big.NewRat(1, 1)))
		meet("cube", func() Complex { return c.CPowInt(z, 3) }, c.CMul(z, c.CMul(z, z)))
		meet("z / sqrt z", func() Complex { root := c.CSqrt(z); return c.CAdd(c.CQuo(z, root), c.CNeg(root)) }, Complex{})
	})
}

// TestBudget: a function that runs out of work says so, and says nothing else.
func TestBudget(t *testing.T) {
	for budget := range 2000 {
		left := budget
		c := &Context{Prec: 160, Budget: &left}
		z := Complex{c.Rat(big.NewRat(7, 3)), c.Rat(big.NewRat(-5, 11))}
		for name, f := range map[string]func() Complex{
			"CExp":    func() Complex { return c.CExp(z) },
			"CLog":    func() Complex { return c.CLog(z) },
			"CPow":    func() Complex { return c.CPow(z, z) },
			"CSin":    func() Complex { sin, _ := c.CSinCos(z); return sin },
			"Sqrt":    func() Complex { return c.CSqrt(z) },
			"CPowInt": func() Complex { return c.CPowInt(z, -77) },
		} {
			if _, err := Try(f); err != nil && err != ErrRange {
				t.Fatalf("%s with %d units of work: %v", name, budget, err)
			}
		}
	}
}

// TestUndecided: at a cut, a pole or a step nothing is guessed.
func TestUndecided(t *testing.T) {
	c := context(100)
	third := c.Rat(big.NewRat(1, 3))
	nearZero := c.Sub(third, c.Rat(big.NewRat(1, 3)))
	if nearZero.Exact() || !nearZero.ContainsZero() {
		t.Fatalf("1/3 - 1/3 = %v", nearZero)
	}
	for _, x := range []struct {
		name string
		f    func() Real
		want error
	}{
		{"the sign of 0 ± r", func() Real { return c.Int(int64(c.Sign(nearZero))) }, ErrUndecided},
		{"1/3 / (0 ± r)", func() Real { return c.Quo(third, nearZero) }, ErrUndecided},
		{"1/3 / 0", func() Real { return c.Quo(third, c.Int(0)) }, ErrUndefined},
		{"log (0 ± r)", func() Real { return c.Log(nearZero) }, ErrUndecided},
		{"log 0", func() Real { return c.CLog(Complex{}).Re }, ErrUndefined},
		{"the argument at the cut", func() Real { return c.Arg(Complex{c.Int(-1), nearZero}) }, ErrUndecided},
		{"the floor of 3 ± r", func() Real { return c.Floor(c.Add(c.Int(3), nearZero)) }, ErrUndecided},
		{"exp of 2^100", func() Real { return c.Exp(c.Rat(new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), 100)))) }, ErrRange},
	} {
		if _, err := tried(c, x.f); err != x.want {
			t.Errorf("%s: %v, want %v", x.name, err, x.want)
		}
	}
	if n := c.Floor(c.Rat(big.NewRat(-7, 2))); n.Float64() != -4 {
		t.Errorf("floor of -7/2 = %v", n)
	}
}
