package tokenize

import (
	"encoding/json"
	"errors"
	"fmt"
)

// A scanner reads JSON text without building values of it. tokenizer.json is 5 MB,
// mostly of two flat collections, and encoding/json takes several times longer for
// them than the rest of loading. Small parts are decoded by encoding/json, which
// also checks them. The scanner itself checks only what it needs to find the end of
// a value (it does not read literals).
type scanner struct {
	data []byte
	pos  int
}

var errTruncated = errors.New("unexpected end of JSON input: fetch the file again")

func (s *scanner) errorf(format string, args ...any) error {
	return fmt.Errorf("byte %d: "+format, append([]any{s.pos}, args...)...)
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) expect(want byte) error {
	switch c := s.peek(); {
	case c == want && c != 0:
		s.pos++
		return nil
	case s.pos >= len(s.data):
		return errTruncated
	default:
		return s.errorf("found %q, want %q", c, want)
	}
}

// end reports an error unless only white space is left.
func (s *scanner) end() error {
	if s.peek(); s.pos < len(s.data) {
		return s.errorf("found %q after the value", s.data[s.pos])
	}
	return nil
}

// text reads a string. The result may share memory with data.
func (s *scanner) text() ([]byte, error) {
	if err := s.expect('"'); err != nil {
		return nil, err
	}
	start := s.pos
	escaped, err := s.toQuote()
	if err != nil {
		return nil, err
	}
	if !escaped {
		return s.data[start : s.pos-1], nil
	}
	var text string
	if err := json.Unmarshal(s.data[start-1:s.pos], &text); err != nil {
		return nil, s.errorf("%w", err)
	}
	return []byte(text), nil
}

// toQuote moves past the quote that ends a string.
func (s *scanner) toQuote() (escaped bool, err error) {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case '"':
			s.pos++
			return escaped, nil
		case '\\':
			escaped = true
			s.pos++
		}
		s.pos++
	}
	return false, errTruncated
}

// integer reads a non-negative integer of at most nine digits.
func (s *scanner) integer() (int, error) {
	s.peek()
	start, n := s.pos, 0
	for ; s.pos < len(s.data) && s.data[s.pos]-'0' < 10; s.pos++ {
		if s.pos-start == 9 {
			return 0, s.errorf("number too large")
		}
		n = n*10 + int(s.data[s.pos]-'0')
	}
	if s.pos == start {
		return 0, s.errorf("want a non-negative integer")
	}
	if s.pos < len(s.data) && (s.data[s.pos] == '.' || s.data[s.pos]|0x20 == 'e') {
		return 0, s.errorf("want an integer")
	}
	return n, nil
}

// members reads an object, calling member for each key with s at its value;
// member must read the value.
func (s *scanner) members(member func(key []byte) error) error {
	return s.list('{', '}', func() error {
		key, err := s.text()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		return member(key)
	})
}

// elements reads an array, calling element with s at each.
func (s *scanner) elements(element func() error) error { return s.list('[', ']', element) }

func (s *scanner) list(open, end byte, item func() error) error {
	if err := s.expect(open); err != nil {
		return err
	}
	if s.peek() == end {
		s.pos++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		if s.peek() != ',' {
			return s.expect(end)
		}
		s.pos++
	}
}

// checkNesting refuses JSON whose brackets are nested deeper than in any tokenizer:
// each stage within a stage is decoded again.
func checkNesting(raw json.RawMessage) error {
	depth, inText := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			inText = !inText
		case inText && c == '\\':
			i++
		case inText:
		case c == '{' || c == '[':
			if depth++; depth > maxNesting {
				return fmt.Errorf("nested deeper than %d", maxNesting)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// raw returns the text of the next value of any kind and moves past it. It only
// counts brackets, so that it also accepts what is not JSON.
func (s *scanner) raw() (json.RawMessage, error) {
	s.peek()
	start, depth := s.pos, 0
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case '"':
			s.pos++
			if _, err := s.toQuote(); err != nil {
				return nil, err
			}
			if depth == 0 {
				return s.data[start:s.pos], nil
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				s.pos++
				return s.data[start:s.pos], nil
			}
		}
		// A number or literal ends before a comma or a closing bracket.
		if depth < 0 || depth == 0 && s.data[s.pos] == ',' {
			break
		}
		s.pos++
	}
	if depth > 0 || s.pos == start {
		return nil, errTruncated
	}
	return s.data[start:s.pos], nil
}
