package latex

import "strings"

// Text before and after an answer: "The area is 5", "Area: 5", "5 is the only one".

// verbs stand between a subject and its number.
var verbs = SetOf(`is are was were equals equal has have had gets get got needs need takes take costs cost makes make earns earn earned pays pay paid spent gave bought sold received needed spends spend sells sell saves save
	gives give gave receives becomes become contains contain holds holding find obtain yields totals 是 为 等于 等於 的值为 的值是 为： です は`)

// skipIntroduction skips words that say what follows, and reports whether there were any: a sentence up to its verb, a
// label up to its colon, or a word with a capital before a number. Words that change a number are not an introduction.
func (p *parser) skipIntroduction() bool {
	i, isPhrase := 0, false // a phrase rather than letters of a formula
	for ; p.ahead(i).kind == word && i < 16; i++ {
		t := p.ahead(i)
		w := strings.ToLower(t.text)
		isPhrase = isPhrase || t.inText && len(w) > 1 || len(w) > 3 || i > 0 && len(w) > 1 && verbs[w]
		if verbs[w] && !p.ahead(i+1).is(":") {
			return i > 0 && isPhrase && p.skipTo(i+1)
		}
		altering := len(w) > 2 && (changesNumber(w) || changesNumber(singular(w))) && !abbreviations[w]
		if altering || precedingModifiers[w] || i == 0 && boundWords[w] { // such as half, square or about
			return false
		}
	}
	if i == 1 && p.isLabel(p.ahead(0)) && p.ahead(1).kind == number {
		p.pos++ // Page 5
		return true
	}
	isDefinition := p.ahead(i + 1).is("=")                            // := is no colon
	isOperator := p.isFunction(p.ahead(0).text) && p.ahead(0).inRoman // \operatorname{lcm}: it is no label
	return i > 0 && isPhrase && p.ahead(i).is(":") && !isDefinition && !isOperator && p.skipTo(i+1)
}

// skipTo passes n tokens if a formula may begin behind them.
func (p *parser) skipTo(n int) bool {
	if !startsValue(p.ahead(n)) {
		return false
	}
	p.pos += n
	return true
}

// isLabel reports whether t is a word with a capital that may stand before a number, Page.
func (p *parser) isLabel(t *token) bool {
	capital := t.text[0] >= 'A' && t.text[0] <= 'Z' && len(t.text) > 3
	return capital && !p.isFunction(t.text) && !currencies[t.text] && monthOf(strings.ToLower(t.text)) == 0
}

// startsValue reports whether a formula may begin with t.
func startsValue(t *token) bool {
	return t.kind == number || t.kind == command || t.kind == word && !t.inText || t.kind == sign && !isRelation(t.text) &&
		t.text != "}" && t.text != ")" && t.text != "," && t.text != "."
}

// precedingModifiers are words that change the number after them.
var precedingModifiers = SetOf("square cube root log ln half twice thrice true no less more remove add unlike anti sub " +
	"un non about nearing missing lacking save bar barring")

// copulaAhead reports whether "is" or the like stands between a quantity and its number: x is 5.
func (p *parser) copulaAhead() bool {
	t, next := p.cur(), p.ahead(1)
	apart := t.inText || t.spaceBefore && next.spaceBefore && p.previous().kind != number
	if t.kind != word || !apart || p.pos == 0 {
		return false
	}
	if t.text == "is" && next.text == "equal" && p.ahead(2).text == "to" {
		next = p.ahead(3)
	}
	switch t.text {
	case "is", "equals", "的值为", "的值是", "是", "为", "等于", "等於":
		return next.kind == number || next.kind == command || next.is("-") || next.is("(") || next.is("{:") || next.is("[")
	}
	return false
}

// afterthoughts are phrases after an answer that change nothing.
var afterthoughts = [...][]string{{"is", "the"}, {"are", "the"}, {"in", "any", "order"}, {"in", "some", "order"},
	{"in", "that", "order"}, {"only"}, {"respectively"}}

// afterthoughtAhead reports whether the text ends with a remark that does not matter: one of afterthoughts, and at most
// eight words behind it that do not change a number, "is the only solution".
func (p *parser) afterthoughtAhead() bool {
	if p.cur().kind != word {
		return false
	}
	for _, phrase := range afterthoughts {
		if !p.phraseAhead(phrase) {
			continue
		}
		for i := len(phrase); ; i++ {
			t := p.ahead(i)
			if t.kind == end || t.is(".") && p.ahead(i+1).kind == end {
				return true
			}
			if t.kind != word || changesNumber(singular(strings.ToLower(t.text))) || i > 8 {
				return false
			}
		}
	}
	return false
}
