package data

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/bitpacked"
	"github.com/parquet-go/parquet-go/encoding/rle"
	"github.com/parquet-go/parquet-go/format"
)

// A parquetColumn reads one leaf column, a value at a time. Each value comes
// with two levels: how much of the path to it is present, and which list it
// continues (Melnik et al., "Dremel", VLDB 2010, section 4).
type parquetColumn struct {
	name     string // the column's name, for messages
	kind     format.Type
	typ      parquet.Type
	def, rep int // the highest definition and repetition level
	convert  func(parquet.Value) any
	rows     *parquetRows

	pages pageReader
	left  int64 // number of values still to read in the chunk
	held  int64 // number of bytes, as hold counts them
	dict  []any // the chunk's dictionary
	page  columnPage
}

// A columnPage is the decoded page of a column.
type columnPage struct {
	left       int    // number of values still to read
	defs, reps []byte // the levels of the values; nil where the highest level is 0
	indexes    []int32
	indexed    bool // the values are indexes into dict
	dict       []any
	values     parquet.ValueReader
	buffer     [64]parquet.Value
	ready      []parquet.Value // how many values of buffer are decoded
	data       []byte          // memory of the values, which the next page uses again
	offsets    []uint32
}

// The types of columns, numbered as in the Parquet format.
var parquetTypes = []parquet.Type{parquet.BooleanType, parquet.Int32Type, parquet.Int64Type, parquet.Int96Type, parquet.FloatType, parquet.DoubleType, parquet.ByteArrayType}

// oldDictionary is the encoding PLAIN_DICTIONARY, with which old writers mark both
// dictionaries and the indexes into them.
const oldDictionary format.Encoding = 2

// begin goes to the column's chunk in the next row group, and checks its metadata.
func (c *parquetColumn) begin(f io.ReaderAt, size int64, chunk *format.ColumnChunk) {
	defer inColumn(c.name)
	m := &chunk.MetaData
	at := m.DataPageOffset
	if d := m.DictionaryPageOffset; d > 0 && d < at {
		at = d
	}
	switch {
	case chunk.FilePath != "":
		panic(unreadable("it is in another file"))
	case chunk.CryptoMetadata.Value != nil:
		panic(unreadable("it is encrypted"))
	case m.Type != c.kind:
		damaged("its type is %s and %s", c.kind, m.Type)
	case m.Codec == format.LZO || m.Codec < 0 || m.Codec > format.Lz4Raw:
		panic(unreadable(fmt.Sprintf("it is compressed with %s, which is not read", m.Codec)))
	case at < 4 || m.TotalCompressedSize < 0 || at > size || m.TotalCompressedSize > size-at || m.NumValues < 0 || m.NumValues > mostValues(size):
		damaged("%d values in %d bytes at byte %d of %d", m.NumValues, m.TotalCompressedSize, at, size)
	}
	c.pages.f, c.pages.at, c.pages.end, c.pages.codec = f, at, at+m.TotalCompressedSize, m.Codec
	c.pages.unfolding = c.rows.unfolding
	c.left, c.page.left, c.dict = m.NumValues, 0, nil
}

// peek returns the levels of the next value: repetition 0 begins a row, and is
// also returned at the chunk's end.
func (c *parquetColumn) peek() (def, rep int) {
	if c.left == 0 {
		return 0, 0
	}
	for c.page.left == 0 {
		c.nextPage()
	}
	def = c.def
	if c.page.defs != nil {
		def = int(c.page.defs[0])
	}
	if c.page.reps != nil {
		rep = int(c.page.reps[0])
	}
	return def, rep
}

// take consumes the next value and returns it, nil where it is absent.
func (c *parquetColumn) take() any {
	def, _ := c.peek()
	if c.left == 0 {
		damaged("column %q has fewer values than its rows need", c.name)
	}
	spend(&c.rows.taken, 1)
	c.left--
	p := &c.page
	p.left--
	if p.defs != nil {
		p.defs = p.defs[1:]
	}
	if p.reps != nil {
		p.reps = p.reps[1:]
	}
	if def < c.def {
		return nil
	}
	if p.indexed {
		i := p.indexes[0]
		p.indexes = p.indexes[1:]
		if i < 0 || int(i) >= len(p.dict) {
			damaged("column %q has the value %d of a dictionary of %d", c.name, i, len(p.dict))
		}
		return p.dict[i]
	}
	v := p.next()
	if hasBytes(v) {
		spend(&c.rows.taken, int64(len(v.ByteArray())/textShare))
	}
	return c.convert(v)
}

// next returns the next value of a page without a dictionary.
func (p *columnPage) next() parquet.Value {
	if len(p.ready) == 0 {
		n, err := p.values.ReadValues(p.buffer[:])
		if n == 0 {
			damaged("a page has fewer values than it says: %v", err)
		}
		p.ready = p.buffer[:n]
	}
	v := p.ready[0]
	p.ready = p.ready[1:]
	return v
}

