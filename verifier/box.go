package verifier

import (
	"regexp"
	"slices"
	"strings"

	"onering/verifier/internal/latex"
	"onering/verifier/internal/rules"
)

// A box is one \boxed{...} or \fbox{...} in a text.
type box struct {
	start, end int    // of the box, from the backslash to the closing brace
	content    string // between the braces
	closed     bool
}

// boxCommands are the commands that open a box.
var boxCommands = [...]string{`\boxed`, `\fbox`}

// lastBoxStart is the position of the last box command that ends before end in s, and its length; -1 if there is none.
func (find *finder) lastBoxStart(s string, end int) (at, length int) {
	for i := end - 1; i >= 0; i-- {
		if s[i] != '\\' || i+1 == end || s[i+1] != 'b' && s[i+1] != 'f' {
			continue
		}
		for _, cmd := range boxCommands {
			after, ok := strings.CutPrefix(s[i:], cmd)
			if ok && i+len(cmd) <= end && (after == "" || !isLetter(after[0])) { // the command is complete
				find.steps += end - i // the bytes read
				return i, len(cmd)
			}
		}
	}
	find.steps += end
	return -1, 0
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }

// unbraced matches what a box without braces holds: a numeral, a command with its arguments.
var unbraced = regexp.MustCompile(`^(?:\d+|\\[A-Za-z]+(?:\{[^{}]*\})*|(?s:.))`)

// readBox reads the box whose command of n bytes stands at start.
func (find *finder) readBox(s string, start, n int) (b box) {
	defer func() { find.steps += b.end - start }()
	i := len(s) - len(strings.TrimLeft(s[start+n:], " \t\n\r")) // the first character of the content
	if i >= len(s) {
		return box{start: start, end: len(s)}
	}
	if s[i] != '{' {
		end := i + len(unbraced.FindString(s[i:])) // TeX boxes the next token
		return box{start: start, end: end, content: s[i:end], closed: true}
	}
	if shut := latex.ClosingBrace(s, i); shut >= 0 {
		return box{start: start, end: shut + 1, content: s[i+1 : shut], closed: true}
	}
	return box{start: start, end: len(s), content: s[i+1:]}
}

// lastBox is the last box of s: the innermost where boxes are nested.
func (find *finder) lastBox(s string) (box, bool) {
	at, n := find.lastBoxStart(s, len(s))
	if at < 0 {
		return box{}, false
	}
	return find.readBox(s, at, n), true
}

// lastClosedBox is the last complete box of s, for texts whose last box is not closed. A
// closed box ends before an open one, so s is read once, however many are open.
func (find *finder) lastClosedBox(s string) (box, bool) {
	b, ok := find.lastBox(s)
	for ok && !b.closed {
		b, ok = find.lastBox(s[:b.start])
	}
	return b, ok
}

// joinedBoxes returns the contents of the neighbouring boxes that end with last: boxes with
// nothing but a few words or signs between them, as in "\boxed{(2,2)} and \boxed{(6,2)}". It
// returns at least two boxes or nothing. either says that "or" stands between two of them.
func (find *finder) joinedBoxes(s string, last box) (contents []string, either bool) {
	if !rules.On("boxes in a row") {
		return nil, false
	}
	contents = []string{last.content} // from the last to the first
	start := last.start
	starts := []int{start}
	for len(contents) < maxJoined {
		at, n := find.lastBoxStart(s, start)
		if at < 0 {
			break
		}
		b := find.readBox(s, at, n)
		if !b.closed || b.end > start || start-b.end > longestGap {
			break
		}
		gap := assigning.ReplaceAllString(s[b.end:start], "") // x = \boxed{5} or x = \boxed{6}
		if !joinsBoxes(gap) {
			break
		}
		either = either || orBetween.MatchString(gap)
		start = b.start
		contents, starts = append(contents, b.content), append(starts, start)
	}
	if len(contents) < 2 {
		return nil, false
	}
	var names []string // the x of x = \boxed{2}
	for _, at := range starts {
		names = append(names, strings.Trim(assigning.FindString(s[max(0, at-8):at]), "$ =")) // room for $x = and spaces
	}
	for i := range contents {
		if !slices.Contains(names, "") && names[0] != names[1] { // x and y; of two values of x the name says nothing
			contents[i] = names[i] + "=" + contents[i]
		}
	}
	slices.Reverse(contents)
	return contents, either
}

// longestGap is how many bytes may part two boxes of one answer.
const longestGap = 60

// assigning matches the name of what is in the next box.
var assigning = regexp.MustCompile(`(?:^| |\$)[A-Za-z] *= *$`)

// withdrawn matches words that take back the text before them, and listing those between the
// parts of a list; gapped matches what may stand between two boxes.
var (
	withdrawn = regexp.MustCompile(`(?i)\b(?:not|no|isn|wrong(?:ly)?|nope|nay|wait|actually|instead|rather|correction|sorry|oops|scratch|but|otherwise|then|times|over|minus|plus|choose|divided|mod|to|never|incorrect|false)\b`)
	listing   = latex.SetOf("and or is one root another the other also solution solutions answer answers value values first second third roots x y")
	gapped    = regexp.MustCompile(`^(?:[^\\\d=:*/^_<>~|!]|\\(?:text|textbf|mathrm|mbox|quad|qquad|and|land|lor)\b|\\[^A-Za-z])*\\?$`)
	command   = regexp.MustCompile(`\\[A-Za-z]+`)
	letters   = regexp.MustCompile(`[A-Za-z]+`)
)

