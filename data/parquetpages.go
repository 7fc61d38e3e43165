package data

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"slices"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// A parquetColumn reads a column that has no others inside, a row at a time. Each value comes with
// two levels: how much of the path to it is present, and which list it continues (Melnik et al.,
// "Dremel", VLDB 2010, section 4).
type parquetColumn struct {
	*parquetFile
	*parquet.Column
	maxDef, maxRep int // the highest levels
	convert        func(parquet.Value) any

	at, end    int64 // the part of the file that is still to be read in this row group
	codec      format.CompressionCodec
	unread     int64 // how many values the pages of the row group have that are not open yet
	dict       []any
	defs, reps []byte     // the levels of the values that are left in the open page
	nextValue  func() any // the next value of the page that is not null
	pageBytes  int64      // how many bytes the open page holds
	cells      []parquetCell
}

// A parquetCell is a value of a row. Its value is nil if its definition level is not the highest.
type parquetCell struct {
	def, rep byte
	value    any
}

func (c *parquetColumn) kind() parquet.Kind { return c.Type().Kind() }

// begin goes to the column's chunk in a row group.
func (c *parquetColumn) begin(chunk *format.ColumnChunk) {
	m := &chunk.MetaData
	c.column, c.at = c.Name(), m.DataPageOffset
	if d := m.DictionaryPageOffset; d > 0 && d < c.at {
		c.at = d
	}
	unreadableIf(chunk.FilePath != "" || chunk.CryptoMetadata.Value != nil, "it is encrypted, or in another file")
	damagedIf(c.kind() >= 0 && c.kind() != parquet.Kind(m.Type), "its type is %s and %s", c.kind(), m.Type)
	damagedIf(c.at < 4 || m.TotalCompressedSize < 0 || m.TotalCompressedSize > c.size-c.at || m.NumValues < 0, // 4: PAR1 is first
		"%d values in %d bytes at byte %d of %d", m.NumValues, m.TotalCompressedSize, c.at, c.size)
	c.end, c.codec, c.unread, c.dict = c.at+m.TotalCompressedSize, m.Codec, m.NumValues, nil
}

// row returns the values of the next row, which are valid until the row after it.
func (c *parquetColumn) row() []parquetCell {
	c.cells = c.cells[:0]
	for {
		for len(c.defs) == 0 && c.unread > 0 {
			c.readPage()
		}
		if len(c.defs) == 0 || len(c.cells) > 0 && c.reps[0] == 0 { // the next value begins another row
			break
		}
		cell := parquetCell{def: c.defs[0], rep: c.reps[0]}
		c.countValues(1)
		if int(cell.def) == c.maxDef { // the value is there; at a lower level it, or what holds it, is missing
			cell.value = c.nextValue()
		}
		c.cells, c.defs, c.reps = append(c.cells, cell), c.defs[1:], c.reps[1:]
	}
	if len(c.cells) == 0 || c.cells[0].rep != 0 { // a row begins with the repetition level 0
		damagedIf(true, "it does not have the rows of the others")
	}
	return c.cells
}

// header reads the header of the next page. It has tens of bytes, but may hold the column's smallest
// and largest value.
func (c *parquetColumn) header() (h format.PageHeader) {
	for window := int64(1 << 8); ; window <<= 4 {
		b := make([]byte, min(window, c.end-c.at))
		_, err := c.f.ReadAt(b, c.at)
		damagedIf(err != nil, "the page at byte %d: %v", c.at, endIsError(err))
		n, err := decodeThrift(b, &h)
		if err == nil {
			c.at += int64(n)
			return h
		}
		damagedIf(int64(len(b)) == c.end-c.at || window > maxMetadata, "the header of the page at byte %d cannot be read", c.at)
	}
}

