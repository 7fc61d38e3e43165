package verifier

import (
	"maps"
	"slices"
	"strings"

	"onering/verifier/internal/latex"
)

// Propositions and sets with names are compared by their truth tables: p ⇒ q is ¬p ∨ q, and A \ B is A ∩ B^c.

// mostPropositions bounds the letters of a truth table.
const mostPropositions = 8

// isLogic reports whether n is joined by connectives, or by operations of sets.
func isLogic(n *latex.Node) bool {
	return n.Op == latex.Logic || (n.Op == latex.Union || n.Op == latex.Intersect || n.Op == latex.Without) &&
		n.Every(func(arg *latex.Node) bool { return isProposition(arg, nil) })
}

// isProposition reports whether n is made of letters by connectives or operations of sets; unless names is nil, it adds
// the letters to it, a negated one (\bar p, p') without its mark.
func isProposition(n *latex.Node, names map[string]bool) bool {
	switch n.Op {
	case latex.Sym:
		if names != nil {
			names[strings.TrimRight(strings.TrimPrefix(n.Name, "bar "), "'")] = true
		}
		return !n.Words
	case latex.Pow: // the complement A^c
		return n.Args[1].Op == latex.Sym && (n.Args[1].Name == "c" || n.Args[1].Name == "C") && isProposition(n.Args[0], names)
	case latex.Logic, latex.Union, latex.Intersect, latex.Without, latex.Opaque:
		return (n.Op != latex.Opaque || n.Name == "bar") && n.Every(func(arg *latex.Node) bool { return arg != nil && isProposition(arg, names) })
	}
	return false
}

// sameTruth compares two propositions for all truth values of their letters; ok is false if one of them is none, or has
// too many letters.
func (c *comparer) sameTruth(g, a *latex.Node) (same, ok bool) {
	names := map[string]bool{}
	if !isProposition(g, names) || !isProposition(a, names) || len(names) > mostPropositions {
		return false, false
	}
	list := slices.Sorted(maps.Keys(names))
	for row := range 1 << len(list) {
		for i, name := range list {
			names[name] = row>>i&1 == 1
		}
		c.steps++
		if truth(g, names) != truth(a, names) {
			return false, true
		}
	}
	return true, true
}

// truth is the value of a proposition, names being the values of its letters. An operation of sets is that of membership.
func truth(n *latex.Node, names map[string]bool) bool {
	at := func(i int) bool { return truth(n.Args[i], names) }
	operation := n.Name
	switch n.Op {
	case latex.Sym:
		name := strings.TrimRight(strings.TrimPrefix(n.Name, "bar "), "'")
		return names[name] != (name != n.Name) // a mark negates
	case latex.Pow, latex.Opaque:
		operation = "not"
	case latex.Union:
		operation = "or"
	case latex.Intersect:
		operation = "and"
	case latex.Without:
		return at(0) && !at(1)
	}
	value := at(0)
	switch operation {
	case "not":
		return !value
	case "implies":
		return !value || at(1)
	case "iff":
		return value == at(1)
	}
	for i := range n.Args { // one false decides "and", one true "or"
		if at(i) != (operation == "and") {
			return operation == "or"
		}
	}
	return operation == "and"
}
