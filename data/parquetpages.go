package data

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// Limits of pages. Writers make pages of about 1 MiB; a small file must not unfold into
// all the memory of the machine.
const (
	maxPage    = 512 << 20 // bytes of one page
	maxWindow  = 64 << 20  // how many bytes zstd looks back at most, where a page is larger
	maxHeld    = 1 << 30   // bytes that the pages of all columns hold together
	maxValues  = 1 << 26   // values in a page
	maxEntries = 1 << 22   // values in a dictionary
)

// A pageReader reads the pages of a column chunk one after the other, into
// buffers that it uses again.
type pageReader struct {
	f       io.ReaderAt
	at, end int64
	codec   format.CompressionCodec
	*unfolding
	compressed []byte
	plain      []byte
}

// A page is a page's header and its decompressed bytes, which are valid until the next
// page is read. In version 2 the levels come first, as in the file.
type page struct {
	format.PageHeader
	values int64
	bytes  []byte
}

// next reads the next page, after checking its header.
func (r *pageReader) next() page {
	p := r.header()
	packed, plain, levels := int64(p.CompressedPageSize), int64(p.UncompressedPageSize), int64(0)
	stored := r.codec == format.Uncompressed
	switch p.Type {
	case format.DataPage:
		p.values = int64(p.DataPageHeader.V.NumValues)
	case format.DictionaryPage:
		p.values = int64(p.DictionaryPageHeader.V.NumValues)
	case format.DataPageV2:
		h := &p.DataPageHeaderV2.V
		p.values = int64(h.NumValues)
		stored = stored || h.IsCompressed.Valid && !h.IsCompressed.V
		levels = int64(h.DefinitionLevelsByteLength) + int64(h.RepetitionLevelsByteLength)
		damagedIf(h.DefinitionLevelsByteLength < 0 || h.RepetitionLevelsByteLength < 0 || levels > packed || levels > plain, "levels of %d and %d bytes in a page of %d", h.DefinitionLevelsByteLength, h.RepetitionLevelsByteLength, packed)
	}
	switch {
	case packed < 0 || packed > r.end-r.at || plain < 0:
		damaged("a page at byte %d of %d bytes, %d uncompressed", r.at, packed, plain)
	case p.values < 0 || p.values > maxValues || p.Type == format.DictionaryPage && p.values > maxEntries:
		damaged("a page at byte %d of %d values", r.at, p.values)
	case packed > maxPage || plain > maxPage:
		panic(unreadable(fmt.Sprintf("a page at byte %d of %d bytes, %d uncompressed: at most %d MiB are read: write the file with smaller pages", r.at, packed, plain, maxPage>>20)))
	}
	r.must(plain + 4*p.values) // the size includes levels and indexes
	r.compressed = resized(r.compressed, packed)
	_, err := r.f.ReadAt(r.compressed, r.at)
	damagedIf(err != nil, "a page at byte %d: %v", r.at, noEnd(err))
	damagedIf(p.CRC != 0 && crc32.ChecksumIEEE(r.compressed) != uint32(p.CRC), "a page at byte %d does not have the checksum in its header", r.at)
	p.bytes = r.compressed
	if from := r.compressed[levels:]; !stored && len(from) > 0 {
		r.plain = resized(r.plain, plain)
		copy(r.plain, r.compressed[:levels])
		err := r.decompress(r.plain[levels:], from)
		damagedIf(err != nil, "a page at byte %d: %v", r.at, noEnd(err))
		p.bytes = r.plain
	}
	r.at += packed
	return p
}

// resized returns a slice of n bytes, in the memory of b if that is large enough
// and not much too large.
func resized(b []byte, n int64) []byte {
	if int64(cap(b)) < n || int64(cap(b)) > 4*n+1<<20 {
		return make([]byte, n)
	}
	return b[:n]
}

// header reads the header at r.at and goes to what follows it. A header has tens of
// bytes, but may hold the column's smallest and largest value.
func (r *pageReader) header() (p page) {
	for window := int64(1 << 8); ; window *= 16 {
		b := make([]byte, min(window, r.end-r.at))
		_, err := r.f.ReadAt(b, r.at)
		damagedIf(err != nil, "the page header at byte %d: %v", r.at, noEnd(err))
		n, err := decodeThrift(b, &p.PageHeader)
		if err == nil {
			r.at += int64(n)
			return p
		}
		damagedIf(int64(len(b)) == r.end-r.at || window > maxMetadata, "the page header at byte %d cannot be read", r.at)
	}
}

// decompress decompresses from into to, which must have the exact length.
func (r *pageReader) decompress(to, from []byte) error {
	switch r.codec {
	case format.Snappy:
		n, err := snappy.DecodedLen(from)
		if err == nil && n != len(to) {
			err = fmt.Errorf("snappy: %d bytes, and the page has %d", n, len(to))
		}
		if err == nil {
			_, err = snappy.Decode(to, from)
		}
		return err
	case format.Lz4Raw:
		return lz4Block(to, from)
	case format.Lz4:
		return lz4Hadoop(to, from)
	case format.Gzip:
		z, err := gzip.NewReader(bytes.NewReader(from))
		if err != nil {
			return err
		}
		return fill(to, z)
	case format.Brotli:
		return fill(to, brotli.NewReader(bytes.NewReader(from)))
	case format.Zstd:
		plain, err := pageZstd().DecodeAll(from, to[:0:len(to)])
		if err == nil && len(plain) != len(to) {
			err = fmt.Errorf("zstd: %d bytes, and the page has %d", len(plain), len(to))
		}
		return err
	}
	return fmt.Errorf("compressed with %s, which is not read", r.codec)
}

// pageZstd returns the decoder of zstd, which writes no more than there is room for.
var pageZstd = sync.OnceValue(func() *zstd.Decoder {
	z, err := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		panic(err) // only wrong options give an error
	}
	return z
})

// fill reads exactly len(to) bytes and checks that from ends there.
func fill(to []byte, from io.Reader) error {
	if _, err := io.ReadFull(from, to); err != nil {
		return noEnd(err)
	}
	if n, err := io.CopyN(io.Discard, from, 1); n > 0 || err != io.EOF {
		return fmt.Errorf("it is longer than it says (%v)", err)
	}
	return nil
}

func lz4Block(to, from []byte) error {
	n, err := lz4.UncompressBlock(from, to)
	if err == nil && n != len(to) {
		err = fmt.Errorf("lz4: %d bytes, and the page has %d", n, len(to))
	}
	return err
}

// lz4Hadoop decodes the deprecated codec LZ4: blocks that begin with their two
// lengths, or, from some writers, one block without them.
func lz4Hadoop(to, from []byte) error {
	for at, rest := 0, from; len(rest) >= 8; {
		plain, packed := binary.BigEndian.Uint32(rest), binary.BigEndian.Uint32(rest[4:])
		rest = rest[8:]
		if uint64(plain) > uint64(len(to)-at) || uint64(packed) > uint64(len(rest)) || lz4Block(to[at:at+int(plain)], rest[:packed]) != nil {
			break
		}
		at, rest = at+int(plain), rest[packed:]
		if at == len(to) && len(rest) == 0 {
			return nil
		}
	}
	return lz4Block(to, from)
}
