package tools

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"onering/tokenize"
)

// Limits of a text; text beyond them stays in the content.
const (
	maxCalls     = 128
	maxCallBytes = 1 << 20
)

const blanks = " \t\r\n"

// A Stream reads a text in pieces. Each byte is looked at a bounded number of times.
type Stream struct {
	f     *Format
	held  []byte // text that is not decided yet; in a call all of its text
	gap   []byte // spaces behind the content so far, which are content if more follows
	at    int    // how far held has been searched for the end of the call
	calls int
	err   error

	state  state
	close  string // the mark that ends the call
	quoted bool   // the search is inside a JSON string, or an argument
}

type state int

const (
	beginning state = iota
	talking
	calling
	called // behind a call that began without the mark open; the mark close may follow
	plain  // no calls follow
)

// Stream begins a text.
func (f *Format) Stream() *Stream { return &Stream{f: f} }

// Add reads a piece and returns the content and the calls that are whole with it.
func (s *Stream) Add(text string) (content string, calls []Call) {
	var out strings.Builder
	s.held = append(s.held, text...)
	for more := true; more; {
		switch s.state {
		case beginning:
			more = s.begin()
		case talking:
			var mark string
			if mark, more = s.addUntilMark(&out); more {
				s.state, s.at, s.quoted, s.close = calling, len(mark), false, s.f.close
				if mark != s.f.open {
					s.close = functionEnd
				}
			}
		case calling:
			more = s.call(&out, &calls)
		case called:
			rest := bytes.TrimLeft(s.held, blanks)
			after, closed := bytes.CutPrefix(rest, []byte(s.f.close))
			if more = closed || !strings.HasPrefix(s.f.close, string(rest)); more {
				s.state = talking
			}
			if closed {
				s.held = after
			}
		case plain:
			s.say(&out, len(s.held))
			more = false
		}
	}
	return out.String(), calls
}

// End ends the text. The error says what is wrong with the first call that is not well-formed.
func (s *Stream) End() (content string, calls []Call, err error) {
	var out strings.Builder
	if s.state == calling {
		s.end(&out, &calls, len(s.held), 0)
	}
	s.say(&out, len(s.held))
	if s.calls == 0 {
		out.Write(s.gap)
	}
	s.gap = nil
	return out.String(), calls, s.err
}

// say adds the first bytes that are held to the content, without the spaces at their end.
func (s *Stream) say(out *strings.Builder, n int) {
	if text := bytes.TrimRight(s.held[:n], blanks); len(text) > 0 {
		out.Write(s.gap)
		out.Write(text)
		s.gap = append(s.gap[:0], s.held[len(text):n]...)
	} else {
		s.gap = append(s.gap, s.held[:n]...)
	}
	s.held = s.held[n:]
}

// begin decides how the text begins, if that is known.
func (s *Stream) begin() bool {
	text := bytes.TrimLeft(s.held, blanks)
	s.gap = append(s.gap, s.held[:len(s.held)-len(text)]...)
	s.held = text
	switch {
	case len(s.held) == 0:
		return false
	case s.f.bare != 0 && s.held[0] == s.f.bare:
		s.state, s.at, s.close = calling, 0, s.f.close
	default:
		s.state = talking
	}
	return true
}

// addUntilMark adds held text up to a mark that begins a call to the content, and returns the mark
// if there is one. Text that may be the beginning of a mark stays held.
func (s *Stream) addUntilMark(out *strings.Builder) (mark string, found bool) {
	n := len(s.held)
	for _, m := range s.f.begin {
		if i := bytes.Index(s.held, []byte(m)); i >= 0 && i < n {
			n, mark = i, m
		}
	}
	held := 0
	if mark == "" {
		for _, m := range s.f.begin {
			held = max(held, tokenize.Begun(string(s.held), m))
		}
		n -= held
	}
	s.say(out, n)
	return mark, mark != ""
}

// call looks for the end of a call, and reads the call. It reports whether there is more to do.
func (s *Stream) call(out *strings.Builder, calls *[]Call) bool {
	switch {
	case s.calls >= maxCalls:
		s.fail(errManyCalls)
		s.state = plain
		return true
	case s.atEndMark():
		s.end(out, calls, s.at, len(s.close))
		return true
	case s.at > maxCallBytes:
		s.fail(fmt.Errorf("a call has more than %d bytes", maxCallBytes))
		s.say(out, len(s.held))
		s.state = plain
	}
	return false
}

// atEndMark moves on to the mark that ends a call, and reports whether it is there. Marks in a
// JSON string do not count, nor do those in an argument of a call without the mark open.
func (s *Stream) atEndMark() bool {
	bare := s.close == functionEnd
	if s.close == "" {
		s.at = len(s.held)
	}
	for s.at < len(s.held) && s.at <= maxCallBytes {
		rest := string(s.held[s.at:min(len(s.held), s.at+max(len(s.close), len(parameterEnd)))])
		switch c := rest[0]; {
		case s.quoted && !bare && c == '\\':
			s.at++ // with the text that follows
		case s.quoted && !bare:
			s.quoted = c != '"' && c != '\n' // no JSON string contains this
		case s.f.json && c == '"':
			s.quoted = true
		case c != s.close[0]:
		case bare && (strings.HasPrefix(rest, parameterBegin) || strings.HasPrefix(rest, parameterEnd)):
			s.quoted = rest[1] != '/'
		case !s.quoted && strings.HasPrefix(rest, s.close):
			return true
		case strings.HasPrefix(s.close, rest) || bare && (strings.HasPrefix(parameterBegin, rest) || strings.HasPrefix(parameterEnd, rest)):
			return false
		}
		s.at++
	}
	return false
}

// end reads the call that ends at a place, where the mark that closes it has n bytes.
func (s *Stream) end(out *strings.Builder, calls *[]Call, at, n int) {
	s.state = talking
	if s.close == functionEnd {
		at, n, s.state = at+n, 0, called
	}
	read, err := s.f.read(s.f, string(bytes.TrimPrefix(s.held[:at], []byte(s.f.open))))
	if err != nil {
		s.fail(err)
	}
	if err != nil || len(read) == 0 {
		s.state = talking
		s.say(out, at+n)
		return
	}
	*calls, s.calls = append(*calls, read...), s.calls+len(read)
	s.gap, s.held = s.gap[:0], s.held[at+n:]
}

func (s *Stream) fail(err error) { s.err = cmp.Or(s.err, err) }
