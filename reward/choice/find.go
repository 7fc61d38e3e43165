package choice

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"onering/reward/texts"
)

// Bounds of reading. A longer statement is cut off, and only the last phrases count.
const (
	longest     = 4096 // bytes of a statement
	mostPhrases = 32
)

// find returns the choices that a response picks, sorted. If it picks none, or
// cannot be read as picking some, the reason says so.
func (r *rule) find(o options, response string) (picked []int, reason string) {
	s, ok := texts.Extract{After: r.After}.Rest(response)
	if !ok {
		return nil, "no " + r.After + " in the response"
	}
	mayBeIn := func(where string) bool { return r.Where == where || r.Where == "auto" }
	if mayBeIn("boxed") {
		if box := lastBoxes(s); strings.TrimSpace(box) != "" {
			return o.readWhole(box)
		}
	}
	if mayBeIn("tag") {
		if tag, ok := (texts.Extract{Where: "tag", Tag: "answer"}).Find(s); ok {
			return o.readWhole(tag)
		}
	}
	if mayBeIn("phrase") {
		if picked, reason, ok := o.lastPhrase(s); ok {
			return picked, reason
		}
	}
	switch {
	case mayBeIn("last_line"):
		line, _ := texts.Extract{Where: "last_line"}.Find(s)
		return o.readWhole(line)
	case r.Where == "whole":
		return o.readWhole(s)
	}
	return nil, "no answer in the response"
}

// boxJoint matches the text between boxes that form one answer.
var boxJoint = regexp.MustCompile(`^[ \t$,;&]*\n?[ \t$,;&]*(?:(?:and|or)\b)?[ \t$,;&]*\n?[ \t$,;&]*$`)

// lastBoxes returns the content of the last complete box, joined with boxes before it
// that only a comma or a word such as "or" separates.
func lastBoxes(s string) string {
	const farthest = 40 // bytes between boxes of one answer
	var all []string
	start := -1 // of the earliest box that was taken
	boxes := texts.Boxes(s)
	for i := len(boxes) - 1; i >= 0 && len(all) < mostChoices; i-- {
		b := boxes[i]
		if !b.Closed {
			continue
		}
		if start >= 0 && (b.End > start || start-b.End > farthest || !boxJoint.MatchString(s[b.End:start])) {
			break
		}
		all, start = append(all, b.Content), b.Start
	}
	slices.Reverse(all)
	return strings.Join(all, ", ")
}

// A phrase announces an answer: "the answer is", "Answer:", "the correct option
// would be", "####", with marks of emphasis or of JSON in it.
var phrase = regexp.MustCompile(`(?i)^(?:\b(?:ans|(?:final_|correct_)?answers?|(?:correct_)?option|choice|solution|result|correct|(?:correct|right|best) (?:one|letter))\b["'*_\s.]*(?:\b(?:to|for|of)(?:\s+[\pL\pN]+){1,6}\s+)?` +
	`(?:(?:is|are|be|was)\b|(?:would|should|must|will|can only) be\b|[:=：]|[-–—] )|\b(?:choose|select|pick|go with|(?:it|this) (?:is|must be))\b|\bit's\b|####|答案?\s*(?:是|为|[:：])|选|(?:정답|답|答え|正解)\s*(?:은|는|は|[:：])|` +
	`\b(?:respuesta|resposta|risposta|réponse|antwort|lösung)(?:\s+(?:correct[ae]|final|finale|exacte|corrett?a))?\s*(?:es\b|est\b|ist\b|lautet\b|è|é|[:=])|ответ\s*(?:[:=—–-]|это))[*_\s:：]*` +
	`(?:,?\s*(?:therefore|thus|hence|clearly|obviously|indeed|simply|of course)\b[,\s]*)?`)

// phraseStarts are the words and signs with which phrases begin, in lower case and as far
// as they are ASCII (réponse, lösung); verdictWords are words of verdicts on a subject.
var (
	phraseStarts = strings.Fields("ans answer answers final_answer correct_answer option correct_option choice " +
		"solution result correct right best choose select pick go it this respuesta resposta risposta r antwort l # 答 选 정 답 正 о")
	verdictWords = strings.Fields("is are was would must should has isn aren wasn")
)

// longestPhrase bounds the bytes of a phrase.
const longestPhrase = 160

// matches returns where expr, which begins with one of the words, matches in s: the begin and the end of
// each match. It goes from word to word, since the expression alone would cost ten times as much.
func matches(s string, words []string, expr *regexp.Regexp) (found [][]int) {
	for at, next, done := 0, 0, 0; at < len(s); at = next { // done is the end of the last match
		for next = at; next < len(s) && (s[next]|0x20 >= 'a' && s[next]|0x20 <= 'z' || s[next] >= '0' && s[next] <= '9' || s[next] == '_'); next++ {
		}
		if next == at {
			_, n := utf8.DecodeRuneInString(s[at:])
			next += n
		}
		if at < done || next-at > len("correct_answer") || !slices.Contains(words, strings.ToLower(s[at:next])) {
			continue
		}
		if m := expr.FindStringIndex(s[at:min(len(s), at+longestPhrase)]); m != nil {
			done = at + m[1]
			found = append(found, []int{at, done})
		}
	}
	return found
}

