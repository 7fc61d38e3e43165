package verifier

import (
	"math/big"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"onering/verifier/internal/algebra"
	"onering/verifier/internal/latex"
)

// Text around a box may form one expression with it. A measure is read with the box:
// \boxed{5} million is 5,000,000. Otherwise the box is a part of an expression or a
// relation, -\boxed{5} or x \ne \boxed{5}, and no answer. Words, and the other side of an
// equation, do not belong to the box.

// farthest is how many bytes around a box are looked at.
const farthest = 400

// boxText returns the content of a box with a measure after it; ok is false if the box is
// a part of something larger. outside says that a per cent sign stands after the box.
func (find *finder) boxText(s string, b box) (text string, outside, ok bool) {
	before, after, formula := find.surroundings(s, b)
	if rest := s[b.end+len(after):]; formula && strings.Trim(after, `$\)]`) == "" {
		after = numeralEnd.FindString(rest)
	}
	if strings.HasPrefix(after, `\`) || strings.HasPrefix(after, "{") {
		after = prefixed.ReplaceAllString(bracedMarks.Replace(after), "$1")
	}
	find.steps += len(before) + len(after)
	widthless := func(r rune) bool { return isBlank(r) && r >= utf8.RuneSelf }
	left := strings.TrimPrefix(leftOf(strings.TrimRight(strings.TrimRightFunc(before, widthless), `\`), formula), `\left`)
	right := rightOf(strings.TrimLeftFunc(after, widthless), left, formula)
	if strings.Trim(right, " }") == "" {
		right = ""
	}
	tuple := strings.HasPrefix(left, "(") || strings.HasPrefix(left, "[")
	if unit := strings.TrimSpace(right); unit != "" && !tuple && strings.Trim(unit, letters) == "" && isMeasure(`\text{`+unit+"}") {
		return b.content + `\text{` + unit + "}", false, left == "" || harmless.MatchString(left)
	}
	switch measured := suffixed.MatchString(right); {
	case !tuple && (left != "" && (!harmless.MatchString(left) || fraction.MatchString(left) && (formula || left == "0.")) || right != "" && !measured):
		return "", false, false
	case tuple:
		return left + b.content + right, false, true
	case measured:
		if outside = strings.HasSuffix(right, "%"); outside && strings.Contains(b.content, "%") {
			return b.content, false, true
		}
		return "(" + b.content + ")" + right, outside, true
	case strings.ContainsAny(b.content, "0123456789") && !strings.Contains(b.content, `\text`):
		if words := measureAfter(s[b.end:min(len(s), b.end+farthest)]); words != "" {
			return b.content + " " + words, words[0] == 'p' && strings.Contains("percent pct per cent", words) || strings.HasSuffix(words, "%"), true
		}
	}
	return b.content, false, true
}

var (
	// concluding are words before an expression that do not belong to it, and valued
	// matches an expression after "of".
	concluding = setOf("so thus hence therefore then is are was be equals have has get gets got gives makes find now since because total")
	valued     = setOf("total sum value result answer")
	aligning   = setOf("align aligned alignat gather gathered equation split multline")
	// notations are words that may say why two numerals are equated.
	notations = [...]string{"mod", "base", "binary", "decimal", "hex", "octal"}
	// listed begins the line of a list or a table.
	listed = regexp.MustCompile(`^\s*(?:[-–*+•|]\s|[\[(]\d+[\])]\s)\s*`)
	// unordered matches quotients without a clear numerator and denominator: 10!/5!5!, 100%/8%.
	unordered = regexp.MustCompile(`/\s*(?:[\d.]+!\s*[\d(]|[\d.]+\s*[(%]|\([^()]*\)\s*[\d(]|\d+\\%)`)
)

// contradicted reports whether the number in a box, whose value is content, is equated
// with another number: 3+4 = \boxed{5}, \boxed{5} = x = 7. Either may be rounded.
func (find *finder) contradicted(s string, b box, content string) bool {
	before, after := s[max(0, b.start-farthest/2):b.start], s[b.end:min(len(s), b.end+farthest/4)]
	first := ""
	if b.start > farthest/2 {
		first = "cut off"
	}
	left := strings.TrimRight(before, " \t\n$&*{([\\;,!~")
	for _, command := range [...]string{`\text`, `\textbf`, `\mathbf`} {
		left = strings.TrimRight(strings.TrimSuffix(left, command), " \t\n$&{\\")
	}
	right := strings.TrimPrefix(strings.TrimPrefix(strings.TrimLeft(after, " \t$}&*(~"), `\)`), `\]`)
	var beside []string
	for _, sign := range [...]string{"=", `\approx`, "≈"} {
		if head, ok := strings.CutSuffix(left, sign); ok {
			beside = append(beside, equatedPart(strings.TrimRight(head, " \t\n$&\\"), first, true))
		}
		if rest, ok := strings.CutPrefix(strings.TrimLeft(right, " ("), sign); ok {
			beside = append(beside, equatedPart(strings.TrimLeft(rest, " \t$&"), "", false))
		}
	}
	if len(beside) == 0 || slices.ContainsFunc(notations[:], func(w string) bool { return strings.Contains(before, w) || strings.Contains(after, w) }) {
		return false
	}
	find.steps += len(before) + len(after)
	var said []*latex.Node
	for _, text := range [...]string{content, b.content} {
		p, err := latex.Parse(clean(text), latex.Reading{})
		find.steps += p.Steps
		if err != nil || p.Tree == nil || !p.Tree.Op.Scalar() || hasNames(p.Tree) {
			return false
		}
		if said = append(said, p.Tree); p.Tree.Op == latex.Percent || p.Tree.Op == latex.Degree {
			said = append(said, p.Tree.Args[0])
		}
	}
	c := &comparer{algebra: algebra.NewChecker()}
	defer func() { find.steps += c.algebra.Steps() }()
	for _, text := range beside {
		p, err := latex.Parse(clean(strings.ReplaceAll(text, "(", " (")), latex.Reading{}) // 0.6(600) is 360
		find.steps += p.Steps
		if err == nil && computed(p.Tree) && !unordered.MatchString(text) && !slices.ContainsFunc(said, func(n *latex.Node) bool { return c.nearly(p.Tree, n) }) {
			return !c.limited && !c.algebra.Spent()
		}
	}
	return false
}

// nearly reports whether two constants are equal, or may be after rounding: 3.4 and 4,
// 0.667 and 2/3. Decimals may come from rounded decimals.
func (c *comparer) nearly(x, y *latex.Node) bool {
	if c.equal(x, y) {
		return true
	}
	p, exact := c.algebra.Rational(x)
	q, whole := c.algebra.Rational(y)
	if whole = whole && q.IsInt(); exact && whole && p.IsInt() {
		return false
	}
	limit := integer(1)
	if !whole {
		limit = product(absolute(y), algebra.Rational(big.NewRat(1, 50)))
	}
	order, ok := c.algebra.Compare(absolute(algebra.Difference(x, y)), limit)
	return ok && order < 0 && (whole || hasDecimal(x) || hasDecimal(y)) || c.approximates(x, y) || c.approximates(y, x)
}

// computed reports whether n is an arithmetic expression of numerals.
func computed(n *latex.Node) bool {
	if n == nil {
		return false
	}
	switch n.Op {
	case latex.Num:
		return true
	case latex.Unit:
		return n.Name == "USD"
	case latex.Add, latex.Mul, latex.Div, latex.Neg, latex.Pow, latex.Root, latex.Fact, latex.Binom, latex.Abs, latex.Percent:
		return n.Every(computed)
	}
	return n.Op == latex.Const && n.Name == "pi"
}

// equatedPart returns the first part of the chain of equations with which s begins, or
// with last the last part. A single letter is skipped for the part beyond. The part is
// empty if words beside it may change its value; word is the word before s.
func equatedPart(s, word string, last bool) string {
	part, beyond, depth, joined := "", "", 0, false
	for s != "" {
		m := markOf(s)
		s = s[len(m):]
		r, size := utf8.DecodeRuneInString(m)
		switch m {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			depth--
		}
		shut := depth < 0
		depth = max(0, depth)
		named := len(strings.TrimSpace(part)) == 1 && isLetter(strings.TrimSpace(part)[0])
		switch equal := m == "=" || m == `\approx` || m == "≈"; {
		case m == `\begin` || m == `\end`:
			var name string
			if name, s, _ = strings.Cut(strings.TrimPrefix(s, "{"), "}"); !aligning[strings.TrimSuffix(name, "*")] {
				part, word, joined = "", name, false // a matrix
			}
		case equal && !last && named:
			part = ""
		case last && (m == "$" || len(m) == 2 && strings.Contains(`\( \) \[ \]`, m)): // a formula around it
			part = listed.ReplaceAllString(part, "")
		case unicode.IsLetter(r) && (len(m) > 1 || size > 1) && m != "sqrt":
			if !last {
				return ""
			}
			if m = strings.ToLower(m); m == "of" && valued[word] {
				m = "is"
			}
			part, beyond, word, depth, joined = "", "", m, 0, false
		case apart[m], strings.Contains(m, "\n"), m == "," && depth == 0 && startsBlank(s), m == "." && startsBlank(s), shut && m != "}":
			if !last {
				return part
			}
			if beyond = ""; equal && (joined || word == "" || concluding[word]) {
				beyond = part
			}
			if part, word, depth, joined = "", "", 0, equal; m == "," {
				word = m
			} else if m[0] != '.' && strings.ContainsAny(strings.TrimLeft(s, " ")[:min(1, len(strings.TrimLeft(s, " ")))], "+*/·×") {
				word = "goes on"
			}
		default:
			part += m
		}
	}
	if named := strings.TrimSpace(part); joined && len(named) == 1 && isLetter(named[0]) {
		part = beyond
	} else if part = strings.TrimLeft(part, "} "); !joined && last && (listed.MatchString(part) || word != "" && !concluding[word] && (!passed[word] && word != "," || word == "of" || !strings.ContainsAny(part, `+-*/^\!`))) {
		return ""
	}
	return part
}

// orWord is "or" beside a box, in several languages.
const orWord = `(?:\\text\{\s*or\s*\}|\\lor|\bor\b|\boder\b|\bou\b|или|或者?|または|또는)`

// orBefore and orAfter match an "or" beside a box with the number or the formula beyond
// it, orNamed an "or" with a letter and its value. orWords lists the words of orWord.
var (
	orWords  = []string{"or", "oder", "ou", "lor", "или", "或", "或者", "または", "또는"}
	orBefore = regexp.MustCompile(`(?i)(?:^|[\s($])(-?\d[\d.,/]*(?:\\?%)?|\$[^$]{1,80}\$|)[\s,]*` + orWord + `[\s$]*(?:\\[(\[])?\s*$`)
	orNamed  = regexp.MustCompile(`(?:^|[^\pL\d\\)}^_]\s*)([A-Za-z])\s*=\s*([^=$,\s]{1,40})\s*\$?\s*,?\s*` + orWord + `[\s$]*$`)
	orAfter  = regexp.MustCompile(`(?i)^\s*(?:\$|\\[)\]])?[\s,;]*` + orWord + `(?:\s+(?:maybe|perhaps|possibly|rather|else))?\s*(?:[a-z]\s*=\s*)?(-?\d[\d.,/]*(?:\\?%)?|\$[^$]{1,80}\$|\\\([^$]{1,80}?\\\))\s*(?:[$.,;!?\n]|$|\\[)\]]|` + orWord + `)`)
)

// otherAnswer returns another answer that words beside a box give, to be read after it:
// \boxed{5} or 7. A decimal beside an expression may be its rounded value.
func (find *finder) otherAnswer(s string, b box) string {
	before, after := s[max(0, b.start-farthest/4):b.start], s[b.end:min(len(s), b.end+farthest/4)]
	find.steps += len(before) + len(after)
	if head, name := assigned(strings.TrimRight(before, " $")); name != 0 { // x = -5 or x = \boxed{5}
		if m := orNamed.FindStringSubmatch(head); m != nil && m[1] == string(name) {
			return ` \text{ or } ` + m[2]
		}
	}
	left, right := strings.TrimRight(before, " \n$\\([}"), strings.TrimLeft(after, " $\\)],;")
	for i, said := range [...]bool{slices.ContainsFunc(orWords, func(w string) bool { return strings.HasSuffix(left, w) }), strings.HasPrefix(right, "text{") || slices.ContainsFunc(orWords, func(w string) bool { return strings.HasPrefix(right, w) })} {
		if !said {
			continue // the expressions cost more than all else
		}
		m := [...]*regexp.Regexp{orBefore, orAfter}[i].FindStringSubmatch([...]string{before, after}[i])
		if m == nil || m[1] == "" {
			continue
		}
		other := clean(strings.TrimRight(m[1], ".,"))
		if strings.Contains(other, ".") && !strings.Contains(b.content, ".") {
			return ` \approx ` + other
		}
		return ` \text{ or } ` + other
	}
	return ""
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// spacings are commands that only set things apart.
var spacings = strings.NewReplacer(`\,`, "", `\;`, "", `\:`, "", `\!`, "", `\ `, "")

// suffixed matches text directly after a box that is read with it: per cent, degrees, a modulus.
var suffixed = regexp.MustCompile(`^\s*(?:\\?%|°|\^\\circ|\^\{\\circ\}|\\[pb]?mod\b.*|\(\\?mod.*)$`)

// surroundings returns the text before and after a box in its formula, or else in its
// line.
func (find *finder) surroundings(s string, b box) (before, after string, formula bool) {
	from, to := max(0, b.start-farthest), min(len(s), b.end+farthest)
	if i := strings.LastIndex(s[from:b.start], "\n\n"); i >= 0 {
		from += i + 2
	}
	for _, g := range find.segments(s[from:to]) {
		if start, end := from+g.start, from+g.end; start < b.start && b.end < end {
			return strings.TrimLeft(strings.TrimPrefix(strings.TrimPrefix(s[start:b.start], `\(`), `\[`), "$"), s[b.end:end], true
		}
	}
	before, after = s[from:b.start], s[b.end:to]
	before = before[strings.LastIndexByte(before, '\n')+1:]
	after, _, _ = strings.Cut(after, "\n")
	return before, after, false
}

// markOf is the piece of a formula or of running text that s begins with: a command with
// its backslash, a run of letters, digits or spaces, or one sign.
func markOf(s string) string {
	run := func(n int, of func(c byte) bool) string {
		for n < len(s) && of(s[n]) {
			n++
		}
		return s[:n]
	}
	switch c := s[0]; {
	case c == '\\' && len(s) > 1 && isLetter(s[1]):
		return run(2, isLetter)
	case c == '\\' && len(s) > 1:
		return s[:2]
	case isLetter(c):
		return run(1, isLetter)
	case isDigit(c):
		return run(1, isDigit)
	case c == ' ' || c == '\t' || c == '\n':
		return run(1, func(c byte) bool { return c == ' ' || c == '\t' || c == '\n' })
	}
	_, size := utf8.DecodeRuneInString(s)
	return s[:size]
}

// apart matches marks that separate a box from text beyond them.
var apart = setOf(`= : ; $ & \\ \( \) \[ \] \approx \simeq \sim \equiv \to \rightarrow \mapsto \implies \Rightarrow \Longrightarrow \iff \Leftrightarrow \therefore \because \in \quad \qquad
	\end \tag \label \hfill ? " ≈ → ⇒ ∴ ⟹ ： ， 。 ； 、`)

// wordCommand is a command whose argument is words.
var wordCommand = regexp.MustCompile(`^\\(?:text(?:bf|it|rm|sf|tt|normal)?|mbox|emph|intertext)$`)

// harmless are pieces before a box that change how it looks, and labels.
var harmless = regexp.MustCompile(`^(?:\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:bf|rm|it|sf|tt|bb)|bm|boldsymbol|boxed|fbox|mbox|underline|displaystyle|textstyle|large|Large|huge|left|bigl?|Bigl?|(?:text)?color\{\w*\}|begin\{\w*\*?\}|\$|[,;:! ])|[\s{~]|\(?[A-Za-z0-9]{1,3}[).]\s*$)*$`)

// numeralEnd matches text directly after a formula that continues a number in it, and prefixed
// a letter for thousands or millions in text form: $\boxed{5}$,000, \boxed{5}\text{k}.
var (
	numeralEnd  = regexp.MustCompile(`^(?:[.,]\d+|[kKMB]\b)`)
	bracedMarks = strings.NewReplacer("{,}", ",", "{.}", ".")
	prefixed    = regexp.MustCompile(`^\\(?:text|mathrm)\{([kKMB])\}`)
)

// fraction is a decimal point before a box, and the number that it ends: 0.\boxed{5}.
var fraction = regexp.MustCompile(`^\d+\.$`)

// leftOf returns the part of before, which ends at a box, that forms one expression with the box.
func leftOf(before string, formula bool) string {
	run, depth, parting := "", 0, "" // depth counts the open brackets in run; parting is the mark after which run begins
	for len(before) > 0 {
		m := markOf(before)
		before = before[len(m):]
		r, _ := utf8.DecodeRuneInString(m)
		switch m {
		case "(", "[":
			depth++
		case ")", "]":
			depth--
		}
		joins := true
		switch {
		case m == ":" && formula && before == "" && isDigit((" " + run)[len(run)]): // 2:\boxed{5}
		case wordCommand.MatchString(m) && strings.HasPrefix(before, "{") && latex.ClosingBrace(before, 0) > 0:
			before, joins = before[latex.ClosingBrace(before, 0)+1:], false
		case apart[m], m == "," && depth == 0, (m == "." || m == "!") && startsBlank(before) && !(before == "" && (strings.HasSuffix(run, "0") || formula && isDigit((" " + run)[len(run)]))), depth < 0:
			joins = false
		case unicode.IsLetter(r):
			joins = len(m) == 1 && (formula || before == "")
		case !formula:
			joins = !strings.Contains("_`|'#", m) && (m != "*" || strings.TrimSpace(run) != "" && !strings.HasPrefix(before, "*")) && !((m == ")" || m == "]") && startsBlank(before))
		}
		if run += m; !joins {
			run, depth, parting = "", 0, m
		}
	}
	run = strings.TrimLeft(run, " \t\n}")
	bare := strings.TrimSpace(run)
	switch at := strings.LastIndex(bare, `\boxed`); {
	case at >= 0 && !strings.HasSuffix(bare, "{") && (&finder{}).readBox(bare, at, len(`\boxed`)).end == len(bare):
		return "" // boxes side by side
	case strings.Trim(bare, `*/^_`) == "", len(parting) != 1 && strings.Trim(bare, "<>") == "":
		return "" // nothing that a sign would join
	case !formula && run != bare && parting != "=" && strings.Trim(bare, "0123456789-–—+") == "":
		return "" // a dash, the mark of a list, Problem 3
	}
	return run
}

// startsBlank reports whether s is empty or begins with white space.
func startsBlank(s string) bool { return s == "" || strings.IndexByte(" \t\n", s[0]) >= 0 }

// joint are marks that may follow a box as a part of one expression with it.
var joint = regexp.MustCompile(`^(?:[-+*/^_<>!%(\[{}|0-9A-Za-z'°×·÷±≠≤≥−]|\)|\]|\.[0-9]|\\(?:%|cdot|times|div|pm|mp|l?eq?|geq?|lt|gt|neq?|[dtc]?frac|sqrt|pi|Delta|alpha|beta|gamma|delta|epsilon|theta|lambda|phi|sigma|omega|circ|pmod|bmod|mod|mid|cup|cap|choose|over|binom|sin|cos|tan|ln|log|text|mathrm|left|right|[,;:! ]))`)

// ordinal are the endings of ordinal numbers, and of plurals.
var ordinal = setOf("th st nd rd s")

// rightOf returns the part of after, which follows a box, that forms one expression with
// the box. left is the text before the box.
func rightOf(after, left string, formula bool) string {
	braces := strings.Count(left, "{") - strings.Count(left, "}")
	depth := strings.Count(left, "(") + strings.Count(left, "[") - strings.Count(left, ")") - strings.Count(left, "]")
	run, opened := "", depth+braces > 0
	for len(after) > 0 {
		m := markOf(after)
		rest := after[len(m):]
		r, _ := utf8.DecodeRuneInString(m)
		b, d := braces, depth
		switch m {
		case "{":
			b++
		case "}":
			b--
		case "(", "[":
			d++
		case ")", "]":
			d--
		}
		switch {
		case run == "" && (unicode.IsLetter(r) && len(m) <= 2 && !ordinal[m] || (m == "," || m == ":" && formula) && rest != "" && isDigit(rest[0])):
			run, after = m, rest // 5k, 5,000, 5:2
		case b < 0, d < 0, apart[m], m == "," && depth == 0, m != "," && m[0] != ' ' && m[0] != '\n' && !joint.MatchString(after), m == `\right` && depth == 0,
			unicode.IsLetter(r) && (len(m) > 1 || !formula), wordCommand.MatchString(m),
			!formula && (strings.Contains("!'|_([", m) || m == "*" && !startsBlank(rest) || startsBlank(rest) && wordy(rest) && strings.Contains("-–—−+<>", m)):
			after = ""
		default:
			run, after, braces, depth = run+m, rest, b, d
		}
	}
	if !opened && braces+depth > 0 {
		return "" // (by symmetry)
	}
	return strings.TrimRight(spacings.Replace(run), " \t\n-–—+*/^_<>")
}

// wordy reports whether running text begins s.
func wordy(s string) bool {
	s = strings.TrimLeft(s, " \t")
	r, _ := utf8.DecodeRuneInString(s)
	return s == "" || unicode.IsLetter(r)
}

var (
	// word is a word after a box, or a sign.
	word = regexp.MustCompile(`^(?:\\?%|[A-Za-z]{2,}\b|[°])\s*`)
	// raised is a power of the unit that ends before it, compound what continues a unit.
	raised   = regexp.MustCompile(`^\}?\^(?:\d|\{\d\})|^[²³]`)
	compound = regexp.MustCompile(`^\}?(?:[/*·^-]|\\cdot|\s*per\b)`)
)

// measureAfter are the words or the sign after a box that multiply it, or name its unit:
// million dollars, per cent, cm.
func measureAfter(s string) string {
	for s = strings.TrimLeft(s, " \n$~"); len(s) > 1 && s[0] == '\\' && strings.IndexByte(",;:! )]", s[1]) >= 0; s = strings.TrimLeft(s[2:], " \n$~") {
	}
	for _, command := range [...]string{`\text{`, `\mathrm{`} {
		s = strings.TrimLeft(strings.TrimPrefix(s, command), " ")
	}
	if s == "" || !isLetter(s[0]) && strings.IndexByte(`\%°`, s[0]) < 0 {
		return ""
	}
	said, found := "", ""
	for range 3 {
		w := word.FindString(s)
		if w == "" || said == "" && (passed[strings.TrimSpace(w)] || strings.TrimSpace(w) == "in" || strings.TrimSpace(w) == "or") {
			break
		}
		said, s = said+w, s[len(w):]
		power := raised.FindString(s)
		if isMeasure(said+strings.TrimPrefix(power, "}")) && !compound.MatchString(s[len(power):]) {
			found = said + power
		}
	}
	return strings.TrimSpace(strings.ReplaceAll(found, "}^", "^"))
}

// isMeasure reports whether words behind a number multiply it, or name its unit.
func isMeasure(words string) bool {
	p, err := latex.Parse("1 "+words, latex.Reading{})
	return err == nil && p.Tree != nil && measures(p.Tree)
}

// measures reports whether n is 1 with words that multiply it, or with a unit.
func measures(n *latex.Node) bool {
	switch n.Op {
	case latex.Num:
		return true
	case latex.Unit:
		return !strings.HasPrefix(n.Name, "#")
	case latex.Percent, latex.Degree, latex.Mul, latex.Div, latex.Pow, latex.Neg:
		return n.Every(measures)
	}
	return false
}

// Words around a box: passed may stand between a box and a word that denies it, discarded are
// the first words of "rather than" and the like, and after confirmed words "not" denies no box.
var (
	passed    = setOf("be been equal equals to the a an answer value result solution number guess is are was would seems looks must can exactly simply just really actually necessarily clearly obviously certainly of but and which that this it x y n should could say")
	discarded = map[string]string{"but": "anything everything all", "than": "other rather less more fewer greater smaller larger bigger higher lower", "of": "instead", "from": "far", "unlike": "", "reject": "", "discard": "", "exclude": "", "excludes": ""}
	confirmed = setOf("it right correct true valid possible")
	// operating are words before a box that change its number or deny the box.
	// operatingOf are such words if "of" follows them, and onward are such words behind a
	// box if a number follows them.
	operating   = setOf("minus negative twice thrice double triple half plus times except excluding without wrong incorrect false")
	operatingOf = setOf("half third quarter square cube root double triple opposite inverse reciprocal negative factorial multiple divisor fraction")
	onward      = setOf("mod modulo choose plus minus times over divided multiplied")
)

// deniedFormula matches a sign that denies the rest of the formula, and asText marks
// words of a formula as text. belowZero matches a sign in words, and scaling words that
// change the number before them.
var (
	deniedFormula = regexp.MustCompile(`\\(?:neg|lnot|nexists)\b[^$]*$`)
	asText        = strings.NewReplacer(`\text{`, " ", `\mathrm{`, " ", "}", " ")
	belowZero     = regexp.MustCompile(`^[^.,;\n]{0,20}\bbelow zero`)
	scaling       = setOf("factorial squared cubed doubled tripled halved negated reversed")
)

// withdrawn matches words that take back the text before them, even across sentences.
var withdrawn = setOf("nope mistake mistaken scratch retract withdrawn kidding joking extraneous")

// deniedBox reports whether the words around a box deny it or take it back: "not
// \boxed{5}", "\boxed{5}, which is wrong".
func (find *finder) deniedBox(s string, b box) bool {
	before, after := s[max(0, b.start-farthest/4):b.start], s[b.end:min(len(s), b.end+farthest/4)]
	find.steps += len(before) + len(after)
	before = before[strings.LastIndexAny(before, ".;,!?\n")+1:]
	if strings.Contains(before, `\`) {
		if deniedFormula.MatchString(before) {
			return true
		}
		before = asText.Replace(before)
	}
	before = strings.TrimRight(before, " $\\([:=")
	if said := strings.FieldsFunc(strings.ToLower(before), func(r rune) bool { return strings.ContainsRune(" $\\([", r) }); len(said) > 0 {
		i := len(said) - 1
		for i > 0 && passed[said[i]] && !strings.Contains(discarded[said[i]], said[i-1]) {
			i--
		}
		if equated := said[len(said)-1]; operating[said[i]] && equated != "is" && equated != "are" && equated != "was" || operatingOf[said[i]] && i+1 < len(said) && said[i+1] == "of" {
			return true
		}
		if first, ok := discarded[said[i]]; ok && (first == "" || i > 0 && strings.Contains(first, said[i-1]) && (i == 1 || said[i-2] != "no")) || negates(said[i]) || said[i] == "impossible" ||
			strings.HasSuffix(before, "不是") || strings.HasSuffix(before, "不等于") {
			return true
		}
	}
	after = strings.Replace(after, `\text{`, " ", 1)
	start := strings.IndexFunc(after, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
	if start < 0 {
		return false
	}
	later := strings.ContainsAny(after[:start], ".\n")
	said := strings.Fields(strings.ToLower(after[start:]))
	for len(said) > 1 && passed[said[0]] {
		said = said[1:]
	}
	bare := strings.TrimRight(said[0], ".,;:!?)$")
	if negates(bare) || bare == "no" {
		ends := bare != said[0] || len(said) == 1 || said[1] == "wait" || said[1] == "wait,"
		for said = said[1:]; len(said) > 1 && passed[said[0]] && said[0] != "it" && said[0] != "answer"; said = said[1:] {
		}
		return ends || bare != "no" && (confirmed[strings.TrimRight(said[0], ".,;:!?)$")] || strings.HasPrefix(said[0], "answer"))
	}
	if onward[bare] && !later && len(said) > 1 && strings.IndexByte("$\\(0123456789", said[1][0]) >= 0 {
		return true
	}
	if !later && (scaling[bare] || belowZero.MatchString(after)) {
		return true
	}
	return withdrawn[bare] || slices.Contains(refusals[:], bare) && (!later || bare == "wrong" || bare == "incorrect")
}
