package latex

import (
	"fmt"
	"math/big"
	"onering/verifier/internal/rules"
	"slices"
	"strings"
)

// numberWords are numerals spelled out.
var numberWords = map[string]int64{
	"zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
	"eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19,
	"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}

// multipliers are words that multiply the number before them.
var multipliers = map[string]int64{
	"hundred": 100, "thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000, "trillion": 1_000_000_000_000, "quadrillion": 1e15, "quintillion": 1e18,
	"dozen": 12, "score": 20, "gross": 144, "grand": 1_000, "myriad": 10_000, "lakh": 100_000, "crore": 10_000_000,
}

// multiplier is the number that a word, in the singular or the plural, multiplies by.
func multiplier(w string) (int64, bool) {
	if m, ok := multipliers[w]; ok {
		return m, true
	}
	w, plural := strings.CutSuffix(w, "s")
	m, ok := multipliers[w]
	return m, ok && plural && w != "gros"
}

// fractionWords are denominators spelled out.
var fractionWords = map[string]int64{
	"half": 2, "halves": 2, "third": 3, "thirds": 3, "quarter": 4, "quarters": 4, "fourth": 4, "fourths": 4, "fifth": 5, "fifths": 5,
	"sixth": 6, "sixths": 6, "seventh": 7, "sevenths": 7, "eighth": 8, "eighths": 8, "ninth": 9, "ninths": 9, "tenth": 10, "tenths": 10,
	"eleventh": 11, "elevenths": 11, "twelfth": 12, "twelfths": 12, "sixteenth": 16, "sixteenths": 16, "twentieth": 20, "twentieths": 20,
	"hundredth": 100, "hundredths": 100, "thousandth": 1_000, "thousandths": 1_000, "millionth": 1_000_000, "millionths": 1_000_000,
}

// bases are the names of number bases.
var bases = map[string]int64{"binary": 2, "ternary": 3, "octal": 8, "decimal": 10, "hex": 16, "hexadecimal": 16}

// fillerPhrases begin a statement without being part of it.
var fillerPhrases = [...][]string{
	{"the", "final", "answer", "is"}, {"the", "correct", "answer", "is"}, {"the", "answer", "is"}, {"final", "answer", "is"}, {"final", "answer"}, {"答案是"}, {"答案为"}, {"答案"}, {"答"}, {"选"}, {"選"}, {"选项"}, {"ans"}, {"the", "pairs"}, {"the", "pair"}, {"the", "points"}, {"the", "point"}, {"for", "all"}, {"all"},
	{"answer", "is"}, {"my", "answer", "is"}, {"the", "answers", "are"}, {"the", "solution", "is"}, {"the", "solutions", "are"}, {"the", "value", "is"}, {"the", "result", "is"},
	{"answer"}, {"approximately"}, {"approx"}, {"about"}, {"roughly"}, {"exactly"}, {"around"}, {"thus"}, {"therefore"}, {"hence"}, {"so"}, {"either"}, {"both"},
	{"all", "integers"}, {"integers"}, {"all", "real", "numbers"}, {"a", "total", "of"}, {"equals"}, {"is"}, {"option"}, {"choice"}, {"the", "year"}, {"year"}, {"only"}, {"共"}, {"一共"},
}

var rounding = SetOf("approximately approx about roughly around")

// skipFillers passes filler phrases with a colon or a comma after each, and introductions ("The area is"). It reports
// whether they say that what follows is rounded ("about").
func (p *parser) skipFillers() (about bool) {
next:
	for {
		t := p.cur()
		if t.kind != word || len(t.text) == 1 && !t.inText || !rules.On("openings") { // not a letter of a formula
			return about
		}
		for _, phrase := range fillerPhrases {
			if !p.phraseAhead(phrase) {
				continue
			}
			n := p.ahead(len(phrase))
			if n.kind == end || n.is("}") || n.is("=") {
				return about // the phrase is all that is said
			}
			if last := phrase[len(phrase)-1]; last == "integers" || last == "numbers" || last == "all" {
				if rel := p.ahead(len(phrase) + 1); len(n.text) != 1 || rel.kind != sign || !isRelation(rel.text) {
					continue // no condition: all integers n >= 3
				}
			}
			about = about || rounding[phrase[0]]
			p.pos += len(phrase)
			if phrase[0] == "ans" || phrase[0] == "approx" {
				p.accept(".")
			}
			p.accept(":")
			p.accept(",")
			continue next
		}
		if !p.skipIntroduction() {
			return about
		}
	}
}

// phraseAhead reports whether the next words are these.
func (p *parser) phraseAhead(words []string) bool {
	for i, w := range words {
		if t := p.ahead(i); t.kind != word || !strings.EqualFold(t.text, w) {
			return false
		}
	}
	return true
}

// spelledNumber parses numerals in words: five, twenty-five, one hundred and six, two thirds, or Chinese ones. It
// returns nil, and passes nothing, where there are none.
func (p *parser) spelledNumber() *Node {
	if !rules.On("number words") {
		return nil
	}
	total, part, found := int64(0), int64(0), false // part is what a thousand or a million that follows multiplies
	joinsBelow := int64(1) << 60                    // a word below this adds to the number: any at first, then ones after tens
	for p.cur().kind == word {
		w := strings.ToLower(p.cur().text)
		v, plain := numberWords[w]
		m, times := multipliers[w]
		_, more := Spelled(p.ahead(1).text)
		if plain && v < joinsBelow {
			part, found, joinsBelow = part+v, true, 0 // after "five" no other word adds
			if v >= 20 {
				joinsBelow = 10
			}
		} else if times && found && m == 100 {
			part, joinsBelow = part*100, 100
		} else if times && found && total < 1e15 {
			total, part, joinsBelow = total+part*m, 0, 100
		} else if w != "and" || joinsBelow != 100 || !more {
			break
		}
		p.advance()
		if joinsBelow == 10 && p.cur().is("-") && p.ahead(1).kind == word && isNumberWord(p.ahead(1).text) {
			p.advance() // twenty-five
		}
	}
	if v, ok := hanNumber(p.cur().text); ok && !found && p.cur().kind == word {
		p.advance()
		total, found = v, true
	}
	if !found {
		return nil
	}
	n := integer(total + part)
	hyphen := p.cur().is("-") // two-thirds
	t := p.cur()
	if hyphen {
		t = p.ahead(1)
	}
	if d, ok := fractionWords[strings.ToLower(t.text)]; ok && t.kind == word {
		if hyphen {
			p.advance()
		}
		p.advance()
		n = &Node{Op: Div, Args: []*Node{n, integer(d)}}
	}
	return n
}

// phraseMeanings are answers in words that are mathematics.
var phraseMeanings = func() map[string]Node {
	all := map[string]Node{}
	for _, m := range [...]struct {
		phrases string
		node    Node
	}{
		{"all real numbers|all reals|real numbers|the real numbers|the set of all real numbers|the set of real numbers|all real|reals|any real number|all real values|all real numbers x|all real x|every real number", Node{Op: Named, Name: "R"}},
		{"all integers|the integers|integers", Node{Op: Named, Name: "Z"}},
		{"all positive integers|positive integers", Node{Op: Named, Name: "Z+"}},
		{"all even integers|even integers|all even numbers", multiples(0)},
		{"all odd integers|odd integers|all odd numbers", multiples(1)},
		{"无解|無解|empty set|the empty set|no solution|no solutions|no real solution|no real solutions|no such solution|none|no real roots|there is no solution|there are no solutions|no solution exists|no solutions exist|none exist", Node{Op: Named, Name: "empty"}},
		{"infinity|infinite|infinitely many|positive infinity|infinitely many solutions|an infinite number", Node{Op: Const, Name: "infty"}},
		{"negative infinity|minus infinity", Node{Op: Neg, Args: []*Node{{Op: Const, Name: "infty"}}}},
		{"dne|no limit", Node{Op: Text, Name: "does not exist", Words: true}},
		{"undefined|not defined", Node{Op: Text, Name: "undefined", Words: true}},
		{"noon", Node{Op: Clock, Rat: big.NewRat(720, 1), Name: "pm"}},
		{"midnight", Node{Op: Clock, Rat: new(big.Rat), Name: "am"}},
		{"a half|one half|half", Node{Op: Num, Rat: big.NewRat(1, 2), Places: -1}},
		{"a third", Node{Op: Num, Rat: big.NewRat(1, 3), Places: -1}},
		{"a quarter|a fourth", Node{Op: Num, Rat: big.NewRat(1, 4), Places: -1}},
		{"a dozen", *integer(12)}, {"a hundred", *integer(100)}, {"a thousand", *integer(1000)}, {"a million", *integer(1_000_000)},
		{"identity|identity matrix|the identity matrix", Node{Op: Sym, Name: "I"}},
	} {
		for phrase := range strings.SplitSeq(m.phrases, "|") {
			all[phrase] = m.node
		}
	}
	return all
}()

// multiples are the integers that leave a remainder by two, n \equiv 0 \pmod 2.
func multiples(remainder int64) Node {
	return Node{Op: Rel, Ops: []string{"=="}, Args: []*Node{{Op: Mod, Args: []*Node{{Op: Sym, Name: "n"}, integer(2)}},
		{Op: Mod, Args: []*Node{integer(remainder), integer(2)}}}}
}

// hanNumber is the value of a Chinese numeral, 四十二; ok is false if w has other characters.
func hanNumber(w string) (value int64, ok bool) {
	total, part, digit := int64(0), int64(0), int64(-1) // part is below ten thousand; digit waits for its size, -1 for none
	for _, r := range w {
		if i := strings.IndexRune("零一二三四五六七八九", r); i >= 0 {
			digit = int64(i / len("零"))
			continue
		}
		size := map[rune]int64{'十': 10, '百': 100, '千': 1000, '万': 10_000, '亿': 100_000_000}[r]
		switch {
		case size == 0:
			return 0, false
		case size >= 10_000:
			total, part, digit = (total+part+max(digit, 0))*size, 0, -1
		case digit < 0:
			part += size // 十二
		default:
			part, digit = part+digit*size, -1
		}
	}
	return total + part + max(digit, 0), w != ""
}

// text parses a phrase of words up to a connective or to mathematics, and returns what it means, or its words as a Text.
// After "except" the formula of what is left out belongs to it.
func (p *parser) text() *Node {
	var words []string
	for {
		t := p.cur()
		n := len(words)
		excepts := n > 0 && (words[n-1] == "except" || words[n-1] == "excluding" || n > 1 && words[n-1] == "for" && words[n-2] == "except")
		isValue := t.kind == word && (!t.inText && len(t.text) == 1 || isNumberWord(t.text))
		if excepts && isValue {
			break // a formula follows
		}
		if t.kind == word && (len(words) == 0 || !connective(t)) {
			words = append(words, t.text)
			p.advance()
			continue
		}
		// A hyphen or a full stop inside a phrase.
		if tight := !t.spaceBefore && !p.ahead(1).spaceBefore; len(words) > 0 && p.ahead(1).kind == word && (t.is("-") && tight || t.is(".")) {
			p.advance()
			continue
		}
		break
	}
	if n := p.except(words); n != nil {
		return n
	}
	return meaning(strings.Join(words, " "))
}

// Spelled is the value of a numeral spelled out.
func Spelled(w string) (int64, bool) {
	v, ok := numberWords[strings.ToLower(w)]
	return v, ok
}

// isNumberWord reports whether w is a numeral spelled out.
func isNumberWord(w string) bool {
	_, ok := Spelled(w)
	return ok
}

// except parses what "all real numbers except" leaves out, and returns the difference of both sets; nil if words do not
// end so, or do not name a set.
func (p *parser) except(words []string) *Node {
	last := len(words) - 1
	if last < 1 || words[last] != "except" && words[last] != "excluding" {
		return nil
	}
	base := meaning(strings.Join(words[:last], " "))
	if base.Op != Named {
		return nil
	}
	rest := p.statements()
	switch {
	case rest == nil, base.Name == "empty": // no solution except 0
		p.fail()
	case rest.Op == List:
		rest = &Node{Op: Set, Args: rest.Args}
	case rest.Op.Scalar():
		rest = &Node{Op: Set, Args: []*Node{rest}}
	}
	return &Node{Op: Without, Args: []*Node{base, rest}}
}

// meaning is the node of a phrase.
func meaning(phrase string) *Node {
	phrase = strings.ToLower(phrase)
	if n, ok := phraseMeanings[phrase]; ok && rules.On("meanings") {
		return &n
	}
	return &Node{Op: Text, Name: phrase, Words: true}
}

// textOf is the Text of tokens that are not mathematics: their spelling in small letters, with spaces between words only,
// or what that means ("no solution"). It is nil where nothing is left.
func textOf(tokens []token) *Node {
	var b strings.Builder
	words := true // no token is of mathematics
	for i, t := range tokens {
		switch t.kind {
		case end, quad:
			continue
		case number:
			if t.num.text != "" {
				b.WriteString(t.num.text)
			} else {
				b.WriteString(ratString(t.num.value))
			}
			words = false
		case word:
			if i > 0 && tokens[i-1].kind == word {
				b.WriteByte(' ')
			}
			b.WriteString(strings.ToLower(t.text))
		case sign:
			if t.text == "{" || t.text == "}" || t.is(".") && (i == 0 || i+2 >= len(tokens)) { // the end token is the last
				continue
			}
			b.WriteString(t.text)
			words = words && (t.text == "," || t.text == "." || t.text == "-" || t.text == "'" || t.text == "!")
		default:
			fmt.Fprintf(&b, `\%s`, t.text)
			words = false
		}
	}
	name := strings.TrimSpace(b.String())
	if name == "" {
		return nil
	}
	if n, ok := phraseMeanings[name]; ok && rules.On("meanings") {
		return &n
	}
	return &Node{Op: Text, Name: name, Words: words}
}

// choice is the letter of a leading option label that more follows, "B. 12" or "(B) 12"; "" if there is none, if the
// text names two options, or if the letter is part of an expression.
func choice(tokens []token) string {
	i := 0
	open := tokens[0].is("(")
	if open {
		i = 1
	}
	if len(tokens) < i+3 {
		return ""
	}
	t, mark := tokens[i], tokens[i+1]
	if !isOption(t) {
		return ""
	}
	endsLabel := func(t token) bool { return t.is(".") || t.is(")") || t.is(":") }
	if open && !mark.is(")") || !open && !endsLabel(mark) {
		return ""
	}
	if label := tokens[i+2]; label.kind == word && isOption(label) && tokens[i+3].kind == end {
		return "" // A: B
	}
	// (A)(B), A.B. and A. no B. yes name two options, but (A) f(B) does not: there B is an argument.
	for j := i + 2; j+1 < len(tokens); j++ {
		after := tokens[j+1]
		isArgument := tokens[j-1].is("(") && !tokens[j-1].spaceBefore && tokens[j-2].kind == word
		inBrackets := after.is(")") && tokens[j-1].is("(")
		isLabel := endsLabel(after) && (j == i+2 || tokens[j+2].kind != end)
		if isOption(tokens[j]) && !isArgument && (inBrackets || isLabel) {
			return ""
		}
	}
	// (B)+1 is a sum, "(B) or (C)" two options.
	switch next := tokens[i+2]; next.kind {
	case word:
		if connective(&next) {
			return ""
		}
	case sign:
		if !slices.Contains([]string{"(", "{", "{:", "[", "|", "-"}, next.text) {
			return ""
		}
	}
	return t.text
}

// isOption reports whether t is a letter that options are called by.
func isOption(t token) bool {
	return t.kind == word && len(t.text) == 1 && t.text[0] >= 'A' && t.text[0] <= 'J'
}

// monthOf is the number of a month's name or its abbreviation, else 0.
func monthOf(w string) int {
	full := [...]string{"january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december"}
	for i, m := range full {
		if w == m || w == m[:3] || w == "sept" && i == 8 {
			return i + 1
		}
	}
	return 0
}