// An affirmed subject is the answer: "thus C is correct", "B would be the best option".
var (
	affirmed = regexp.MustCompile(`(?i)^\b(?:is|are|would be|must be|should be|has to be)\s+(?:(?:therefore|thus|hence|clearly|indeed)\s+)?(?:the\s+(?:final\s+)?answer|(?:the\s+)?(?:only\s+)?(?:correct|right|best|true))\b(?:\s+(?:one|answer|option|choice)s?\b)?[*_]*(?:[.,;:!]|$| because\b| since\b| as\b)`)
	// leadIn matches what may stand before the subject.
	leadIn = regexp.MustCompile(`(?i)^.*\b(?:so|thus|therefore|hence|means|that|conclude|only|statement|then)\b,?\s*`)
	// denied matches words that take the answer back.
	denied = regexp.MustCompile(`(?i)^\b(?:(?:is|are|was)(?:n't| not)\s+(?:the\s+)?(?:correct|right)|(?:is|are|was) (?:wrong|incorrect|false))\b`)
	// disputed matches words after which there is no answer.
	disputed = regexp.MustCompile(`(?i)\b(?:not|never|neither|nor|none|no|if|whether|unless|doubt|false|wrong|incorrect|unlikely|all|why|but|might|could)\b|n't\b|\?`)
)

const refusedReason = "the answer is said not to be something"

var refusal = regexp.MustCompile(`(?i)^(?:not|never|neither|none|no longer)\b`)

// lastPhrase reads the answer that the last phrase announces, or the verdict on a subject ("C is correct") that stands
// behind that phrase; ok is false if there is neither. A phrase followed by something else, as in "this answer is
// plausible", does not count. If a phrase says what the answer is not, earlier phrases decide.
func (o options) lastPhrase(s string) (picked []int, reason string, ok bool) {
	var refused []int                                                                             // what later phrases have said not to be the answer
	phrases, affirmations := matches(s, phraseStarts, phrase), matches(s, verdictWords, affirmed) // [begin, end] of each
	phrases, affirmations = phrases[max(0, len(phrases)-mostPhrases):], affirmations[max(0, len(affirmations)-mostPhrases):]
	for i := len(phrases) - 1; i >= 0; i-- {
		for n := len(affirmations); n > 0 && affirmations[n-1][0] > phrases[i][1]; n = len(affirmations) { // verdicts behind this phrase
			if picked, named := o.readSubject(s, affirmations[n-1]); named {
				return picked, "", true
			}
			affirmations = affirmations[:n-1]
		}
		rest := s[phrases[i][1]:]
		rest = rest[:min(len(rest), longest)]
		if end := strings.IndexAny(rest, "\n\r"); end >= 0 {
			rest = rest[:end]
		}
		if value, quoted := strings.CutPrefix(rest, `"`); quoted && strings.Contains(value, `"`) { // the phrase is JSON
			rest, _, _ = strings.Cut(value, `"`)
		}
		if no := refusal.FindString(rest); no != "" {
			if _, isText := o.choiceWithText(rest); !isText { // a choice may be "None of these"
				not, _ := o.readProse(rest[len(no):])
				if not == nil {
					return nil, refusedReason, true
				}
				refused = append(refused, not...)
				continue
			}
		}
		picked, reason = o.readProse(rest)
		switch {
		case slices.ContainsFunc(picked, func(at int) bool { return slices.Contains(refused, at) }): // taken back by a later phrase
			return nil, refusedReason, true
		case len(picked) > 0 || reason != noChoiceRead:
			return picked, reason, true
		}
	}
	for n := len(affirmations) - 1; n >= 0 && refused == nil; n-- { // those before the first phrase
		if picked, named := o.readSubject(s, affirmations[n]); named {
			return picked, "", true
		}
	}
	return nil, refusedReason, refused != nil // phrases said only what the answer is not, or there were none
}

// readSubject returns the choices that the clause before a verdict at s[at[0]:at[1]] names, and whether
// it names any. There are none if the clause denies them or a later clause takes them back.
func (o options) readSubject(s string, at []int) (picked []int, named bool) {
	before := strings.TrimSpace(s[max(0, at[0]-longest):at[0]])
	clause := before[strings.LastIndexAny(before, "\n;:!?")+1:]
	if end := strings.LastIndex(clause, ". "); end > 3 { // not the full stop of "C. Rome is correct"
		clause = clause[end+2:]
	}
	if disputed.MatchString(clause) {
		return nil, false
	}
	picked, _ = o.readWhole(clause[len(leadIn.FindString(clause)):]) // without "so we conclude that"
	if comma := strings.LastIndex(clause, ","); picked == nil && comma >= 0 {
		picked, _ = o.readWhole(clause[comma+1:])
	}
	if picked == nil {
		return nil, o.namesOther(clause, nil)
	}
	for _, denial := range matches(s[at[1]:], verdictWords, denied) {
		after := strings.TrimSpace(s[at[1] : at[1]+denial[0]])
		if again, _ := o.readWhole(after[strings.LastIndexAny(after, "\n.,;:!?")+1:]); slices.ContainsFunc(again,
			func(x int) bool { return slices.Contains(picked, x) }) {
			return nil, true
		}
	}
	return picked, true
}
