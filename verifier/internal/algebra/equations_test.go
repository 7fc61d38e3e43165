package algebra

import (
	"testing"
)

// TestSameZeros: a factor that may be zero, or that takes zeros away, changes an
// equation; a factor in a denominator does not.
func TestSameZeros(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`xy-1`, `y-\frac1x`, true},
		{`xy-1`, `x-\frac1y`, true},
		{`\frac1x+\frac1y-\frac12`, `2x+2y-xy`, true},
		{`\frac{x}{a}+\frac{y}{b}-1`, `bx+ay-ab`, true},
		{`r(1+\cos t)-1`, `r-\frac{1}{1+\cos t}`, true},
		{`e^{-x}y-1`, `y-\frac{1}{e^{-x}}`, true},
		{`\frac{x^2-1}{x-1}-y`, `x+1-y`, true}, // The comparison does not detect a removable hole.
		{`x^{-2}-y`, `1-x^2y`, true},
		{`2x-4`, `x-2`, true},
		{`xy-x`, `y-1`, false},
		{`(x-1)y-(x-1)`, `y-1`, false},
		{`x^2-y^2`, `x-y`, false},
		{`(x-y)^2`, `x-y`, false},
		{`xy-1`, `xy+1`, false},
		{`y-\frac1x`, `y+\frac1x`, false},
		{`y-\frac1x`, `x-y`, false},
		{`\frac1x`, `\frac1y`, false}, // no zeros
		{`x-x`, `y-y`, false},         // zero everywhere
		{`x-x`, `x`, false},
		{`\frac{1}{x-x}-y`, `y`, false},
		{`x^{50}y^{50}-1`, `y^{50}-\frac{1}{x^{50}}`, false}, // equations of too high a degree to decide
		{`(x+1)^{61}`, `(x+1)^{61}`, false},
	} {
		a, b := parse(t, c.a), parse(t, c.b)
		checker := NewChecker()
		if got := checker.SameZeros(a, b, false); got != c.want {
			t.Errorf("%s = 0 and %s = 0: %v, want %v", c.a, c.b, got, c.want)
		}
		if got := checker.SameZeros(b, a, false); got != c.want {
			t.Errorf("%s = 0 and %s = 0: %v, want %v", c.b, c.a, got, c.want)
		}
	}
}

// TestPoles: a solution at which a denominator vanishes does not count.
func TestPoles(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`\frac{y-2x-3}{x-1}`, `y-2x-3`, true},
		{`\frac{y-2x-3}{(x-1)^2}`, `y-2x-3`, true},
		{`\frac{2x+3-y}{xy}`, `y-2x-3`, true},
		{`(y-2x-3)(x+y)^{-1}`, `y-2x-3`, true},
		{`\frac{y-3}{x}-2`, `y-2x-3`, true},
		{`\frac{y-2x-3}{x^2-4}`, `y-2x-3`, true},
		{`\frac{x^2+y^2-1}{y}`, `x^2+y^2-1`, true},
		{`y-\frac1x`, `xy-1`, false},
		{`\frac{y}{x}-\frac{1}{x^2}`, `xy-1`, false},
		{`\frac{y}{x^2+1}-2`, `y-2x^2-2`, false}, // never zero
		{`\frac{y-2x-3}{a}`, `y-2x-3`, false},    // a parameter
		{`\frac{y-2x-3}{7}`, `y-2x-3`, false},
		{`x-y`, `2x-2y`, false},
	} {
		if got := NewChecker().poles(parse(t, c.a), parse(t, c.b)); got != c.want {
			t.Errorf("poles(%s, %s) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

// TestExactAngles: sines and cosines are rational at 0, 30, 60, 90 degrees and
// so on, and nowhere else.
func TestExactAngles(t *testing.T) {
	for source, want := range map[string]string{
		`\sin\pi`: "0", `\sin\frac{\pi}{6}`: "1/2", `\sin\frac{5\pi}{6}`: "1/2", `\sin\frac{7\pi}{6}`: "-1/2", `\sin 270^\circ`: "-1", `\sin(-\frac{\pi}{2})`: "-1",
		`\cos\pi`: "-1", `\cos 60^\circ`: "1/2", `\cos 240^\circ`: "-1/2", `\cos\frac{\pi}{2}`: "0", `\cos 0`: "1", `\cos(2\pi-\frac{\pi}{3})`: "1/2",
		`\tan\frac{\pi}{4}`: "1", `\tan 135^\circ`: "-1", `\tan\pi`: "0", `\ln 1`: "0", `\log_7 1`: "0", `\arccos 1`: "0", `\arctan 0`: "0",
		`\sum_{k=1}^{4}\sin\frac{k\pi}{2}`: "0",
	} {
		r, ok := NewChecker().Rational(parse(t, source))
		if !ok || r.RatString() != want {
			t.Errorf("%s is %v, want %s", source, r, want)
		}
	}
	for _, source := range []string{`\sin 1`, `\sin 30`, `\cos\frac{\pi}{4}`, `\tan\frac{\pi}{2}`, `\tan 30^\circ`, `\cos\frac{\pi}{5}`, `\ln 2`, `\log_1 1`, `\arcsin 1`, `\sin\pi^2`, `\cos(\pi\cdot\pi)`} {
		if r, ok := NewChecker().Rational(parse(t, source)); ok {
			t.Errorf("%s is taken for the rational %v", source, r)
		}
	}
}
