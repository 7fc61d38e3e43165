package verifier

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"onering/verifier/internal/latex"
)

// Answers in running text: after "the answer is", else the last formula or
// number.

// phrases introduce an answer in running text. The last one counts; of those
// at one place the longest.
var phrases = [...]string{"answer is", "answer:", "answer are", "answers are", "answer =", "####", "answer**:", "answer:**", "answer**"}

// afterPhrase returns the position after the last phrase that introduces an answer, -1 if
// the text has no such phrase.
func (find *finder) afterPhrase(s string) int {
	find.steps += len(s)
	lower := lowerASCII(s)
	best := -1
	for _, p := range phrases {
		if i := strings.LastIndex(lower, p); i >= 0 && i+len(p) > best {
			best = i + len(p)
		}
	}
	if best < 0 {
		return -1
	}
	for best < len(s) && (s[best] == ':' || s[best] == '*' || s[best] == ' ' || s[best] == '\n' || s[best] == '"' || s[best] == '_' || s[best] == '=') {
		best++
	}
	return best
}

// lowerASCII is strings.ToLower that keeps byte positions.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c | 0x20
		}
	}
	return string(b)
}

// fromText finds the answer in running text: after "the answer is", else the
// last formula or number.
func (find *finder) fromText(s string) extract {
	find.steps += len(s)
	if len(s) > tail {
		cut := len(s) - tail
		for cut < len(s) && !utf8.RuneStart(s[cut]) {
			cut++
		}
		s = s[cut:]
	}
	if cut := strings.Index(s, "<|"); cut > 0 { // a chat template's marker
		s = s[:cut]
	}
	if strings.Contains(s, `\boxed`) || strings.Contains(s, `\fbox`) {
		if b, ok := find.lastBox(s); ok && b.closed && clean(b.content) != "" {
			if rest := strings.TrimSpace(s[b.end:]); find.afterPhrase(rest) < 0 {
				return find.fromBox(s)
			}
		}
	}
	whole := clean(s)
	if whole == "" {
		return extract{reason: "no answer"}
	}
	if at := find.afterPhrase(s); at >= 0 && at < len(s) {
		if e := find.fromSentence(find.sentence(s[at:])); len(e.texts) > 0 {
			return e
		}
	}
	if inner, ok := find.misspelledBox(whole); ok {
		return extract{texts: []string{inner}, from: fromBoxed}
	}
	if find.looksWhole(s) {
		return extract{texts: []string{whole}, from: place(strings.ContainsAny(whole, `\$`) && !isPlainNumber(whole)), whole: true}
	}
	if e := find.lastExpression(s); len(e.texts) > 0 {
		return e
	}
	return extract{reason: "no answer"}
}

