package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"onering/internal/files"
)

// A source reads the rows of one file.
type source interface {
	// next returns the next row and its number, from 1: the line of a text
	// file, else the row. At the end the error is io.EOF. After any other error
	// but a badLine the file is not read further; the error is about the row
	// whose number is returned, 0 for the whole file.
	next() (Object, int, error)
	// columns returns the names of the columns, or nil if rows may have
	// different ones.
	columns() []string
	// unit is what the numbers count: "line" or "row".
	unit() string
	close() error
}

// A badLine is an error about one line of a text file; the lines after it can
// be read.
type badLine struct{ error }

func (e badLine) Unwrap() error { return e.error }

// openSource opens a file and recognizes the format by its content. The
// extension decides only for formats without a mark of their own: CSV, and Arrow
// streams written before version 0.15.
func openSource(at file) (source, error) {
	f, err := at.open()
	if err != nil {
		return nil, fmt.Errorf("dataset: %w", err)
	}
	s, err := openFormat(f, at.path)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("dataset: %s: %w", at.path, err)
	}
	return s, nil
}

// open opens the file, which has to be a regular one.
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

func openFormat(f *os.File, path string) (source, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 {
		return nil, fmt.Errorf("the file is empty")
	}
	magic := make([]byte, 8)
	n, err := f.ReadAt(magic, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	magic = magic[:n]
	name := strings.ToLower(filepath.Base(path))
	switch {
	case bytes.HasPrefix(magic, []byte("PAR1")):
		return openParquet(f, info.Size())
	case bytes.HasPrefix(magic, []byte("PARE")):
		return nil, fmt.Errorf("an encrypted Parquet file: decrypt it first")
	case bytes.HasPrefix(magic, []byte("ARROW1")):
		return openArrowFile(f, info.Size())
	case bytes.HasPrefix(magic, []byte("\xff\xff\xff\xff")), filepath.Ext(name) == ".arrow": // before version 0.15 a stream had no magic
		return openArrowStream(f, info.Size())
	case bytes.HasPrefix(magic, []byte("FEA1")):
		return nil, fmt.Errorf("a Feather file of version 1: write it again as version 2 (Arrow)")
	}
	var r io.Reader = f
	closeReader := f.Close
	switch {
	case bytes.HasPrefix(magic, []byte("\x1f\x8b")):
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		r, name = z, strings.TrimSuffix(name, ".gz")
	case bytes.HasPrefix(magic, []byte("\x28\xb5\x2f\xfd")):
		z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		r, name = z, strings.TrimSuffix(strings.TrimSuffix(name, ".zst"), ".zstd")
		closeReader = func() error { z.Close(); return f.Close() }
	}
	return openText(bufio.NewReaderSize(r, 1<<16), name, closeReader)
}

// separator returns the separator of the fields of a CSV file, which it finds in
// the first line. Spreadsheets that write decimal commas use a semicolon.
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

func openText(r *bufio.Reader, name string, closeReader func() error) (source, error) {
	if bom, _ := r.Peek(3); string(bom) == "\ufeff" {
		r.Discard(3)
	}
	if ext := filepath.Ext(name); ext == ".csv" || ext == ".tsv" {
		r = withNewlines(r)
	}
	switch filepath.Ext(name) {
	case ".csv":
		return openCSV(r, separator(r), closeReader)
	case ".tsv":
		return openCSV(r, '\t', closeReader)
	}
	// The first byte that is not blank decides between an array and lines of objects.
	for n := 1; n <= r.Size(); n++ {
		head, err := r.Peek(n)
		if err == io.EOF {
			return nil, errors.New("no rows: the file has only blank lines")
		}
		if err != nil {
			return nil, err
		}
		switch c := head[n-1]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			continue
		case c == '[':
			return openArray(r, closeReader)
		case c == '{' || filepath.Ext(name) == ".jsonl" || filepath.Ext(name) == ".ndjson":
			return openLines(r, closeReader), nil
		default:
			return nil, fmt.Errorf("not a data file: it begins with %q, and JSON lines, a JSON array, CSV (.csv, .tsv), Parquet and Arrow are read", head[n-1:])
		}
	}
	return nil, fmt.Errorf("not a data file: it begins with %d blanks", r.Size())
}
