package data

import (
	"encoding/json"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Every Arrow and Parquet file of the benchmarks has the content that pyarrow
// found in it.
func TestExpectedContent(t *testing.T) {
	dir := filepath.Join(benchmarks(t), "formats")
	text, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var files []struct {
		File        string
		Rows        int
		Columns     json.RawMessage
		First, Last json.RawMessage
		StringBytes map[string]int `json:"string_bytes"`
	}
	if err := json.Unmarshal(text, &files); err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("expected.json names no file")
	}
	for _, want := range files {
		t.Run(want.File, func(t *testing.T) {
			rows := records(t, filepath.Join(dir, want.File))
			if len(rows) != want.Rows {
				t.Fatalf("%d rows, want %d", len(rows), want.Rows)
			}
			columns, err := parseObject(want.Columns)
			if err != nil {
				t.Fatal(err)
			}
			if got := columnNames(rows[0]); !reflect.DeepEqual(got, columnNames(columns)) {
				t.Errorf("columns %q, want %q", got, columnNames(columns))
			}
			for _, row := range []struct {
				name string
				got  Object
				want []byte
			}{{"first", rows[0], want.First}, {"last", rows[len(rows)-1], want.Last}} {
				if got := appendJSON(nil, row.got); !reflect.DeepEqual(decodeExactly(t, got), decodeExactly(t, row.want)) {
					t.Errorf("%s row\n got %s\nwant %s", row.name, got, row.want)
				}
			}
			for name, n := range want.StringBytes {
				sum := 0
				for _, row := range rows {
					v, _ := row.Get(name)
					s, _ := v.(string)
					sum += len(s)
				}
				if sum != n {
					t.Errorf("column %q: %d bytes, want %d", name, sum, n)
				}
			}
		})
	}
}

// decodeExactly decodes JSON with its numbers as rationals, so that 142.0 and
// 142 are equal and 2^63-1 and 2^63 are not.
func decodeExactly(t *testing.T, text []byte) any {
	t.Helper()
	var exact func(v any) any
	exact = func(v any) any {
		switch v := v.(type) {
		case json.Number:
			r, ok := new(big.Rat).SetString(string(v))
			if !ok {
				t.Fatalf("number %q", v)
			}
			return r.String()
		case []any:
			for i := range v {
				v[i] = exact(v[i])
			}
		case map[string]any:
			for k := range v {
				v[k] = exact(v[k])
			}
		}
		return v
	}
	return exact(decode(t, string(text)))
}

func records(t testing.TB, path string) []Object {
	t.Helper()
	r, err := openRecords(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var rows []Object
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return rows
		}
		if err != nil {
			t.Fatal(err)
		}
		if rec.Line != len(rows)+1 {
			t.Fatalf("row %d calls itself %d", len(rows)+1, rec.Line)
		}
		rows = append(rows, rec.Object)
	}
}

// The files of testdata, written by pyarrow in many encodings and types (see
// make.py there), hold the rows of their tables.
func TestPyArrowFiles(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.*"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, path := range files {
		name := filepath.Base(path)
		if ext := filepath.Ext(name); ext != ".arrow" && ext != ".parquet" {
			continue
		}
		n++
		t.Run(name, func(t *testing.T) {
			table, rest, _ := strings.Cut(name, ".")
			switch table {
			case "bomb":
				t.Skip("in TestBombs")
			case "rowless":
				if rows := records(t, path); len(rows) != 0 {
					t.Errorf("%d rows, want none", len(rows))
				}
				return
			}
			if table == "refused" {
				column := strings.TrimSuffix(rest, ".arrow")
				_, err := readAll(path, 1)
				if err == nil || !strings.Contains(err.Error(), "column \""+column+"\": values of type") {
					t.Errorf("error %v", err)
				}
				return
			}
			want := records(t, filepath.Join("testdata", table+".jsonl"))
			got := records(t, path)
			if len(got) != len(want) {
				t.Fatalf("%d rows, want %d", len(got), len(want))
			}
			for i := range got {
				if a, b := columnNames(got[i]), columnNames(want[i]); !slices.Equal(a, b) {
					t.Fatalf("row %d: columns %q, want %q", i+1, a, b)
				}
				for j := range got[i] {
					a, b := appendJSON(nil, got[i][j].Value), appendJSON(nil, want[i][j].Value)
					if !reflect.DeepEqual(decodeExactly(t, a), decodeExactly(t, b)) {
						t.Errorf("row %d, %q: got %s, want %s", i+1, got[i][j].Name, a, b)
					}
				}
			}
		})
	}
	if n < 20 {
		t.Errorf("only %d files", n)
	}
}
