package algebra

import (
	"testing"

	"onering/verifier/internal/latex"
)

func parse(t testing.TB, s string) *latex.Node {
	t.Helper()
	p, err := latex.Parse(s, latex.Reading{})
	if err != nil || p.Tree == nil {
		t.Fatalf("Parse(%q) = %v, %v", s, p.Tree, err)
	}
	return p.Tree
}

func TestEqual(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want outcome
	}{
		{`\frac{\sqrt2}{2}`, `\frac1{\sqrt2}`, Equal},
		{`\sqrt{3+2\sqrt2}`, `1+\sqrt2`, Equal},
		{`\sqrt{2}+\sqrt{5}`, `\sqrt7`, unequal},
		{`\sqrt{x^2}`, `|x|`, Equal},
		{`\sqrt{x^2}`, `x`, unequal},
		{`\sin^2 x`, `1-\cos^2 x`, Equal},
		{`\sin 2x`, `2\sin x\cos x`, Equal},
		{`\sin x`, `\cos x`, unequal},
		{`e^{i\pi}`, `-1`, Equal},
		{`e^{i\pi/4}`, `\frac{1+i}{\sqrt2}`, Equal},
		{`\sum_{k=1}^{n}k`, `\frac{n(n+1)}{2}`, Equal},
		{`\sum_{k=1}^{n}k`, `\frac{n(n-1)}{2}`, unequal},
		{`\sum_{k=0}^{n-1} F_k F_{n-k-1}`, `\sum_{k=0}^{n-1} F_{n-k-1} F_k`, Equal},
		{`\binom{n}{2}`, `\frac{n(n-1)}{2}`, Equal},
		{`2^{x+1}`, `2\cdot2^x`, Equal},
		{`\log_2 8`, `3`, Equal},
		{`\ln 6`, `\ln 2+\ln 3`, Equal},
		{`\ln 6`, `\ln 2\cdot\ln 3`, unequal},
		{`e^{\pi\sqrt{163}}`, `262537412640768744`, unequal},
		{`\pi`, `3.14159265358979323846264338327950288419716939937510582097494459`, unequal},
		{`\sqrt[3]{-8}`, `-2`, Equal},
		{`\sqrt[3]{2+\sqrt5}+\sqrt[3]{2-\sqrt5}`, `1`, Equal},
		{`\arctan 1`, `\frac{\pi}{4}`, Equal},
		{`\arcsin\frac12`, `30^\circ`, Equal},
		{`\cos^{-1} x`, `\frac{\pi}{2}-\arcsin x`, Equal},
		{`\sqrt2\sqrt3-\sqrt6`, `0`, Equal},
		{`\cosh^2 x-\sinh^2 x`, `1`, Equal},
		{`\lfloor \frac{n}{2}\rfloor+\lceil\frac n2\rceil`, `n`, Equal},
		{`\lfloor\frac{2n-1}{5}\rfloor`, `\lfloor\frac{2n}{5}\rfloor`, unequal},
		{`(x+1)^{100000}`, `(1+x)^{100000}`, Equal},
		{`(x+1)^{100000}`, `5`, unequal},
		{`2^{2005}-1`, `2^{2005}`, unequal},
		{`9^{9^{9^9}}`, `5`, Limit},
		{`10^{10^{10}}`, `0`, unequal},
		{`\frac{h(a+b)}{2}`, `\frac{ha+hb}{2}`, Equal},
		{`f(x+1)`, `f(1+x)`, Equal},
		{`f(x+1)`, `f(x)+f(1)`, unequal},
		{`\ln x^2`, `2\ln x`, Equal},
		{`(-1)^n`, `\cos(n\pi)`, Equal},
		{`\tan^2 y+1`, `\sec^2 y`, Equal},
		{`x^{-1/2}`, `\frac{1}{\sqrt x}`, Equal},
		{`\sqrt{-4}`, `2i`, Equal},
		{`(1+i)^{10}`, `32i`, Equal},
		{`i^i`, `e^{-\pi/2}`, Equal},
		{`\frac{e^{2it}}{2+2i}`, `\frac{(1-i)e^{2it}}{4}`, Equal},
		{`\sin 1`, `\sin 1^\circ`, unequal},
		{`\gcd(12,18)`, `6`, Equal},
		{`((3+\sqrt2)^4)^4`, `((3+\sqrt2)^4)^4+10^{-40}`, unequal},
		{`\sin^2 1+\cos^2 1-1+10^{-60}`, `0`, unequal},
		{`\sqrt{2}\cdot 10^{30}`, `\sqrt{2}\cdot 10^{30}+10^{-20}`, unequal},
		{`\int_0^1 x^2 dx`, `\int_0^1 x^2 dx`, Equal},
		{`\int_0^1 x^2 dx`, `\int_0^1 x^3 dx`, unequal},
	} {
		got, rule := NewChecker().Equal(parse(t, tt.a), parse(t, tt.b))
		if got != tt.want {
			t.Errorf("Equal(%s, %s) = %v (%s), want %v", tt.a, tt.b, got, rule, tt.want)
		}
		if back, _ := NewChecker().Equal(parse(t, tt.b), parse(t, tt.a)); back != got {
			t.Errorf("Equal(%s, %s) = %v, the other way %v", tt.a, tt.b, got, back)
		}
	}
}

func BenchmarkEqual(b *testing.B) {
	for _, pair := range [][2]string{{`3`, `4`}, {`\frac{\sqrt2}{2}`, `\frac1{\sqrt2}`}, {`\sin^2 x`, `1-\cos^2 x`}, {`(x+1)^2`, `x^2+2x+1`}} {
		x, y := parse(b, pair[0]), parse(b, pair[1])
		b.Run(pair[0], func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				NewChecker().Equal(x, y)
			}
		})
	}
}
