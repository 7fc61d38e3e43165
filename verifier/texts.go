package verifier

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"onering/verifier/internal/latex"
	"onering/verifier/internal/rules"
)

// texts compares answers in words, word by word without harmless words: any other word is a difference.
func (c *comparer) texts(g, a *latex.Node) bool {
	x, okX := wordsOf(g)
	y, okY := wordsOf(a)
	if !okX || !okY {
		return c.decide(false, "words against mathematics")
	}
	return c.decide(x != "" && (x == y || affirms(x, y) || affirms(y, x) || rules.On("sentences") &&
		(slices.Contains(essences(g, x), y) || slices.Contains(essences(a, y), x))), "words")
}

var (
	// told matches a sentence that says what something is or does, with what it says of it,
	// and winner one that says who.
	told   = regexp.MustCompile(`^(?:it|this|these|they|(?:the|this) (?:\pL+ ){0,3}?\pL+) (?:(?:is|are|was|were) (.+)|((?:do|does|can|cannot|has|have|\pL{3,}s)\b.*))$`)
	winner = regexp.MustCompile(`^(.+?) (?:wins?|won|will win|(?:is|was) the .+|has (?:a|the) .+)$`)
	// denial makes another thing of a subject.
	denial = regexp.MustCompile(`\b(?:not?|never|wrong|incorrect|false|opposite|neither|none|complement|other|non|converse|inverse|nor|loser)\b`)
	// kind matches the noun that an adjective implies, and numbers those that "all even" does.
	kind    = regexp.MustCompile(` (?:triangle|function|number|integer|angle|sequence|series|graph|curve|matrix|prism|solid|quadrilateral|polygon|one)s?$`)
	numbers = regexp.MustCompile(` (?:integers|numbers|values)\b`)
)

// essences returns what other answers may say for a text n, whose normal words are given: the words without "it is",
// without "wins", without "on" before a day, without "triangle" after "acute". A denial stays, since it is no such thing.
func essences(n *latex.Node, words string) []string {
	out := []string{kind.ReplaceAllString(words, ""), numbers.ReplaceAllString(words, "")}
	for _, preposition := range [...]string{"on ", "in ", "at "} {
		if rest, ok := strings.CutPrefix(words, preposition); ok {
			out = append(out, rest)
		}
	}
	if m := told.FindStringSubmatch(n.Name); n.Op == latex.Text && m != nil && (m[1] == "" || !denial.MatchString(n.Name)) {
		out = append(out, normalWords(m[1]+m[2])) // one of these is empty
	}
	if m := winner.FindStringSubmatch(n.Name); n.Op == latex.Text && m != nil && !denial.MatchString(n.Name) {
		out = append(out, normalWords(m[1]))
	}
	return out
}

// affirms reports whether a sentence begins with short, a yes or no, and says no more than
// that again: "yes, it is", "no, they do not".
func affirms(short, sentence string) bool {
	rest, ok := strings.CutPrefix(sentence, short+" ")
	if !ok || short != "yes" && short != "no" {
		return false
	}
	denied := false
	for _, w := range strings.Fields(rest) {
		verb, negated := strings.CutSuffix(w, "nt") // normal words have lost the apostrophe of isn't
		if negated = negated && affirmative[verb] || w == "not" || w == "cannot"; !negated && !affirmative[w] {
			return false
		}
		denied = denied != negated
	}
	return denied == (short == "no")
}

// affirmative are the words of a sentence that says yes again.
var affirmative = latex.SetOf("it he she they we i you there this that these those is are was were does do did ca " +
	"can could wo will would has have had must should may exists exist indeed")

// wordsOf is the normal words of an answer in words: a phrase, letters that were read as a product, a noun, or several of
// these and whole numbers. ok is false for other answers.
func wordsOf(n *latex.Node) (words string, ok bool) {
	switch n.Op {
	case latex.Text, latex.Sym:
		return normalWords(n.Name), true
	case latex.Mul:
		if n.Name != "" {
			return normalWords(n.Name), true
		}
		if n.Args[0].Op == latex.Text { // the words "at most" and the number 3 are read as factors
			return wordsOf(&latex.Node{Op: latex.List, Args: n.Args})
		}
	case latex.Unit:
		return strings.TrimPrefix(n.Name, "#"), true // # marks a counted noun
	case latex.List:
		// A sentence with a comma or an "and" in it.
		parts := make([]string, len(n.Args))
		for i, arg := range n.Args {
			w, ok := wordsOf(arg)
			if arg.Op == latex.Num && arg.Places < 0 { // written without a point
				w, ok = arg.Rat.RatString(), true
			}
			if !ok {
				return "", false
			}
			parts[i] = w
		}
		return strings.Join(parts, " "), true
	}
	return "", false
}

