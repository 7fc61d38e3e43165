package latex

import (
	"os"
	"strings"
	"testing"
)

// FuzzParse looks for texts that crash the parser, take long, or give a tree
// that breaks the promises of Op.
func FuzzParse(f *testing.F) {
	text, err := os.ReadFile("testdata/trees.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		source, _, _ := strings.Cut(line, "\t")
		f.Add(source)
	}
	for _, s := range hostile() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, reading := range []Reading{{}, {Comma: Separator}, {Comma: Decimal}} {
			p, err := Parse(s, reading)
			if p.Steps > mostSteps {
				t.Errorf("%d bytes took %d steps", len(s), p.Steps)
			}
			if err != nil && err != errLimit {
				t.Errorf("Parse(%q): %v", s, err)
			}
			if err == nil {
				sound(t, p.Tree, 0)
				_ = p.Tree.String()
			}
		}
	})
}

// mostSteps is the largest number of steps to parse a text.
const mostSteps = 1_000_000

// sound checks that a tree has the parts that its ops promise.
func sound(t *testing.T, n *Node, depth int) {
	if n == nil {
		return
	}
	if depth > maxTreeDepth {
		t.Fatal("a tree deeper than the limits allow")
	}
	arity, fixed := map[Op]int{Div: 2, Neg: 1, Pow: 2, Root: 2, Fact: 1, Fact2: 1, Binom: 2, Abs: 1, Floor: 1, Ceil: 1, Sum: 4, Prod: 4,
		PlusMinus: 2, MinusPlus: 2, Percent: 1, Degree: 1, Mod: 2, SetBuilder: 2, Without: 2}[n.Op]
	if fixed && len(n.Args) != arity {
		t.Errorf("%v has %d arguments, want %d", n.Op, len(n.Args), arity)
	}
	switch n.Op {
	case Num, Clock:
		if n.Rat == nil {
			t.Errorf("%v has no value", n.Op)
		}
	case Rel:
		if len(n.Ops) != len(n.Args)-1 {
			t.Errorf("a relation of %d sides has %d signs", len(n.Args), len(n.Ops))
		}
	case Matrix, Cases:
		if n.Cols < 1 || len(n.Args)%n.Cols != 0 {
			t.Errorf("%d entries in %d columns", len(n.Args), n.Cols)
		}
	case Add, Mul, List, Set, Bracket, Union, Intersect, Ratio:
		if len(n.Args) == 0 {
			t.Errorf("%v of nothing", n.Op)
		}
	}
	for _, arg := range n.Args {
		// Only a±b without a, and the limits of an integral, may be absent.
		if arg == nil && n.Op != PlusMinus && n.Op != MinusPlus && n.Op != Opaque {
			t.Errorf("%v lacks an argument", n.Op)
		}
		sound(t, arg, depth+1)
	}
}

// hostile are texts that make slow parsers slow.
func hostile() []string {
	var all []string
	for _, s := range []string{"(", "{", "[", `\{`, `\frac`, `\frac{`, `\sqrt{`, `\sqrt[`, `\left(`, `\boxed{`, "x^", "x_", "1_{", "-", "+", `\pm`, "|", "||", "!", "'", ",", ";", "$", `\`, `\\`, "&", ".", " ", "1,", "1,000,",
		`\begin{pmatrix}`, `\begin{cases}`, `\text{`, `\text{a}`, "a ", "aa", "a'", `\sum`, `\sum_`, `\int`, `\lfloor`, `\log_`, `\sin`, "sin", "x=", "x<", `\in`, `\cup`, `[1,2]\cup`, `]1,2[`, "1:", `\over`, `1\over`, "%", "°", "½", "²", "five ", "twenty-", "hundred ", "and ", "a.m. ", "May ",
		"\x00", "\u200b", "\u2028", "０", "\xff", "0.", "0.3...", `0.\overline{`, "1e9", "9", "9e", `\mathrm{`, `\color{`, "1 1/", "C(1,", "f(", "f'(", "{}_", `\not`, `\pmod`, "(a", "|a|", "a/b", "1/", `a\pm`, "x!", "x'", "[1,2]-"} {
		for _, n := range []int{3, 150, 3000} {
			all = append(all, strings.Repeat(s, n))
		}
	}
	for _, pair := range [][2]string{{"(", ")"}, {"{", "}"}, {"[", "]"}, {`\{`, `\}`}, {`\frac{1}{`, "}"}, {`\sqrt{`, "}"}, {"|", "|"}, {`\left(`, `\right)`}, {`\text{`, "}"}, {`\boxed{`, "}"}, {"x^{", "}"}, {"f(", ")"}, {`\begin{pmatrix}`, `\end{pmatrix}`}} {
		for _, n := range []int{20, 150, 5000} {
			all = append(all, strings.Repeat(pair[0], n)+"5"+strings.Repeat(pair[1], n))
		}
	}
	return append(all, strings.Repeat("1", 100_000), "0."+strings.Repeat("3", 50_000), "1e"+strings.Repeat("9", 1000), strings.Repeat("1,000", 10_000))
}

func TestHostile(t *testing.T) {
	for _, s := range hostile() {
		p, err := Parse(s, Reading{})
		if p.Steps > mostSteps {
			t.Errorf("%d bytes of %.20q took %d steps", len(s), s, p.Steps)
		}
		if err == nil {
			sound(t, p.Tree, 0)
		}
	}
}
