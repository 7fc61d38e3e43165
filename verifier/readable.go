package verifier

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"onering/verifier/internal/latex"
)

// Readable returns an error for a gold that the verifier cannot read, so that only an
// identical text could count as right. Words are readable: they are compared as words.
func Readable(gold string) error {
	d := Verifier{}.judge([]string{gold}, `\boxed{`+gold+`}`)
	if d.Status != OK || !d.Correct {
		return errors.New(d.Reason)
	}
	n := tree(d.gold, d.Gold)
	switch {
	case n != nil:
		return checkTexts(n)
	case d.Gold == "":
		return errors.New("nothing is left of it without its delimiters")
	}
	return errors.New("it is too long or too deep to be read")
}

// checkTexts returns an error for the first text in a tree that is not made of words.
func checkTexts(n *latex.Node) error {
	for m := range n.All() {
		if m.Op == latex.Text && !isWords(m.Name) {
			return fmt.Errorf("the verifier reads %q as text, not as mathematics: only the same text is right", m.Name)
		}
	}
	return nil
}

// isWords reports whether a text has letters, and otherwise only marks between words.
func isWords(text string) bool {
	letters := strings.IndexFunc(text, unicode.IsLetter) >= 0
	return letters && strings.IndexFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsSpace(r) && !unicode.IsMark(r) && !strings.ContainsRune(".,;:'’\"&/-–()%", r)
	}) < 0
}

// Solution returns the answer that a worked solution or a gold states: in its <answer> tags, in its last boxes,
// which are read as Verify reads them, or behind "the answer is". marked says whether it has one of these. A
// text without them is the answer if it is short; of a long one the answer is empty.
func (Verifier) Solution(text string) (answer string, marked bool) {
	find := &finder{}
	if tag := find.fromTag(text, false); len(tag.texts) > 0 {
		return clean(tag.texts[len(tag.texts)-1]), true // of several boxes all count
	}
	if _, boxed := find.lastBox(text); boxed {
		answer, _ = find.goldText(text)
		return clean(answer), true
	}
	if at := find.afterPhrase(text); at >= 0 && at < len(text) {
		if e := find.fromSentence(find.sentence(text[at:])); len(e.texts) > 0 {
			return clean(e.texts[0]), true
		}
	}
	answer = clean(text)
	lines := strings.Contains(answer, "\n") && !strings.Contains(answer, `\begin{`)
	if lines || len(answer) > 200 || find.wordsIn(answer) > 8 {
		return "", false
	}
	return strings.TrimSuffix(answer, "."), false
}