// normalWords are the words of s in small letters without articles and the punctuation at their ends. An "a" is
// an article only at the beginning: in "vitamin A" it is a letter. Signs without a word are unchanged.
func normalWords(s string) string {
	s = strings.TrimSpace(strings.ToLower(s))
	var out []string
	for i, f := range strings.FieldsFunc(joinedWord.ReplaceAllString(s, "$1 $2"), func(r rune) bool { return r == ' ' || r == '_' }) {
		w := strings.Trim(f, `.,;:!?"`)
		if !strings.ContainsAny(w, "0123456789") { // 5' is not 5''
			w = apostrophes.Replace(w)
		}
		if !strings.ContainsFunc(w, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			w = f // != is not =
		}
		if v, ok := latex.Spelled(w); ok {
			w = strconv.FormatInt(v, 10)
		}
		if w != "the" && w != "an" && (w != "a" || i > 0) {
			out = append(out, calendar(w))
		}
	}
	if len(out) == 0 {
		return s
	}
	if len(out) == 1 && out[0] == "dne" {
		return "does not exist"
	}
	return strings.Join(out, " ")
}

// calendar returns the full name of a day or month that w abbreviates; it returns anything else unchanged.
func calendar(w string) string {
	if len(w) < 3 || len(w) > 5 {
		return w
	}
	for _, name := range [...]string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday",
		"january", "february", "march", "april", "june", "july", "august", "september", "october", "november", "december"} {
		if strings.HasPrefix(name, w) && w != "march" {
			return name
		}
	}
	return w
}

// apostrophes and points within a word say nothing: isn't, U.S.
var apostrophes = strings.NewReplacer("'", "", ".", "")

// joinedWord is a hyphen within a word: well-known.
var joinedWord = regexp.MustCompile(`([\pL\d])-([\pL\d])`)

// pureWords compares two answers that are single runs of letters. Letters side by side are a product in a
// formula, but words where they stand alone: ABC is not BCA, and "on" is not "no". ok is false where this decides
// nothing: another kind of answer, or letters that may be variables.
func pureWords(g, a *latex.Node) (same, ok bool) {
	if figure(g) != "" && figure(g) == figure(a) && (g.Op == latex.Mul) != (a.Op == latex.Mul) {
		return true, true // AB and \overline{AB}
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
	if english[strings.ToLower(g.Name)] || english[strings.ToLower(a.Name)] {
		return strings.EqualFold(g.Name, a.Name), true
	}
	points := isUpper(g.Name) && isUpper(a.Name)
	words := len(g.Name) > 2 && len(a.Name) > 2 && !(neighbours(g.Name) && neighbours(a.Name))
	return g.Name == a.Name, points || words || g.Name == a.Name // cat is not act, xyz is zyx
}

// figure is the capitals that name a segment, a triangle or an angle, with or
// without the sign for it: AB of \overline{AB}. It is empty if n names no figure.
func figure(n *latex.Node) string {
	name := n.Name
	if sign, points, ok := strings.Cut(name, " "); n.Op == latex.Sym && ok && (sign == "bar" || sign == "triangle" || sign == "angle") {
		name = points
	} else if n.Op != latex.Mul {
		return ""
	}
	if len(name) < 2 || !isUpper(name) {
		return ""
	}
	return name
}

// neighbours reports whether the letters of a word are neighbours in the alphabet, as variables' letters often are.
func neighbours(w string) bool {
	letters := []byte(w)
	return int(slices.Max(letters)-slices.Min(letters)) <= len(w)
}

// english are short words that answers consist of.
var english = latex.SetOf("yes no odd on off up max min one two six ten red tie win all was saw ann bob sue tom dan " +
	"sam amy joe kim eve ben mon tue wed thu fri sat sun")

func isUpper(s string) bool { return strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" }
