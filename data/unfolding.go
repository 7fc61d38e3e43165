package data

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"

	"github.com/klauspost/compress/zstd"

	"onering/internal/settings"
)

var errPacked = errors.New("the compressed data are damaged: fetch the file again")

// cutShort is io.ErrUnexpectedEOF in words for people.
type cutShort struct{}

func (cutShort) Error() string { return "the file ends in the middle: it is cut short" }
func (cutShort) Unwrap() error { return io.ErrUnexpectedEOF }

// endIsError turns the end of the file into an error where more must follow.
func endIsError(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return cutShort{}
	}
	return err
}

// How many bytes a file may unpack to: expansionFree, plus Options.Expansion times its
// size.
const (
	expansionFree = 64 << 20
	expansion     = 256
)

// rowBudget bounds the memory of one row: it is the greatest number of values. A row of a columnar
// file may have textShare times as many bytes of text. A file of a few bytes can state lists of any
// length.
const (
	rowBudget = 1 << 22
	textShare = 32
)

var errValues = fmt.Errorf("a row or a dictionary is of more than %d values, or %d MiB of text", rowBudget, rowBudget*textShare>>20)

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
		return settings.About(fmt.Errorf("unpacked, the file comes to more than %d MiB and %d times its size: if you "+
			"trust it, set data.expansion to more than %d", expansionFree>>20, u.times, u.times), "data.expansion", "eval.expansion")
	}
	return nil
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
	return n, inPlainWords(err)
}

// inPlainWords says in plain words what a library has met in compressed data.
func inPlainWords(err error) error {
	_, disk := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return cutShort{}
	case err == nil, err == io.EOF, disk, errors.Is(err, zstd.ErrWindowSizeExceeded): // that one asks for more memory than there is for it
		return err
	}
	return errPacked
}
