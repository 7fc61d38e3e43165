package data

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The tests in this file count work that grows with a file from outside.

// TestManyColumns compares the allocations of a CSV header of n columns and of 4n. Comparing
// all pairs to find duplicates would take 3,000 million comparisons for the larger header.
func TestManyColumns(t *testing.T) {
	header := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "column%d,", i)
		}
		return b.String() + "problem\n"
	}
	open := func(text string) error {
		_, err := openCSV(Input{Text: bufio.NewReader(strings.NewReader(text)), Ext: ".csv"})
		return err
	}
	small, large := header(20_000), header(80_000)
	allocations := func(text string) float64 {
		return testing.AllocsPerRun(1, func() {
			if err := open(text); err != nil {
				t.Fatal(err)
			}
		})
	}
	if one, four := allocations(small), allocations(large); four > 6*one+100 {
		t.Errorf("20,000 columns take %.0f allocations, 80,000 take %.0f", one, four)
	}
	if err := open(strings.TrimSuffix(large, "\n") + ",column7\n"); err == nil || !strings.Contains(err.Error(), `two columns are named "column7"`) {
		t.Errorf("a column that is there twice: %v", err)
	}
}

// TestManyFields has rows whose columns are all different: few rounds free enough memory.
func TestManyFields(t *testing.T) {
	visits := func(rows int) int {
		memory := fieldMemory{budget: 100 * 100, bytes: map[string]int{}}
		var problems []Problem
		for i := range rows {
			problems = append(problems, Problem{Fields: Object{{fmt.Sprint("c", i), strings.Repeat("x", 100)}}})
			memory.countNewest(problems, []string{"prompt"})
		}
		if kept := rows - len(memory.leftOut); kept < 20 || memory.total > memory.budget {
			t.Errorf("%d rows: %d columns kept, of %d bytes", rows, kept, memory.total)
		}
		return memory.visits
	}
	// Each round visits all rows. There are as many rounds as the rows divided by the
	// rows that fill half of the budget, so with the real budget there are few.
	if rounds := visits(4000) / 4000; rounds > 100 {
		t.Errorf("4,000 rows with a column each: all rows were visited %d times", rounds)
	}
}

// TestRowsWithoutEnd reads rows longer than the limit; a small compressed file can hold
// such rows.
func TestRowsWithoutEnd(t *testing.T) {
	defer func(most int) { maxLine = most }(maxLine)
	maxLine = 1 << 20
	for name, head := range map[string]string{".json": `[{"problem": "1"}, {"problem": "`, ".csv": "problem,answer\n1,2\n\"", ".jsonl": "{}\n{"} {
		in := Input{Text: bufio.NewReader(io.MultiReader(strings.NewReader(head), zeros{}))}
		s, err := in.rows(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Next(); err != nil {
			t.Errorf("%s: the first row: %v", name, err)
		}
		if _, _, err := s.Next(); err == nil || !strings.Contains(err.Error(), "longer than 1 MiB") {
			t.Errorf("%s: %.300v", name, err)
		}
	}
}

// zeros is an endless text.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// TestUnreadableLines: lines that cannot be read count towards the unpacked size of a
// file, so a file of few bytes cannot cause many reports.
func TestUnreadableLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl.gz")
	if err := os.WriteFile(path, []byte(zipped(strings.Repeat("a\n", 1000))), 0o600); err != nil {
		t.Fatal(err)
	}
	src, err := openRows(file{path: path}, 0)
	if err != nil {
		t.Fatal(err)
	}
	src.unfolding.left = 100 * unreadableBytes
	r := rawRows{files: []file{{path: path}}, src: src}
	lines := 0
	for ; lines < 1000; lines++ {
		if _, err = r.Next(); !r.skipBadLine() {
			break
		}
	}
	if lines != 100 || err == nil || !strings.Contains(err.Error(), "times its size") {
		t.Errorf("after %d lines: %v", lines, err)
	}
}
