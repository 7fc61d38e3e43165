package verifier

import (
	"strings"

	"onering/verifier/internal/latex"
)

// texts compares answers in words: by letters and digits, without regard to
// case, articles and punctuation.
func (c *comparer) texts(g, a *latex.Node) bool {
	x, okX := wordsOf(g)
	y, okY := wordsOf(a)
	if !okX || !okY {
		return c.say(false, "words against mathematics")
	}
	return c.say(x != "" && (x == y || affirms(x, y) || affirms(y, x)), "words")
}

// affirms reports whether a sentence begins with short, a yes or no, and says
// neither again: "yes, it is".
func affirms(short, sentence string) bool {
	rest, ok := strings.CutPrefix(sentence, short+" ")
	if !ok || short != "yes" && short != "no" {
		return false
	}
	for _, w := range strings.Fields(rest) {
		switch w {
		case "yes", "no", "not", "and", "or", "maybe", "but":
			return false
		}
	}
	return true
}

// wordsOf is the text of an answer in words: a phrase, or letters that were read as a
// product.
func wordsOf(n *latex.Node) (string, bool) {
	switch n.Op {
	case latex.Text:
		return normalWords(n.Name), true
	case latex.Sym:
		return normalWords(n.Name), true
	case latex.Mul:
		if n.Name != "" {
			return normalWords(n.Name), true
		}
	case latex.Unit:
		return strings.TrimPrefix(n.Name, "#"), true
	case latex.List:
		// A sentence with a comma or an "and" in it.
		parts := make([]string, len(n.Args))
		for i, arg := range n.Args {
			w, ok := wordsOf(arg)
			if !ok {
				return "", false
			}
			parts[i] = w
		}
		return strings.Join(parts, " "), true
	}
	return "", false
}

// normalWords drops articles and what is not a letter, a digit or a sign.
func normalWords(s string) string {
	s = strings.ToLower(s)
	s = strings.Map(func(r rune) rune {
		switch r {
		case '.', ',', ';', '!', '?', '"', '\'':
			return -1
		case '-', '_':
			return ' '
		}
		return r
	}, s)
	fields := strings.Fields(s)
	out := fields[:0]
	for _, f := range fields {
		if f == "the" || f == "a" || f == "an" {
			if len(fields) > 1 {
				continue
			}
		}
		out = append(out, f)
	}
	return strings.Join(out, " ")
}

// pureWords compares two answers that are single runs of letters. Letters side by side
// are a product in a formula, but alone ABC is not BCA, nor is "on" "no".
func pureWords(g, a *latex.Node) (same, ok bool) {
	if figure(g) != "" && figure(g) == figure(a) && (g.Op == latex.Mul) != (a.Op == latex.Mul) {
		return true, true
	}
	isWord := func(n *latex.Node) bool {
		return n.Op == latex.Mul && n.Name != "" || n.Op == latex.Text && !strings.Contains(n.Name, " ")
	}
	if !isWord(g) || !isWord(a) {
		return false, false
	}
	if g.Op == latex.Text || a.Op == latex.Text {
		return normalWords(g.Name) == normalWords(a.Name), true
	}
	if g.Name == a.Name {
		return true, true
	}
	if english[strings.ToLower(g.Name)] || english[strings.ToLower(a.Name)] {
		return strings.EqualFold(g.Name, a.Name), true
	}
	if isUpper(g.Name) && isUpper(a.Name) {
		return false, true
	}
	if len(g.Name) > 2 && len(a.Name) > 2 && !(neighbours(g.Name) && neighbours(a.Name)) {
		return false, true // cat is not act, xyz is zyx
	}
	return false, false
}

// figure is the letters that name a segment, a triangle or an angle, with or
// without the sign for it: AB of \overline{AB}. Empty if n names none.
func figure(n *latex.Node) string {
	name := ""
	switch n.Op {
	case latex.Mul:
		name = n.Name
	case latex.Sym:
		for _, sign := range [...]string{"bar ", "triangle ", "angle "} {
			if rest, ok := strings.CutPrefix(n.Name, sign); ok {
				name = rest
			}
		}
	}
	if len(name) < 2 || !isUpper(name) {
		return ""
	}
	return name
}

// neighbours reports whether the letters of a word stand together in the
// alphabet, as those of variables do.
func neighbours(w string) bool {
	low, high := w[0], w[0]
	for i := range len(w) {
		low, high = min(low, w[i]), max(high, w[i])
	}
	return int(high-low) <= len(w)
}

// english are short words that answers consist of.
var english = func() map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields("yes no odd on off up max min one two six ten red tie win all was saw ann bob sue tom dan sam amy joe kim eve ben mon tue wed thu fri sat sun") {
		set[w] = true
	}
	return set
}()

func isUpper(s string) bool {
	for i := range len(s) {
		if s[i] < 'A' || s[i] > 'Z' {
			return false
		}
	}
	return true
}
