package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"unicode"
)

// A Table says things by their names, in two columns.
type Table [][2]string

// Add appends a row.
func (t *Table) Add(name, format string, args ...any) {
	*t = append(*t, [2]string{name, fmt.Sprintf(format, args...)})
}

// Write prints the table.
func (t Table) Write(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range t {
		fmt.Fprintf(out, "%s\t%s\n", row[0], row[1])
	}
	return out.Flush()
}

// Nearest returns the path relative to the working directory if that is shorter.
func Nearest(path string) string {
	here, err := os.Getwd()
	if rel, failed := filepath.Rel(here, path); err == nil && failed == nil && len(rel) < len(path) {
		return rel
	}
	return path
}

// ShellQuoted puts quotes around a text that a shell would split or expand.
func ShellQuoted(text string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-./:,=@+", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
