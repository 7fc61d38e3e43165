package tools

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
)

// Limits of a text; text beyond them stays in the content.
const (
	maxCalls     = 128
	maxCallBytes = 1 << 20
)

// A Stream reads a text in pieces. Each byte is looked at a bounded number of times.
type Stream struct {
	f     *Format
	held  []byte // text that is not decided yet; in a call all of its text
	gap   []byte // spaces behind the content so far, which are content if more follows
	at    int    // how far held has been searched for the end of the call
	calls int
	err   error

	state  state
	quoted bool // the search is inside a JSON string
}

type state int

const (
	beginning state = iota // at the beginning of the text, or behind a thought
	thinking
	talking
	calling
	plain // no calls follow
)

// Stream begins a text.
func (f *Format) Stream() *Stream {
	s := &Stream{f: f}
	if f.thinking {
		s.state = thinking
	}
	return s
}

// Add reads a piece and returns the content and the calls that are whole with it.
func (s *Stream) Add(text string) (content string, calls []Call) {
	var out strings.Builder
	s.held = append(s.held, text...)
	for more := true; more; {
		switch s.state {
		case beginning:
			more = s.begin()
		case thinking:
			if more = s.until(&out, reasoned); more {
				s.say(&out, len(reasoned))
				s.state = beginning
			}
		case talking:
			if more = s.until(&out, s.f.open); more {
				s.state, s.at, s.quoted = calling, len(s.f.open), false
			}
		case calling:
			more = s.call(&out, &calls)
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
		s.close(&out, &calls, len(s.held), 0)
	}
	if s.say(&out, len(s.held)); s.calls == 0 {
		out.Write(s.gap)
	}
	s.gap = nil
	return out.String(), calls, s.err
}

// say adds the first bytes that are held to the content, without the spaces at their end.
func (s *Stream) say(out *strings.Builder, n int) {
	if text := bytes.TrimRight(s.held[:n], " \t\r\n"); len(text) > 0 {
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
	text := bytes.TrimLeft(s.held, " \t\r\n")
	s.gap = append(s.gap, s.held[:len(s.held)-len(text)]...)
	s.held = text
	switch {
	case len(s.held) == 0 || len(s.held) < len(thought) && strings.HasPrefix(thought, string(s.held)):
		return false
	case bytes.HasPrefix(s.held, []byte(thought)):
		s.state = thinking
	case s.f.bare && s.held[0] == '{':
		s.state, s.at = calling, 0
	default:
		s.state = talking
	}
	return true
}

// until adds held text up to a mark to the content, and reports whether the mark was
// found. Text that may be the beginning of the mark stays held.
func (s *Stream) until(out *strings.Builder, mark string) bool {
	n := bytes.Index(s.held, []byte(mark))
	if n >= 0 {
		s.say(out, n)
		return true
	}
	n = len(s.held)
	for k := min(len(mark)-1, n); k > 0; k-- {
		if bytes.HasSuffix(s.held, []byte(mark[:k])) {
			n -= k
			break
		}
	}
	s.say(out, n)
	return false
}

// call looks for the end of a call, and reads the call. It reports whether there is more to do.
func (s *Stream) call(out *strings.Builder, calls *[]Call) bool {
	switch {
	case s.calls >= maxCalls:
		s.fail(fmt.Errorf("there are more than %d calls", maxCalls))
		s.state = plain
		return true
	case s.found():
		s.close(out, calls, s.at, len(s.f.close))
		return true
	case s.at > maxCallBytes:
		s.fail(fmt.Errorf("a call has more than %d bytes", maxCallBytes))
		s.say(out, len(s.held))
		s.state = plain
	}
	return false
}

// found moves on to the mark that ends a call, and reports whether it is there.
func (s *Stream) found() bool {
	mark := s.f.close
	if mark == "" {
		s.at = len(s.held)
	}
	for s.at < len(s.held) && s.at <= maxCallBytes {
		rest := s.held[s.at:]
		switch c := rest[0]; {
		case s.quoted && c == '\\':
			s.at++ // with the text that follows
		case s.quoted:
			s.quoted = c != '"' && c != '\n' // no JSON string contains this
		case s.f.json && c == '"':
			s.quoted = true
		case c == mark[0] && bytes.HasPrefix(rest, []byte(mark)):
			return true
		case c == mark[0] && strings.HasPrefix(mark, string(rest[:min(len(rest), len(mark))])):
			return false
		}
		s.at++
	}
	return false
}

// close reads the call that ends at a place, where a mark of n bytes stands.
func (s *Stream) close(out *strings.Builder, calls *[]Call, at, mark int) {
	block := string(bytes.TrimPrefix(s.held[:at], []byte(s.f.open)))
	read, err := s.f.read(s.f, block)
	if s.state = talking; err != nil {
		s.fail(err)
	}
	if err != nil || len(read) == 0 {
		s.say(out, at+mark)
		return
	}
	*calls, s.calls = append(*calls, read...), s.calls+len(read)
	s.gap, s.held = s.gap[:0], s.held[at+mark:]
}

func (s *Stream) fail(err error) { s.err = cmp.Or(s.err, err) }
