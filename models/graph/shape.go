package graph

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A Dim is one size of a shape: N times a product of letters. A letter stands for a size that is known only
// when the graph runs, the same wherever it is used. The zero Dim is not valid.
type Dim struct {
	N       int
	Letters string // sorted and joined by "*", as in "B*T"; empty for a fixed size
}

// Shape is the sizes of a tensor, outermost first.
type Shape []Dim

// Dims makes a Shape of sizes, each a positive int, a letter (or several joined
// by "*") or a Dim: Dims("B", "T", 64).
func Dims(sizes ...any) Shape {
	s := make(Shape, len(sizes))
	for i, v := range sizes {
		switch v := v.(type) {
		case int:
			s[i] = Dim{N: v}
		case string:
			letters := strings.Split(v, "*")
			slices.Sort(letters)
			s[i] = Dim{N: 1, Letters: strings.Join(letters, "*")}
			for _, l := range letters {
				if l == "" || !unicode.IsLetter(rune(l[0])) {
					fail("%q is not a letter or a product of letters", v)
				}
			}
		case Dim:
			s[i] = v
		default:
			fail("a size must be an int, a letter or a Dim, not %T", v)
		}
		if s[i].N <= 0 {
			fail("size %v is not positive", s[i])
		}
	}
	return s
}

// String writes a Dim as in an ONNX dim_param: "64", "N", "4*B*T".
func (d Dim) String() string {
	switch {
	case d.Letters == "":
		return strconv.Itoa(d.N)
	case d.N == 1:
		return d.Letters
	}
	return strconv.Itoa(d.N) + "*" + d.Letters
}

// String writes a Shape as "[B,T,64]".
func (s Shape) String() string {
	parts := make([]string, len(s))
	for i, d := range s {
		parts[i] = d.String()
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// letters lists the letters of d, each as often as it is a factor.
func (d Dim) letters() []string {
	if d.Letters == "" {
		return nil
	}
	return strings.Split(d.Letters, "*")
}

// times returns d * e.
func (d Dim) times(e Dim) Dim {
	l := append(d.letters(), e.letters()...)
	slices.Sort(l)
	return Dim{N: d.N * e.N, Letters: strings.Join(l, "*")}
}

// over returns d / e, and false where e does not divide d whatever the letters are.
func (d Dim) over(e Dim) (Dim, bool) {
	l := d.letters()
	for _, x := range e.letters() {
		i := slices.Index(l, x)
		if i < 0 {
			return Dim{}, false
		}
		l = slices.Delete(l, i, i+1)
	}
	if e.N == 0 || d.N%e.N != 0 {
		return Dim{}, false
	}
	return Dim{N: d.N / e.N, Letters: strings.Join(l, "*")}, true
}

// equal tells whether two shapes have the same sizes in numbers and letters. Different
// letters count as different sizes, even if they are equal when the graph runs.
func (s Shape) equal(t Shape) bool { return slices.Equal(s, t) }

// isOne reports whether d is the number 1.
func (d Dim) isOne() bool { return d == Dim{N: 1} }

// size is the product of all sizes.
func (s Shape) size() Dim {
	total := Dim{N: 1}
	for _, d := range s {
		total = total.times(d)
	}
	return total
}

// broadcast is the shape of an elementwise op of two shapes by ONNX's rule, which is NumPy's: shapes are
// aligned at their last axis, and of two sizes of an axis one is 1, or they are equal.
func broadcast(op string, a, b Shape) Shape {
	out := make(Shape, max(len(a), len(b)))
	for i := range out {
		x, y := Dim{N: 1}, Dim{N: 1}
		if j := i - (len(out) - len(a)); j >= 0 {
			x = a[j]
		}
		if j := i - (len(out) - len(b)); j >= 0 {
			y = b[j]
		}
		switch {
		case x == y || y.isOne():
			out[i] = x
		case x.isOne():
			out[i] = y
		default:
			fail("%s: shapes %v and %v do not broadcast", op, a, b)
		}
	}
	return out
}

// A buildError is the value with which an op panics; Build recovers it.
type buildError struct{ text string }

func (e buildError) Error() string { return "graph: " + e.text }

// fail aborts the construction.
func fail(format string, args ...any) { panic(buildError{fmt.Sprintf(format, args...)}) }
