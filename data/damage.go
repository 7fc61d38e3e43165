package data

import (
	"fmt"
	"io"
)

// The readers of columnar files report what is wrong with a file by a panic,
// as do the libraries below them; recovered makes it an error.

// maxMetadata bounds the bytes of a footer and of the metadata of a message.
const maxMetadata = 64 << 20

// A fault is a panic about a damaged file.
type fault string

func damaged(format string, args ...any) { panic(fault(fmt.Sprintf(format, args...))) }

// unreadable is a panic about a file that is sound, but has something that is
// not read.
type unreadable string

// recovered is deferred. It turns a panic into an error, which says whether the
// file is damaged or only has something that is not read.
func recovered(err *error) {
	switch p := recover().(type) {
	case nil:
	case unreadable:
		*err = fmt.Errorf("%s", string(p))
	default:
		*err = fmt.Errorf("the file is damaged: %v", p)
	}
}

// inFormat is deferred. It puts the name of the format in front of an error.
func inFormat(name string, err *error) {
	if *err != nil && *err != io.EOF {
		*err = fmt.Errorf("%s: %w", name, *err)
	}
}

// inColumn is deferred. It adds the name of the column to a panic about the file.
func inColumn(name string) {
	switch p := recover().(type) {
	case nil:
	case unreadable:
		panic(unreadable(fmt.Sprintf("column %q: %s", name, string(p))))
	default:
		damaged("column %q: %v", name, p)
	}
}

// noEnd makes the end of the file an error where more must follow.
func noEnd(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// rowBudget bounds the memory of one row of a columnar file: it is the greatest
// number of values, and textShare times as many bytes of text are allowed. A file
// of a few bytes can state lists of any length.
const (
	rowBudget = 1 << 22
	textShare = 32
)

// spend adds n to what a row has used of its budget, and refuses the file if that
// is too much.
func spend(taken *int, n int64) {
	if n > rowBudget || *taken+int(n) > rowBudget {
		panic(unreadable(fmt.Sprintf("a row or a dictionary is of more than %d values, or %d MiB of text", rowBudget, rowBudget*textShare>>20)))
	}
	*taken += int(n)
}

// mostValues returns the greatest number of rows, and of values of a column, that
// a columnar file of so many bytes may have. Runs and compression store
// repetitions in almost no space, so that without this limit a small file could
// keep the reader busy for hours.
func mostValues(size int64) int64 { return 1<<23 + size<<10 }