// nextPage reads and decodes the next page, which may be a dictionary.
func (c *parquetColumn) nextPage() {
	defer inColumn(c.name)
	damagedIf(c.pages.at >= c.pages.end, "it ends %d values early", c.left)
	file := c.pages.next()
	p, b, n := &c.page, file.bytes, file.values
	var encoding format.Encoding
	switch file.Type {
	case format.DictionaryPage:
		c.readDictionary(file)
		return
	case format.DataPage:
		h := &file.DataPageHeader.V
		encoding = h.Encoding
		p.reps, b = prefixedLevels(b, h.RepetitionLevelEncoding, c.rep, n)
		p.defs, b = prefixedLevels(b, h.DefinitionLevelEncoding, c.def, n)
	case format.DataPageV2:
		h := &file.DataPageHeaderV2.V
		encoding = h.Encoding
		reps, defs := h.RepetitionLevelsByteLength, h.DefinitionLevelsByteLength
		p.reps = levels(b[:reps], format.RLE, c.rep, n)
		p.defs = levels(b[reps:reps+defs], format.RLE, c.def, n)
		b = b[reps+defs:]
	default: // an index page, or an unknown kind of page
		return
	}
	damagedIf(n > c.left, "a page of %d values, and %d are left", n, c.left)
	present := int(n)
	if p.defs != nil {
		present = bytes.Count(p.defs, []byte{byte(c.def)})
	}
	c.decode(b, encoding, present)
	p.left = int(n)
	c.hold()
}

// decode makes n values out of the bytes of a page. A page without values may be empty.
func (c *parquetColumn) decode(b []byte, encoding format.Encoding, n int) {
	p := &c.page
	p.indexed, p.indexes, p.values, p.ready = false, nil, nil, nil
	if n == 0 {
		return
	}
	switch encoding {
	case oldDictionary, format.RLEDictionary:
		p.indexed, p.dict, p.indexes = true, c.dict, indexes(b[1:], int(b[0]), n)
		return
	case format.RLE:
		damagedIf(c.kind != format.Boolean, "values of type %s in the encoding %s", c.kind, encoding)
		p.indexed, p.dict, p.indexes = true, []any{false, true}, indexes(b[4:][:binary.LittleEndian.Uint32(b)], 1, n)
		return
	case format.DeltaBinaryPacked, format.DeltaLengthByteArray, format.DeltaByteArray:
		checkDeltas(b, encoding, n)
	}
	values, err := c.typ.Decode(c.typ.NewValues(p.data[:0], p.offsets[:0]), b, parquet.LookupEncoding(encoding))
	damagedIf(err != nil, "%v", noEnd(err))
	p.data, p.offsets = values.Data()
	damagedIf(c.kind == format.ByteArray && len(p.offsets) <= n || 8*len(p.data) < n*typeBits(c.typ), "a page of %d values has only %d bytes", n, len(p.data))
	p.values = c.typ.NewPage(0, n, values).Values()
}

// typeBits returns how many bits each value of a type takes, 0 if the size varies.
func typeBits(t parquet.Type) int {
	if t.Kind() == parquet.FixedLenByteArray {
		return 8 * t.Length()
	}
	return t.Length()
}

// readDictionary decodes the values to which the indexes of later pages point.
func (c *parquetColumn) readDictionary(file page) {
	e := file.DictionaryPageHeader.V.Encoding
	damagedIf(e != format.Plain && e != oldDictionary, "a dictionary in the encoding %s", e)
	c.decode(file.bytes, format.Plain, int(file.values))
	c.dict = make([]any, file.values)
	for i := range c.dict {
		c.dict[i] = c.convert(c.page.next())
	}
	c.hold()
}

// hold estimates how many bytes the column holds now, and refuses a file whose columns
// hold too much together.
func (c *parquetColumn) hold() {
	p := &c.page
	n := cap(c.pages.compressed) + cap(c.pages.plain) + len(p.defs) + len(p.reps) + 4*len(p.indexes) + cap(p.data) + 4*cap(p.offsets)
	now := int64(n + 48*len(c.dict)) // each value takes an interface and about 32 bytes
	c.rows.held += now - c.held
	if c.held = now; c.rows.held > maxHeld {
		panic(unreadable(fmt.Sprintf("the pages of the columns take more than %d MiB at once: write the file with smaller pages", maxHeld>>20)))
	}
}

// prefixedLevels decodes the levels of a version 1 page and returns the bytes after them.
func prefixedLevels(b []byte, encoding format.Encoding, highest int, n int64) (list, rest []byte) {
	size := (n*int64(bits.Len(uint(highest))) + 7) / 8
	if encoding == format.RLE && highest > 0 {
		size = int64(binary.LittleEndian.Uint32(b))
		b = b[4:]
	}
	return levels(b[:size], encoding, highest, n), b[size:]
}

// levels decodes n levels, nil if all are 0.
func levels(b []byte, encoding format.Encoding, highest int, n int64) (list []byte) {
	width := bits.Len(uint(highest))
	if width == 0 {
		return nil
	}
	var err error
	switch encoding {
	case format.BitPacked:
		list, err = (&bitpacked.Encoding{BitWidth: width}).DecodeLevels(nil, b)
	case format.RLE:
		list, err = (&rle.Encoding{BitWidth: width}).DecodeLevels(make([]byte, 0, n+8), runsOf(b, width, n))
	default:
		damaged("levels in the encoding %s", encoding)
	}
	damagedIf(err != nil, "levels: %v", noEnd(err))
	if list = list[:n]; n > 0 && int(slices.Max(list)) > highest {
		damaged("a level of %d, at most %d is possible", slices.Max(list), highest)
	}
	return list
}

// indexes decodes n indexes of so many bits.
func indexes(b []byte, width, n int) []int32 {
	if width > 32 {
		damaged("indexes of %d bits", width)
	}
	list, err := (&rle.Encoding{BitWidth: width}).DecodeInt32(make([]int32, 0, n+8), runsOf(b, width, int64(n)))
	damagedIf(err != nil, "%v", noEnd(err))
	return list[:n]
}
