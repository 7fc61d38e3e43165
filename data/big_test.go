package data

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
)

var (
	bigFile = flag.String("big", "", "read this data file and report the memory it took")
	bigRows = flag.Int("rows", 0, "make a Parquet file of so many rows, and do the same")
)

// A file of any size is read in bounded memory:
//
//	go test -run TestBig -v -args -rows=10000000
//	go test -run TestBig -v -args -big=FILE
func TestBig(t *testing.T) {
	path := *bigFile
	if *bigRows > 0 {
		path = filepath.Join(t.TempDir(), "big.parquet")
		if err := writeBig(path, *bigRows); err != nil {
			t.Fatal(err)
		}
	}
	if path == "" {
		t.Skip("takes minutes; ask for it with -rows or -big")
	}
	runtime.GC()
	os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // forget the peak so far; some systems cannot
	r, err := Open(path, Options{Filter: "level in 1..5", OnBad: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	begin := time.Now()
	for {
		if _, err := r.Next(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	seconds := time.Since(begin).Seconds()
	peak := peakMemory(t)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	rows := r.Report().Rows
	t.Logf("%s: %d rows, %d MB, in %.1f s (%.0f rows/s), peak memory %d MB", filepath.Base(path), rows, info.Size()/1e6, seconds, float64(rows)/seconds, peak/1e6)
	if rows == 0 || *bigRows > 0 && rows != *bigRows {
		t.Errorf("%d rows", rows)
	}
	if peak > 256e6 {
		t.Errorf("a peak of %d MB", peak/1e6)
	}
}

// peakMemory returns the largest resident memory of the process in bytes, or, where the
// system does not tell, the memory that Go's runtime took.
func peakMemory(t *testing.T) uint64 {
	status, err := os.ReadFile("/proc/self/status")
	if err == nil {
		for line := range strings.Lines(string(status)) {
			if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				kb, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				return kb * 1024
			}
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Sys
}

func writeBig(path string, rows int) error {
	type row struct {
		Problem string   `parquet:"problem"`
		Answer  []string `parquet:"answer,list"`
		Level   int64    `parquet:"level"`
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := parquet.NewGenericWriter[row](f, parquet.Compression(&parquet.Snappy), parquet.MaxRowsPerRowGroup(1<<20))
	batch := make([]row, 0, 1000)
	for i := range rows {
		batch = append(batch, row{fmt.Sprintf("What is %d plus %d? Show your working.", i, i*7%1000), []string{strconv.Itoa(i + i*7%1000)}, int64(i%5 + 1)})
		if len(batch) == cap(batch) || i == rows-1 {
			if _, err := w.Write(batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Close()
}
