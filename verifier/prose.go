package verifier

import (
	"onering/verifier/internal/latex"
	"onering/verifier/internal/rules"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Answers in running text: after "the answer is", else what is emphasised, else the last formula or number.

// phrase matches the words that introduce an answer in running text, in the languages of
// mathematical data sets. The last one counts.
var phrase = regexp.MustCompile(`(?i)####|\bfinal answer\*\*|(?:\banswers?\b|\bans\b|(?:antwort|lösung|réponse|respuesta|solución|resposta|risposta|soluzione|\bjibu|antwoord|\bsvar(?:et)?|odpowiedź|odpověď|cevap|jawaban(?:nya)?|đáp án|đáp số|câu trả lời)(?:\s\pL+)?)` +
	`\s*(?:\*\*|__|["”])?\s*(?:\b(?:is|are|ist|sind|est|es|son|ni|er|jest|je|adalah)\b|är\b|là\s|é|è|[:：=—–])` +
	`|(?:ответ(?:ом)?|відповідь|答案|答え|正解|解答|答|故选|정답|답|คำตอบ|సమాధానం|উত্তর|उत्तर|الإجابة|الجواب)\s*(?:\*\*)?\s*(?:это|является|应该|應該|应|就)?(?:为|為|是|は|은|는|이|คือ|হল|है|هي|هو|[:：=—–-])?`)

// afterPhrase returns the position after the last phrase that introduces an answer, -1 if
// the text has no such phrase.
func (find *finder) afterPhrase(s string) int {
	find.steps += len(s)
	all := phrase.FindAllStringIndex(s, -1)
	if len(all) == 0 || !rules.On("phrases") {
		return -1
	}
	end := all[len(all)-1][1]
	return end + len(s[end:]) - len(strings.TrimLeft(s[end:], ":：*—– \n\"”_="))
}

// fromText finds the answer in running text: a box that ends it, a frame that a prompt asked for, what follows "the answer
// is", the whole text if it is nothing but the answer, else the last bold text, formula or number, or what the last
// sentence says of something.
func (find *finder) fromText(s string) extract {
	find.steps += len(s)
	if len(s) > tail {
		s = strings.ToValidUTF8(s[len(s)-tail:], "")
	}
	if cut := strings.Index(s, "<|"); cut > 0 { // a chat template's marker
		s = s[:cut]
	}
	if b, ok := find.lastBox(s); ok && b.closed && clean(b.content) != "" && find.afterPhrase(strings.TrimSpace(s[b.end:])) < 0 {
		return find.fromBox(s)
	}
	whole := clean(s)
	if whole == "" {
		return extract{reason: "no answer"}
	}
	if m := framed.FindAllStringSubmatch(s, -1); len(m) > 0 && rules.On("frames") {
		last := m[len(m)-1]
		return extract{texts: []string{last[1] + last[2]}, from: fromTagged} // one of these is empty
	}
	if at := find.afterPhrase(s); at >= 0 && at < len(s) {
		if e := find.fromSentence(find.sentence(s[at:])); len(e.texts) > 0 {
			return e
		}
	}
	if m := misspelled.FindStringSubmatch(whole); m != nil {
		return extract{texts: []string{m[1]}, from: fromBoxed}
	}
	if find.looksWhole(s) {
		isFormula := strings.ContainsAny(whole, `\$`) && strings.Trim(whole, "$0123456789.,- ") != "" // but not $5
		return extract{texts: []string{whole}, from: formulaOrProse(isFormula), whole: true}
	}
	for _, search := range [...]func(string) extract{find.emphasised, find.lastExpression} {
		if e := search(s); len(e.texts) > 0 {
			return e
		}
	}
	if said := predicate.FindStringSubmatch(strings.TrimRight(s, " \n")); said != nil {
		return extract{texts: []string{said[1] + said[2] + said[3]}, from: fromProse}
	}
	return extract{reason: "no answer"}
}

var (
	// misspelled matches a response that is a box with its command misspelled: \Boxed{5}.
	misspelled = regexp.MustCompile(`^\\?(?:[bB]oxed|[bB]ox|BOXED|fbox|framebox)\{(.*)\}$`)
	// framed matches an answer in the tags or in the JSON that a prompt asked for.
	framed = regexp.MustCompile(`(?i)<(?:answer|solution|final_answer|final)>([^<]+)</|"(?:final[_ ])?answer"\s*:\s*"?([^"}\n]+)"?\s*}`)
	// bold matches emphasised text, and predicate what the last sentence says of something.
	bold      = regexp.MustCompile(`(?:\*\*|__)([^*_\n]{1,80})(?:\*\*|__)`)
	predicate = regexp.MustCompile(`(?i)(?:^|[.\n]\s*)(?:(yes|no), [^.\n]*|[^.\n]* (?:is|are) ([^.\n]{1,60})|(the \w+ (?:does|do|can|cannot|has|have) [^.\n]{1,60}))\.?$`)
	// contrast matches words behind an answer that say what it is not, polite the end of a
	// sentence in Japanese and Korean, beforeOption articles before the letter of an option, and
	// optionFirst an option that a sentence explains.
	contrast     = regexp.MustCompile(`(?i),?\s(?:et |und |and |y |e )?(?:not|non|nicht|no|ne)\s.*$|[,，]?(?:而)?不是.*$|ではなく.*$`)
	polite       = regexp.MustCompile(`(?:です|でした|である|となります|입니다|이다|이에요|예요)?[。．.!！]*$`)
	beforeOption = regexp.MustCompile(`^(?:(?:la|el|le|die|der|das|de|il|lo|o|a|the|opción|opção|opzione|option|lettre|letra|choice) )+(\(?[A-J]\)?)$`)
	optionFirst  = regexp.MustCompile(`^(?:[a-z]+ ){0,3}\(?([A-J])\)?[,.;:。，、]\s+(\D+)$`)
)

// emphasised returns the last bold text of the last line, unless it is a label, **Answer:**, or a formula follows it.
func (find *finder) emphasised(s string) extract {
	s = strings.TrimRight(s, " \n")
	line := s[strings.LastIndexByte(s, '\n')+1:]
	find.steps += len(line)
	all := bold.FindAllStringSubmatchIndex(line, -1)
	if len(all) == 0 || !rules.On("emphasis") {
		return extract{}
	}
	at := all[len(all)-1]
	text := line[at[2]:at[3]] // without the marks
	if strings.HasSuffix(text, ":") || len(find.segments(line[at[1]:])) > 0 {
		return extract{}
	}
	return extract{texts: []string{strings.TrimSuffix(text, ".")}, from: formulaOrProse(strings.ContainsAny(text, `\$`))}
}

// looksWhole reports whether a short response is nothing but its answer: formulas, a number or letters without words, or
// two words, three behind a command.
func (find *finder) looksWhole(s string) bool {
	if len(s) > 200 || strings.Contains(s, "\n\n") || bold.MatchString(s) && bold.FindString(s) != strings.Trim(s, " .\n") {
		return false
	}
	if segs := find.segments(s); len(segs) > 0 { // formulas without words around them
		outside, pos := "", 0
		for _, g := range segs {
			outside, pos = outside+" "+s[pos:g[0]], g[1]
		}
		return find.wordsIn(outside+" "+s[pos:]) == 0
	}
	if strings.ContainsAny(s, "0123456789") && (isLetter(s[0]) || strings.ContainsFunc(s, isForeign)) {
		return find.wordsIn(s) == 0 && !clausal.MatchString(s) // the number is the answer, not the words before it
	}
	return find.wordsIn(s) <= 2 || s[0] == '\\' && find.wordsIn(s) <= 3
}

// clausal matches short words that make a clause of a text: "so it is 5".
var clausal = regexp.MustCompile(`(?i)\b(?:is|it|so|we|he|be)\b`)

// foreign are letters of scripts in which mathematics is not written, and their full stops.
const foreign = `\p{Cyrillic}\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Arabic}\p{Devanagari}。！`

// isForeign reports whether r is such a letter.
func isForeign(r rune) bool {
	return r >= 0x400 && (unicode.In(r, unicode.Cyrillic, unicode.Han, unicode.Hiragana, unicode.Katakana,
		unicode.Hangul, unicode.Arabic, unicode.Devanagari) && !unicode.IsDigit(r) || r == '。' || r == '！')
}

var (
	// wordish matches a command, or a run of letters.
	wordish = regexp.MustCompile(`\\[A-Za-z]+|[A-Za-z]+|[` + foreign + `]+`)
	// notWords are long words that belong to a formula.
	notWords = latex.SetOf("and pct percent percentage")
	// unspaced matches what stands between blanks and letters of other scripts.
	unspaced = regexp.MustCompile(`[^\s` + foreign + `]+`)
)

// wordsIn counts the words in s that are neither commands nor connectives: words of three
// or more ASCII letters, or of foreign letters.
func (find *finder) wordsIn(s string) (count int) {
	find.steps += len(s)
	for _, w := range wordish.FindAllString(s, -1) {
		if w[0] >= utf8.RuneSelf || w[0] != '\\' && len(w) >= 3 && strings.ToLower(w[1:]) == w[1:] && !notWords[strings.ToLower(w)] {
			count++
		}
	}
	return count
}

// sentence is s up to the end of its first sentence: a full stop or the end of a line that is not blank, outside formulas.
func (find *finder) sentence(s string) string {
	find.steps += len(s)
	inMath := false
	blank := 0 // s[:blank] is white space
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\': // \( \) \[ \], or a character that an escape hides from the other cases
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

// fullStop reports whether the point at s[i] ends a sentence: not a decimal point, nor one of a.m. and p.m.
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

// fromSentence returns the answer in the sentence after "the answer is": the formulas at its beginning, the sentence if
// it is short, else its last expression, or as words all of it. What the answer is not, and the words around the letter
// of an option, are left out.
func (find *finder) fromSentence(s string) extract {
	find.steps += len(s)
	s = strings.TrimRight(strings.Trim(strings.TrimSpace(s), `"*_`), `\"`)
	s = polite.ReplaceAllString(s, "")
	// "5, not 6" and "not 6 but 5" say 5.
	if said := contrast.ReplaceAllString(s, ""); said != s && clean(said) != "" {
		s = said
	} else if _, said, ok := strings.Cut(s, " but "); ok && strings.HasPrefix(s, "not ") {
		s = said
	}
	if clean(s) == "" {
		return extract{}
	}
	if m := optionFirst.FindStringSubmatch(s); m != nil && find.wordsIn(m[2]) > 0 { // B, because it is even
		s = m[1]
	}
	s = beforeOption.ReplaceAllString(s, "$1") // option (B)
	if formulas := find.segments(s); len(formulas) > 0 {
		if formulas[0][0] > 1 { // words stand before the first
			return find.lastExpression(s)
		}
		end := formulas[0][1] // of those that belong together, with no word between them
		for _, f := range formulas[1:] {
			if find.wordsIn(s[end:f[0]]) > 0 {
				break
			}
			end = f[1]
		}
		return extract{texts: []string{withPercent(s, 0, end)}, from: fromFormula}
	}
	// In a sentence of another script with a number, the number is the answer.
	if find.wordsIn(s) <= 3 && len(s) < 120 && !(strings.ContainsFunc(s, isForeign) && strings.ContainsAny(s, "0123456789")) {
		return extract{texts: []string{strings.TrimSuffix(s, ".")}, from: formulaOrProse(strings.Contains(s, `\`))}
	}
	if e := find.lastExpression(s); len(e.texts) > 0 {
		return e
	}
	return extract{texts: []string{s}, from: fromProse}
}

// matrix matches an environment without delimiters.
var matrix = regexp.MustCompile(`(?s)\\begin\{.*?\\end\{\w+\}`)

// formula matches what stands between math delimiters, or an escaped sign.
var formula = regexp.MustCompile(`(?s)\\\(.*?\\\)|\\\[.*?\\\]|\\.|\$\$(?:\\.|[^$\\])+\$\$|\$(?:\\.|[^$\\])+\$`)

// segments are the extents of the formulas of s: $...$, $$...$$, \(...\), \[...\].
func (find *finder) segments(s string) (out [][]int) {
	find.steps += len(s)
	for _, m := range formula.FindAllStringIndex(s, maxSegments) {
		if m[1]-m[0] > 2 && strings.Trim(s[m[0]:m[1]], "$ \n") != "" {
			out = append(out, m)
		}
	}
	return out
}

// withPercent is s[start:end] and a per cent sign or word right after it.
func withPercent(s string, start, end int) string {
	rest := strings.TrimLeft(s[end:], " ~")
	for _, mark := range [...]string{`\%`, "%", "percent", "pct"} {
		if strings.HasPrefix(rest, mark) && !strings.Contains(s[start:end], "%") {
			return s[start:end] + ` \%`
		}
	}
	return s[start:end]
}

// lastExpression returns the last formula, matrix or number of s, whichever is latest; without one, the letter that is all
// of s. Formulas that a comma or an "and" joins with the last one belong to it: $12$ and $13$.
func (find *finder) lastExpression(s string) extract {
	find.steps += len(s)
	start, end, from := -1, 0, fromFormula
	if formulas := find.segments(s); len(formulas) > 0 {
		last := len(formulas) - 1
		for ; last > 0; last-- { // a name alone is no answer, unless there is no other formula
			if text := clean(s[formulas[last][0]:formulas[last][1]]); len(text) > 1 || text != "" && !isLetter(text[0]) {
				break
			}
		}
		start, end = formulas[last][0], formulas[last][1]
		for i := last - 1; i >= 0; i-- {
			gap := s[formulas[i][1]:start]
			// wordsIn does not count "and"; formulas with nothing between them are two statements.
			if len(gap) > 12 || find.wordsIn(gap) > 0 || strings.ContainsAny(gap, ".\n=:;") || strings.TrimSpace(gap) == "" {
				break
			}
			start = formulas[i][0]
		}
	}
	if m := matrix.FindAllStringIndex(s, -1); m != nil && m[len(m)-1][1] > end {
		start, end = m[len(m)-1][0], m[len(m)-1][1]
	}
	if first, last := find.lastNumber(s[end:]); last > 0 {
		start, end = end+first, end+last
		from = formulaOrProse(strings.Contains(s[start:end], `\`))
	}
	switch t := strings.TrimSpace(s); {
	case start >= 0:
		return extract{texts: []string{withPercent(s, start, end)}, from: from}
	case len(t) == 1 || len(t) == 2 && t[1] == '.': // the letter of an option, B or B.
		return extract{texts: []string{t[:1]}, from: fromProse}
	}
	return extract{}
}

// formulaOrProse says where an answer in running text is.
func formulaOrProse(formula bool) string {
	if formula {
		return fromFormula
	}
	return fromProse
}

// lastNumber returns the extent of the last number in running text with the words beside it that may be of its formula,
// x + 5 or 5 and 6, without the punctuation around it; end is 0 if there is none.
func (find *finder) lastNumber(s string) (start, end int) {
	pieces := unspaced.FindAllStringIndex(s, -1)
	text := func(i int) string { return s[pieces[i][0]:pieces[i][1]] }
	at := len(pieces) - 1
	for ; at >= 0; at-- {
		if w := text(at); strings.ContainsAny(w, "0123456789") && find.mathematical(w) {
			break
		}
	}
	if at < 0 {
		return 0, 0
	}
	first, last := at, at
	for ; first > 0; first-- {
		w, gap := text(first-1), s[pieces[first-1][1]:pieces[first][0]]
		joined := (w == "and" || w == "or") && first > 1 && strings.ContainsAny(text(first-2), "0123456789") && find.mathematical(text(first-2))
		if strings.Trim(gap, " ") != "" || !joined && (!find.mathematical(w) || strings.ContainsRune(".:;?!", rune(w[len(w)-1]))) {
			break
		}
	}
	for ; last+1 < len(pieces) && s[pieces[last][1]:pieces[last+1][0]] == " " && find.mathematical(strings.TrimRight(text(last+1), ".,;")); last++ {
	}
	start, end = pieces[first][0], pieces[last][1]
	if i := strings.LastIndex(s[start:end], ">>"); i >= 0 { // a calculator's annotation, <<2+3=5>>5
		start += i + 2
	}
	if i := strings.Index(s[start:end], "</"); i > 0 { // a tag
		end = start + i
	}
	start += len(s[start:end]) - len(strings.TrimLeft(s[start:end], ":：，,*\"'_"))
	return start, start + len(strings.TrimRight(s[start:end], ".,;:!?*_\"'"))
}

// little are short words that are not part of a formula.
var little = latex.SetOf("is of to in by at we so be or as an a i it on if he my us do no go up and am pm es la le de el un il er en et se si")

// mathematical reports whether a piece of running text between spaces may be part of a formula.
func (find *finder) mathematical(w string) bool {
	bare := strings.ToLower(strings.Trim(w, ".,;:!?()\"'*_"))
	return find.wordsIn(w) == 0 && !little[bare] && (bare != "" || strings.Trim(w, `*_"'`) != "")
}