// joinsBoxes reports whether two boxes with gap between them belong together: no operation or sentence parts them, no
// word takes the first one back, and at most two words are not of a listing.
func joinsBoxes(gap string) bool {
	bare := strings.Trim(gap, " $\n\t")
	if strings.Contains(gap, "\n\n") || strings.Contains(gap, ". ") || bare == "." || bare == "-" || bare == "+" ||
		!gapped.MatchString(gap) || withdrawn.MatchString(gap) {
		return false
	}
	words := 0
	for _, w := range letters.FindAllString(command.ReplaceAllString(gap, ""), -1) {
		if !listing[strings.ToLower(w)] {
			words++
		}
	}
	return words <= 2
}

// Two things around a box matter. A word behind it that multiplies it is read with it:
// \boxed{5} million. Another answer beside it makes two of the one: \boxed{5} or 6. All else
// is talk: a box is the answer whatever expression it is a part of, and whatever doubts it.

// nearby is how many bytes around a box are looked at.
const nearby = 120

// factorBehind matches a word or a sign behind a box that multiplies it.
var factorBehind = regexp.MustCompile(`^(?:[\s$~]|\\[,;:! )])*(?:\\(?:text|mathrm)\{ *)?(\\?%|per ?cent\b|hundred\b|thousand\b|million\b|billion\b|trillion\b|dozen\b|lakh\b|crore\b)`)

// withFactor returns the content of the box b of s, and the factor behind it if there is one: 5 million.
func withFactor(s string, b box) string {
	after := s[b.end:min(len(s), b.end+nearby)]
	if bare := strings.TrimLeft(after, " $~.\n"); bare == "" || strings.HasPrefix(bare, `\]`) || strings.HasPrefix(bare, `\)`) && len(bare) < 4 {
		return b.content // mostly; it spares the expression
	}
	if m := factorBehind.FindStringSubmatch(after); m != nil && rules.On("factors behind") && !strings.HasSuffix(b.content, "%") {
		return b.content + " " + strings.Replace(m[1], "per cent", "percent", 1)
	}
	return b.content
}

// Parts of the expressions below: "or" in several languages, a number or a formula, and the end of a clause.
const (
	orWord = `(?:\\text\{\s*or\s*\}|\\lor|/|\b(?:and/)?or\b|\boder\b|\bou\b|\bo\b|\boppure\b|\blub\b|\bveya\b|\balternatively,?|или|либо|或者?是?|または|もしくは|또는|혹은)`
	adverb = `(?:\s+(?:maybe|perhaps|possibly|rather|else|even|also|it is))?`
	value  = `((?:[a-z]\s*=\s*)?(?:-?\d[\d.,/]*(?:\\?%)?|-?\\(?:[dt]?frac|sqrt)(?:\{[^{}]{1,30}\})+|\$(?:[A-Za-z]\s*=)?[^$=]{1,80}\$|\\\([^$=]{1,80}?\\\)))`
	ending = `\s*(?:[$.,;!?)\]\n。]|$|\\[)\]]|[^\x00-\x7f]|` + orWord + `)`
)

// Another answer before a box, and behind it.
var (
	orBetween = regexp.MustCompile(`(?i)` + orWord)
	orBefore  = regexp.MustCompile(`(?i)(?:^|[^\w.,/^\\-])` + value + `[\s,]*` + orWord + adverb + `[\s$(]*(?:\\[(\[])?\s*(?:[a-z]\s*=\s*)?$`)
	orAfter   = regexp.MustCompile(`(?i)^[\s$,;(]*(?:\\[)\]])?[\s,;(]*` + orWord + adverb + `\s*` + value + ending)
)

// orWords begin the words of orWord. The expressions cost more than all else, so they are
// tried only where one of them is near.
var orWords = [...]string{" or", "(or", "{or", "lor", "vee", " ou ", " o ", " oder", " oppure", " lub", " veya",
	"lternativ", "или", "либо", "或", "または", "もしくは", "또는", "혹은", "/"}

func mentionsAny(s string, words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
}

// alternative returns another answer that stands beside the box b of s, \boxed{5} or 7, with the sign to append it to the
// content of the box by, \text{ or } 7; "" if there is none. A decimal beside an expression may be its rounded value, and
// is appended by \approx.
func (find *finder) alternative(s string, b box) string {
	if !rules.On("other answer") {
		return ""
	}
	before, after := s[max(0, b.start-nearby):b.start], s[b.end:min(len(s), b.end+nearby)]
	find.steps += len(before) + len(after)
	var m []string // "or" has to be closer to the box than the rest of the other answer
	if mentionsAny(after[:min(len(after), nearby/3)], orWords[:]) {
		m = orAfter.FindStringSubmatch(after)
	}
	if near := before[max(0, len(before)-nearby/3):]; m == nil && mentionsAny(near, orWords[:]) {
		at := orBefore.FindStringSubmatchIndex(before)
		if at != nil && !strings.HasSuffix(strings.TrimRight(before[:at[2]], " "), "=") { // not of 2x = 10 or x = \boxed{5}
			m = []string{"", before[at[2]:at[3]]} // as a match of orAfter: the answer is its first group
		}
	}
	if m == nil {
		return ""
	}
	other := clean(strings.TrimRight(m[1], ".,"))
	if strings.Contains(other, ".") && !strings.Contains(b.content, ".") {
		return ` \approx ` + other
	}
	return ` \text{ or } ` + other
}
