// Package ordered reads JSON with the members of objects in the order of the text.
// encoding/json loses the order when it decodes objects into maps.
package ordered

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"onering/internal/strict"
)

// A Scanner reads JSON text without building values. A tokenizer.json is 5 MB, mostly of two flat collections, and
// encoding/json takes several times longer for them than the rest of loading. The Scanner checks only what it needs
// to find the end of a value: encoding/json can check the text or a part of it further.
type Scanner struct {
	Data []byte
	Pos  int
}

var errTruncated = errors.New("it ends in the middle of the JSON text: fetch the file again")

// Errorf makes an error that names the place in the text.
func (s *Scanner) Errorf(format string, args ...any) error {
	return fmt.Errorf("byte %d: "+format, append([]any{s.Pos}, args...)...)
}

// Peek skips white space and returns the next byte, 0 at the end.
func (s *Scanner) Peek() byte {
	for s.Pos < len(s.Data) {
		switch c := s.Data[s.Pos]; c {
		case ' ', '\t', '\n', '\r':
			s.Pos++
		default:
			return c
		}
	}
	return 0
}

func (s *Scanner) expect(want byte) error {
	switch c := s.Peek(); {
	case c == want && c != 0:
		s.Pos++
		return nil
	case s.Pos >= len(s.Data):
		return errTruncated
	default:
		return s.Errorf("found %q, want %q", c, want)
	}
}

// End reports an error unless only white space is left.
func (s *Scanner) End() error {
	s.Peek() // skips white space
	if s.Pos < len(s.Data) {
		return s.Errorf("found %q after the value", s.Data[s.Pos])
	}
	return nil
}

// Text reads a string. The result may share memory with Data.
func (s *Scanner) Text() ([]byte, error) {
	if err := s.expect('"'); err != nil {
		return nil, err
	}
	start := s.Pos
	escaped, err := s.skipToQuote()
	if err != nil {
		return nil, err
	}
	if !escaped {
		return s.Data[start : s.Pos-1], nil
	}
	var text string
	if err := strict.JSON(s.Data[start-1:s.Pos], &text); err != nil {
		return nil, s.Errorf("%w", err)
	}
	return []byte(text), nil
}

// skipToQuote moves past the quote that ends a string, and reports whether the string has escapes.
func (s *Scanner) skipToQuote() (escaped bool, err error) {
	for s.Pos < len(s.Data) {
		switch s.Data[s.Pos] {
		case '"':
			s.Pos++
			return escaped, nil
		case '\\':
			escaped = true
			s.Pos++
		}
		s.Pos++
	}
	return false, errTruncated
}

// Members reads an object, calling member for each key with s at its value; member must read the value.
func (s *Scanner) Members(member func(key []byte) error) error {
	return s.list('{', '}', func() error {
		key, err := s.Text()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		return member(key)
	})
}

// Elements reads an array, calling element with s at each.
func (s *Scanner) Elements(element func() error) error { return s.list('[', ']', element) }

// list reads open, items with commas between them, and end. item must read an item.
func (s *Scanner) list(open, end byte, item func() error) error {
	if err := s.expect(open); err != nil {
		return err
	}
	if s.Peek() == end {
		s.Pos++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		if s.Peek() != ',' {
			return s.expect(end)
		}
		s.Pos++
	}
}

// Raw returns the text of the next value of any kind and moves past it. It only counts
// brackets, so it also accepts text that is not JSON.
func (s *Scanner) Raw() (json.RawMessage, error) {
	s.Peek() // skips white space
	start, depth := s.Pos, 0
	for s.Pos < len(s.Data) {
		switch s.Data[s.Pos] {
		case '"':
			s.Pos++
			if _, err := s.skipToQuote(); err != nil {
				return nil, err
			}
			if depth == 0 {
				return s.Data[start:s.Pos], nil
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				s.Pos++
				return s.Data[start:s.Pos], nil
			}
		}
		// A number or literal ends before a comma or a closing bracket.
		if depth < 0 || depth == 0 && s.Data[s.Pos] == ',' {
			break
		}
		s.Pos++
	}
	if depth > 0 || s.Pos == start {
		return nil, errTruncated
	}
	return bytes.TrimRight(s.Data[start:s.Pos], " \t\r\n"), nil
}

// EachMember calls f for every member of the JSON object that data holds, in the order of the text: key, the value's
// text, and the offset of that text in data. It refuses text that other readers may read differently: a repeated key
// at any depth, text that is not UTF-8, anything after the object. It stops at f's first error.
func EachMember(data []byte, f func(key string, value []byte, at int) error) error {
	if !utf8.Valid(data) {
		return errors.New("not UTF-8")
	}
	s := &Scanner{Data: data}
	if err := strict.JSON(data, new(json.RawMessage)); err != nil {
		return err
	}
	if s.Peek() != '{' {
		return strict.JSON(data, new(struct{})) // this error says what stands there in place of an object
	}
	return s.Members(func(key []byte) error {
		s.Peek() // skips white space
		at := s.Pos
		value, err := s.Raw()
		if err != nil {
			return err
		}
		return f(string(key), value, at)
	})
}
