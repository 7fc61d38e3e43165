package data

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// readAll reads as much of a file as it can, up to so many rows; the test is that it
// returns.
func readAll(path string, most int) (rows int, err error) {
	r, err := openRecords(path, Options{})
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		appendJSON(nil, rec.Object)
		if rows++; rows == most {
			return rows, nil
		}
	}
}

func columnar(t testing.TB) []string {
	var paths []string
	for _, ext := range []string{"*.arrow", "*.parquet"} {
		found, err := filepath.Glob(filepath.Join("testdata", ext))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", ext, err)
		}
		for _, p := range found {
			if !strings.HasPrefix(filepath.Base(p), "refused.") && !strings.HasPrefix(filepath.Base(p), "bomb.") {
				paths = append(paths, p)
			}
		}
	}
	return paths
}

// A file that is cut short anywhere is an error, except for an Arrow stream cut between
// two batches, whose end has no required mark.
func TestCutShort(t *testing.T) {
	cut := filepath.Join(t.TempDir(), "x.arrow")
	for _, path := range columnar(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all, err := readAll(path, 1e6)
		if err != nil {
			t.Fatal(err)
		}
		stream := string(text[:4]) != "PAR1" && string(text[:4]) != "ARRO"
		for n := 1; n < len(text); n += 1 + len(text)/97 {
			if err := os.WriteFile(cut, text[:n], 0o666); err != nil {
				t.Fatal(err)
			}
			if rows, err := readAll(cut, 1e6); err == nil && !(stream && (rows < all || n > len(text)-16)) {
				t.Errorf("%s cut to %d of %d bytes: %d rows and no error", path, n, len(text), rows)
			}
		}
	}
}

// mostDamaged is how much reading a small file may allocate in all: buffers of pages, and
// the budget of a row.
const mostDamaged = 256 << 20

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A damaged file is read or refused; it neither stops the program nor hangs it,
// nor takes much memory.
func TestDamaged(t *testing.T) {
	step := 101
	if testing.Short() {
		step = 211
	}
	damaged := filepath.Join(t.TempDir(), "x.arrow")
	for _, path := range columnar(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := 4; i < len(text); i += step {
			for _, b := range []byte{0xff, 0x80, 0x00, 0x7f} {
				old := text[i]
				text[i] ^= b
				if b == 0 {
					text[i] = 0
				}
				if err := os.WriteFile(damaged, text, 0o666); err != nil {
					t.Fatal(err)
				}
				text[i] = old
				if n := allocated(func() { readAll(damaged, 1e6) }); n > mostDamaged {
					t.Errorf("%s with byte %d changed by %#x took %d MiB", path, i, b, n>>20)
				}
			}
		}
	}
}

// Small files that unpack to very much are refused before they are unpacked (make.py
// explains each file).
func TestBombs(t *testing.T) {
	for name, want := range map[string]string{
		"bomb.page.parquet":   "times its size",
		"bomb.list.parquet":   "a row or a dictionary is of more than 4194304 values",
		"bomb.list.arrow":     "a row or a dictionary is of more than 4194304 values",
		"bomb.texts.arrow":    "times its size",
		"bomb.levels.parquet": "times its size",
	} {
		var rows int
		var err error
		n := allocated(func() { rows, err = readAll(filepath.Join("testdata", name), 1e6) })
		if want == "" && (err != nil || rows == 0) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %d rows, error %v, want %q", name, rows, err, want)
		}
		if n > 1<<30 {
			t.Errorf("%s took %d MiB", name, n>>20)
		}
	}
}

// A row that names one text of a dictionary many times is refused before the reader
// copies the text for each.
func TestDictionaryBomb(t *testing.T) {
	b := array.NewListBuilder(memory.DefaultAllocator, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String})
	b.Append(true)
	for range 200 {
		if err := b.ValueBuilder().AppendValueFromString(strings.Repeat("a", 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	column := b.NewArray()
	schema := arrow.NewSchema([]arrow.Field{{Name: "answer", Type: column.DataType()}}, nil)
	var file bytes.Buffer
	w := ipc.NewWriter(&file, ipc.WithSchema(schema))
	if err := errors.Join(w.Write(array.NewRecordBatch(schema, []arrow.Array{column}, 1)), w.Close()); err != nil {
		t.Fatal(err)
	}
	path := write(t, "x.arrow", file.String())
	var err error
	n := allocated(func() { _, err = readAll(path, 1) })
	if err == nil || !strings.Contains(err.Error(), `column "answer": a row or a dictionary is of more than`) || n > mostDamaged {
		t.Errorf("%d bytes took %d MiB: %v", file.Len(), n>>20, err)
	}
}

// fuzzFile checks that reading ends for any bytes, without a panic and without much
// memory for a small file.
func fuzzFile(f *testing.F, pattern string) {
	paths, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(paths) == 0 {
		f.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		if !strings.HasPrefix(filepath.Base(path), "bomb.") { // these readers are slow
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "x.arrow")
		if err := os.WriteFile(path, text, 0o666); err != nil {
			t.Fatal(err)
		}
		if n := allocated(func() { readAll(path, 1000) }); n > 1<<30 {
			t.Errorf("%d bytes took %d MiB", len(text), n>>20)
		}
	})
}

func FuzzArrow(f *testing.F) { fuzzFile(f, "*.arrow") }

func FuzzParquet(f *testing.F) { fuzzFile(f, "*.parquet") }

// Damage is told in plain words, and with the column where a page or a value is damaged. Arrow has one
// record for the buffers of all columns.
func TestDamagedColumn(t *testing.T) {
	for _, name := range []string{"kinds.parquet", "kinds.stream.arrow", "problems.view.stream.arrow"} {
		sound, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		named := map[string]bool{}
		path := write(t, "x.arrow", "")
		for at := 1; at < len(sound); at += 8 { // The second byte of each number is changed.
			text := bytes.Clone(sound)
			text[at] = 0x7f
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := readAll(path, 10)
			if err == nil {
				continue
			}
			for _, foreign := range []string{"runtime", "slice", "index out of", "arrow/ipc"} {
				if strings.Contains(err.Error(), foreign) {
					t.Errorf("%s, byte %d: %v", name, at, err)
				}
			}
			if _, column, known := strings.Cut(err.Error(), `column "`); known {
				column, _, _ = strings.Cut(column, `"`)
				named[column] = true
			} else if strings.Contains(err.Error(), "page") {
				t.Errorf("%s, byte %d: %v", name, at, err)
			}
		}
		rows := records(t, filepath.Join("testdata", name))
		for _, m := range rows[0] {
			if !named[m.Name] && strings.HasSuffix(name, ".parquet") {
				t.Errorf("%s: no damage names column %q", name, m.Name)
			}
		}
		t.Logf("%s: damage names %d of %d columns", name, len(named), len(rows[0]))
	}
}
