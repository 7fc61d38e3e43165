package algebra

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"onering/verifier/internal/latex"
)

// A formula generated here is LaTeX text; its value is defined for all real x
// and y, so that equalities hold everywhere.

// expression draws an expression of at most the given depth.
func expression(t *rapid.T, depth int) string {
	if depth == 0 {
		return rapid.SampledFrom([]string{"x", "y", "1", "2", "3", `\pi`, `\frac{1}{2}`, "0.75", `\sqrt{2}`, "7"}).Draw(t, "leaf")
	}
	a := func() string { return expression(t, depth-1) }
	switch rapid.IntRange(0, 7).Draw(t, "kind") {
	case 0:
		return "(" + a() + "+" + a() + ")"
	case 1:
		return "(" + a() + "-" + a() + ")"
	case 2, 3:
		return a() + `\cdot ` + brackets(a())
	case 4:
		return `\frac{` + a() + `}{\left(` + a() + `\right)^2+1}`
	case 5:
		return brackets(a()) + "^{" + strconv.Itoa(rapid.IntRange(2, 4).Draw(t, "power")) + "}"
	case 6:
		return rapid.SampledFrom([]string{`\sin`, `\cos`, `\arctan`}).Draw(t, "function") + "(" + a() + ")"
	}
	return `\left|` + a() + `\right|`
}

func brackets(s string) string { return `\left(` + s + `\right)` }

// rewrites keep the value; %s is the expression and %[2]s another one.
var rewrites = []string{
	`%[2]s+%[1]s-%[2]s`,
	`2\cdot\left(%[1]s\right)-%[1]s`,
	`\frac{3\left(%[1]s\right)}{3}`,
	`\left(%[1]s\right)\left(\sin^2(%[2]s)+\cos^2(%[2]s)\right)`,
	`-\left(-\left(%[1]s\right)\right)`,
	`\dfrac{\left(%[1]s\right)^2-\left(%[2]s\right)^2+\left(%[2]s\right)^2+\left(%[1]s\right)}{\left(%[1]s\right)+1}`,
	`%[1]s+0`,
	`{%[1]s}\times 1.0`,
	`e^{\ln 1}\left(%[1]s\right)`,
}

// changes alter the value everywhere or almost everywhere.
var changes = []string{
	`%[1]s+1`,
	`%[1]s+10^{-40}`,
	`%[1]s+\frac{1}{\left(%[2]s\right)^2+1}`,
	`%[1]s+\sqrt{2}-1.41421356237309504880168872420969807856967`,
	`%[1]s+\left|x-y\right|+\frac{1}{100}`,
}

func tree(t *rapid.T, s string) *latex.Node {
	p, err := latex.Parse(s, latex.Reading{})
	if err != nil || p.Tree == nil || !p.Tree.Op.Scalar() {
		t.Fatalf("Parse(%q) = %v, %v", s, p.Tree, err)
	}
	return p.Tree
}

func TestRewritesAreEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := expression(t, 3), expression(t, 1)
		form := rapid.SampledFrom(rewrites).Draw(t, "rewrite")
		if strings.Contains(form, "dfrac") {
			a = `\left|` + a + `\right|` // The denominator must not vanish.
		}
		other := fmt.Sprintf(strings.ReplaceAll(form, "%[2]s", "(%[2]s)"), a, b)
		if !strings.Contains(form, "%[2]s") {
			other = strings.ReplaceAll(form, "%[1]s", a)
		}
		same(t, a, other, Equal)
		same(t, other, a, Equal)
		same(t, a, a, Equal)
	})
}

func TestChangesAreDifferent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := expression(t, 3), expression(t, 1)
		form := rapid.SampledFrom(changes).Draw(t, "change")
		other := strings.NewReplacer("%[1]s", a, "%[2]s", b).Replace(form)
		same(t, a, other, unequal)
		same(t, other, a, unequal)
	})
}

// same requires an outcome, but allows that a comparison reaches its limits.
func same(t *rapid.T, a, b string, want outcome) {
	got, rule := NewChecker().Equal(tree(t, a), tree(t, b))
	if got != want && got != Limit {
		t.Fatalf("Equal(%s, %s) = %v (%s), want %v", a, b, got, rule, want)
	}
}
