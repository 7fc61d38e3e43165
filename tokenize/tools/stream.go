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
	f        *Format
	pending  []byte // text that is not decided yet; in a call all of its text
	spaces   []byte // spaces behind the content so far, which are content if more follows
	searched int    // how far pending has been searched for the end of the call
	calls    int
	err      error

	state   state
	endMark string // the mark that ends the call
	inText  bool   // the search is inside a JSON string, or an argument
}

type state int

const (
	beginning state = iota
	talking
	calling
	called // behind a call that began without openMark; closeMark may follow
	plain  // no calls follow
)

// Stream begins a text.
func (f *Format) Stream() *Stream { return &Stream{f: f} }

// Add reads a piece and returns the content and the calls that are whole with it. What may still be a part of a call
// stays in s.pending. more says that the state has changed, so that there is more to read.
func (s *Stream) Add(text string) (content string, calls []Call) {
	var out strings.Builder
	s.pending = append(s.pending, text...)
	for more := true; more; {
		switch s.state {
		case beginning:
			more = s.decideBeginning()
		case talking:
			var mark string
			if mark, more = s.addUntilMark(&out); more {
				s.state, s.searched, s.inText, s.endMark = calling, len(mark), false, s.f.closeMark
				if mark != s.f.openMark { // the call begins with <function=NAME>, not with openMark
					s.endMark = functionEnd
				}
			}
		case calling:
			more = s.readCall(&out, &calls)
		case called: // the mark that closes the call may follow, and belongs to it
			rest := bytes.TrimLeft(s.pending, blanks)
			after, closed := bytes.CutPrefix(rest, []byte(s.f.closeMark))
			if more = closed || !strings.HasPrefix(s.f.closeMark, string(rest)); more { // else rest may begin the mark
				s.state = talking
			}
			if closed {
				s.pending = after
			}
		case plain:
			s.addContent(&out, len(s.pending))
			more = false
		}
	}
	return out.String(), calls
}

// End ends the text. The error says what is wrong with the first call that is not well-formed.
func (s *Stream) End() (content string, calls []Call, err error) {
	var out strings.Builder
	if s.state == calling {
		s.finishCall(&out, &calls, len(s.pending), 0)
	}
	s.addContent(&out, len(s.pending))
	if s.calls == 0 {
		out.Write(s.spaces)
	}
	s.spaces = nil
	return out.String(), calls, s.err
}

// addContent adds the first bytes that are held to the content, without the spaces at their end.
func (s *Stream) addContent(out *strings.Builder, n int) {
	if text := bytes.TrimRight(s.pending[:n], blanks); len(text) > 0 {
		out.Write(s.spaces)
		out.Write(text)
		s.spaces = append(s.spaces[:0], s.pending[len(text):n]...)
	} else {
		s.spaces = append(s.spaces, s.pending[:n]...)
	}
	s.pending = s.pending[n:]
}

// decideBeginning decides whether the text begins with a call without a mark, once it has something else than spaces.
func (s *Stream) decideBeginning() bool {
	text := bytes.TrimLeft(s.pending, blanks)
	s.spaces = append(s.spaces, s.pending[:len(s.pending)-len(text)]...)
	s.pending = text
	switch {
	case len(s.pending) == 0:
		return false
	case s.f.bareBegin != 0 && s.pending[0] == s.f.bareBegin:
		s.state, s.searched, s.endMark = calling, 0, s.f.closeMark
	default:
		s.state = talking
	}
	return true
}

// addUntilMark adds held text up to a mark that begins a call to the content, and returns the mark
// if there is one. Text that may be the beginning of a mark stays held.
func (s *Stream) addUntilMark(out *strings.Builder) (mark string, found bool) {
	n := len(s.pending)
	for _, m := range s.f.beginMarks {
		if i := bytes.Index(s.pending, []byte(m)); i >= 0 && i < n {
			n, mark = i, m
		}
	}
	if mark == "" {
		begun := 0 // how many bytes at the end may begin a mark
		for _, m := range s.f.beginMarks {
			begun = max(begun, tokenize.Begun(string(s.pending), m))
		}
		n -= begun
	}
	s.addContent(out, n)
	return mark, mark != ""
}

// readCall looks for the end of a call, and reads the call. It reports whether there is more to do: there is not if the
// end has not come. Beyond the limits the rest of the text is content.
func (s *Stream) readCall(out *strings.Builder, calls *[]Call) bool {
	switch {
	case s.calls >= maxCalls:
		s.fail(errManyCalls)
		s.state = plain
		return true
	case s.atEndMark():
		s.finishCall(out, calls, s.searched, len(s.endMark))
		return true
	case s.searched > maxCallBytes:
		s.fail(fmt.Errorf("a call has more than %d bytes", maxCallBytes))
		s.addContent(out, len(s.pending))
		s.state = plain
	}
	return false
}

// atEndMark moves s.searched on to the mark that ends a call (s.endMark), and reports whether it is there; if not, the search
// goes on from s.searched when more text has come. s.inText says that s.searched is where marks do not count: in a
// JSON string, or in an argument (<parameter=...>) of a call that began with <function=NAME> without openMark before it,
// and so ends with </function>.
func (s *Stream) atEndMark() bool {
	withoutOpenMark := s.endMark == functionEnd // a call that began with <function=NAME>
	if s.endMark == "" {                        // only the end of the text ends it
		s.searched = len(s.pending)
	}
	for s.searched < len(s.pending) && s.searched <= maxCallBytes {
		rest := string(s.pending[s.searched:min(len(s.pending), s.searched+max(len(s.endMark), len(parameterEnd)))])
		switch c := rest[0]; {
		case s.inText && !withoutOpenMark && c == '\\':
			s.searched++ // skips the byte that is escaped, too
		case s.inText && !withoutOpenMark:
			s.inText = c != '"' && c != '\n' // no JSON string contains a newline
		case s.f.json && c == '"':
			s.inText = true
		case c != s.endMark[0]: // no mark begins here: all have the same first byte
		case withoutOpenMark && (strings.HasPrefix(rest, parameterBegin) || strings.HasPrefix(rest, parameterEnd)):
			s.inText = rest[1] != '/' // not </parameter>
		case !s.inText && strings.HasPrefix(rest, s.endMark):
			return true
		case strings.HasPrefix(s.endMark, rest) || withoutOpenMark && (strings.HasPrefix(parameterBegin, rest) || strings.HasPrefix(parameterEnd, rest)):
			return false // a mark may have begun: more text must come
		}
		s.searched++
	}
	return false
}

// finishCall reads the call that ends at a place, where the mark that closes it has n bytes. A call that cannot be
// read, and text that is none after all, become content.
func (s *Stream) finishCall(out *strings.Builder, calls *[]Call, at, n int) {
	s.state = talking
	if s.endMark == functionEnd {
		at, n, s.state = at+n, 0, called // </function> is a part of what is read
	}
	read, err := s.f.read(s.f, string(bytes.TrimPrefix(s.pending[:at], []byte(s.f.openMark))))
	if err != nil {
		s.fail(err)
	}
	if err != nil || len(read) == 0 {
		s.state = talking
		s.addContent(out, at+n)
		return
	}
	*calls, s.calls = append(*calls, read...), s.calls+len(read)
	s.spaces, s.pending = s.spaces[:0], s.pending[at+n:]
}

func (s *Stream) fail(err error) { s.err = cmp.Or(s.err, err) }