// readPage reads the next page after it compared its header with the file. It sets c.dict if the page is a
// dictionary, or else the levels c.defs and c.reps, and c.nextValue, which reads its values.
func (c *parquetColumn) readPage() {
	damagedIf(c.at >= c.end, "it ends %d values early", c.unread)
	h := c.header()
	at, packed, plain := c.at, int64(h.CompressedPageSize), int64(h.UncompressedPageSize)
	n := int(h.DataPageHeader.V.NumValues + h.DataPageHeaderV2.V.NumValues + h.DictionaryPageHeader.V.NumValues) // it has one of them
	damagedIf(packed < 0 || packed > c.end-at || plain < 0 || n < 0 || n > 1<<26, "a page at byte %d of %d bytes, %d unpacked, with %d values",
		at, packed, plain, n)
	c.held += plain - c.pageBytes // the page takes the place of the column's last one
	unreadableIf(max(packed, plain) > maxPage || c.held > maxHeld,
		"the open pages take %d MiB with one of %d, at most %d and %d are read: write the file with smaller pages",
		c.held>>20, max(packed, plain)>>20, maxHeld>>20, maxPage>>20)
	c.pageBytes = plain
	c.countUnpacked(plain + 4*int64(n)) // the size includes levels and indexes
	b := make([]byte, packed)
	_, err := c.f.ReadAt(b, at)
	damagedIf(err != nil, "the page at byte %d: %v", at, endIsError(err))
	damagedIf(h.CRC != 0 && crc32.ChecksumIEEE(b) != uint32(h.CRC), "the page at byte %d does not have the checksum in its header", at)
	c.at += packed
	var encoding format.Encoding
	switch h.Type {
	case format.DictionaryPage:
		damagedIf(n > rowBudget, "a dictionary of %d values", n)
		next := c.values(c.unpack(b, plain), format.Plain, n)
		c.dict = make([]any, n)
		for i := range c.dict {
			c.dict[i] = next()
		}
		return
	case format.DataPage:
		d := &h.DataPageHeader.V
		b, encoding = c.unpack(b, plain), d.Encoding
		c.reps, b = decodeLevels(b, sizeInFront, d.RepetitionLevelEncoding, c.maxRep, n)
		c.defs, b = decodeLevels(b, sizeInFront, d.DefinitionLevelEncoding, c.maxDef, n)
	case format.DataPageV2:
		d := &h.DataPageHeaderV2.V
		encoding = d.Encoding
		c.reps, b = decodeLevels(b, d.RepetitionLevelsByteLength, format.RLE, c.maxRep, n)
		c.defs, b = decodeLevels(b, d.DefinitionLevelsByteLength, format.RLE, c.maxDef, n)
		if !d.IsCompressed.Valid || d.IsCompressed.V {
			b = c.unpack(b, plain-(packed-int64(len(b)))) // the levels before b are never packed
		}
	default: // an index page, or an unknown kind of page: row then reads the next one
		return
	}
	damagedIf(int64(n) > c.unread, "a page of %d values, and %d are left", n, c.unread)
	c.unread -= int64(n)
	c.nextValue = c.values(b, encoding, bytes.Count(c.defs, []byte{byte(c.maxDef)})) // nulls are not stored
}

// unpack decompresses a page of size bytes, and no more of it.
func (c *parquetColumn) unpack(from []byte, size int64) []byte {
	if c.codec == format.Uncompressed || len(from) == 0 {
		return from
	}
	damagedIf(size < 0, "a page of %d bytes", size)
	to, n := make([]byte, size), 0
	r, err := io.Reader(bytes.NewReader(from)), error(nil)
	switch c.codec {
	case format.Snappy:
		if n, err = snappy.DecodedLen(from); err == nil && n == len(to) {
			_, err = snappy.Decode(to, from)
		}
	case format.Lz4Raw:
		n, err = lz4.UncompressBlock(from, to)
	case format.Zstd:
		from, err = pageZstd().DecodeAll(from, to[:0]) // into to, whose room bounds it
		n = len(from)
	case format.Gzip, format.Brotli:
		if c.codec == format.Brotli {
			r = brotli.NewReader(r)
		} else if r, err = gzip.NewReader(r); err != nil {
			break
		}
		if n, err = io.ReadFull(r, to); err == nil {
			if n, err = r.Read(make([]byte, 1)); n == 0 && err == io.EOF { // it has no more bytes
				return to
			}
		}
	default:
		panic(unreadable(fmt.Sprintf("it is compressed with %s, which is not read", c.codec)))
	}
	damagedIf(err != nil || n != len(to), "the page before byte %d does not unpack to the %d bytes that it states (%v)", c.at, size, err)
	return to
}

// pageZstd returns the decoder of zstd, which writes no more than there is room for.
var pageZstd = sync.OnceValue(func() *zstd.Decoder {
	z, _ := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(maxWindow)) // these options give no error
	return z
})

// sizeInFront is a size of levels that stands in front of them.
const sizeInFront = -1

// decodeLevels reads n levels in the first size bytes of b, and returns the bytes after them. If size is
// sizeInFront, b begins with it, unless the highest level is 0: then b has no levels.
func decodeLevels(b []byte, size int32, encoding format.Encoding, highest, n int) (list, rest []byte) {
	list = make([]byte, n)
	if highest > 0 && size < 0 {
		damagedIf(encoding != format.RLE, "levels in the encoding %s, which is not read: write the file again", encoding)
		size, b = int32(binary.LittleEndian.Uint32(b)), b[4:]
	}
	size = max(size, 0)
	if highest > 0 && n > 0 {
		decodeRuns(b[:size], bits.Len(uint(highest)), list)
		damagedIf(int(slices.Max(list)) > highest, "a level above %d", highest)
	}
	return list, b[size:]
}

