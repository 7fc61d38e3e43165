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
	at    int    // place: before the first thought or behind one, inside one, or after all of them
	some  bool   // there was a thought
	begun bool   // the thought has text
	held  string // text that is not decided yet
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
		return &Thoughts{at: insideThought, some: true}
	}
	return new(Thoughts)
}

// Inside reports whether the text so far ends inside a thought.
func (x *Thoughts) Inside() bool { return x.at == insideThought }

// Turn decodes a whole turn after a prompt, without special tokens but for the marks of
// thoughts and those in Keep.
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

// Add returns the further thought and saying that a piece makes certain.
func (x *Thoughts) Add(text string) (thought, said string) {
	x.held += text
	for {
		switch x.at {
		case maybeThought:
			rest := strings.TrimLeft(x.held, blanks)
			after, is := strings.CutPrefix(rest, thoughtBegin)
			switch {
			case is:
				x.at, x.some, x.begun, x.held = insideThought, true, false, after
			case strings.HasPrefix(thoughtBegin, rest):
				return thought, said
			default:
				x.at = afterThoughts
				if x.some {
					x.held = rest
				}
			}
		case insideThought:
			if !x.begun {
				x.held = strings.TrimLeft(x.held, blanks)
				x.begun = x.held != ""
			}
			before, after, ended := strings.Cut(x.held, thoughtEnd)
			if ended {
				thought += strings.TrimRight(before, blanks)
				x.at, x.held = maybeThought, after
				continue
			}
			n := len(strings.TrimRight(before[:len(before)-Begun(before, thoughtEnd)], blanks))
			x.held = before[n:]
			return thought + before[:n], said
		default:
			said += x.held
			x.held = ""
			return thought, said
		}
	}
}

// End ends the turn, and returns what was not certain.
func (x *Thoughts) End() (thought, said string) {
	rest := x.held
	x.held = ""
	switch {
	case x.at == insideThought:
		return strings.TrimRight(rest, blanks), ""
	case x.at == maybeThought && x.some:
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
