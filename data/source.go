package data

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"onering/internal/files"
)

// A Format is a kind of data file.
type Format struct {
	Extensions []string // in lower case, with the dot
	// Is says whether a file is of the format, by its first bytes and its extension.
	Is   func(head []byte, ext string) bool
	Open func(in Input) (*Rows, error)
}

// Formats are all formats of data files. A file has the first format after JSON whose Is
// returns true, else it is JSON, which has no mark. All parts of the program that look
// for data files use this list.
var Formats = []Format{
	{Extensions: []string{".jsonl", ".ndjson", ".json"}, Open: openJSON},
	{Extensions: []string{".parquet"}, Is: isParquet, Open: openParquet},
	{Extensions: []string{".arrow", ".feather"}, Is: isArrow, Open: openArrow},
	{Extensions: []string{".csv", ".tsv"}, Is: isCSV, Open: openCSV},
}

// A compression is a way in which a text file may be packed.
type compression struct {
	extensions []string // the extensions that follow those of the format
	magic      string
	open       func(r io.Reader) (io.Reader, error)
}

var compressions = []compression{
	{[]string{".gz"}, "\x1f\x8b", func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
	{[]string{".zst", ".zstd"}, "\x28\xb5\x2f\xfd", func(r io.Reader) (io.Reader, error) {
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}},
	{[]string{".bz2"}, "BZh", func(r io.Reader) (io.Reader, error) { return bzip2.NewReader(r), nil }},
	{[]string{".xz"}, "\xfd7zXZ", func(r io.Reader) (io.Reader, error) { return xz.NewReader(r) }},
}

// unpacked cuts the extension of a compression from a lower-case name.
func unpacked(name string) string {
	for _, c := range compressions {
		for _, ext := range c.extensions {
			name = strings.TrimSuffix(name, ext)
		}
	}
	return name
}

// Extensions returns those of all formats, without compression.
func Extensions() (list []string) {
	for _, f := range Formats {
		list = append(list, f.Extensions...)
	}
	return list
}

// Split cuts the extension of a data file from a name, in any case of letters, including
// that of a compression. ext is empty if the name is not that of a data file.
func Split(name string) (stem, ext string) {
	lower := unpacked(strings.ToLower(name))
	at := len(lower) - len(filepath.Ext(lower))
	for _, f := range Formats {
		if slices.Contains(f.Extensions, lower[at:]) {
			return name[:at], name[at:]
		}
	}
	return name, ""
}

// An Input is a file to be read by a Format, which does not close it.
type Input struct {
	File *os.File      // nil if the file is compressed or has no end yet
	Size int64         // the size of File
	Text *bufio.Reader // the content, decompressed and without a byte order mark
	Ext  string        // the extension in lower case, without that of a compression

	unfolding *unfolding
}

// Rows reads the rows of one file.
type Rows struct {
	// Next returns the next row and its number, from 1: the line of a text
	// file, else the row. At the end the error is io.EOF. After any other error
	// but a badLine the file is not read further; the error is about the row
	// whose number is returned, 0 for the whole file.
	Next func() (Object, int, error)
	// Columns are the names of the columns, or nil if rows may have different ones.
	Columns []string
	// Unit is what the numbers count: "line" or "row".
	Unit string

	unfolding *unfolding // counts the rows; nil for stdin
	unpacker  io.Closer  // ends the decompression; may be nil
	file      *os.File
}

func (r *Rows) close() error {
	if r.unpacker != nil {
		r.unpacker.Close()
	}
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// A badLine is an error about one line of a text file; the lines after it can
// be read.
type badLine struct{ error }

func (e badLine) Unwrap() error { return e.error }

// openRows opens a file and recognizes the format by its content. The extension
// decides only for formats without a mark of their own: CSV, and Arrow streams
// written before version 0.15.
func openRows(at file, expansion int) (*Rows, error) {
	f, err := at.open()
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	rows, err := openFormat(f, at.path, expansion)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("data: %s: %w", at.path, err)
	}
	return rows, nil
}

// open opens a file, which must be a regular one.
func (f file) open() (*os.File, error) {
	if f.root == "" {
		return files.Open(f.path)
	}
	folder, err := files.OpenFolder(f.root)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	name, err := filepath.Rel(f.root, f.path)
	if err != nil {
		return nil, err
	}
	return folder.Open(name)
}

// openFormat unpacks a file if it is compressed, and opens its rows. They close it; after an error the caller does.
func openFormat(f *os.File, path string, expansion int) (*Rows, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 {
		return nil, fmt.Errorf("the file is empty")
	}
	budget := newUnfolding(info.Size(), expansion)
	name := strings.ToLower(filepath.Base(path))
	in := Input{File: f, Size: info.Size(), Text: bufio.NewReaderSize(f, 1<<16), unfolding: budget}
	var unpacker io.Closer
	magic, _ := in.Text.Peek(5)
	for _, c := range compressions {
		if !bytes.HasPrefix(magic, []byte(c.magic)) {
			continue
		}
		z, err := c.open(in.Text)
		if err != nil {
			return nil, inPlainWords(endIsError(err))
		}
		unpacker, _ = z.(io.Closer)
		in = Input{Text: bufio.NewReaderSize(unfolded{z, budget}, 1<<16), unfolding: budget}
		name = unpacked(name)
		break
	}
	rows, err := in.rows(name)
	if err != nil {
		if unpacker != nil {
			unpacker.Close()
		}
		return nil, err
	}
	rows.file, rows.unpacker, rows.unfolding = f, unpacker, budget
	return rows, nil
}

// rows opens a file in the format that its content and the extension of name tell, or else as JSON.
func (in Input) rows(name string) (*Rows, error) {
	in.Ext = filepath.Ext(name)
	skipMark(in.Text)
	head, err := in.Text.Peek(in.Text.Size())
	if len(head) == 0 && err != io.EOF {
		return nil, err
	}
	if what := files.Foreign(head); what != "" && head[0] != '{' { // a row may have a column error, as a server's refusal has
		return nil, errors.New("it is " + what)
	}
	for _, f := range Formats[1:] {
		if f.Is(head, in.Ext) {
			return f.Open(in)
		}
	}
	return openJSON(in) // Formats[0], which has no mark
}

// skipMark skips a byte order mark.
func skipMark(r *bufio.Reader) {
	if mark, _ := r.Peek(3); string(mark) == "\ufeff" {
		r.Discard(3)
	}
}

// uncompressed returns the file itself, for formats that read at several places of it.
func (in Input) uncompressed() (*os.File, error) {
	if in.File == nil {
		return nil, errors.New("it is compressed as a whole: decompress it first")
	}
	return in.File, nil
}