// decodeRuns fills list with numbers of width bits each out of b, in the encoding RLE: runs of one value mixed with packed
// groups of eight. The library would make as many numbers as a run states, however many that is.
func decodeRuns[T byte | int32](b []byte, width int, list []T) {
	damagedIf(width > 32, "numbers of %d bits", width)
	b = append(slices.Clip(b), make([]byte, 8)...) // a number is read with the bytes after it
	for len(list) > 0 {
		head, size := binary.Uvarint(b)
		damagedIf(size <= 0 || head>>1 > uint64(len(list)+1<<20), "a run of %d values, and %d are left", head>>1, len(list))
		n, step := int(head>>1), 0 // one value, in whole bytes, is read n times
		octets := (width + 7) / 8
		mask := uint64(1)<<(8*octets) - 1
		if head&1 == 1 { // n groups of eight numbers, bit after bit
			octets = width * n
			n, step, mask = 8*n, width, 1<<width-1
		}
		b = b[size:]
		damagedIf(octets > len(b)-8, "a run that ends early")
		n = min(n, len(list))
		for i := range n {
			list[i] = T(binary.LittleEndian.Uint64(b[i*step/8:]) >> (i * step % 8) & mask)
		}
		list, b = list[n:], b[octets:]
	}
}

// values returns the function that reads the n values in b, one after the other. It first refuses
// values for which the library would allocate more than a page may hold.
func (c *parquetColumn) values(b []byte, encoding format.Encoding, n int) func() any {
	if n == 0 { // such a page may be empty, and nobody reads from it
		return nil
	}
	dict := c.dict
	switch encoding {
	case format.RLE:
		damagedIf(c.kind() != parquet.Boolean, "values of type %s in the encoding %s", c.kind(), encoding)
		// Such bits are read as indexes: their length, in front of them, makes room for the width of an index, 1 bit.
		dict, b = []any{false, true}, append([]byte{1}, b[4:][:binary.LittleEndian.Uint32(b)]...)
		fallthrough
	case format.PlainDictionary, format.RLEDictionary:
		indexes := make([]int32, n)
		decodeRuns(b[1:], int(b[0]), indexes)
		return func() any {
			value := dict[indexes[0]]
			indexes = indexes[1:]
			return value
		}
	case format.DeltaByteArray: // the values repeat the beginnings of those before them
		deltasEnd(b[deltasEnd(b, n):], n)
		size := parquet.DeltaByteArray.EstimateDecodeByteArraySize(b)
		damagedIf(size < 0 || size > maxPage, "the values of a page come to more than %d MiB", maxPage>>20)
	case format.DeltaBinaryPacked, format.DeltaLengthByteArray:
		deltasEnd(b, n) // it refuses a sequence of more than n numbers
	}
	values, err := c.Type().Decode(c.Type().NewValues(nil, nil), b, parquet.LookupEncoding(encoding))
	damagedIf(err != nil, "%v", err)
	data, offsets := values.Data()
	width := c.Type().Length() // of a value, in bits; 0 where values differ in it
	if c.kind() == parquet.FixedLenByteArray {
		width *= 8 // here it is in bytes
	}
	damagedIf(c.kind() == parquet.ByteArray && len(offsets) <= n || 8*len(data) < n*width, "a page of %d values has only %d bytes", n, len(data))
	if c.kind() == parquet.ByteArray { // some writers put more bytes into a page
		values = c.Type().NewValues(data, offsets[:n+1])
	}
	page := c.Type().NewPage(0, n, values).Values()
	v := make([]parquet.Value, 1)
	return func() any {
		n, err := page.ReadValues(v)
		if n == 0 {
			damagedIf(true, "a page has fewer values than it states: %v", err)
		}
		if hasBytes(v[0]) {
			c.countValues(int64(len(v[0].ByteArray()) / textShare))
		}
		return c.convert(v[0])
	}
}

// deltasEnd returns where a sequence of at most most numbers in the encoding DELTA_BINARY_PACKED
// ends in b: blocks of differences, packed in miniblocks with a width each. The library makes as many
// numbers as the sequence states.
func deltasEnd(b []byte, most int) int {
	at := 0
	number := func() int {
		x, size := binary.Uvarint(b[at:])
		damagedIf(size <= 0, "a page ends early")
		at += size
		return int(x)
	}
	block, minis := number(), number() // differences of a block, and the parts that it has
	left := number() - 1               // differences in all
	number()                           // the first number
	damagedIf(block <= 0 || block > 1<<20 || minis <= 0 || block%minis != 0 || left >= most || left < -1,
		"blocks of %d numbers in %d parts, %d in all", block, minis, left+1)
	for left > 0 {
		number() // the smallest difference
		widths := b[at:][:minis]
		at += minis
		for _, width := range widths {
			if left > 0 {
				at += block / minis * int(width) / 8
				left -= block / minis
			}
		}
	}
	return min(at, len(b)) // some writers leave out the padding of the last miniblock
}
