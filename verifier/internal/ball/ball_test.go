package ball

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// Float64 is the middle of a.
func (a Real) Float64() float64 {
	f, _ := a.float().Float64()
	return f
}

func context(prec uint) *Context {
	budget := 1 << 30
	return &Context{Prec: prec, Budget: &budget}
}

// encloses reports whether the ball holds the (much better known) value of fine.
func encloses(a, fine Real) bool {
	d := new(big.Float).SetPrec(2000).Sub(a.float(), fine.float())
	radius := new(big.Float).SetPrec(2000).SetFloat64(a.rad.m)
	radius.SetMantExp(radius, a.rad.e)
	more := new(big.Float).SetPrec(2000).SetFloat64(fine.rad.m)
	radius.Add(radius, more.SetMantExp(more, fine.rad.e))
	return d.Abs(d).Cmp(radius) <= 0
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
	unary := map[string]func(*Context, Real) (Real, error){
		"exp":  (*Context).Exp,
		"log":  (*Context).Log,
		"atan": (*Context).Atan,
		"sqrt": (*Context).Sqrt,
		"sin": func(c *Context, a Real) (Real, error) {
			s, _, err := c.SinCos(a)
			return s, err
		},
		"cos": func(c *Context, a Real) (Real, error) {
			_, s, err := c.SinCos(a)
			return s, err
		},
		"inverse": func(c *Context, a Real) (Real, error) { return c.Quo(c.Int(1), a) },
		"cube":    func(c *Context, a Real) (Real, error) { return c.PowInt(a, 3) },
	}
	for name, f := range unary {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			r := rational(t, "x")
			coarse, fine := context(100), context(400)
			a, errA := f(coarse, coarse.Rat(r))
			b, errB := f(fine, fine.Rat(r))
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
				if rad := math.Ldexp(a.rad.m, a.rad.e); rad > 1e-25*math.Max(1, math.Abs(arg))*math.Max(1, math.Abs(x)) {
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
		sin, cos, err := c.SinCos(a)
		if err != nil {
			t.Fatal(err)
		}
		log, _ := c.Log(a)
		atan, _ := c.Atan(a)
		root, _ := c.Sqrt(a)
		exp, _ := c.Exp(c.Rat(new(big.Rat).SetFloat64(-x / 1000)))
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
		meet := func(name string, a, b Complex, err error) {
			if err != nil {
				if err == ErrUndecided {
					return
				}
				t.Fatalf("%s: %v", name, err)
			}
			d := c.CSub(a, b)
			if !d.Re.ContainsZero() || !d.Im.ContainsZero() {
				t.Fatalf("%s: %v and %v at %v", name, a, b, z)
			}
		}
		log, err := c.CLog(z)
		if err == nil {
			back, err := c.CExp(log)
			meet("exp log", back, z, err)
		}
		root, err := c.CSqrt(z)
		meet("square of the root", c.CMul(root, root), z, err)
		sin, cos, err := c.CSinCos(z)
		meet("sin^2 + cos^2", c.CAdd(c.CMul(sin, sin), c.CMul(cos, cos)), c.FromRat(big.NewRat(1, 1)), err)
		cube, err := c.CPowInt(z, 3)
		meet("cube", cube, c.CMul(z, c.CMul(z, z)), err)
		quotient, err := c.CQuo(z, root)
		meet("z / sqrt z", quotient, root, err)
	})
}

// TestBudget: a function that runs out of work says so, and says nothing else.
func TestBudget(t *testing.T) {
	for budget := range 2000 {
		left := budget
		c := &Context{Prec: 160, Budget: &left}
		z := Complex{c.Rat(big.NewRat(7, 3)), c.Rat(big.NewRat(-5, 11))}
		for name, f := range map[string]func() error{
			"CExp":    func() error { _, err := c.CExp(z); return err },
			"CLog":    func() error { _, err := c.CLog(z); return err },
			"CPow":    func() error { _, err := c.CPow(z, z); return err },
			"CSin":    func() error { _, _, err := c.CSinCos(z); return err },
			"Sqrt":    func() error { _, err := c.CSqrt(z); return err },
			"CPowInt": func() error { _, err := c.CPowInt(z, -77); return err },
		} {
			if err := f(); err != nil && err != ErrRange {
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
	if _, err := nearZero.Sign(); err != ErrUndecided {
		t.Errorf("sign of 0 ± r: %v", err)
	}
	if _, err := c.Quo(third, nearZero); err == nil {
		t.Error("1/3 / (0 ± r) has a value")
	}
	if _, err := c.Quo(third, c.Int(0)); err != ErrUndefined {
		t.Errorf("1/3 / 0: %v", err)
	}
	if _, err := c.Log(nearZero); err == nil {
		t.Error("log (0 ± r) has a value")
	}
	if _, err := c.CLog(Complex{}); err == nil {
		t.Error("log 0 has a value")
	}
	if _, err := c.Arg(Complex{c.Int(-1), nearZero}); err == nil {
		t.Error("the argument at the cut has a value")
	}
	if _, err := c.Floor(c.Add(c.Int(3), nearZero)); err != ErrUndecided {
		t.Errorf("floor of 3 ± r: %v", err)
	}
	if n, err := c.Floor(c.Rat(big.NewRat(-7, 2))); err != nil || n.Int64() != -4 {
		t.Errorf("floor of -7/2 = %v, %v", n, err)
	}
	if _, err := c.Exp(c.Rat(new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), 100)))); err != ErrRange {
		t.Errorf("exp of 2^100: %v", err)
	}
}
