package verifier

import (
	"fmt"
	"math/big"
	"regexp"
	"strings"

	"onering/verifier/internal/algebra"
	"onering/verifier/internal/latex"
	"onering/verifier/internal/rules"
)

// VerifyAny says whether response answers as any of golds does. The result is of the
// first gold with which it agrees, else of the last gold.
func (v Verifier) VerifyAny(golds []string, response string) Result {
	return v.judge(golds, response).Result
}

// An Explanation is a Result with what led to it.
type Explanation struct {
	Result
	// From says where the answer was found: "box", "tag", "text formula" or "text"; empty if nowhere.
	From string `json:"from"`
	// GoldTree and AnswerTree are the parsed gold and answer, as s-expressions.
	GoldTree   string `json:"gold_tree"`
	AnswerTree string `json:"answer_tree"`
}

// Explain is VerifyAny with the trees that were compared.
func (v Verifier) Explain(golds []string, response string) Explanation {
	d := v.judge(golds, response)
	return Explanation{Result: d.Result, From: d.from, GoldTree: treeText(d.gold, d.Gold), AnswerTree: treeText(d.answer, d.Answer)}
}

// treeText returns tree(n, text) as an s-expression, "" if there is none.
func treeText(n *latex.Node, text string) string {
	if n = tree(n, text); n == nil {
		return ""
	}
	return n.String()
}

// tree returns n, or the tree of text if the texts alone decided, so that they
// were not parsed. It is nil if text cannot be parsed.
func tree(n *latex.Node, text string) *latex.Node {
	if n == nil && text != "" {
		if p, err := latex.Parse(text, latex.Reading{}); err == nil {
			n = p.Tree
		}
	}
	return n
}

// A decision is a Result with the trees behind it.
type decision struct {
	Result
	from         string
	gold, answer *latex.Node
	steps        int // the work that it took, for tests of the limits
}

// judge compares the answer in the response with each gold in turn. A mistake in this package must not end a
// training run: a panic becomes an Error, which training counts and tests detect.
func (v Verifier) judge(golds []string, response string) (d decision) {
	defer func() {
		if r := recover(); r != nil {
			d = decision{Result: Result{Status: Error, Reason: fmt.Sprintf("internal error: %v", r)}}
		}
	}()
	return v.firstAgreeing(golds, response)
}

// firstAgreeing compares the answer in a response with golds, until one agrees; golds without text are passed over. If
// none agrees, the decision is that of the last, but with the status Limit if any comparison met a limit.
func (v Verifier) firstAgreeing(golds []string, response string) decision {
	if len(response) > maxResponse {
		return decision{Result: Result{Status: Limit, Reason: "the response is too long"}}
	}
	find := &finder{}
	e := find.extractAnswer(v, response)
	d := decision{Result: Result{Status: Error, Reason: "the gold is empty"}}
	metLimit, steps := false, 0
	start := comparer{workedOut: v.WorkedOut} // every comparison gets a copy
	if v.Tolerance > 0 {
		start.tolerance = new(big.Rat).SetFloat64(v.Tolerance)
	}
	for _, gold := range golds {
		text, ok := find.goldText(gold)
		if !ok {
			continue
		}
		d = compareExtract(text, e, start)
		steps += d.steps
		if d.Correct {
			break
		}
		metLimit = metLimit || d.Status == Limit
	}
	d.steps = steps + find.steps
	if metLimit && !d.Correct {
		d.Status = Limit
	}
	return d
}

// compareExtract compares one gold with the readings of an extract, until one is equal; else the decision is about the
// first. A reading after the first joins several boxes, and counts only against a gold that may have parts. start is a
// fresh comparer without a budget.
func compareExtract(gold string, e extract, start comparer) decision {
	d := decision{Result: Result{Gold: clean(gold), Status: OK, Reason: e.reason}, from: e.from}
	if d.Reason == "" {
		d.Reason = "no answer"
	}
	start.algebra = algebra.NewChecker() // all readings share one budget
	start.inRunningText = e.from == fromProse && !e.whole
	for i, text := range e.texts {
		answer := clean(text)
		if answer == "" {
			continue
		}
		v := compareTexts(d.Gold, answer, e.from != fromProse, start)
		if v.equal && start.workedOut && !workedOut(v.gold, v.answer, d.Gold, answer) {
			v.equal, v.rule = false, "the value is right, but it is not worked out"
		}
		if i > 0 && v.equal && !hasParts(v.gold, v.answer) {
			v.equal, v.rule = false, "several boxes, and the gold is no list"
		}
		d.steps += v.steps
		if i == 0 || v.equal {
			d.Answer, d.Reason, d.Status = answer, v.rule, v.status
			d.gold, d.answer = v.gold, v.answer
		}
		if v.equal {
			d.Correct = true
			break
		}
	}
	d.steps += start.algebra.Steps()
	return d
}

