package algebra

import (
	"strings"
	"testing"
)

// identities hold wherever both sides are defined; each line is a list of
// expressions that are all equal.
var identities = []string{
	`\sin 2x = 2\sin x\cos x = \frac{2\tan x}{1+\tan^2 x} = \frac{2}{\tan x+\cot x}`,
	`\sec^2 x = 1+\tan^2 x = \frac{1}{\cos^2 x}`,
	`\csc^2 x = 1+\cot^2 x = \frac{1}{1-\cos^2 x}`,
	`\sinh x = \frac{e^x-e^{-x}}{2} = -i\sin(ix) = \frac{1}{\operatorname{csch}x}`,
	`\cosh x = \frac{e^x+e^{-x}}{2} = \cos(ix) = \frac{1}{\operatorname{sech}x}`,
	`\tanh x = \frac{\sinh x}{\cosh x} = \frac{1}{\coth x}`,
	`\arcsin x = \frac{\pi}{2}-\arccos x`,
	`\operatorname{arccot} x = \frac{\pi}{2}-\arctan x`,
	`\operatorname{arcsec} x = \arccos\frac1x`,
	`\operatorname{arccsc} x = \arcsin\frac1x`,
	`\arctan 2+\arctan 3 = \frac{3\pi}{4} = 135^\circ`,
	`\arccos(-\frac12) = \frac{2\pi}{3} = 120^\circ`,
	`\cos 36^\circ = \frac{1+\sqrt5}{4} = \cos\frac{\pi}{5}`,
	`\log_2 x = \frac{\ln x}{\ln 2} = \frac{\log x}{\log 2} = \frac{1}{\log_x 2}`,
	`\ln 8 = 3\ln 2 = -\ln\frac18`,
	`\exp(2x) = (e^x)^2 = e^{x+x}`,
	`\sqrt{x^2} = |x| = \max(x,-x) = x\operatorname{sgn}(x)`,
	`\min(x,y) = \frac{x+y-|x-y|}{2}`,
	`\sqrt[3]{x^3} = x = \sqrt[5]{x^5}`,
	`\sqrt[4]{x^4} = |x|`,
	`\sqrt[3]{-27} = -3 = -\sqrt{9}`,
	`x^{2/3} = \sqrt[3]{x^2} = (\sqrt[3]{x})^2`,
	`x^{-1/2} = \frac{1}{\sqrt x}`,
	`x^{\sqrt2}x^{\pi} = x^{\sqrt2+\pi}`,
	`2^{x+3} = 8\cdot2^x = 2^x\cdot2^3`,
	`i^i = e^{-\pi/2}`,
	`(1+i)^{-2} = \frac{-i}{2} = \frac{1}{2i}`,
	`\sqrt{2i} = 1+i`,
	`\ln(-1) = \pi i`,
	`\ln(1+i) = \frac{\ln 2}{2}+\frac{\pi i}{4}`,
	`e^{i\theta} = \cos\theta+i\sin\theta = \operatorname{cis}\theta`,
	`|3+4i| = 5 = \sqrt{(3+4i)(3-4i)}`,
	`\sin(1+i) = \sin1\cosh1+i\cos1\sinh1`,
	`\binom{n}{2} = \frac{n(n-1)}{2} = \binom{n}{n-2}`,
	`\binom{n}{k} = \frac{n!}{k!(n-k)!}`,
	`n! = n(n-1)! = \prod_{k=1}^n k`,
	`7!! = 105`,
	`(2n)!! = 2^n n!`,
	`\sum_{k=1}^n k^3 = \left(\frac{n(n+1)}{2}\right)^2`,
	`\sum_{k=0}^n\binom nk = 2^n`,
	`\sum_{k=1}^{4}\sqrt k = 3+\sqrt2+\sqrt3`,
	`\prod_{k=1}^{4}\sqrt k = \sqrt{24}`,
	`\lfloor\pi\rfloor = 3 = \lceil e\rceil`,
	`\lfloor -\sqrt{10}\rfloor = -4`,
	`\lfloor n/2\rfloor+\lceil n/2\rceil = n`,
	`\gcd(12,18) = 6`,
	`\operatorname{lcm}(4,6) = 12`,
	`\max(\sqrt2,\sqrt3,1) = \sqrt3`,
	`f(x+1)+f(2x) = f(x+x)+f(1+x)`,
	`a_{n+1}a_n = a_na_{1+n}`,
	`\sum_{k=1}^\infty\frac{1}{k^2} = \sum_{j=1}^\infty\frac{1}{j\cdot j}`,
	`\int_0^1 x^2\,dx = \int_0^1 x\cdot x\,dx`,
	`(x+y)^{50} = (y+x)^{50}`,
	`\frac{x^2-y^2}{x-y} = x+y`,
	`50\% = \frac12 = 0.5`,
	`(2+\sqrt3)^{100}(2-\sqrt3)^{100} = 1`,
	`0^0 = 1`,
	`\sqrt{3+\sqrt{5}} = \frac{\sqrt{10}+\sqrt2}{2}`,
	`\sqrt[3]{2}\cdot\sqrt[3]{4} = 2`,
	`(-8)^{1/3} = -2`,
	`(-1)^{2n} = 1`,
	`(-1)^n = \cos(\pi n)`,
	`2^{10^3} = 4^{500}`,
}

// sides are the expressions of a line of identities.
func sides(line string) []string { return strings.Split(line, " = ") }

