package tokenize

import "strings"

const (
	thoughtBegin = "<think>"
	thoughtEnd   = "</think>"
	blanks       = " \t\r\n"
)

// ThoughtMarks are the texts around a thought. In some vocabularies they are special tokens,
// which decoding has to keep: see StreamDecoder.Keep.
var ThoughtMarks = []string{thoughtBegin, thoughtEnd}

// Thoughts cuts what a model writes in a turn, in pieces as they come, into what it thinks and
// what it says. A thought stands at the beginning, between <think> and </think>; blanks
// around it belong to neither. A thought without an end goes on to the end of the turn.
type Thoughts struct {
	state      int    // before the first thought or behind one, inside one, or after all of them
	hadThought bool   // there was a thought
	hasText    bool   // the thought has text
	pending    string // text that is not decided yet
}

const (
	maybeThought = iota
	insideThought
	afterThoughts
)

// Thoughts begins the turn that a model writes after a prompt, which may end inside a thought.
func (d *StreamDecoder) Thoughts(prompt []int32) *Thoughts {
	end := d.t.Decode(prompt[max(0, len(prompt)-16):], false)
	if strings.HasSuffix(strings.TrimRight(end, blanks), thoughtBegin) {
		return &Thoughts{state: insideThought, hadThought: true}
	}
	return new(Thoughts)
}

// Inside reports whether the text so far ends inside a thought.
func (x *Thoughts) Inside() bool { return x.state == insideThought }

// Turn decodes a whole turn after a prompt, without special tokens but for the marks of thoughts and those in Keep.
func (d *StreamDecoder) Turn(prompt, turn []int32) (thought, said string) {
	d.SkipSpecial, d.Keep = true, append(d.Keep, ThoughtMarks...)
	var text strings.Builder
	for _, id := range turn {
		text.WriteString(d.Add(id))
	}
	text.WriteString(d.Flush())
	x := d.Thoughts(prompt)
	thought, said = x.Add(text.String())
	more, rest := x.End()
	return thought + more, said + rest
}

// Add adds a piece of the turn and returns what is now certain to be thought, and what to be said. It keeps in
// x.pending what may be a part of a mark, or blanks that belong to neither.
func (x *Thoughts) Add(text string) (thought, said string) {
	x.pending += text
	for {
		switch x.state {
		case maybeThought:
			rest := strings.TrimLeft(x.pending, blanks)
			after, is := strings.CutPrefix(rest, thoughtBegin)
			switch {
			case is:
				x.state, x.hadThought, x.hasText, x.pending = insideThought, true, false, after
			case strings.HasPrefix(thoughtBegin, rest): // the mark may follow
				return thought, said
			default:
				x.state = afterThoughts
				if x.hadThought { // blanks behind a thought go; those of a turn without one stay
					x.pending = rest
				}
			}
		case insideThought:
			if !x.hasText {
				x.pending = strings.TrimLeft(x.pending, blanks)
				x.hasText = x.pending != ""
			}
			before, after, ended := strings.Cut(x.pending, thoughtEnd)
			if ended {
				thought += strings.TrimRight(before, blanks)
				x.state, x.pending = maybeThought, after
				continue
			}
			n := len(strings.TrimRight(before[:len(before)-Begun(before, thoughtEnd)], blanks))
			x.pending = before[n:]
			return thought + before[:n], said
		default:
			said += x.pending
			x.pending = ""
			return thought, said
		}
	}
}

// End ends the turn, and returns what was not certain.
func (x *Thoughts) End() (thought, said string) {
	rest := x.pending
	x.pending = ""
	switch {
	case x.state == insideThought:
		return strings.TrimRight(rest, blanks), ""
	case x.state == maybeThought && x.hadThought:
		return "", strings.TrimLeft(rest, blanks)
	}
	return "", rest
}

// Begun returns how many bytes at the end of a text may be the beginning of a mark.
func Begun(text, mark string) int {
	n := min(len(mark)-1, len(text))
	for ; n > 0 && !strings.HasSuffix(text, mark[:n]); n-- {
	}
	return max(n, 0)
}
