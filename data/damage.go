package data

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"

	"github.com/klauspost/compress/zstd"
)

// The readers of columnar files report a damaged file by a panic, and so do the libraries
// that they use; recovered turns the panic into an error.

// maxMetadata bounds the bytes of a footer and of the metadata of a message.
const maxMetadata = 64 << 20

var (
	errDamaged = errors.New("the file is damaged")
	errPacked  = errors.New("the compressed data are damaged: fetch the file again")
)

// A fault is a panic about a damaged file.
type fault string

func damaged(format string, args ...any) { panic(fault(fmt.Sprintf(format, args...))) }

// damagedIf panics about a damaged file if the condition holds. For a check of each
// value, an if statement is cheaper, since it makes no arguments.
func damagedIf(wrong bool, format string, args ...any) {
	if wrong {
		damaged(format, args...)
	}
}

// unreadable is a panic about a sound file with a feature that is not supported.
type unreadable string

// recovered is deferred. It turns a panic into an error, which says whether the file is
// damaged or has a feature that is not supported.
func recovered(err *error) {
	switch p := recover().(type) {
	case nil:
	case unreadable:
		*err = fmt.Errorf("%s", string(p))
	case fault:
		*err = fmt.Errorf("the file is damaged: %s", string(p))
	default: // Go's text about an index out of range helps nobody
		*err = errDamaged
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
	case fault:
		damaged("column %q: %s", name, string(p))
	default:
		damaged("column %q cannot be read", name)
	}
}

// cutShort is io.ErrUnexpectedEOF in words for people.
type cutShort struct{}

func (cutShort) Error() string { return "the file ends in the middle: it is cut short" }
func (cutShort) Unwrap() error { return io.ErrUnexpectedEOF }

// noEnd turns the end of the file into an error where more must follow.
func noEnd(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return cutShort{}
	}
	return err
}

// rowBudget bounds the memory of one row of a columnar file: it is the greatest number of
// values. The row may have textShare times as many bytes of text. A file of a few bytes
// can state lists of any length.
const (
	rowBudget = 1 << 22
	textShare = 32
)

var errValues = fmt.Errorf("a row or a dictionary is of more than %d values, or %d MiB of text", rowBudget, rowBudget*textShare>>20)

// spend adds n to what a row has used of its budget, and refuses the file if that
// is too much.
func spend(taken *int, n int64) {
	if n > rowBudget || *taken+int(n) > rowBudget {
		panic(unreadable(errValues.Error()))
	}
	*taken += int(n)
}

// How many bytes a file may unpack to: expansionFree, plus Options.Expansion times its
// size.
const (
	expansionFree = 64 << 20
	expansion     = 256
)

// An unfolding counts what a file unpacks to as it is read: the bytes of compressed data
// and of pages, and the values of rows. Runs, dictionaries and compression store
// repetitions in almost no space, so that without this limit a small file could keep the
// reader busy for hours.
type unfolding struct {
	times int64 // the greatest ratio of unpacked bytes to the file's size
	left  int64
}

func newUnfolding(size int64, times int) *unfolding {
	u := &unfolding{times: int64(cmp.Or(times, expansion))}
	u.left = expansionFree + min(size, math.MaxInt64/2/u.times)*u.times
	return u
}

// add counts n more bytes, and says whether the limit allows them.
func (u *unfolding) add(n int64) error {
	if u.left -= n; u.left < 0 {
		return fmt.Errorf("unpacked, the file comes to more than %d MiB and %d times its size: if you trust it, set expansion (data.expansion in a run file, or --expansion) to more than %d", expansionFree>>20, u.times, u.times)
	}
	return nil
}

// must counts n more bytes, or refuses the file.
func (u *unfolding) must(n int64) {
	if err := u.add(n); err != nil {
		panic(unreadable(err.Error()))
	}
}

// An unfolded reads decompressed bytes and counts them.
type unfolded struct {
	io.Reader
	*unfolding
}

// Read implements io.Reader.
func (u unfolded) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	if over := u.add(int64(n)); over != nil {
		return 0, over
	}
	return n, packed(err)
}

// packed says in plain words what a library has met in compressed data.
func packed(err error) error {
	_, disk := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return cutShort{}
	case err == nil, err == io.EOF, disk, errors.Is(err, zstd.ErrWindowSizeExceeded): // that one asks for more memory than there is for it
		return err
	}
	return errPacked
}

// mostValues returns the greatest number of rows, and of values of a column, that
// a columnar file of so many bytes may have. Runs and compression store
// repetitions in almost no space, so that without this limit a small file could
// keep the reader busy for hours.
func mostValues(size int64) int64 { return 1<<23 + size<<10 }
