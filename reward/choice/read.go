package choice

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Reasons for which a statement picks nothing.
const (
	noChoiceRead = "the answer is none of the choices"
	severalNamed = "several choices are named"
	twoChoices   = "letter and text are of two choices"
	ambiguous    = "two choices have this text"
	tooMuchText  = "the answer is too long"
)

// normalForm returns s in the form in which statements are read: wide and circled letters
// become plain, and invisible characters are removed.
func normalForm(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, norm.NFKC.String(s))
}

// markup lists pairs of marks around a whole text that only set its style.
var markup = [][2]string{
	{"**", "**"}, {"__", "__"}, {"*", "*"}, {"_", "_"}, {"`", "`"}, {"$$", "$$"}, {"$", "$"}, {`\(`, `\)`}, {`\[`, `\]`},
	{`"`, `"`}, {"'", "'"}, {"“", "”"}, {"‘", "’"}, {`\text{`, "}"}, {`\textbf{`, "}"}, {`\mathrm{`, "}"}, {`\mathbf{`, "}"}, {`\boxed{`, "}"},
}

// plainText returns the text of a choice without markup, final full stop and differences of
// white space.
func plainText(s string) string {
	s = strings.Join(strings.Fields(normalForm(s)), " ")
	const layers = 8
	for range layers {
		before := s
		s = strings.TrimSpace(strings.TrimRight(s, ".。"))
		for _, m := range markup {
			inner, ok := strings.CutPrefix(s, m[0])
			if inner, closed := strings.CutSuffix(inner, m[1]); ok && closed && !strings.Contains(inner, m[0]) && !strings.Contains(inner, m[1]) {
				s = strings.TrimSpace(inner)
			}
		}
		if s == before {
			break
		}
	}
	return s
}

// choiceWithText returns the choice that has a text; -1 if there are two of them.
func (o options) choiceWithText(s string) (at int, ok bool) {
	at, ok = o.byText[strings.ToLower(plainText(s))]
	return at, ok
}

// conclusion matches a word or sign before an answer.
const conclusion = `(?:so|thus|therefore|hence)\b[\s,:]*|(?:=>|→|⇒)\s*`

var (
	// lead matches words before a letter that say what it is.
	lead = regexp.MustCompile(`(?i)^[\s*_$"'“(\[]*(?:\\text(?:bf|rm)?\{)?\s*(?:(?:` + conclusion + `)?(?:the\s+)?(?:(?:correct|final|right|best|my)\s+)*(?:answers?|options?|choices?)\b[\s*_]*(?:(?:is|are)\b|[:=])?|` + conclusion + `)`)
	both = regexp.MustCompile(`(?i)^\s*both\b`)
	// opener and closer are marks around a letter.
	opener = regexp.MustCompile("^(?:[\\s*_$\"'“‘(\\[{`]|\\\\[(\\[]|\\\\(?:text|math)(?:bf|rm|it|sf|tt|up)?\\{|\\\\mbox\\{)*")
	closer = regexp.MustCompile("^(?:[*_$\"'”’)\\]}`]|\\\\[)\\]])*")
	// joint matches the text between letters that are picked together.
	joint = regexp.MustCompile(`(?i)^\s*(?:[,;&、，]\s*)?(?:and\b\s*)?`)
	// separator matches the text between a letter and the text of its choice.
	separator = regexp.MustCompile(`^\s*(?:\n|[.):,;=、–—-])+`)
	// doubt matches text after a letter that says it is not the answer.
	doubt = regexp.MustCompile(`^[\s,]*(?:\?|(?:is|was|are|were|can|cannot|could|would|does|may|might|if|unless)\b)|(?i:\b(?:wrong|incorrect|impossible)\b)|아니|아닙|不是|ではな|じゃな|吗`)
	// contrast matches words that set later choices apart. afterLetter are words that
	// follow a letter and rarely the article a.
	contrast    = regexp.MustCompile(`(?i)\b(?:because|since|as|not|rather|instead|unlike|while|whereas|than)\b`)
	afterLetter = regexp.MustCompile(`^(?:and|or|nor|` + contrast.String() + `)\b`)
)

// A mark is a label found in a text.
type mark struct {
	at, end int  // index of the choice, and where the mark ends
	bare    bool // no brackets or signs surround the letter
	lower   bool // the letter is in lower case, though the label is not
}

