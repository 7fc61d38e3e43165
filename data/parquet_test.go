package data

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"pgregory.net/rapid"
)

// A plainRow has a column of each physical type, and lists and structures.
type plainRow struct {
	Text   string   `parquet:"text"`
	Dict   string   `parquet:"dict,dict"`
	Maybe  *string  `parquet:"maybe,optional"`
	Number int64    `parquet:"number"`
	Small  *int32   `parquet:"small,optional"`
	Float  float64  `parquet:"float"`
	Single float32  `parquet:"single"`
	Truth  bool     `parquet:"truth"`
	List   []string `parquet:"list,list"`
	Turns  []turn   `parquet:"turns,list"`
}

type turn struct {
	Role  string  `parquet:"role,dict"`
	Ranks []int64 `parquet:"ranks,list"`
}

// A deltaRow has the columns of a plainRow in other encodings.
type deltaRow struct {
	Text   string   `parquet:"text,delta"`
	Dict   string   `parquet:"dict,delta"`
	Maybe  *string  `parquet:"maybe,optional"`
	Number int64    `parquet:"number,delta"`
	Small  *int32   `parquet:"small,optional"`
	Float  float64  `parquet:"float,split"`
	Single float32  `parquet:"single,split"`
	Truth  bool     `parquet:"truth"`
	List   []string `parquet:"list,list"`
	Turns  []turn   `parquet:"turns,list"`
}

// object is the row as the reader should give it.
func (r plainRow) object() Object {
	var maybe, small any
	if r.Maybe != nil {
		maybe = *r.Maybe
	}
	if r.Small != nil {
		small = int64(*r.Small)
	}
	list, turns := []any{}, []any{}
	for _, s := range r.List {
		list = append(list, s)
	}
	for _, x := range r.Turns {
		ranks := []any{}
		for _, n := range x.Ranks {
			ranks = append(ranks, n)
		}
		turns = append(turns, Object{{"role", x.Role}, {"ranks", ranks}})
	}
	return Object{{"text", r.Text}, {"dict", r.Dict}, {"maybe", maybe}, {"number", r.Number}, {"small", small},
		{"float", r.Float}, {"single", readAgain(r.Single)}, {"truth", r.Truth}, {"list", list}, {"turns", turns}}
}

// Files that another library writes, in every codec and encoding and with pages of any
// size, are read correctly.
func TestParquetRoundTrip(t *testing.T) {
	text := rapid.StringN(0, 20, -1)
	rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) plainRow {
		r := plainRow{
			Text: text.Draw(t, "text"), Dict: rapid.SampledFrom([]string{"", "a", "bb", "bc"}).Draw(t, "dict"),
			Number: rapid.Int64().Draw(t, "number"), Float: rapid.Float64().Draw(t, "float"), Single: rapid.Float32().Draw(t, "single"),
			Truth: rapid.Bool().Draw(t, "truth"), List: rapid.SliceOfN(text, 0, 3).Draw(t, "list"),
		}
		if rapid.Bool().Draw(t, "has maybe") {
			s := text.Draw(t, "maybe")
			r.Maybe = &s
		}
		if rapid.Bool().Draw(t, "has small") {
			n := rapid.Int32().Draw(t, "small")
			r.Small = &n
		}
		for range rapid.IntRange(0, 2).Draw(t, "turns") {
			r.Turns = append(r.Turns, turn{text.Draw(t, "role"), rapid.SliceOfN(rapid.Int64(), 0, 3).Draw(t, "ranks")})
		}
		return r
	}), 1, 60)
	codecs := []compress.Codec{&parquet.Uncompressed, &parquet.Snappy, &parquet.Gzip, &parquet.Zstd, &parquet.Brotli, &parquet.Lz4Raw}
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		want := rows.Draw(t, "rows")
		options := []parquet.WriterOption{
			parquet.Compression(rapid.SampledFrom(codecs).Draw(t, "codec")),
			parquet.DataPageVersion(rapid.IntRange(1, 2).Draw(t, "version")),
			parquet.PageBufferSize(rapid.SampledFrom([]int{64, 1 << 10, 1 << 20}).Draw(t, "page")),
			parquet.MaxRowsPerRowGroup(rapid.SampledFrom([]int64{7, 1 << 20}).Draw(t, "group")),
		}
		var b bytes.Buffer
		var err error
		if rapid.Bool().Draw(t, "delta") {
			delta := make([]deltaRow, len(want))
			for i, r := range want {
				delta[i] = deltaRow(r)
			}
			err = parquet.Write(&b, delta, options...)
		} else {
			err = parquet.Write(&b, want, options...)
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "x.parquet")
		if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
		r, err := openRecords(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for i, row := range want {
			got, err := r.Next()
			if err != nil {
				t.Fatalf("row %d: %v", i+1, err)
			}
			if object := row.object(); !reflect.DeepEqual(got.Object, object) {
				t.Fatalf("row %d\n got %s\nwant %s", i+1, appendJSON(nil, got.Object), appendJSON(nil, object))
			}
		}
		if _, err := r.Next(); fmt.Sprint(err) != "EOF" {
			t.Fatalf("after the last row: %v", err)
		}
	})
}

// readAgain returns x after it was written with the fewest digits and read.
func readAgain(x float32) (y float64) {
	if _, err := fmt.Sscan(fmt.Sprint(x), &y); err != nil {
		panic(err)
	}
	return y
}