// hasParts reports whether gold may have the joined boxes of answer as its parts: x > 3 has
// not, though x > 3 and x > 1 in two boxes make it.
func hasParts(gold, answer *latex.Node) bool {
	return gold == nil || gold.Op != latex.Rel && (isListLike(gold) || gold.Op == latex.Bracket || !answer.Contains(latex.Rel))
}

// A verdict is the result of comparing two texts.
type verdict struct {
	equal        bool
	rule         string
	status       Status
	gold, answer *latex.Node // the trees of the reading that decided
	steps        int         // steps of reading the texts, in all readings that were tried
}

// compareTexts compares a gold and an answer, both without delimiters and not empty, in the usual reading and, if they
// differ there, in the others that they allow. isMarked says that the answer stood in a box, a tag or a formula.
func compareTexts(gold, answer string, isMarked bool, start comparer) (v verdict) {
	if gold == answer {
		return verdict{equal: true, rule: "the same text", status: OK}
	}
	x, okX := integerDigits(gold)
	if y, okY := integerDigits(answer); okX && okY { // numbers of any length compare quickly
		return verdict{equal: x == y, rule: "whole numbers", status: OK}
	}
	g, errG := latex.Parse(gold, latex.Reading{})
	a, errA := latex.Parse(answer, latex.Reading{})
	steps := g.Steps + a.Steps
	if errG != nil || errA != nil {
		return verdict{rule: "too long or too deep to be read", status: Limit, steps: steps}
	}
	v = compareTrees(g, a, start)
	defer func() { v.steps = steps }() // those of the other readings, too
	if v.equal || v.status == Limit {
		return v
	}
	if rules.On("substances") && sameSubstance(gold, answer) {
		v.equal, v.rule = true, "the same substance"
		return v
	}
	// Now the other readings of an ambiguous text; v changes if they are equal in one.
	try := func(ofGold, ofAnswer latex.Reading) bool {
		if !rules.On("other readings") {
			return false
		}
		g2, errG := latex.Parse(gold, ofGold)
		a2, errA := latex.Parse(answer, ofAnswer)
		steps += g2.Steps + a2.Steps
		areLists := isList(g2.Tree) && isList(a2.Tree) && len(g2.Tree.Args) == len(a2.Tree.Args)
		if errG != nil || errA != nil || ofGold.Comma == latex.Separator && !areLists {
			return false
		}
		w := compareTrees(g2, a2, start)
		if w.equal {
			v = w
		}
		return w.equal
	}
	list := latex.Reading{Comma: latex.Separator}
	decimal := latex.Reading{Comma: latex.Decimal}
	switch {
	// 100,200 is a list if the other side clearly is one.
	case g.Ambiguity.Thousands != a.Ambiguity.Thousands && isList(g.Tree) != isList(a.Tree) && !zeroGroup.MatchString(gold) &&
		!zeroGroup.MatchString(answer) && try(list, list):
	// In running text 1,5 may be a decimal.
	case !isMarked && g.Ambiguity.Decimal && isList(g.Tree) && !isList(a.Tree) && try(decimal, latex.Reading{}):
	case !isMarked && a.Ambiguity.Decimal && isList(a.Tree) && !isList(g.Tree) && try(latex.Reading{}, decimal):
	// Letters behind a number may be variables and no units.
	case (g.Ambiguity.Units || a.Ambiguity.Units) && try(latex.Reading{Letters: true}, latex.Reading{Letters: true}):
	}
	return v
}

// zeroGroup is a comma before a zero and more digits: 20,000 is not a list of 20 and 000.
var zeroGroup = regexp.MustCompile(`,0\d`)

// isList reports whether n is a list that cannot be one number; 12,345 is not (12,345).
func isList(n *latex.Node) bool { return n != nil && (n.Op == latex.List || n.Op == latex.Set) }

