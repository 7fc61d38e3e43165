package data

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"onering/internal/ordered"
	"onering/internal/strict"
)

// maxLine bounds the memory that one row of a text file may take. Tests lower it.
var maxLine = 128 << 20

// openJSON opens JSON lines, other objects that stand one after the other, a JSON array,
// or an object that holds one: the first byte that is not blank decides. It reads no
// further than that byte, since somebody may be typing the input.
func openJSON(in Input) (*Rows, error) {
	s := &jsonValues{r: in.Text, line: 1}
	c, err := s.skipBlanks()
	if err == io.EOF {
		return nil, errors.New("no rows: the file has only blank lines")
	}
	if err != nil {
		return nil, err
	}
	head, _ := s.r.Peek(s.r.Buffered())
	switch at := listInside(head); {
	case c == '[':
		s.r.Discard(1)
		return &Rows{Next: s.nextElement, Unit: "row"}, nil
	case at > 0:
		s.r.Discard(at)
		s.insideObject = true
		return &Rows{Next: s.nextElement, Unit: "row"}, nil
	case c == '{' || in.Ext == ".jsonl" || in.Ext == ".ndjson":
		return &Rows{Next: s.nextObject, Unit: "line"}, nil
	}
	return nil, fmt.Errorf("not a data file: it begins with %.60q, and JSON lines, a JSON array, CSV (.csv, .tsv), Parquet and Arrow are read", s.rest())
}

// listNames are names under which a file that is one object has its rows.
var listNames = []string{"data", "rows", "examples", "instances", "items", "records", "samples", "problems",
	"questions", "dataset", "train", "test", "validation", "dev"}

// listInside returns where the rows begin in a file that is one object, such as
// {"version": 1, "data": [{...}]}: behind the bracket; 0 if the object is a row. head is
// the beginning of the file.
func listInside(head []byte) (at int) {
	s := ordered.Scanner{Data: head}
	isRow := false
	err := s.Members(func(key []byte) error {
		for _, names := range [][]string{PromptNames, messagesNames, textNames} {
			isRow = isRow || slices.Contains(names, string(key))
		}
		if at == 0 && s.Peek() == '[' && slices.Contains(listNames, string(key)) {
			list := ordered.Scanner{Data: head, Pos: s.Pos + 1}
			if list.Peek() == '{' {
				at = s.Pos + 1
			}
		}
		_, err := s.Raw()
		return err
	})
	if isRow || err == nil && s.End() != nil { // other objects follow the first one; err: head ends inside that one
		return 0
	}
	return at
}

// jsonValues reads JSON values one after the other.
type jsonValues struct {
	r            *bufio.Reader
	line         int    // the number of the current line, from 1
	text         []byte // the value
	row          int    // the number of elements so far
	insideObject bool   // the array is a member of an enclosing object
	onePerLine   bool   // the first object stood on a line of its own
}

// skipBlanks skips blanks and returns the byte behind them.
func (s *jsonValues) skipBlanks() (byte, error) {
	for {
		head, err := s.r.Peek(1)
		if err != nil {
			return 0, err
		}
		switch head[0] {
		case '\n':
			s.line++
		case ' ', '\t', '\r':
		case 0xef: // a byte order mark, where files were joined
			if mark, _ := s.r.Peek(3); string(mark) != "\ufeff" {
				return head[0], nil
			}
			s.r.Discard(2)
		default:
			return head[0], nil
		}
		s.r.Discard(1)
	}
}

// rest returns what was read ahead of the line.
func (s *jsonValues) rest() []byte {
	head, _ := s.r.Peek(s.r.Buffered())
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return line
}

// nextObject reads the next object of a file of objects in sequence. It skips unreadable
// text up to the end of its line.
func (s *jsonValues) nextObject() (o Object, line int, err error) {
	c, err := s.skipBlanks()
	if err != nil {
		return nil, s.line, err
	}
	line = s.line
	if c != '{' && c != '[' { // of a list parseObject says how to write it as an object
		err = badLine{fmt.Errorf("not a JSON object but %.60q", s.rest())}
	} else if err = s.readValue(); err == nil || errors.Is(err, io.ErrUnexpectedEOF) { // of a text cut short parseObject says more
		o, err = parseObject(bytes.TrimRight(s.text, " \t\r\n"))
		if err == nil {
			err = s.endOfLine()
		}
		if err != nil {
			err = badLine{err}
		}
	}
	s.onePerLine = s.onePerLine || s.line == line                         // this object ended in the line in which it began
	if bad := (badLine{}); errors.As(err, &bad) && err != errUnfinished { // readValue returns that one where the next object begins
		if err := s.skipLine(); err != nil {
			return nil, line, err
		}
	}
	return o, line, err
}

// skipLine skips to the end of the line.
func (s *jsonValues) skipLine() error {
	for {
		switch _, err := s.r.ReadSlice('\n'); err {
		case nil:
			s.line++
			return nil
		case io.EOF:
			return nil
		case bufio.ErrBufferFull:
		default:
			return err
		}
	}
}

