package data

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"onering/internal/files"
	"onering/internal/ordered"
	"slices"
	"unicode/utf8"
)

// maxLine bounds the memory that one line may take. Tests lower it.
var maxLine = 256 << 20

// jsonLines reads JSON lines: one object a line, blank lines between them allowed.
type jsonLines struct {
	r    *bufio.Reader
	line int
}

// openJSON opens a JSON array or JSON lines: the first byte that is not blank decides.
// It waits for no more than that, since the input may be typed.
func openJSON(in Input) (*Rows, error) {
	r := in.Text
	for n := 1; n <= r.Size(); n++ {
		head, err := r.Peek(n)
		if err == io.EOF {
			return nil, errors.New("no rows: the file has only blank lines")
		}
		if err != nil {
			return nil, err
		}
		switch c := head[n-1]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			continue
		case c == '[':
			return openArray(r)
		case c == '{' || in.Ext == ".jsonl" || in.Ext == ".ndjson":
			return &Rows{Next: (&jsonLines{r: r}).next, Unit: "line"}, nil
		default:
			return nil, fmt.Errorf("not a data file: it begins with %q, and JSON lines, a JSON array, CSV (.csv, .tsv), Parquet and Arrow are read", head[n-1:])
		}
	}
	return nil, fmt.Errorf("not a data file: it begins with %d blanks", r.Size())
}

func (s *jsonLines) next() (Object, int, error) {
	for {
		line, err := s.read()
		if err != nil {
			return nil, s.line, err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			o, err := parseObject(line)
			if err != nil {
				err = badLine{err}
			}
			return o, s.line, err
		}
	}
}

// read returns the next line, which is valid until the next call.
func (s *jsonLines) read() ([]byte, error) {
	s.line++
	line, err := files.ReadLine(s.r, maxLine)
	switch {
	case err == bufio.ErrTooLong:
		return nil, fmt.Errorf("longer than %d MiB", maxLine>>20)
	case err == io.EOF && len(line) > 0:
		return line, nil
	}
	return line, err
}

// jsonArray reads a file that is one JSON array of objects, an element at a time.
type jsonArray struct {
	d       *json.Decoder
	element *meter
	row     int
}

func openArray(r io.Reader) (*Rows, error) {
	element := newMeter(r)
	d := json.NewDecoder(element)
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	return &Rows{Next: (&jsonArray{d: d, element: element}).next, Unit: "row"}, nil
}

func (s *jsonArray) next() (Object, int, error) {
	s.row++
	s.element.renew()
	if s.d.More() {
		var element json.RawMessage
		if err := s.d.Decode(&element); err != nil {
			return nil, s.row, unexpectedEnd(err)
		}
		o, err := parseObject(element)
		return o, s.row, err
	}
	if _, err := s.d.Token(); err != nil { // the closing bracket
		return nil, s.row, unexpectedEnd(err)
	}
	if _, err := s.d.Token(); err != io.EOF {
		return nil, s.row, fmt.Errorf("there is more after the array's end")
	}
	return nil, s.row, io.EOF
}

// unexpectedEnd says in words that the file ends inside the array.
func unexpectedEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the file ends inside the array: it is cut short")
	}
	return err
}

// parseObject parses a text that must be one JSON object.
func parseObject(text []byte) (Object, error) {
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("not UTF-8 (save the file as UTF-8)")
	}
	if !json.Valid(text) {
		var v any
		err := json.Unmarshal(text, &v)
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, fmt.Errorf("not JSON: %w, at byte %d", err, syntax.Offset)
		}
		return nil, fmt.Errorf("not JSON: %w", err)
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

// A parser reads JSON text that json.Valid has accepted, so it looks at no errors;
// json.Valid bounds the nesting too.
type parser struct {
	ordered.Scanner
	twice *string // the first name that an object has twice
}

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
	switch raw, _ := p.Raw(); raw[0] {
	case 't', 'f':
		return raw[0] == 't'
	case 'n':
		return nil
	default:
		return json.Number(raw)
	}
}

// object reads an object. A name that is there twice is noted, since nobody can know which
// of the values is meant.
func (p *parser) object() Object {
	o := Object{}
	var index map[string]int // built for the rare object with many members
	p.Members(func(key []byte) error {
		name := string(key)
		value := p.value()
		if p.twice == nil && o.find(name, index) >= 0 {
			p.twice = &name
		}
		if index != nil {
			index[name] = len(o)
		}
		if o = append(o, Member{name, value}); len(o) == 64 {
			index = map[string]int{}
			for i, m := range o {
				index[m.Name] = i
			}
		}
		return nil
	})
	return o
}

func (o Object) find(name string, index map[string]int) int {
	if index != nil {
		if at, ok := index[name]; ok {
			return at
		}
		return -1
	}
	return slices.IndexFunc(o, func(m Member) bool { return m.Name == name })
}