// readLabel reads the label with which s begins, including brackets and signs around it, as in "(A)" or
// "**B**". ok is false if s begins with another word.
func (o options) readLabel(s string) (m mark, ok bool) {
	start := len(opener.FindString(s))
	end := start
	for end < len(s) {
		r, n := utf8.DecodeRuneInString(s[end:])
		if !inWord(r) || end > start && s[end-1] < utf8.RuneSelf && unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana) { // the C of Cです
			break
		}
		end += n
	}
	word, rest := s[start:end], s[end:]
	// "A's" and "B-cell" are words.
	if r, n := utf8.DecodeRuneInString(rest); n < len(rest) && strings.ContainsRune("'’-‐", r) {
		if next, _ := utf8.DecodeRuneInString(rest[n:]); inWord(next) {
			return m, false
		}
	}
	for i, label := range o.labels {
		if word == label || strings.EqualFold(word, label) {
			shut := len(closer.FindString(rest))
			bare := strings.TrimSpace(s[:start]) == "" && shut == 0
			return mark{at: i, end: end + shut, bare: bare, lower: word != label && len(label) == 1}, true
		}
	}
	return m, false
}

// isProbablyWord says whether a bare letter is probably a word of English: "a dog", "I think".
// rest is the text after the letter.
func (o options) isProbablyWord(m mark, rest string) bool {
	label := strings.ToLower(o.labels[m.at])
	word := strings.TrimLeft(rest, " ")
	r, _ := utf8.DecodeRuneInString(word)
	return m.bare && (label == "a" || label == "i") && word != rest && unicode.IsLower(r) && !afterLetter.MatchString(word)
}

// contrastAt returns the place of the first word of contrast, -1 if there is none.
func contrastAt(s string) int {
	if found := contrast.FindStringIndex(s); found != nil {
		return found[0]
	}
	return -1
}

// readLabels reads the labels that s begins with, as in "(A), B and C": the choices, the last
// label, and the text that follows.
func (o options) readLabels(s string) (picked []int, lastLabel mark, rest string) {
	for rest = s; ; {
		gap := 0
		if picked != nil {
			gap = len(joint.FindString(rest))
		}
		m, ok := o.readLabel(rest[gap:])
		if !ok || picked != nil && (m.bare && m.lower || o.isProbablyWord(m, rest[gap+m.end:])) {
			return picked, lastLabel, rest
		}
		picked, lastLabel, rest = append(picked, m.at), m, rest[gap+m.end:]
	}
}

// readLetters reads a word such as ACD as the list of its letters.
func (o options) readLetters(s string) (picked []int) {
	for _, r := range strings.Trim(s, " \t\n.*_$`\"'(){}[]") {
		at := slices.Index(o.labels, string(r))
		if at < 0 || slices.Contains(picked, at) {
			return nil
		}
		picked = append(picked, at)
	}
	return picked
}

// readWhole is readPicks of a text that consists of a statement.
func (o options) readWhole(s string) (picked []int, reason string) { return o.readPicks(s, false) }

// readProse is readPicks of a text in which more may follow the statement in its line.
func (o options) readProse(s string) (picked []int, reason string) { return o.readPicks(s, true) }

// readPicks returns the choices, sorted, that a statement picks by letters or by a text. In prose, more
// may follow it in its line. If it picks none, the reason says why.
func (o options) readPicks(s string, prose bool) (picked []int, reason string) {
	if len(s) > longest {
		return nil, tooMuchText
	}
	s = normalForm(s)
	body := s[len(lead.FindString(s)):] // without "the answer is" and "both"
	body = body[len(both.FindString(body)):]
	picked, lastLabel, rest := o.readLabels(body) // "A, B and C" and what follows
	if picked != nil && strings.Trim(rest, " \t\r\n.,;:!。") == "" {
		return sorted(picked), ""
	}
	for _, text := range []string{s, body, firstSentence(body, prose)} { // before the labels: "A cat" may be the text of a choice
		switch at, ok := o.choiceWithText(text); {
		case ok && at < 0:
			return nil, ambiguous
		case ok:
			return []int{at}, ""
		}
	}
	switch {
	case picked == nil:
		if picked = o.readLetters(body); picked == nil { // letters in one word, such as "ACD"
			return nil, noChoiceRead
		}
		return sorted(picked), ""
	case len(picked) == 1: // perhaps with its text, as in "A) Rome"
		return o.readText(lastLabel, rest, prose)
	case !prose || o.namesOther(firstSentence(rest, true), picked):
		return nil, severalNamed
	}
	return sorted(picked), ""
}