// endOfLine checks that only another object may follow on the line.
func (s *jsonValues) endOfLine() error {
	for {
		head, err := s.r.Peek(1)
		switch {
		case err == io.EOF || err == nil && (head[0] == '\n' || head[0] == '{'):
			return nil
		case err != nil:
			return err
		case head[0] != ' ' && head[0] != '\t' && head[0] != '\r':
			return fmt.Errorf("not JSON: %q stands after the value", head)
		}
		s.r.Discard(1)
	}
}

// nextElement reads the next element of an array.
func (s *jsonValues) nextElement() (Object, int, error) {
	s.row++
	c, err := s.skipBlanks()
	if err == nil && c == ']' {
		s.r.Discard(1)
		return nil, s.row, s.readEnd()
	}
	if err == nil && s.row > 1 {
		if c != ',' {
			return nil, s.row, fmt.Errorf("not JSON: %q stands after an element of the array", c)
		}
		s.r.Discard(1)
		_, err = s.skipBlanks()
	}
	if err == nil {
		err = s.readValue()
	}
	if err != nil {
		return nil, s.row, arrayCutShort(err)
	}
	o, err := parseObject(s.text)
	return o, s.row, err
}

// readEnd reads the text after the array: nothing, or the rest of the enclosing object. At
// the end of the file the error is io.EOF.
func (s *jsonValues) readEnd() error {
	for s.insideObject {
		var parts [2]string // the name and the value of a member
		c, err := s.skipBlanks()
		for i := 0; err == nil && c != '}' && i < len(parts); i++ {
			if c != ",:"[i] {
				return fmt.Errorf("not JSON: %q stands in the object around the array", c)
			}
			s.r.Discard(1)
			if _, err = s.skipBlanks(); err == nil {
				err = s.readValue()
			}
			parts[i] = string(s.text)
			if err == nil {
				c, err = s.skipBlanks()
			}
		}
		switch {
		case err != nil:
			return arrayCutShort(err)
		case parts[0] == "": // the closing brace
			s.insideObject = false
			s.r.Discard(1)
		case parts[0][0] != '"' || parts[1] == "":
			return fmt.Errorf("not JSON: %.60q is no name with a value in the object around the array", parts[0])
		case slices.Contains(listNames, parts[0][1:len(parts[0])-1]) && parts[1][0] == '[': // the name without its quotes
			return fmt.Errorf("there is a second list of rows, %s: write each into a file of its own", parts[0])
		}
	}
	if _, err := s.skipBlanks(); err != nil {
		return err
	}
	return errors.New("there is more after the array's end")
}

// arrayCutShort returns the error that the file ends inside the array. After an error in
// an element, the beginning of the next element is unknown.
func arrayCutShort(err error) error {
	if bad := (badLine{}); errors.As(err, &bad) {
		return bad.error
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the file ends inside the array: it is cut short")
	}
	return err
}

// errUnfinished is the error about an object that has no end before the next object begins.
var errUnfinished error = badLine{errors.New("not JSON: the object does not end before the next one begins")}

// readValue reads the value that begins here into s.text. It ends at its last bracket, or
// without brackets at the first byte that cannot belong to it; nothing else is checked.
// If the file ends inside the value, the error is io.ErrUnexpectedEOF.
func (s *jsonValues) readValue() error {
	v := valueEnd{onePerLine: s.onePerLine}
	for s.text = s.text[:0]; ; {
		if _, err := s.r.Peek(1); err != nil {
			if err == io.EOF && v.ended() {
				return nil
			}
			return endIsError(err)
		}
		head, _ := s.r.Peek(s.r.Buffered())
		n, ended, err := v.find(head)
		s.line += bytes.Count(head[:n], []byte("\n"))
		s.text = append(s.text, head[:n]...)
		s.r.Discard(n)
		switch {
		case err != nil || ended:
			return err
		case len(s.text) > maxLine:
			return fmt.Errorf("longer than %d MiB", maxLine>>20)
		case v.values > rowBudget:
			return errValues
		}
	}
}

// A valueEnd finds the end of a value in text that arrives in pieces.
type valueEnd struct {
	brackets                   []byte // the open brackets
	onePerLine                 bool   // each object stands on one line, as far as is known
	quoted, escaped, lineStart bool   // inside a text; behind a backslash; at the beginning of a line
	lastByte                   byte   // the last byte that is not blank
	values                     int    // about how many values there are
}

// deepest bounds the nesting of brackets, as encoding/json does.
const deepest = 10000

// ended says whether the text so far may be a complete value.
func (v *valueEnd) ended() bool { return len(v.brackets) == 0 && !v.quoted && v.lastByte != 0 }

