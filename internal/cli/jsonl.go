package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"syscall"
	"unicode/utf8"

	"onering/internal/files"
)

// maxLine bounds one line of JSONL input, in bytes, its newline included.
const maxLine = 64 << 20

// OpenInput opens the file called name for reading; "-" is stdin. The second
// result is the name for messages. what says in messages what kind of file it is.
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

// ReadLines decodes each line of r into a T and yields it with its line number,
// counted from 1. It skips empty lines and ends at the first error, which names
// the place as name:line. Keys that T does not have are ignored, so that rows may
// have further fields.
func ReadLines[T any](r io.Reader, name string) iter.Seq2[int, lineOrError[T]] {
	return func(yield func(int, lineOrError[T]) bool) {
		in := bufio.NewReaderSize(r, 1<<16)
		for number := 1; ; number++ {
			line, err := ReadLine(in)
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(number, lineOrError[T]{Err: fmt.Errorf("%s:%d: %w", name, number, err)})
				return
			}
			if number == 1 {
				line = bytes.TrimPrefix(line, []byte("\ufeff")) // a byte order mark
			}
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			var row lineOrError[T]
			if err := json.Unmarshal(line, &row.Row); err != nil {
				row.Err = fmt.Errorf("%s:%d: %w", name, number, explainJSON(err))
			}
			if !yield(number, row) || row.Err != nil {
				return
			}
		}
	}
}

// A lineOrError is a decoded line, or the error of reading it.
type lineOrError[T any] struct {
	Row T
	Err error
}

var (
	errLongLine = fmt.Errorf("line longer than %d MB", maxLine>>20)
	// Other bytes would be read as other characters, without a word.
	errNoText = errors.New("not UTF-8 (save the file as UTF-8)")
)

// ReadLine returns the next line without its newline, which the last line need
// not have. io.EOF means that there is no further line. A line that is not UTF-8 is an
// error.
func ReadLine(in *bufio.Reader) ([]byte, error) {
	line, err := files.ReadLine(in, maxLine)
	switch {
	case err == bufio.ErrTooLong:
		return nil, errLongLine
	case err != nil && (err != io.EOF || len(line) == 0):
		return nil, err
	case !utf8.Valid(line):
		return nil, errNoText
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

// explainJSON says what is wrong with the data instead of the Go types.
func explainJSON(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("not a JSON object: %v (byte %d)", syntax, syntax.Offset)
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Errorf("field %q cannot be a JSON %s", kind.Field, kind.Value)
	case errors.As(err, &kind):
		return fmt.Errorf("not a JSON object but a JSON %s", kind.Value)
	}
	return err
}

// LineErrors are the errors of the lines of a file that were answered with their
// error, while the other lines were answered as usual.
type LineErrors struct {
	Name string // of the file

	first error
	count int
}

// Add counts an error and returns the line of output to write for it, with the number of the
// row where the other lines have one.
func (e *LineErrors) Add(number int, err error, row ...int) any {
	if e.count++; e.count == 1 {
		e.first = fmt.Errorf("%s:%d: %w", e.Name, number, err)
	}
	line := struct {
		Index *int   `json:"index,omitempty"`
		Error string `json:"error"`
	}{Error: err.Error()}
	if len(row) > 0 {
		line.Index = &row[0]
	}
	return line
}

// Err returns the first error, with their count if there are more.
func (e *LineErrors) Err() error {
	if e.count > 1 {
		return fmt.Errorf("%w; %d lines have errors", e.first, e.count)
	}
	return e.first
}

// WriteLine writes one JSON object as a line, with a write of its own, so that finished lines
// are there whatever happens next.
func WriteLine(w io.Writer, row any) error {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(row); err != nil {
		return err
	}
	_, err := Raw(w).Write(line.Bytes())
	return err
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
