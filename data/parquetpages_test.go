package data

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/snappy"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// A rawPage is a page of one value as a file holds it.
type rawPage struct {
	codec  format.CompressionCodec
	levels format.Encoding
	plain  int // the unpacked length that the page's header states
	bytes  []byte
}

// rawParquet is a file of one optional column of texts with a row group for each page.
func rawParquet(t *testing.T, pages []rawPage) string {
	t.Helper()
	encode := func(v any) []byte {
		b, err := thrift.Marshal(new(thrift.CompactProtocol), v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	root := format.SchemaElement{Name: "root", NumChildren: thrift.New[int32](1)}
	column := format.SchemaElement{Name: "a", Type: thrift.New(format.ByteArray), RepetitionType: thrift.New(format.Optional), ConvertedType: thrift.New(deprecated.UTF8)}
	meta := format.FileMetaData{Version: 1, Schema: []format.SchemaElement{root, column}, NumRows: int64(len(pages))}
	file := []byte("PAR1")
	for _, p := range pages {
		header := encode(&format.PageHeader{Type: format.DataPage, UncompressedPageSize: int32(p.plain), CompressedPageSize: int32(len(p.bytes)),
			DataPageHeader: thrift.New(format.DataPageHeader{NumValues: 1, Encoding: format.Plain, DefinitionLevelEncoding: p.levels, RepetitionLevelEncoding: format.RLE})})
		size := int64(len(header) + len(p.bytes))
		chunk := format.ColumnMetaData{Type: format.ByteArray, Encoding: []format.Encoding{format.Plain}, PathInSchema: []string{"a"}, Codec: p.codec,
			NumValues: 1, TotalUncompressedSize: size, TotalCompressedSize: size, DataPageOffset: int64(len(file))}
		meta.RowGroups = append(meta.RowGroups, format.RowGroup{NumRows: 1, TotalByteSize: size, Columns: []format.ColumnChunk{{MetaData: chunk}}})
		file = append(append(file, header...), p.bytes...)
	}
	footer := encode(&meta)
	return string(file) + string(footer) + string(binary.LittleEndian.AppendUint32(nil, uint32(len(footer)))) + "PAR1"
}

// Row groups may differ in their codec, pages that unpack to more than their headers state are refused
// before they take memory, and so is what only old writers made.
func TestParquetPages(t *testing.T) {
	const one = "\x02\x00\x00\x00\x02\x01" // the level of one text
	body := []byte(one + "\x03\x00\x00\x00abc")
	packed := []byte("\x80\x03\x00\x00\x00abc")
	lz4 := append([]byte{byte(len(body) << 4)}, body...) // the type of a block without repetitions
	runs := binary.AppendUvarint(nil, 1<<30<<1)
	runs = append(append([]byte{byte(len(runs) + 1), 0, 0, 0}, runs...), "\x01\x03\x00\x00\x00abc"...)
	var zipped, brotlied bytes.Buffer
	gz, err := gzip.NewWriterLevel(&zipped, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []io.WriteCloser{gz, brotli.NewWriterLevel(&brotlied, brotli.BestSpeed)} {
		if _, err := w.Write(make([]byte, 64<<20)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	sound := rawPage{format.Uncompressed, format.RLE, len(body), body}
	for name, test := range map[string]struct {
		pages []rawPage
		want  string // part of the error
	}{
		"levels of old writers":        {[]rawPage{{format.Uncompressed, format.BitPacked, len(packed), packed}}, "levels in the encoding BIT_PACKED, which is not read"},
		"lz4 of old writers":           {[]rawPage{{format.Lz4, format.RLE, len(body), lz4}}, "compressed with LZ4, which is not read"},
		"a codec for each row group":   {pages: []rawPage{sound, {format.Snappy, format.RLE, len(body), snappy.Encode(nil, body)}, {format.Lz4Raw, format.RLE, len(body), lz4}}},
		"gzip, longer than stated":     {[]rawPage{{format.Gzip, format.RLE, len(body), zipped.Bytes()}}, "does not unpack to the 13 bytes"},
		"brotli, longer than stated":   {[]rawPage{{format.Brotli, format.RLE, len(body), brotlied.Bytes()}}, "does not unpack to the 13 bytes"},
		"snappy, longer than stated":   {[]rawPage{{format.Snappy, format.RLE, len(body), append(binary.AppendUvarint(nil, 1<<31), 0)}}, "does not unpack to the 13 bytes"},
		"lz4 that repeats nothing":     {[]rawPage{{format.Lz4Raw, format.RLE, len(body), []byte("\x0f\x00\x00")}}, "does not unpack to the 13 bytes"},
		"a run longer than the page":   {[]rawPage{{format.Uncompressed, format.RLE, len(runs), runs}}, "a run of 1073741824 values, and 1 are left"},
		"levels in another encoding":   {[]rawPage{{format.Uncompressed, format.DeltaBinaryPacked, len(body), body}}, "levels in the encoding DELTA_BINARY_PACKED"},
		"a codec that nobody can read": {[]rawPage{{format.LZO, format.RLE, len(body), body}}, "compressed with LZO, which is not read"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "x.parquet", rawParquet(t, test.pages))
			if test.want == "" {
				rows := records(t, path)
				if got, want := fmt.Sprint(rows), fmt.Sprint([]Object{{{"a", "abc"}}, {{"a", "abc"}}, {{"a", "abc"}}}[:len(test.pages)]); got != want {
					t.Errorf("rows %s, want %s", got, want)
				}
				return
			}
			var err error
			n := allocated(func() { _, err = readAll(path, 10) })
			if err == nil || !strings.Contains(err.Error(), `row 1: parquet: `) || !strings.Contains(err.Error(), `column "a": `) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if n > 32<<20 {
				t.Errorf("it took %d MiB", n>>20)
			}
		})
	}
}

// A footer of structures or lists inside one another is refused before it fills the stack.
func TestDeepFooter(t *testing.T) {
	for name, footer := range map[string]string{
		"structures":                     strings.Repeat("\xfc", 8<<20),
		"lists":                          "\xf9" + strings.Repeat("\x19", 8<<20),
		"sets":                           "\xfa" + strings.Repeat("\x1a", 8<<20),
		"a list of structures in itself": "\x19\xfc\xff\xff\x3f" + strings.Repeat("\x6c", 1<<20),
	} {
		file := "PAR1" + footer + string(binary.LittleEndian.AppendUint32(nil, uint32(len(footer)))) + "PAR1"
		if _, err := readAll(write(t, "x.parquet", file), 1); err == nil || !strings.Contains(err.Error(), "footer") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
