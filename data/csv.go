package data

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// table reads CSV with a header. Every value is a string: CSV has no types, and
// guessing them would turn 007 into 7.
type table struct {
	r      *csv.Reader
	row    *meter
	header []string
	line   int
}

// A meter reads up to the limits of a row, which its user renews, and stores the bytes of
// the row. A compressed file of some kilobytes can hold a row that has no end.
type meter struct {
	r         io.Reader
	separator byte
	fields    int    // about the number of fields in the row
	text      []byte // the bytes of the row and those read ahead
	start     int64  // where text begins in the file
}

// beginRow begins a row at a place of the file.
func (m *meter) beginRow(at int64) {
	m.text = m.text[:copy(m.text, m.text[at-m.start:])]
	m.start, m.fields = at, 0
}

// Read implements io.Reader.
func (m *meter) Read(p []byte) (int, error) {
	switch {
	case len(m.text) > maxLine:
		return 0, fmt.Errorf("longer than %d MiB", maxLine>>20)
	case m.fields > rowBudget:
		return 0, errValues
	}
	n, err := m.r.Read(p)
	m.text = append(m.text, p[:n]...)
	m.fields += bytes.Count(p[:n], []byte{m.separator})
	return n, err
}

// withNewlines returns r, or a reader of the same text with \n for \r if only \r ends its
// lines, as in files of old spreadsheet programs.
func withNewlines(r *bufio.Reader) *bufio.Reader {
	head, _ := r.Peek(r.Size())
	if bytes.IndexByte(head, '\r') < 0 || bytes.IndexByte(head, '\n') >= 0 {
		return r
	}
	return bufio.NewReaderSize(newlines{r}, r.Size())
}

// newlines reads \r as \n.
type newlines struct{ r io.Reader }

// Read implements io.Reader.
func (n newlines) Read(p []byte) (int, error) {
	read, err := n.r.Read(p)
	for i, c := range p[:read] {
		if c == '\r' {
			p[i] = '\n'
		}
	}
	return read, err
}

func isCSV(_ []byte, ext string) bool { return ext == ".csv" || ext == ".tsv" }

// separator returns the separator of the fields, which it finds in the first line.
// Spreadsheets that write decimal commas use a semicolon.
func separator(r *bufio.Reader) rune {
	head, _ := r.Peek(r.Size())
	line, _, _ := bytes.Cut(head, []byte("\n"))
	if !bytes.Contains(line, []byte(",")) {
		switch {
		case bytes.Contains(line, []byte(";")):
			return ';'
		case bytes.Contains(line, []byte("\t")):
			return '\t'
		}
	}
	return ','
}

// openCSV reads the header of a file, by which it finds the separator, and opens the rows behind it.
func openCSV(in Input) (*Rows, error) {
	text := withNewlines(in.Text)
	comma := '\t'
	if in.Ext != ".tsv" {
		comma = separator(text)
	}
	row := &meter{r: text, separator: byte(comma)}
	c := csv.NewReader(row)
	c.Comma = comma
	c.ReuseRecord = true
	header, err := c.Read()
	if err != nil {
		return nil, fmt.Errorf("header: %w", csvError(err))
	}
	t := &table{r: c, row: row, header: slices.Clone(header)}
	if slices.ContainsFunc(t.header, func(name string) bool { return !utf8.ValidString(name) }) {
		return nil, fmt.Errorf("header: not UTF-8 (save the file as UTF-8)")
	}
	if err := checkDistinct(t.header); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	return &Rows{Next: t.next, Columns: t.header, Unit: "line"}, nil
}

// checkDistinct returns an error if two columns have one name: nobody can know which one is meant.
func checkDistinct(names []string) error {
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		if seen[name] {
			return fmt.Errorf("two columns are named %q: leave one of them out", name)
		}
		seen[name] = true
	}
	return nil
}

// next returns the next record as a row, and the line where it begins. A record with a loose quote is read by withLooseQuotes.
func (t *table) next() (Object, int, error) {
	begin := t.r.InputOffset()
	t.row.beginRow(begin) // t.row.text then has the bytes of this record, which t.r reads through t.row
	values, err := t.r.Read()
	parse := (*csv.ParseError)(nil)
	switch {
	case errors.As(err, &parse):
		t.line = parse.StartLine
	case err != nil: // the error of reading has no line
		t.line++
	default:
		t.line, _ = t.r.FieldPos(0)
	}
	if errors.Is(err, csv.ErrBareQuote) || errors.Is(err, csv.ErrQuote) {
		if loose := t.withLooseQuotes(t.row.text[:t.r.InputOffset()-begin]); loose != nil {
			values, err = loose, nil
		}
	}
	if errors.Is(err, csv.ErrFieldCount) { // the records after it can be read
		return nil, t.line, badLine{csvError(err)}
	}
	if err != nil {
		return nil, t.line, csvError(err)
	}
	values[0] = strings.TrimPrefix(values[0], "\ufeff") // where files were joined
	if slices.Equal(values, t.header) {
		return nil, t.line, badLine{errors.New("it repeats the header, as where files were joined: leave the line out")}
	}
	o := make(Object, len(values))
	for i, v := range values {
		if !utf8.ValidString(v) {
			return nil, t.line, badLine{fmt.Errorf("column %q: not UTF-8 (save the file as UTF-8)", t.header[i])}
		}
		o[i] = Member{t.header[i], v}
	}
	return o, t.line, nil
}

// withLooseQuotes reads a line with quotes that are part of the text, as in 5" board; nil if it does
// not have the fields of the header, or if the quotes go over its end.
func (t *table) withLooseQuotes(text []byte) []string {
	if bytes.IndexByte(bytes.TrimRight(text, "\r\n"), '\n') >= 0 {
		return nil
	}
	c := csv.NewReader(bytes.NewReader(text))
	c.Comma, c.LazyQuotes, c.FieldsPerRecord = t.r.Comma, true, len(t.header)
	values, err := c.Read()
	if err != nil {
		return nil
	}
	return values
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
	return fmt.Errorf("at column %d: the quotes do not match (a text with a quote stands in quotes, and has the quote twice)", parse.Column)
}
