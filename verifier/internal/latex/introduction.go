package latex

import (
	"slices"
	"strings"
)

// Text before and after an answer: "The area is 5", "Page 5", "5 is the only one".

// verbs are those between a subject and its number.
var verbs = SetOf(`is are was were equals equal has have had gets get got needs need takes take costs cost makes make earns earn earned pays pay paid spent gave bought sold received needed spends spend sells sell saves save
	gives give gave receives becomes become contains contain holds holding find obtain yields totals 是 为 等于 等於 的值为 的值是 为： です は`)

// valued are nouns after which "of" is followed by their value: "the total of 5". After
// another noun the number is a part of an expression: "the square of 5".
var valued = SetOf("total value result answer probability chance area volume length distance cost price average mean remainder speed age sum")

// introduction skips words before a number that say what it is: a sentence up to its
// verb, a label up to its colon, or a noun alone, whose name it returns. Words that
// change the number are no introduction.
func (p *parser) introduction() (label string, ok bool) {
	var words []string
	i, wordy := 0, false
	for ; p.at(i).kind == word; i++ {
		t := p.at(i)
		n := len(words)
		if n > 0 && verbs[words[n-1]] && !t.plain && len(t.text) == 1 {
			break // The polynomial is x^2
		}
		wordy = wordy || t.plain && len(t.text) > 1 || len(t.text) > 3 || n > 0 && len(t.text) > 1 && verbs[t.text]
		words = append(words, strings.ToLower(t.text))
		if i > 16 {
			return "", false
		}
		if p.at(i+1).is("'") || p.at(i+1).is("-") && !p.at(i+1).space && p.at(i+2).kind == word {
			i++
		}
	}
	if !wordy || i == 0 || p.isFunction(p.at(0).text) && (p.at(0).roman || i == 1 && !p.at(1).is(":")) || currencies[p.at(0).text] {
		return "", false
	}
	last := words[len(words)-1]
	next := p.at(i)
	colon := next.is(":") && !p.at(i+1).is("=")
	subject := words
	said := verbs[last]
	if said {
		subject = words[:len(words)-1]
	}
	for j, w := range subject {
		if len(w) > 2 && ((changes(w) || changes(singular(w))) && !abbreviations[w] || verbs[w]) || j == 0 && begins[w] || numberWords[w] > 0 || prefixing[w] {
			return "", false
		}
	}
	if colon {
		next = p.at(i + 1)
	}
	if len(words) == 2 && words[0] == "the" && !said {
		words = words[1:] // the number 5
	}
	if next.kind != number && next.kind != command && !(said || colon) || next.kind == end || next.kind == word && !(said && !next.plain) || next.is("}") || next.is(")") || next.is(",") || next.is(".") || next.kind == sign && isRelation(next.text) {
		return "", false
	}
	switch of := len(words) > 1 && last == "of" && valued[words[len(words)-2]]; {
	case colon:
		i++
		label = strings.Join(slices.DeleteFunc(words, func(w string) bool { return len(w) < 3 }), " ")
	case said, of:
	case len(words) == 1 && next.kind == number && !strings.HasSuffix(last, "ing") && !strings.HasSuffix(last, "ly") && !isParticiple(last) || last == "only":
		label = last
	default:
		return "", false
	}
	p.pos += i
	return label, true
}

// prefixing are words that change the number after them.
var prefixing = SetOf("square cube root log ln half twice thrice true no less more remove add unlike anti sub un non about nearing missing lacking save bar barring")

// labelled returns n with the label before it as the counted noun, if n is a single
// number; the label "only" is ignored.
func labelled(n *Node, label string) *Node {
	if label == "" || label == "only" || n.Op != Num && !(n.Op == Neg && n.Args[0].Op == Num) {
		return n
	}
	return &Node{Op: Mul, Args: []*Node{n, {Op: Unit, Name: "#" + label + " value"}}}
}

// copula reports whether "is" or the like stands between a quantity and its number: x is 5.
func (p *parser) copula() bool {
	t, next := p.cur(), p.at(1)
	if t.kind != word || !(t.plain || t.space && next.space) || p.pos == 0 || p.before().kind == number && !t.plain {
		return false
	}
	if t.text == "is" && next.text == "equal" && p.at(2).text == "to" {
		next = p.at(3)
	}
	switch t.text {
	case "is", "equals", "的值为", "的值是", "是", "为", "等于", "等於":
		return next.kind == number || next.kind == command || next.is("-") || next.is("(") || next.is("{:") || next.is("[")
	}
	return false
}

// afterthoughts are phrases after an answer that change nothing.
var afterthoughts = [...][]string{{"is", "the"}, {"are", "the"}, {"in", "any", "order"}, {"in", "some", "order"}, {"in", "that", "order"}, {"only"}, {"respectively"}}

// afterthought reports whether a remark that does not matter follows, and nothing else that
// matters.
func (p *parser) afterthought() bool {
	if p.cur().kind != word {
		return false
	}
	for _, phrase := range afterthoughts {
		if !p.phrase(phrase) {
			continue
		}
		for i := len(phrase); ; i++ {
			t := p.at(i)
			if t.kind == end || t.is(".") && p.at(i+1).kind == end {
				return true
			}
			if t.kind != word || changes(singular(strings.ToLower(t.text))) || i > 8 {
				return false
			}
		}
	}
	return false
}