// sorted returns the choices in their order, each once.
func sorted(picked []int) []int {
	slices.Sort(picked)
	return slices.Compact(picked)
}

// firstSentence is s up to its first full stop or word of contrast, if s is prose.
func firstSentence(s string, prose bool) string {
	if at := contrastAt(s); prose && at >= 0 {
		s = s[:at]
	}
	if at := strings.Index(s, ". "); prose && at >= 0 {
		s = s[:at]
	}
	return s
}

// readText decides whether the letter m is picked by the text after it, rest: that of its choice, or in
// prose whatever neither doubts the letter nor names another choice.
func (o options) readText(m mark, rest string, prose bool) (picked []int, reason string) {
	behind := rest[len(separator.FindString(rest)):] // "Rome" of "A) Rome"
	text, own := plainText(behind), ""               // own is the text of the choice itself
	if o.texts != nil {
		own = o.texts[m.at]
	}
	switch at, ok := o.choiceWithText(text); {
	case own != "" && strings.EqualFold(text, own):
		return []int{m.at}, ""
	case ok && at != m.at:
		return nil, twoChoices
	case m.lower && m.bare && !strings.HasPrefix(rest, ".") && !strings.HasPrefix(rest, ":"),
		o.isProbablyWord(m, rest): // a word of a sentence, not a letter
		return nil, noChoiceRead
	case !prose && m.bare && behind == rest: // no separator: the letter begins some other statement
		if o.namesOther(firstSentence(rest, true), []int{m.at}) {
			return nil, severalNamed
		}
		return nil, noChoiceRead
	}
	if n := len(own); n > 0 && len(text) > n && strings.EqualFold(text[:n], own) { // more follows the choice's own text
		if r, _ := utf8.DecodeRuneInString(text[n:]); !inWord(r) {
			text = text[n:]
		}
	}
	if at := contrastAt(text); at >= 0 { // what follows "because" or "not" may name others
		text = text[:at]
	}
	switch {
	case doubt.MatchString(text):
		return nil, noChoiceRead
	case o.namesOther(text, []int{m.at}):
		return nil, severalNamed
	}
	return []int{m.at}, ""
}

// namesOther says whether s names a choice besides the given ones, by its label or its text. A letter
// that may be a word (in lower case, a digit, an article) counts only behind a bracket.
func (o options) namesOther(s string, besides []int) bool {
	before := ' ' // the character before the word
	for at := 0; at < len(s); {
		r, n := utf8.DecodeRuneInString(s[at:])
		if !inWord(r) {
			before, at = r, at+n
			continue
		}
		if m, ok := o.readLabel(s[at:]); ok && !slices.Contains(besides, m.at) {
			m.bare = before != '(' // at is behind the bracket, so readLabel could not see it
			number := unicode.IsDigit(r)
			if !m.bare || !m.lower && !number && !o.isProbablyWord(m, s[at+len(o.labels[m.at]):]) {
				return true
			}
		}
		for at < len(s) && inWord(r) { // to the end of the word
			at += n
			r, n = utf8.DecodeRuneInString(s[at:])
		}
	}
	lower := strings.ToLower(s)
	for i, text := range o.texts {
		if text != "" && !slices.Contains(besides, i) && containsWord(lower, strings.ToLower(text)) {
			return true
		}
	}
	return false
}

// containsWord says whether s contains word, not as part of other words.
func containsWord(s, word string) bool {
	for from := 0; ; {
		at := strings.Index(s[from:], word)
		if at < 0 {
			return false
		}
		at += from
		before, _ := utf8.DecodeLastRuneInString(s[:at])
		after, _ := utf8.DecodeRuneInString(s[at+len(word):])
		first, n := utf8.DecodeRuneInString(word)
		last, _ := utf8.DecodeLastRuneInString(word)
		if !(inWord(before) && inWord(first)) && !(inWord(after) && inWord(last)) {
			return true
		}
		from = at + n
	}
}
