package data

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Parquet and Arrow files are read by libraries, which take the memory that a file states for its
// lists, pages and runs. So what a file states is first compared with what it holds. Both these
// checks and the libraries panic where a file is damaged; recoverInto makes an error of it.

const (
	maxMetadata = 64 << 20  // bytes of a footer, of a page's header and of the metadata of a message
	maxPage     = 512 << 20 // bytes of a page; writers make pages of about 1 MiB
	maxHeld     = 1 << 30   // bytes that the open pages or the record batch hold
	maxWindow   = 64 << 20  // how many bytes zstd looks back at most
)

// A columnRows reads the rows of a columnar file, which come in groups.
type columnRows struct {
	*unfolding
	format    string // Parquet or Arrow
	names     []string
	column    string                // the column that is being read, for messages
	nextGroup func() (int64, error) // goes to the next group and returns the number of its rows, or io.EOF
	cellAt    func(i, row int) any  // the value of column i in a row of the group
	// How many rows of the group were returned, and how many it has.
	returned, inGroup int64
	row               int // number of the row in the file, from 1
	spent             int // what the current row took of rowBudget
}

// next returns the next row and its number. Where a group has ended the row is the first of the next
// group that has rows.
func (c *columnRows) next() (o Object, row int, err error) {
	c.row++
	row = c.row
	defer c.recoverInto(&err)
	for c.returned == c.inGroup {
		if c.inGroup, err = c.nextGroup(); err != nil {
			return nil, row, err
		}
		c.returned, c.column = 0, "" // an error is about no column now
		damagedIf(c.inGroup < 0, "%d rows", c.inGroup)
	}
	c.spent = 0 // the values of this row count against rowBudget
	o = make(Object, len(c.names))
	for i, name := range c.names {
		c.column = name
		o[i] = Member{name, c.cellAt(i, int(c.returned))}
	}
	c.returned++
	return o, row, nil
}

// countValues counts n values of the current row, and refuses the file if they are too many.
func (c *columnRows) countValues(n int64) {
	if n > rowBudget || c.spent+int(n) > rowBudget {
		panic(unreadable(errValues.Error()))
	}
	c.spent += int(n)
}

// countUnpacked counts n bytes that the file unpacks to, or refuses the file.
func (c *columnRows) countUnpacked(n int64) {
	err := c.add(n)
	unreadableIf(err != nil, "%v", err)
}

// A fault is a panic about a damaged file, an unreadable one about a sound file with a feature
// that is not supported.
type (
	fault      string
	unreadable string
)

// damagedIf panics about a damaged file if the condition holds.
func damagedIf(wrong bool, format string, args ...any) {
	if wrong {
		panic(fault(fmt.Sprintf(format, args...)))
	}
}

// unreadableIf panics about a sound file that is not supported if the condition holds.
func unreadableIf(unsupported bool, format string, args ...any) {
	if unsupported {
		panic(unreadable(fmt.Sprintf(format, args...)))
	}
}

// recoverInto is deferred. It turns a panic into an error, and says in an error where it is.
func (c *columnRows) recoverInto(err *error) {
	switch p := recover().(type) {
	case nil:
	case unreadable:
		*err = errors.New(string(p))
	case fault:
		*err = fmt.Errorf("damaged or not %s: %s", c.format, string(p))
	default: // Go's text about an index out of range helps nobody
		*err = fmt.Errorf("damaged or not %s", c.format)
	}
	if *err == nil || *err == io.EOF {
		return
	}
	if c.column != "" {
		*err = fmt.Errorf("column %q: %w", c.column, *err)
	}
	*err = fmt.Errorf("%s: %w", strings.ToLower(c.format), *err)
}