// compareTrees compares two parsed texts: options by letter, then words, then the trees by the rules for their
// kinds, and last with other names of free constants.
func compareTrees(g, a latex.Parsed, start comparer) verdict {
	v := verdict{status: OK, gold: g.Tree, answer: a.Tree}
	if g.Tree == nil || a.Tree == nil {
		v.rule = "nothing to compare"
		return v
	}
	if same, rule := choices(g, a, start); rule != "" {
		v.equal, v.rule = same, rule
		return v
	}
	if same, ok := pureWords(g.Tree, a.Tree); ok {
		v.equal, v.rule = same, "words"
		return v
	}
	c := &start
	v.equal = c.equal(unhatted(g.Tree), unhatted(a.Tree))
	v.rule = c.rule
	if !v.equal && !c.limited && rules.On("free constants") && c.renamedConstants(unhatted(g.Tree), unhatted(a.Tree)) {
		v.equal, v.rule = true, c.rule
	}
	if !v.equal && (c.limited || c.algebra.Spent()) {
		v.status = Limit
	}
	return v
}

// unhatted writes the unit vectors i, j and k in n without their accents: \hat{i}, whose name is "hat i", becomes i.
func unhatted(n *latex.Node) *latex.Node {
	if n == nil || !n.Any(func(m *latex.Node) bool { return m.Op == latex.Sym && strings.IndexByte(m.Name, ' ') > 0 }) {
		return n
	}
	if accent, letter, ok := strings.Cut(n.Name, " "); n.Op == latex.Sym && ok && (accent == "hat" || accent == "vec" || accent == "bar") &&
		strings.Contains("ijk", letter) {
		op := latex.Sym
		if letter == "i" { // a plain i is parsed as the imaginary unit
			op = latex.Const
		}
		return &latex.Node{Op: op, Name: letter}
	}
	return n.Mapped(unhatted)
}

// choices compares options, "B. 12": by their letters if both sides name one, and no other values, else the text after
// the letter with the other side. The rule is empty if this decides nothing.
func choices(g, a latex.Parsed, start comparer) (same bool, rule string) {
	if !rules.On("options") {
		return false, ""
	}
	if g.Choice == "" && a.Choice == "" {
		// A letter in words is an option whatever its case.
		letters := g.Tree.Op == latex.Sym && a.Tree.Op == latex.Sym && (g.Tree.Words || a.Tree.Words)
		if letters && strings.EqualFold(g.Tree.Name, a.Tree.Name) {
			return true, "option letters"
		}
		return false, ""
	}
	// The letter or its content is a convention of its own: no other may be added, but what keeps the value (50% and 1/2).
	equal := func(x, y *latex.Node) bool {
		c := start
		c.inRunningText = false
		return c.equal(x, y) && (c.used == strict || c.used == percentValue || c.used == degreeValue)
	}
	for _, n := range [...]*latex.Node{g.Chosen, a.Chosen} {
		if n != nil && n.Op == latex.Rel && !(&comparer{algebra: start.algebra}).agrees(n) {
			return false, "the parts of a chain differ"
		}
	}
	x, y := optionLetter(g), optionLetter(a)
	switch {
	case x != "" && y != "":
		if x == y && isFormula(g.Chosen) && isFormula(a.Chosen) && !equal(g.Chosen, a.Chosen) {
			return false, "one option letter with different values"
		}
		if x == y && !isList(g.Chosen) && !isList(a.Chosen) { // A, B: a list may name several options
			return true, "option letters"
		}
	case y == "" && g.Chosen != nil && equal(g.Chosen, a.Tree), x == "" && a.Chosen != nil && equal(g.Tree, a.Chosen):
		return true, string(optionContent)
	}
	return false, ""
}

// optionLetter returns the letter of a label or of a tree that is a single letter.
func optionLetter(p latex.Parsed) string {
	if p.Choice != "" {
		return p.Choice
	}
	if p.Tree.Op == latex.Sym && len(p.Tree.Name) == 1 {
		return strings.ToUpper(p.Tree.Name)
	}
	return ""
}

// isFormula reports whether n is an expression without words.
func isFormula(n *latex.Node) bool {
	return n != nil && n.Op.Scalar() && !n.Contains(latex.Text) && !n.Contains(latex.Unit)
}

// integerDigits is a plain integer in normal form: "-" or nothing, digits without leading zeros. ok is false for other texts.
func integerDigits(s string) (string, bool) {
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	} else if strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return "", false
	}
	if s = strings.TrimLeft(s, "0"); s == "" {
		return "0", true
	}
	return sign + s, true
}