// misspelledBox returns the content of a response that consists of a box with its command
// misspelled: boxed{5}, \Boxed{5}, \box{5}.
func (find *finder) misspelledBox(s string) (string, bool) {
	rest := strings.TrimPrefix(s, `\`)
	for _, name := range [...]string{"boxed", "Boxed", "box", "Box", "BOXED", "fbox", "framebox"} {
		if inner, ok := strings.CutPrefix(rest, name+"{"); ok && latex.ClosingBrace(s, len(s)-len(inner)-1) == len(s)-1 {
			return inner[:len(inner)-1], true
		}
	}
	return "", false
}

// isPlainNumber reports whether s is digits with separators, dollars aside.
func isPlainNumber(s string) bool { return strings.Trim(s, "$0123456789.,- ") == "" }

// looksWhole reports whether a short response is nothing but its answer.
func (find *finder) looksWhole(s string) bool {
	if len(s) > 200 || strings.Contains(s, "\n\n") {
		return false
	}
	if segs := find.segments(s); len(segs) > 0 {
		// Formulas with at most a word or two around them.
		outside := 0
		pos := 0
		for _, g := range segs {
			outside += find.wordsIn(s[pos:g.start])
			pos = g.end
		}
		outside += find.wordsIn(s[pos:])
		return outside == 0
	}
	if strings.ContainsAny(s, "0123456789") && (isLetter(s[0]) || strings.ContainsFunc(s, isForeign)) {
		return find.wordsIn(s) == 0 && !slices.ContainsFunc(strings.Fields(strings.ToLower(s)), func(w string) bool { return clausal[w] }) // the number is the answer, not the words before it
	}
	return find.wordsIn(s) <= 2 || s[0] == '\\' && find.wordsIn(s) <= 3
}

// clausal are short words that make a clause of a text: "so it is 5".
var clausal = setOf("is it so we he be")

// isForeign reports whether r is a letter, or a full stop, of a script in which
// mathematics is not written.
func isForeign(r rune) bool {
	return r >= 0x400 && (unicode.In(r, unicode.Cyrillic, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Arabic, unicode.Devanagari) && !unicode.IsDigit(r) || r == '。' || r == '！')
}

// wordsIn counts the words in s that are neither commands nor connectives: words of three
// or more ASCII letters, or of foreign letters.
func (find *finder) wordsIn(s string) int {
	find.steps += len(s)
	count := 0
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			for i+1 < len(s) && isLetter(s[i+1]) {
				i++
			}
			continue
		}
		if r, size := utf8.DecodeRuneInString(s[i:]); r >= utf8.RuneSelf && isForeign(r) {
			for i += size - 1; i+1 < len(s); i += size {
				if r, size = utf8.DecodeRuneInString(s[i+1:]); !isForeign(r) {
					break
				}
			}
			count++
			continue
		}
		if !isLetter(s[i]) {
			continue
		}
		start := i
		ordinary := true // capitals only at the beginning
		for i+1 < len(s) && isLetter(s[i+1]) {
			i++
			ordinary = ordinary && s[i] >= 'a'
		}
		if w := strings.ToLower(s[start : i+1]); ordinary && len(w) >= 3 && w != "and" && w != "pct" && w != "percent" && w != "percentage" {
			count++
		}
	}
	return count
}

// sentence is s up to the end of its first sentence.
func (find *finder) sentence(s string) string {
	find.steps += len(s)
	inMath := false
	blank := 0 // s[:blank] is white space
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i < len(s) && strings.IndexByte("()[]", s[i]) >= 0 {
				inMath = s[i] == '(' || s[i] == '['
			}
		case '$':
			inMath = !inMath
		case '\n':
			if !inMath && strings.TrimSpace(s[blank:i]) != "" {
				return s[:i]
			}
			if !inMath {
				blank = i
			}
		case '.':
			if !inMath && fullStop(s, i) {
				return s[:i]
			}
		}
	}
	return s
}

// fullStop reports whether the point at s[i] ends a sentence: not a decimal point,
// nor one of a.m. and p.m.
func fullStop(s string, i int) bool {
	if i+1 == len(s) {
		return true
	}
	if next := s[i+1]; next != ' ' && next != '\n' && next != '"' {
		return false
	}
	if i > 0 && isDigit(s[i-1]) && i+2 < len(s) && isDigit(s[i+2]) && s[i+1] == ' ' {
		return false // 3. 5: a slip for 3.5 rather than two sentences
	}
	return i == 0 || s[i-1]|0x20 != 'a' && s[i-1]|0x20 != 'p' || !strings.HasPrefix(strings.TrimSpace(s[i+1:]), "m.")
}

// fromSentence returns the answer in the sentence after "the answer is": the whole
// sentence if it is short, else its last expression.
func (find *finder) fromSentence(s string) extract {
	find.steps += len(s)
	s = strings.Trim(strings.TrimSpace(s), `"*_`)
	s = strings.TrimRight(s, `\"`)
	// "5, not 6" and "not 6 but 5" say 5.
	if said, _, ok := strings.Cut(s, ", not "); ok && clean(said) != "" {
		s = said
	} else if _, said, ok := strings.Cut(s, " but "); ok && strings.HasPrefix(s, "not ") {
		s = said
	}
	if clean(s) == "" {
		return extract{}
	}
	segs := find.segments(s)
	if len(segs) > 0 {
		if segs[0].start <= 1 {
			// Formulas from the beginning: as many as belong together.
			end := segs[0].end
			for _, g := range segs[1:] {
				if find.wordsIn(s[end:g.start]) > 0 {
					break
				}
				end = g.end
			}
			return extract{texts: []string{find.withSuffix(s, 0, end)}, from: fromFormula}
		}
		return find.lastExpression(s)
	}
	if find.wordsIn(s) <= 3 && len(s) < 120 && !(strings.ContainsFunc(s, isForeign) && strings.ContainsAny(s, "0123456789")) {
		return extract{texts: []string{strings.TrimSuffix(s, ".")}, from: place(strings.Contains(s, `\`))}
	}
	if e := find.lastExpression(s); len(e.texts) > 0 {
		return e
	}
	return extract{texts: []string{s}, from: fromProse}
}

// A segment is a formula between math delimiters.
type segment struct{ start, end int }

// segments are the formulas of s: $...$, $$...$$, \(...\), \[...\].
func (find *finder) segments(s string) []segment {
	find.steps += len(s)
	var out []segment
	// If a kind of delimiter is not closed once, it is not closed later either, so it is
	// not searched again.
	var noParen, noBracket, noDollars bool
	for i := 0; i < len(s) && len(out) < maxSegments; i++ {
		switch {
		case strings.HasPrefix(s[i:], `\(`) && !noParen, strings.HasPrefix(s[i:], `\[`) && !noBracket:
			shut, missing := `\)`, &noParen
			if s[i+1] == '[' {
				shut, missing = `\]`, &noBracket
			}
			j := strings.Index(s[i+2:], shut)
			if *missing = j < 0; *missing {
				continue
			}
			out = append(out, segment{i, i + 2 + j + 2})
			i += 2 + j + 1
		case s[i] == '\\':
			i++
		case s[i] == '$':
			n := 1
			if i+1 < len(s) && s[i+1] == '$' {
				n = 2
			}
			j := -1
			if n == 1 || !noDollars {
				j = find.closingDollar(s, i+n, n)
			}
			if j < 0 {
				noDollars = noDollars || n == 2
				continue
			}
			if strings.TrimSpace(s[i+n:j]) != "" {
				out = append(out, segment{i, j + n})
			}
			i = j + n - 1
		}
	}
	return out
}

// closingDollar is the position of the n dollars that close a formula, -1 if
// there are none.
func (find *finder) closingDollar(s string, from, n int) int {
	for i := from; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '$':
			if n == 1 || i+1 < len(s) && s[i+1] == '$' {
				return i
			}
		}
	}
	return -1
}

// withSuffix is s[start:end] and a per cent sign or word right after it.
func (find *finder) withSuffix(s string, start, end int) string {
	rest := strings.TrimLeft(s[end:], " ~")
	for _, mark := range [...]string{`\%`, "%", "percent", "pct"} {
		if strings.HasPrefix(rest, mark) && !strings.Contains(s[start:end], "%") {
			return s[start:end] + ` \%`
		}
	}
	return s[start:end]
}

// lastExpression returns the last formula or number of s, whichever is later.
func (find *finder) lastExpression(s string) extract {
	find.steps += len(s)
	formulaStart, formulaEnd := -1, -1
	if segs := find.segments(s); len(segs) > 0 {
		last := len(segs) - 1
		for name := clean(s[segs[last].start:segs[last].end]); last > 0 && (name == "" || len(name) == 1 && isLetter(name[0])); name = clean(s[segs[last].start:segs[last].end]) {
			last--
		}
		g := segs[last]
		formulaStart, formulaEnd = g.start, g.end
		// $12$ and $13$
		for i := last - 1; i >= 0; i-- {
			gap := s[segs[i].end:formulaStart]
			if len(gap) > 12 || find.wordsIn(gap) > 0 || strings.ContainsAny(gap, ".\n=:;") || strings.TrimSpace(gap) == "" {
				break
			}
			formulaStart = segs[i].start
		}
	}
	if at, n := find.environmentEnd(s); at >= 0 && n > formulaEnd {
		formulaStart, formulaEnd = at, n
	}
	if start, end := find.lastNumber(s, max(formulaEnd, 0)); start >= 0 {
		start, end = find.widened(s, max(formulaEnd, 0), start, end)
		if find.denied(s[:start], s[end:]) {
			return extract{}
		}
		return extract{texts: []string{find.withSuffix(s, start, end)}, from: place(strings.Contains(s[start:end], `\`))}
	}
	if formulaStart >= 0 && find.denied(s[:formulaStart], s[formulaEnd:]) {
		return extract{}
	}
	if formulaStart >= 0 {
		return extract{texts: []string{find.withSuffix(s, formulaStart, formulaEnd)}, from: fromFormula}
	}
	if t := strings.TrimSpace(s); len(t) == 1 || len(t) == 2 && t[1] == '.' {
		return extract{texts: []string{t[:1]}, from: fromProse}
	}
	// An option letter or a formula without delimiters at the end.
	if i := strings.LastIndexAny(s, "=:"); i >= 0 && strings.Contains(s[i:], `\`) && len(s)-i < 200 {
		return extract{texts: []string{s[i+1:]}, from: fromFormula}
	}
	return extract{}
}

// negations are words that deny the text after them, or doubt it, in several languages.
var negations = [...]string{
	"not", "cannot", "never", "neither", "nor", "nobody", "doubt", "doubts", "doubtful", "unlikely", "maybe", "perhaps", "might",
	"nicht", "kein", "keine", "keinesfalls", "vielleicht", "pas", "jamais", "nunca", "jamás", "tampoco", "não", "mica", "niet", "не",
}

// negationSigns deny in scripts that put no spaces between words.
var negationSigns = [...]string{"不是", "不等于", "不会", "並非", "并非", "ではない", "ではありません", "じゃない", "아니"}

// refusals are words that deny the text before them, besides the negations.
var refusals = [...]string{"wrong", "incorrect", "false", "impossible", "excluded", "eliminated", "rejected", "ruled"}

// otherwise are words of other languages for "or", after which one of two answers
// follows.
var otherwise = [...]string{" oder", " ou", " o", " oppure", " или", "或", "或者", "または", "또는"}

// bounds are words that make a bound, or an exception, of the number after them.
var bounds = [...]string{
	"less than", "more than", "greater than", "fewer than", "smaller than", "larger than", "bigger than", "higher than", "lower than", "other than", "different from",
	"at most", "at least", "up to", "anything but", "everything but", "all but", "any but", "except", "except for", "excluding", "exclude", "excludes",
	"rule out", "rules out", "discard", "reject", "no es", "no son", "non è", "exceed", "exceeds", "below", "above", "within", "multiple of", "or equal to",
}

// denied reports whether the clause around an answer denies it, or takes it for a bound:
// "it cannot be 5", "5 is wrong", "x is less than 5".
func (find *finder) denied(before, after string) bool {
	const stops = ".;:,!?\n"
	clause := before[strings.LastIndexAny(before, stops)+1:]
	said := strings.TrimRight(strings.ToLower(clause), " $\t")
	if slices.ContainsFunc(bounds[:], func(words string) bool { return strings.HasSuffix(" "+said, " "+words) }) {
		return true
	}
	if slices.ContainsFunc(otherwise[:], func(word string) bool { return strings.HasSuffix(" "+said, word) }) {
		return true
	}
	if i := strings.LastIndex(clause, " but "); i >= 0 {
		clause = clause[i:]
	}
	if i := strings.IndexAny(after, stops); i >= 0 {
		after = after[:i]
	}
	after, _, _ = strings.Cut(after, " but ")
	find.steps += len(clause) + len(after)
	words := func(s string) []string {
		return strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return r == ' ' || r == '$' || r == '\t' })
	}
	if slices.ContainsFunc(negationSigns[:], func(sign string) bool { return strings.Contains(clause, sign) || strings.Contains(after, sign) }) {
		return true
	}
	if said := words(clause); slices.Contains(said, "if") && slices.Contains(said, "were") {
		return true // if it were 5
	}
	return slices.ContainsFunc(words(clause), negates) ||
		slices.ContainsFunc(words(after), func(w string) bool { return negates(w) || slices.Contains(refusals[:], w) })
}

// negates reports whether a word denies the text after it.
func negates(w string) bool {
	return slices.Contains(negations[:], w) || strings.HasSuffix(w, "n't") || strings.HasSuffix(w, "n’t")
}

// A place says where an answer in running text is.
func place(formula bool) string {
	if formula {
		return fromFormula
	}
	return fromProse
}

// environmentEnd returns the extent of the last \begin...\end without delimiters, -1 if
// there is none.
func (find *finder) environmentEnd(s string) (int, int) {
	find.steps += len(s)
	shut := strings.LastIndex(s, `\end{`)
	if shut < 0 {
		return -1, -1
	}
	brace := strings.IndexByte(s[shut:], '}')
	if brace < 0 {
		return -1, -1
	}
	name := s[shut+len(`\end`) : shut+brace+1]
	open := strings.LastIndex(s[:shut], `\begin`+name)
	if open < 0 {
		return -1, -1
	}
	return open, shut + brace + 1
}

// lastNumber returns the extent of the last number in running text at or after from, -1 if
// no number follows.
func (find *finder) lastNumber(s string, from int) (int, int) {
	end := -1
	for i := len(s) - 1; i >= from; i-- {
		if isDigit(s[i]) && !(i+1 < len(s) && isLetter(s[i+1])) {
			end = i + 1
			break
		}
	}
	if end < 0 {
		return -1, -1
	}
	start := end - 1
	for start > from {
		c := s[start-1]
		switch {
		case isDigit(c):
		case (c == '.' || c == ',' || c == '/' || c == ':') && start-2 >= from && isDigit(s[start-2]):
		case c == ' ' && end-start >= 3 && start-2 >= from && isDigit(s[start-2]) && groupOfThree(s, start):
		case c == '.' && (start-2 < from || s[start-2] == ' ' || s[start-2] == '-'):
		default:
			goto found
		}
		start--
	}
found:
	if start > from && (s[start-1] == '-' || s[start-1] == '$') && (start-2 < from || !isDigit(s[start-2]) && !isLetter(s[start-2])) {
		start--
		if s[start] == '$' && start > from && s[start-1] == '-' {
			start--
		}
	} else if start >= 3+from && s[start-3:start] == "−" {
		start -= 3
	}
	return start, end
}

// widened extends a number in running text to its formula: by neighbouring words that are
// no words of a language.
func (find *finder) widened(s string, from, start, end int) (int, int) {
	end = wordEnd(s, end)
	for start > from {
		// The word before.
		head := strings.TrimRight(s[from:start], " ")
		stop, begin := from+len(head), from+strings.LastIndexAny(head, " \n")+1
		if strings.HasSuffix(head, "\n") {
			break
		}
		w := s[begin:stop]
		if i := strings.LastIndexFunc(w, isForeign); i >= 0 { // 答案是5、7
			_, size := utf8.DecodeRuneInString(w[i:])
			if rest := strings.TrimLeft(w[i+size:], ":：，,*"); rest != "" {
				start = stop - len(rest)
			}
			break
		}
		joined := (w == "and" || w == "or") && begin > from && find.endsInNumber(s[from:begin-1])
		if !joined && (w == "" || !find.mathematical(w) || stop < start && strings.ContainsRune(".:;?!", rune(s[stop-1]))) {
			break
		}
		start = begin
	}
	for end < len(s) && s[end] == ' ' {
		stop := end + 1
		for stop < len(s) && s[stop] != ' ' && s[stop] != '\n' {
			stop++
		}
		if w := s[end+1 : stop]; w == "" || !find.mathematical(strings.TrimRight(w, ".,;")) {
			break
		}
		end = stop
	}
	if i := strings.LastIndex(s[start:end], ">>"); i >= 0 { // a calculator's annotation
		start += i + 2
	}
	t := strings.TrimRight(s[start:end], ".,;:!?*_\"'")
	return start, start + len(t)
}

// wordEnd is where the word at s[end:] ends: at white space outside of braces, at a closing
// tag, and at a letter of another script.
func wordEnd(s string, end int) int {
	for ; end < len(s) && s[end] != ' ' && s[end] != '\n'; end++ {
		if r, _ := utf8.DecodeRuneInString(s[end:]); isForeign(r) || strings.HasPrefix(s[end:], "</") {
			break
		}
		if s[end] == '{' { // 5\text{ apples}
			shut := latex.ClosingBrace(s, end)
			if shut < 0 {
				return strings.IndexAny(s[end:]+" ", " \n") + end
			}
			end = shut
		}
	}
	return end
}

// endsInNumber reports whether the last word of s has a digit and may be part of a formula.
func (find *finder) endsInNumber(s string) bool {
	w := s[strings.LastIndexAny(s, " \n")+1:]
	return strings.ContainsAny(w, "0123456789") && find.mathematical(w)
}

// mathematical reports whether a piece of running text between spaces may be part
// of a formula.
func (find *finder) mathematical(w string) bool {
	if find.wordsIn(w) > 0 {
		return false
	}
	bare := strings.ToLower(strings.Trim(w, ".,;:!?()\"'*_"))
	switch bare {
	case "", "is", "of", "to", "in", "by", "at", "we", "so", "be", "or", "as", "an", "a", "i", "it", "on", "if", "he", "my", "us", "do", "no", "go", "up", "and", "am", "pm",
		"es", "la", "le", "de", "el", "un", "il", "er", "en", "et", "se", "si":
		return bare == "" && w != "" && strings.Trim(w, `*_"'`) != ""
	}
	return true
}

// groupOfThree reports whether exactly three digits begin at s[i:].
func groupOfThree(s string, i int) bool {
	return i+3 <= len(s) && isDigit(s[i]) && isDigit(s[i+1]) && isDigit(s[i+2]) && (i+3 == len(s) || !isDigit(s[i+3]))
}
