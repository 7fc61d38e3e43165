package verifier

import (
	"regexp"
	"slices"
	"strings"

	"onering/verifier/internal/latex"
)

// A box is one \boxed{...} or \fbox{...} in a text.
type box struct {
	start, end int    // of the box, from the backslash to the closing brace
	content    string // between the braces
	closed     bool
}

// boxCommands are the commands that open a box.
var boxCommands = [...]string{`\boxed`, `\fbox`}

// lastBoxStart is the position of the last box command of s before end, and its
// length; -1 if there is none.
func (find *finder) lastBoxStart(s string, end int) (int, int) {
	for i := end - 1; i >= 0; i-- {
		if s[i] != '\\' || i+1 == end || s[i+1] != 'b' && s[i+1] != 'f' {
			continue
		}
		for _, cmd := range boxCommands {
			after, ok := strings.CutPrefix(s[i:], cmd)
			if ok && i+len(cmd) <= end && (after == "" || !isLetter(after[0])) { // the command is complete
				find.steps += end - i
				return i, len(cmd)
			}
		}
	}
	find.steps += end
	return -1, 0
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }

// readBox reads the box whose command of n bytes stands at start.
func (find *finder) readBox(s string, start, n int) (b box) {
	defer func() { find.steps += b.end - start }()
	i := len(s) - len(strings.TrimLeft(s[start+n:], " \t\n\r"))
	if i >= len(s) {
		return box{start: start, end: len(s)}
	}
	if s[i] != '{' {
		// \boxed 5: TeX boxes the next token.
		end := i + 1
		for end < len(s) && s[i] >= 0x80 && s[end] >= 0x80 && s[end] < 0xc0 {
			end++
		}
		if s[i] == '\\' {
			for end < len(s) && isLetter(s[end]) {
				end++
			}
		}
		for isDigit(s[i]) && end < len(s) && isDigit(s[end]) {
			end++
		}
		for s[i] == '\\' && end < len(s) && s[end] == '{' { // \boxed\frac{1}{2}
			shut := latex.ClosingBrace(s, end)
			if shut < 0 {
				break
			}
			end = shut + 1
		}
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
	for {
		at, n := find.lastBoxStart(s, len(s))
		if at < 0 {
			return box{}, false
		}
		if b := find.readBox(s, at, n); b.closed {
			return b, true
		}
		s = s[:at]
	}
}

// joinedBoxes returns the contents of the neighbouring boxes that end with last: boxes
// with nothing but a few words or signs between them, as in "\boxed{(2,2)} and
// \boxed{(6,2)}". It returns at least two boxes or nothing. either says that "or" stands
// between two of them.
func (find *finder) joinedBoxes(s string, last box) (contents []string, either bool) {
	contents = []string{last.content}
	start := last.start
	var names []string
	for len(contents) < maxJoined {
		at, n := find.lastBoxStart(s, start)
		if at < 0 {
			break
		}
		b := find.readBox(s, at, n)
		if !b.closed || b.end > start {
			break
		}
		gap := s[b.end:start]
		if before, name := assigned(gap); name != 0 { // x = \boxed{5} or x = \boxed{6}
			if _, other := assigned(s[max(0, b.start-maxAssigned):b.start]); other != 0 {
				gap = before
				if other != name { // x = \boxed{2} and y = \boxed{3}
					names = append(names, string(name))
				}
				if len(names) == len(contents) {
					contents[len(contents)-1] = string(name) + "=" + contents[len(contents)-1]
				}
			}
		}
		if !find.joins(gap) && !nextPart(s[:b.start], s[b.end:start]) {
			break
		}
		either = either || orBefore.MatchString(s[b.end:start])
		contents = append(contents, b.content)
		start = b.start
	}
	if len(contents) < 2 {
		return nil, false
	}
	if _, first := assigned(s[max(0, start-maxAssigned):start]); len(names) == len(contents)-1 && first != 0 {
		contents[len(contents)-1] = string(first) + "=" + contents[len(contents)-1]
	}
	slices.Reverse(contents)
	return contents, either
}

// partLabel is the letter or digit of a part before its box: (a), b), Part c:
var partLabel = regexp.MustCompile(`(?i)(?:^|[\s$*.,;])(?:part\s*|question\s*)?\(?([a-h1-9])[).:]?[\s:$*.=]*$`)

// nextPart reports whether a gap between two boxes ends in the label of a part, (b), and
// the text before the first box in the previous label, (a).
func nextPart(before, gap string) bool {
	if len(gap) > 80 {
		return false
	}
	second := partLabel.FindStringSubmatch(gap)
	first := partLabel.FindStringSubmatch(before[max(0, len(before)-16):])
	return first != nil && second != nil && first[1][0]+1 == second[1][0]
}

// maxAssigned is how long "x = " before a box may be.
const maxAssigned = 8

// assigned returns the letter of "x =" at the end of s and the text before it; 0 if there
// is none.
func assigned(s string) (before string, name byte) {
	before, ok := strings.CutSuffix(strings.TrimRight(s, " "), "=")
	if before = strings.TrimRight(before, " "); !ok || before == "" {
		return s, 0
	}
	n := len(before) - 1
	if !isLetter(before[n]) || n > 0 && (isLetter(before[n-1]) || before[n-1] == '\\') {
		return s, 0
	}
	return before[:n], before[n]
}

// withdrawals are words that take back the text before them, besides the refusals, and
// listing are words between the parts of a list.
var (
	withdrawals = setOf("no nope nay wait actually instead rather correction sorry oops scratch but otherwise then times over minus plus choose divided mod to")
	listing     = setOf("and or is one root another the other also solution solutions answer answers value values first second third roots x y")
)

// joins reports whether two boxes with gap between them belong together.
func (find *finder) joins(gap string) bool {
	if len(gap) > 60 || strings.Contains(gap, "\n\n") || strings.Contains(gap, ". ") {
		return false
	}
	switch strings.TrimSpace(gap) {
	case ":", ".", "_", `\to`, `\rightarrow`:
		return false // both form one expression
	}
	words := 0
	for i := 0; i < len(gap); i++ {
		c := gap[i]
		switch {
		case c == '\\':
			// A spacing or a \text command.
			for i+1 < len(gap) && isLetter(gap[i+1]) {
				i++
			}
		case isLetter(c):
			start := i
			for i+1 < len(gap) && isLetter(gap[i+1]) {
				i++
			}
			switch w := strings.ToLower(gap[start : i+1]); {
			case slices.ContainsFunc(refusals[:], func(r string) bool { return strings.HasPrefix(w, r) }), slices.Contains(negations[:], w), withdrawals[w]:
				return false
			case !listing[w]:
				words++
			}
		case isDigit(c), c == '=':
			return false
		}
	}
	return words <= 2
}
