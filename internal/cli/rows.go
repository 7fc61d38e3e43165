package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"syscall"
	"unicode/utf8"

	"onering/internal/files"
	"onering/internal/strict"
)

// maxLine bounds one line of JSONL input, in bytes, its newline included.
const maxLine = 64 << 20

// OpenInput opens the file called name for reading; "-" is stdin. It also returns the name for messages, in which
// what is the kind of file.
func OpenInput(what, name string, stdin io.Reader) (io.ReadCloser, string, error) {
	if name == "-" {
		if IsTerminal(stdin) {
			slog.Info("reading the " + what + " from the terminal until Ctrl-D; --help says what it may be")
		}
		return io.NopCloser(stdin), "stdin", nil
	}
	f, err := files.Stream(name)
	if err != nil {
		return nil, "", Unreadable(what, name, err, "- is stdin")
	}
	return f, name, nil
}

// EachRow decodes each line of r into a T and calls do with the row's index from 0, the line's number from 1, and the
// row. It skips empty lines and ends at the first error; one of reading names the place as name:line. Keys that T
// does not have are ignored, so that rows may have further fields.
func EachRow[T any](r io.Reader, name string, do func(index, number int, row T) error) error {
	in := bufio.NewReaderSize(r, 1<<16)
	for index, number := 0, 1; ; number++ {
		line, err := ReadLine(in)
		if err == io.EOF {
			return nil
		}
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff")) // a byte order mark
		}
		if err == nil && len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var row T
		if err == nil {
			err = strict.JSON(line, &row)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", name, number, err)
		}
		if err := do(index, number, row); err != nil {
			return err
		}
		index++
	}
}

// ReadLine returns the next line without its newline, which the last line need not have. io.EOF means that there is
// no further line. A line that is not UTF-8 is an error.
func ReadLine(in *bufio.Reader) ([]byte, error) {
	line, err := files.ReadLine(in, maxLine)
	switch {
	case err == bufio.ErrTooLong:
		return nil, fmt.Errorf("line longer than %d MB", maxLine>>20)
	case err != nil && (err != io.EOF || len(line) == 0):
		return nil, err
	case !utf8.Valid(line): // other bytes would silently be read as other characters
		return nil, errors.New("not UTF-8 (save the file as UTF-8)")
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

// Answers are the lines of output that answer the rows of an input, in the order of the rows:
// those of a row wait until all before it are answered. A row that cannot be answered has one
// line with its error, and the others are answered as usual.
type Answers struct {
	Name     string    // of the input, for messages
	Out      io.Writer // nil holds all lines until Out is set
	Lines    int       // lines of one answer; 0 means one
	Numbered bool      // the line of an error states the row's index, as other lines do

	first  error          // the first of the errors
	count  int            // the number of errors
	failed map[int]bool   // rows that have a line with their error alone
	ended  map[[2]int]any // lines that wait to be written, by row and line
	next   [2]int         // the row and line to write next
}

// Give answers a row by its line number k, from 0.
func (a *Answers) Give(row, k int, line any) error {
	if a.ended == nil {
		a.ended = map[[2]int]any{}
	}
	a.ended[[2]int{row, k}] = line
	return a.Flush()
}

// Fail answers a row with its error. number is that of the line of the input in which the row stands.
func (a *Answers) Fail(row, number int, err error) error {
	if a.failed == nil {
		a.failed = map[int]bool{}
	}
	a.failed[row] = true
	line := struct {
		Index *int   `json:"index,omitempty"`
		Error string `json:"error"`
	}{Error: err.Error()}
	if a.Numbered {
		line.Index = &row
	}
	a.Count(number, err)
	return a.Give(row, 0, line)
}

// Count counts an error of a line whose answer is written elsewhere.
func (a *Answers) Count(number int, err error) {
	if a.count++; a.count == 1 {
		a.first = fmt.Errorf("%s:%d: %w", a.Name, number, err)
	}
}

// Flush writes the lines whose turn has come.
func (a *Answers) Flush() error {
	for line, ok := a.ended[a.next]; ok && a.Out != nil; line, ok = a.ended[a.next] {
		delete(a.ended, a.next)
		if err := WriteLine(a.Out, line); err != nil {
			return err
		}
		if a.next[1]++; a.failed[a.next[0]] || a.next[1] >= a.Lines {
			a.next = [2]int{a.next[0] + 1, 0}
		}
	}
	return nil
}

// Err returns the first error of a row, with their count if there are more.
func (a *Answers) Err() error {
	if a.count > 1 {
		return fmt.Errorf("%w; %d lines have errors", a.first, a.count)
	}
	return a.first
}

// Unreadable returns an error that says why a file cannot be read. what is the
// flag or the kind of file; remedy says what to name if the file does not exist.
func Unreadable(what, name string, err error, remedy string) error {
	var at *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s %q: no such file; %s", what, name, remedy)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s %q: this user may not read it", what, name)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s %q: a file stands where a folder of its path should be; %s", what, name, remedy)
	case errors.As(err, &at):
		err = at.Err
	}
	return fmt.Errorf("%s %q: %w", what, name, err)
}
