// Package cli has what a program in a terminal needs, independent of commands: safe
// printing, tables, rows of JSON, typed turns, progress, logs and signals.
package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/term"
)

// A Visible writes text such that a terminal shows it and obeys no sequence in it. Names of files, messages of a hub
// and texts of models come from outside and may hold sequences that move the cursor, rename the window or answer for
// the user, and marks that turn the direction of a line around; their characters are written as \x1b or \u202e.
// Newlines and tabs stay.
type Visible struct {
	To     io.Writer
	Failed error // the error of the last Write that failed

	part []byte // the first bytes of a character that the next Write completes
	deaf bool   // a reader that went away is not an error
}

// Write implements io.Writer. It holds back the first bytes of a character at the end, which the next Write completes.
func (v *Visible) Write(p []byte) (int, error) {
	text := p
	if len(v.part) > 0 {
		text = append(v.part, p...)
	}
	complete := len(text) // the bytes of complete characters
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				complete -= n
			}
			break
		}
	}
	v.part = append([]byte(nil), text[complete:]...)
	_, err := io.WriteString(v.To, escaped(string(text[:complete])))
	return len(p), v.noteFailure(err)
}

// noteFailure notes an error in v.Failed and returns it. If v is deaf, that of a reader that went away is none.
func (v *Visible) noteFailure(err error) error {
	if v.deaf && errors.Is(err, syscall.EPIPE) {
		return nil
	}
	if err != nil {
		v.Failed = err
	}
	return err
}

// escaped returns the text with its control characters, marks of direction and bytes that are not UTF-8 written as
// escapes. Within JSON, where control characters are escaped already, the result is JSON of the same value.
func escaped(text string) string {
	if strings.IndexFunc(text, hidden) < 0 && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for i, n := 0, 0; i < len(text); i += n {
		var r rune
		r, n = utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case r == '\r':
			b.WriteString(`\r`)
		case hidden(r) && r < ' ':
			fmt.Fprintf(&b, `\x%02x`, r)
		case hidden(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(text[i : i+n])
		}
	}
	return b.String()
}

// hidden reports whether a terminal acts on a character instead of showing it.
func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < ' ', r >= 0x7f && r <= 0x9f: // C0, DEL and C1
		return true
	case r == 0x2028, r == 0x2029, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069: // separators, directions
		return true
	}
	return false
}

// IsTerminal reports whether r reads from a terminal.
func IsTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Screen returns the file under a writer if it is a terminal, else nil.
func Screen(w io.Writer) *os.File {
	if v, ok := w.(*Visible); ok {
		w = v.To
	}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// Raw returns the writer for results that a program reads: on a terminal w itself, which
// escapes, and elsewhere the writer under w, so that every byte arrives.
func Raw(w io.Writer) io.Writer {
	v, ok := w.(*Visible)
	if !ok || Screen(v) != nil {
		return w
	}
	return rawWriter{v}
}

// A rawWriter writes to the writer under a Visible.
type rawWriter struct{ *Visible }

// Write implements io.Writer.
func (w rawWriter) Write(p []byte) (int, error) {
	n, err := w.To.Write(p)
	if err = w.noteFailure(err); err == nil {
		n = len(p)
	}
	return n, err
}

// WriteLine writes one JSON object as a line in a single write, so that finished lines stay if the program is killed.
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

// ErrorLines splits joined errors into lines, so that each can be printed after the program's name. A newline inside
// a name begins no new line, and long quotations are shortened; names are args, of the command line, and the path of
// err.
func ErrorLines(err error, args []string) []string {
	text := strings.TrimRight(err.Error(), "\n")
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		args = append(slices.Clone(args), at.Path)
	}
	for _, arg := range args {
		_, value, _ := strings.Cut(arg, "=")
		for _, name := range []string{arg, value} {
			if strings.Contains(strings.TrimRight(name, "\n"), "\n") || len(name) > longestQuote {
				text = strings.ReplaceAll(text, name, shortened(strings.ReplaceAll(name, "\n", `\n`)))
			}
		}
	}
	return strings.Split(quotation.ReplaceAllStringFunc(text, func(q string) string {
		return q[:1] + shortened(q[1:len(q)-1]) + q[len(q)-1:]
	}), "\n")
}

// longestQuote is how many bytes of a quotation a message shows.
const longestQuote = 200

// quotation matches what %q writes.
var quotation = regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"`)

// shortened returns the beginning of a long text.
func shortened(text string) string {
	if len(text) <= longestQuote {
		return text
	}
	keep := longestQuote / 2
	for !utf8.RuneStart(text[keep]) || text[keep-1] == '\\' {
		keep--
	}
	return fmt.Sprintf("%s... (%d bytes)", text[:keep], len(text))
}
