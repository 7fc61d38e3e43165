package data

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// table reads CSV with a header. Every value is a string: CSV has no types, and
// guessing them would turn 007 into 7.
type table struct {
	r           *csv.Reader
	header      []string
	line        int
	closeReader func() error
}

func openCSV(r *bufio.Reader, comma rune, closeReader func() error) (*table, error) {
	c := csv.NewReader(r)
	c.Comma = comma
	c.ReuseRecord = true
	header, err := c.Read()
	if err != nil {
		return nil, fmt.Errorf("header: %w", csvError(err))
	}
	t := &table{r: c, header: slices.Clone(header), closeReader: closeReader}
	for i, name := range t.header {
		if !utf8.ValidString(name) {
			return nil, fmt.Errorf("header: not UTF-8 (save the file as UTF-8)")
		}
		if slices.Contains(t.header[:i], name) {
			return nil, fmt.Errorf("header: two columns are named %q", name)
		}
	}
	return t, nil
}

func (t *table) columns() []string { return t.header }
func (t *table) unit() string      { return "line" }
func (t *table) close() error      { return t.closeReader() }

func (t *table) next() (Object, int, error) {
	values, err := t.r.Read()
	if err != nil {
		var parse *csv.ParseError
		if errors.As(err, &parse) {
			t.line = parse.StartLine
		} else {
			t.line++
		}
		if errors.Is(err, csv.ErrFieldCount) {
			return nil, t.line, badLine{csvError(err)}
		}
		return nil, t.line, csvError(err)
	}
	t.line, _ = t.r.FieldPos(0)
	o := make(Object, len(values))
	for i, v := range values {
		if !utf8.ValidString(v) {
			return nil, t.line, badLine{fmt.Errorf("column %q: not UTF-8 (save the file as UTF-8)", t.header[i])}
		}
		o[i] = Member{t.header[i], v}
	}
	return o, t.line, nil
}

// csvError leaves out the line, which the caller adds, and explains the commonest
// fault.
func csvError(err error) error {
	var parse *csv.ParseError
	if !errors.As(err, &parse) {
		return err
	}
	if errors.Is(err, csv.ErrFieldCount) {
		return fmt.Errorf("it has another number of fields than the header (a text with commas stands in quotes)")
	}
	return fmt.Errorf("at column %d: %w", parse.Column, parse.Err)
}