// find returns how many bytes of head belong to the value, and whether the value ends there. The error is
// errUnfinished where the next object seems to begin inside the value.
func (v *valueEnd) find(head []byte) (n int, ended bool, err error) {
	for i, c := range head {
		if v.quoted {
			switch {
			case c == '\n':
				return i, false, badLine{errors.New("not JSON: a line ends inside a text, where \\n must stand for it")}
			case v.escaped:
				v.escaped = false
			case c == '\\':
				v.escaped = true
			case c == '"':
				v.quoted = false
				if len(v.brackets) == 0 {
					return i + 1, true, nil
				}
			}
			continue
		}
		atLineStart := v.lineStart
		v.lineStart = c == '\n'
		switch c {
		case '\n', ' ', '\t', '\r':
			if v.ended() {
				return i, true, nil
			}
			continue
		case '"':
			v.quoted = true
		case '{', '[':
			inList := len(v.brackets) > 0 && v.brackets[len(v.brackets)-1] == '[' && (v.lastByte == '[' || v.lastByte == ',')
			unexpected := v.onePerLine || v.lastByte != ':' && !inList        // no object may begin here on a line of its own
			if c == '{' && atLineStart && len(v.brackets) > 0 && unexpected { // so it is the next one, and this one was cut
				return i, false, errUnfinished
			}
			if len(v.brackets) == deepest {
				return i, false, badLine{fmt.Errorf("not JSON: nested deeper than %d", deepest)}
			}
			v.brackets = append(v.brackets, c)
			v.values++
		case '}', ']', ',', ':':
			if len(v.brackets) == 0 { // the value is a number or a word, which ends before this byte
				if v.lastByte == 0 {
					return i, false, badLine{fmt.Errorf("not JSON: %q stands where a value should begin", c)}
				}
				return i, true, nil
			}
			if c == ',' || c == ':' {
				v.values++
			} else if v.brackets = v.brackets[:len(v.brackets)-1]; len(v.brackets) == 0 {
				return i + 1, true, nil
			}
		}
		v.lastByte = c
	}
	return len(head), false, nil
}

// parseObject parses a text that must be one JSON object. NaN and the infinities may be
// written as Python writes them.
func parseObject(text []byte) (Object, error) {
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("not UTF-8 (save the file as UTF-8)")
	}
	if !json.Valid(text) {
		if err := strict.JSON(withoutNaN(text), new(any)); err != nil {
			return nil, err
		}
	}
	if text[0] == '[' {
		return nil, fmt.Errorf(`a list, and a row is an object with columns: write a conversation as {"messages": [...]}; it begins with %.20q`, text)
	}
	if text[0] != '{' {
		return nil, fmt.Errorf("not a JSON object but %.20q", text)
	}
	p := parser{Scanner: ordered.Scanner{Data: text}}
	o, _ := p.value().(Object)
	if p.twice != nil {
		return nil, fmt.Errorf("the key %q is there twice: keep one of them", *p.twice)
	}
	return o, nil
}

// withoutNaN returns the text with 0 and blanks in place of NaN and Infinity, which JSON lacks: a text of the same
// length whose syntax can be checked. The values are read from the original.
func withoutNaN(text []byte) []byte {
	text = bytes.Clone(text)
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case quoted:
		case bytes.HasPrefix(text[i:], []byte("NaN")):
			copy(text[i:], "0  ")
		case bytes.HasPrefix(text[i:], []byte("Infinity")):
			copy(text[i:], "0       ")
		}
	}
	return text
}

// A parser reads JSON text that json.Valid has accepted, so it checks no errors;
// json.Valid also bounds the nesting.
type parser struct {
	ordered.Scanner
	twice *string // the first name that occurs twice in an object
}

// value reads a value of any kind as one of an Object.
func (p *parser) value() any {
	switch p.Peek() {
	case '{':
		return p.object()
	case '[':
		list := []any{}
		p.Elements(func() error { list = append(list, p.value()); return nil })
		return list
	case '"':
		text, _ := p.Text()
		return string(text)
	}
	switch raw, _ := p.Raw(); {
	case raw[0] == 't' || raw[0] == 'f':
		return raw[0] == 't'
	case raw[0] == 'n':
		return nil
	case raw[0] == 'N':
		return math.NaN()
	case raw[0] == 'I':
		return math.Inf(1)
	case len(raw) > 1 && raw[1] == 'I':
		return math.Inf(-1)
	default:
		return json.Number(raw)
	}
}

// object reads an object. It records a name that occurs twice, since nobody can know
// which of the values is meant.
func (p *parser) object() Object {
	o := Object{}
	var index map[string]int // built only for the rare object with many members
	p.Members(func(key []byte) error {
		name := string(key)
		value := p.value()
		if p.twice == nil && o.find(name, index) >= 0 {
			p.twice = &name
		}
		if index != nil {
			index[name] = len(o)
		}
		if o = append(o, Member{name, value}); len(o) == 64 { // without an index find would become slow
			index = map[string]int{}
			for i, m := range o {
				index[m.Name] = i
			}
		}
		return nil
	})
	return o
}

// find returns the index of the member with a name, by index unless it is nil; -1 if there is none.
func (o Object) find(name string, index map[string]int) int {
	if index != nil {
		if at, ok := index[name]; ok {
			return at
		}
		return -1
	}
	return slices.IndexFunc(o, func(m Member) bool { return m.Name == name })
}
