package dataset

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// readAll reads what it can of a file; what counts is that it returns.
func readAll(path string) (rows int, err error) {
	r, err := OpenRecords(path)
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
		rows++
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
			if !strings.HasPrefix(filepath.Base(p), "refused.") {
				paths = append(paths, p)
			}
		}
	}
	return paths
}

// A file that is cut short anywhere is an error, but for an Arrow stream cut
// between two batches, which has no mark of its end that readers may insist on.
func TestCutShort(t *testing.T) {
	cut := filepath.Join(t.TempDir(), "x.arrow")
	for _, path := range columnar(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all, err := readAll(path)
		if err != nil {
			t.Fatal(err)
		}
		stream := string(text[:4]) != "PAR1" && string(text[:4]) != "ARRO"
		for n := 1; n < len(text); n += 1 + len(text)/97 {
			if err := os.WriteFile(cut, text[:n], 0o666); err != nil {
				t.Fatal(err)
			}
			if rows, err := readAll(cut); err == nil && !(stream && (rows < all || n > len(text)-16)) {
				t.Errorf("%s cut to %d of %d bytes: %d rows and no error", path, n, len(text), rows)
			}
		}
	}
}

// A damaged file is read or refused; it neither stops the program nor hangs it,
// nor takes much memory. (Of Parquet files that holds where pages have
// checksums; else the library may believe a run length inside a page.)
func TestDamaged(t *testing.T) {
	step := 101
	if testing.Short() {
		step = 211
	}
	damaged := filepath.Join(t.TempDir(), "x.arrow")
	for _, path := range columnar(t) {
		if strings.HasSuffix(path, ".parquet") && !strings.Contains(path, "checksums") {
			continue
		}
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
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				begin := time.Now()
				readAll(damaged)
				if d := time.Since(begin); d > 10*time.Second {
					t.Errorf("%s with byte %d changed by %#x took %v", path, i, b, d)
				}
				runtime.ReadMemStats(&after)
				if n := after.TotalAlloc - before.TotalAlloc; n > 256<<20 {
					t.Errorf("%s with byte %d changed by %#x took %d MiB", path, i, b, n>>20)
				}
			}
		}
	}
}

// Whatever bytes an Arrow file has, reading it ends, and not by a panic.
func FuzzArrow(f *testing.F) {
	paths, err := filepath.Glob(filepath.Join("testdata", "*.arrow"))
	if err != nil || len(paths) == 0 {
		f.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "x.arrow")
		if err := os.WriteFile(path, text, 0o666); err != nil {
			t.Fatal(err)
		}
		readAll(path)
	})
}
