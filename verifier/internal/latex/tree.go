// Package latex reads LaTeX and plain-text mathematics into expression trees.
//
// One grammar serves both. Math delimiters are white space; words of \text{} and \mathrm{} are tokens with a
// mark for their place. lex.go and number.go cut a text into tokens, parse.go parses statements (lists and
// relations), expression.go sums, products and powers, atom.go and command.go what these consist of, unit.go
// and words.go what is said in words.
//
// What is ambiguous is read in one way, a [Reading], and reported as an [Ambiguity], so that a caller can ask
// for another. Text that is no mathematics becomes a Text node: parsing fails only at its limits.
package latex

import (
	"iter"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// An Op is the kind of a Node. The comment of each names its arguments.
type Op uint8

// Ops of scalars come first (see Op.Scalar), then units, then structures.
const (
	Num       Op = iota + 1 // Rat; Digits and Places say how it was written
	Sym                     // Name: a variable, with its decorations and literal subscript
	Const                   // Name: pi, e, i, infty
	Add                     // terms
	Mul                     // factors; Name is the word if it was written as one ("ab")
	Div                     // numerator, denominator
	Neg                     // x
	Pow                     // base, exponent
	Root                    // radicand, index
	Func                    // Name: a known function; its arguments (log: argument, base)
	App                     // Name: an unknown function (f, g'), its arguments
	Index                   // Name and a subscript that is an expression (a_{n+1})
	Fact                    // x!
	Fact2                   // x!!
	Binom                   // n, k
	Abs                     // x
	Floor                   // x
	Ceil                    // x
	Sum                     // term, index, low, high
	Prod                    // term, index, low, high
	Opaque                  // Name: an integral, limit or derivative; its parts, compared as written
	PlusMinus               // a, b for a±b; b alone has a = nil
	MinusPlus               // a, b for a∓b
	Percent                 // x
	Degree                  // x: an angle in degrees
	Unit                    // Name: a unit or a counted noun
	Mod                     // x, m: the residue class of x modulo m
	Logic                   // Name: not, and, or, implies, iff; propositions

	Rel        // arguments with Ops between them
	List       // elements without brackets; Name is "and", "or" or ","
	Set        // elements
	SetBuilder // element, condition
	Bracket    // elements; Name is the two delimiters: "()", "[)", ...
	Named      // Name: a set with a name: R, Z, Q, N, C, or empty
	Union      // sets
	Intersect  // sets
	Without    // sets: the first minus the others
	Ratio      // terms of a:b:c
	Clock      // Rat: minutes after midnight; Name is "" if am or pm is not stated
	Matrix     // entries by rows, Cols to a row; Name is "|" for a determinant
	Cases      // value, condition pairs
	Dots       // an ellipsis
	Text       // Name: words
)

var opNames = [...]string{
	Num: "num", Sym: "sym", Const: "const", Add: "add", Mul: "mul", Div: "div", Neg: "neg", Pow: "pow",
	Root: "root", Func: "func", App: "app", Index: "index", Fact: "factorial", Fact2: "double-factorial",
	Binom: "binomial", Abs: "abs", Floor: "floor", Ceil: "ceil", Sum: "sum", Prod: "product", Opaque: "opaque",
	PlusMinus: "plus-minus", MinusPlus: "minus-plus", Percent: "percent", Degree: "degrees", Unit: "unit", Mod: "mod", Logic: "logic",
	Rel: "relation", List: "list", Set: "set", SetBuilder: "set-builder", Bracket: "bracket", Named: "named-set",
	Union: "union", Intersect: "intersection", Without: "set-minus", Ratio: "ratio", Clock: "clock",
	Matrix: "matrix", Cases: "cases", Dots: "dots", Text: "text",
}

// String returns the name of op that trees are printed with.
func (op Op) String() string { return opNames[op] }

// Scalar reports whether a node of this kind is a number or an expression, rather than a set, a relation, a text ...
func (op Op) Scalar() bool { return op <= Logic }

// A Node is one node of an expression tree. Trees are not modified once parsed, so they may be shared.
type Node struct {
	Op     Op
	Name   string
	Args   []*Node
	Rat    *big.Rat // of Num and Clock
	Ops    []string // Rel: the operator after each argument but the last
	Digits int      // of Num: number of significant digits as written
	Places int      // Num: digits after the point, -1 without a point
	Cols   int      // of Matrix
	Words  bool     // Sym and Text: set in \text{}; Text may be matched without regard to case
}

// Is reports whether n is of kind op.
func (n *Node) Is(op Op) bool { return n != nil && n.Op == op }

// All yields n and the nodes in it, each before its arguments. It does not yield missing (nil) arguments.
func (n *Node) All() iter.Seq[*Node] {
	return func(yield func(*Node) bool) { n.Any(func(m *Node) bool { return !yield(m) }) }
}

// Any reports whether f holds of n or of a node in it.
func (n *Node) Any(f func(*Node) bool) bool {
	return n != nil && (f(n) || slices.ContainsFunc(n.Args, func(arg *Node) bool { return arg.Any(f) }))
}

// Contains reports whether n or a node in it has one of the kinds.
func (n *Node) Contains(ops ...Op) bool {
	return n != nil && (slices.Contains(ops, n.Op) || slices.ContainsFunc(n.Args, func(arg *Node) bool { return arg.Contains(ops...) }))
}

// Every reports whether f holds of all arguments of n.
func (n *Node) Every(f func(*Node) bool) bool {
	return !slices.ContainsFunc(n.Args, func(arg *Node) bool { return !f(arg) })
}

// Mapped is n with f of each argument in the argument's place.
func (n *Node) Mapped(f func(*Node) *Node) *Node {
	if len(n.Args) == 0 {
		return n
	}
	out := *n
	out.Args = make([]*Node, len(n.Args))
	for i, arg := range n.Args {
		out.Args[i] = f(arg)
	}
	return &out
}

// Replaced is n with by in place of each name of kind op.
func (n *Node) Replaced(op Op, name string, by *Node) *Node {
	switch {
	case n == nil:
		return nil
	case n.Op == op && n.Name == name:
		return by
	}
	return n.Mapped(func(arg *Node) *Node { return arg.Replaced(op, name, by) })
}

// String writes the tree as an s-expression.
func (n *Node) String() string {
	var b strings.Builder
	n.write(&b, 0)
	return b.String()
}

// write appends n to b; past a depth and a length it writes "...".
func (n *Node) write(b *strings.Builder, depth int) {
	switch {
	case n == nil:
		b.WriteString("_")
		return
	case depth > 60 || b.Len() > 20_000:
		b.WriteString("...")
		return
	}
	switch n.Op {
	case Num:
		b.WriteString(ratString(n.Rat))
		return
	case Sym, Const, Named, Unit:
		if n.Op != Sym {
			b.WriteString(n.Op.String() + ":")
		}
		b.WriteString(n.Name)
		return
	case Text:
		b.WriteString(n.Op.String() + ":" + strconv.Quote(n.Name))
		return
	case Clock:
		b.WriteString("clock:" + ratString(n.Rat) + n.Name)
		return
	}
	b.WriteString("(" + n.Op.String())
	if n.Name != "" {
		b.WriteString(" " + n.Name)
	}
	if n.Op == Matrix {
		b.WriteString(" " + strconv.Itoa(n.Cols) + " columns")
	}
	for i, arg := range n.Args {
		b.WriteByte(' ')
		arg.write(b, depth+1)
		if i < len(n.Ops) {
			b.WriteString(" " + n.Ops[i])
		}
	}
	b.WriteByte(')')
}

// ratString is r, or its size where it would fill the page.
func ratString(r *big.Rat) string {
	if bits := r.Num().BitLen() + r.Denom().BitLen(); bits > 2000 {
		return "<" + strconv.Itoa(bits) + " bits>"
	}
	return r.RatString()
}