func TestIdentities(t *testing.T) {
	for _, line := range identities {
		all := sides(line)
		for _, other := range all[1:] {
			for _, pair := range [][2]string{{all[0], other}, {other, all[0]}} {
				if got, rule := NewChecker().Equal(parse(t, pair[0]), parse(t, pair[1])); got != Equal {
					t.Errorf("Equal(%s, %s) = %v (%s)", pair[0], pair[1], got, rule)
				}
			}
		}
	}
}

// TestLinesDiffer: expressions of different lines differ, except for a few that are the
// same number.
func TestLinesDiffer(t *testing.T) {
	for i, line := range identities {
		for _, other := range identities[i+1:] {
			a, b := sides(line)[0], sides(other)[0]
			if strings.Contains(`\sqrt{x^2} \sqrt[4]{x^4} |x|`, a) && strings.Contains(`\sqrt[4]{x^4}`, b) {
				continue
			}
			x, y := parse(t, a), parse(t, b)
			got, rule := NewChecker().Equal(x, y)
			if got != Equal {
				continue
			}
			u, okU := NewChecker().Rational(x)
			v, okV := NewChecker().Rational(y)
			if okU && okV && u.Cmp(v) == 0 {
				continue
			}
			if same, _ := NewChecker().Equal(parse(t, sides(line)[1]), parse(t, sides(other)[1])); same == Equal {
				continue // The other sides of these lines agree too.
			}
			t.Errorf("Equal(%s, %s): %s", a, b, rule)
		}
	}
}

// TestBudget gives every comparison too little work, in all amounts: the comparison must
// end in Limit or Undecided, or with the verdict of enough work.
func TestBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds")
	}
	for _, line := range identities {
		all := sides(line)
		x, y := parse(t, all[0]), parse(t, all[len(all)-1])
		z := parse(t, all[0]+`+10^{-30}`)
		for work := 0; work < 8_000; work += 1 + work/12 {
			c := &Checker{budget: work}
			if got, rule := c.Equal(x, y); got == unequal {
				t.Fatalf("Equal(%s) with %d units of work is unequal: %s", line, work, rule)
			}
			c = &Checker{budget: work}
			if got, rule := c.Equal(x, z); got == Equal {
				t.Fatalf("Equal(%s, itself+10^-30) with %d units of work is Equal: %s", all[0], work, rule)
			}
			c = &Checker{budget: work}
			if sign, ok := c.Proportional(Difference(x, z), Difference(y, x)); ok && sign == 0 {
				t.Fatalf("Proportional with sign 0 at %d", work)
			}
		}
	}
}

// TestUndefined: an expression without a value equals only itself.
func TestUndefined(t *testing.T) {
	for _, a := range []string{`\frac10`, `\ln 0`, `\tan\frac{\pi}{2}`, `0^{-1}`, `(-1)!`, `(\frac12)!!`, `\log_1 5`, `\frac{1}{x-x}`, `\gcd(\frac12,3)`, `\sqrt[0]{5}`, `\frac{1}{\sqrt2-\sqrt2}`, `\arctan i`, `\operatorname{arctanh}1`, `\binom{5}{\frac12}`} {
		for _, b := range []string{"0", "1", `\frac20`, "x", `\infty`} {
			if got, rule := NewChecker().Equal(parse(t, a), parse(t, b)); got == Equal {
				t.Errorf("Equal(%s, %s): %s", a, b, rule)
			}
		}
	}
}

// TestCompare checks the order of constants.
func TestCompare(t *testing.T) {
	ascending := []string{`-\infty`, `-10^{100}`, `-\pi`, `-3`, `0`, `10^{-100}`, `\frac13`, `0.34`, `1`, `\sqrt2`, `1.41421356237309504880168872420969807856967188`, `e`, `\frac{22}{7}`, `\sqrt{10}`, `100!`, `\infty`}
	for i, a := range ascending {
		for j, b := range ascending {
			want := 0
			if i != j {
				want = -1
				if i > j {
					want = 1
				}
			}
			got, ok := NewChecker().Compare(parse(t, a), parse(t, b))
			if !ok || max(-1, min(1, got)) != want {
				t.Errorf("Compare(%s, %s) = %d, %v, want %d", a, b, got, ok, want)
			}
		}
	}
	for _, a := range []string{"i", "x", `\frac10`, `9^{9^{9^9}}`} {
		if got, ok := NewChecker().Compare(parse(t, a), parse(t, "1")); ok && a != `9^{9^{9^9}}` {
			t.Errorf("Compare(%s, 1) = %d", a, got)
		}
	}
}

// TestProportional: two equations are equal if one is the other times a number.
func TestProportional(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		sign int
	}{
		{`x+y`, `2x+2y`, 1}, {`x+y`, `-\pi x-\pi y`, -1}, {`\sin x`, `3\sin x`, 1}, {`x^2-1`, `(1-x)(1+x)`, -1},
		{`x+y`, `x-y`, 0}, {`x`, `x^2`, 0}, {`x+1`, `x+2`, 0}, {`x`, `0`, 0}, {`1`, `2`, 0}, {`x+y`, `x+y+10^{-30}`, 0}, {`x`, `y`, 0}, {`\sqrt x`, `x`, 0},
	} {
		sign, ok := NewChecker().Proportional(parse(t, tt.a), parse(t, tt.b))
		if ok != (tt.sign != 0) || ok && sign != tt.sign {
			t.Errorf("Proportional(%s, %s) = %d, %v, want %d", tt.a, tt.b, sign, ok, tt.sign)
		}
	}
}
