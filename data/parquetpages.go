package data

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// What pages may take. Writers make pages of about 1 MiB; a small file must not
// unfold into all the memory there is.
const (
	maxPage    = 512 << 20 // bytes of one page
	smallPage  = 16 << 20  // a larger page must not be
	maxRatio   = 1000      // so many times the size of what it is compressed from
	maxHeld    = 1 << 30   // bytes of the pages that are open in all columns
	maxValues  = 1 << 27   // values of a page
	maxEntries = 1 << 22   // values of a dictionary
)

// The codecs, as parquet.thrift numbers them.
var parquetCodecs = []string{"none", "snappy", "gzip", "LZO", "brotli", "LZ4 (Hadoop)", "zstd", "LZ4"}

const (
	codecNone   = 0
	codecSnappy = 1
	codecGzip   = 2
	codecBrotli = 4
	codecHadoop = 5
	codecZstd   = 6
	codecLZ4    = 7
)

// A pageReader reads the pages of a column chunk one after the other, into
// buffers that are used again.
type pageReader struct {
	f          io.ReaderAt
	at, end    int64
	codec      int64
	compressed []byte
	plain      []byte
	zstd       *zstd.Decoder
	held       *int64 // bytes of the pages that all columns have open
}

// next returns the header of the next page and its bytes, decompressed; they
// are good until the next call. Of a version 2 page the levels come first, as
// in the file.
func (r *pageReader) next() (parquetPage, []byte) {
	p, n := r.header()
	r.at += n
	levels := int64(0)
	if p.kind == dataPageV2 {
		if levels = p.defs + p.reps; p.defs < 0 || p.reps < 0 || levels > p.compressed || levels > p.plain {
			damaged("levels of %d and %d bytes in a page of %d", p.defs, p.reps, p.compressed)
		}
	}
	switch {
	case p.compressed < 0 || p.compressed > r.end-r.at || p.plain < 0:
		damaged("a page at byte %d of %d bytes, %d uncompressed", r.at, p.compressed, p.plain)
	case p.values < 0 || p.values > maxValues || p.kind == dictionaryPage && p.values > maxEntries:
		damaged("a page at byte %d of %d values", r.at, p.values)
	case p.compressed > maxPage || p.plain > maxPage || p.plain > smallPage && p.plain/maxRatio > p.compressed:
		panic(unreadable(fmt.Sprintf("a page at byte %d of %d bytes, %d uncompressed: at most %d MiB are read, and %d times what is compressed", r.at, p.compressed, p.plain, maxPage>>20, maxRatio)))
	}
	before := int64(cap(r.compressed) + cap(r.plain))
	r.compressed = resized(r.compressed, p.compressed)
	if _, err := r.f.ReadAt(r.compressed, r.at); err != nil {
		damaged("a page at byte %d: %v", r.at, noEnd(err))
	}
	if p.checked && crc32.ChecksumIEEE(r.compressed) != uint32(p.crc) {
		damaged("a page at byte %d has another checksum than it says", r.at)
	}
	page := r.compressed
	if packed := r.compressed[levels:]; r.codec != codecNone && !p.uncompressed && len(packed) > 0 {
		r.plain = resized(r.plain, p.plain)
		copy(r.plain, r.compressed[:levels])
		if err := r.decompress(r.plain[levels:], packed); err != nil {
			damaged("a page at byte %d: %v", r.at, err)
		}
		page = r.plain
	}
	r.at += p.compressed
	if *r.held += int64(cap(r.compressed)+cap(r.plain)) - before; *r.held > maxHeld {
		panic(unreadable(fmt.Sprintf("the pages of the columns take more than %d MiB at once: write the file with smaller pages", maxHeld>>20)))
	}
	return p, page
}

// resized returns n bytes, of b if it has them. A buffer far too large is given up.
func resized(b []byte, n int64) []byte {
	if int64(cap(b)) < n || int64(cap(b)) > 4*n+1<<20 {
		return make([]byte, n)
	}
	return b[:n]
}

// header reads the header at r.at, and says how long it is. It is of tens of
// bytes, but may hold the column's smallest and largest value.
func (r *pageReader) header() (p parquetPage, size int64) {
	for window := int64(1 << 8); ; window *= 16 {
		b := make([]byte, min(window, r.end-r.at))
		if _, err := r.f.ReadAt(b, r.at); err != nil {
			damaged("the page header at byte %d: %v", r.at, noEnd(err))
		}
		p, n, ok := tryPageHeader(b)
		if ok {
			return p, n
		}
		if int64(len(b)) == r.end-r.at || window > maxMetadata {
			damaged("there is no page header at byte %d", r.at)
		}
	}
}

func tryPageHeader(b []byte) (p parquetPage, size int64, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	p, n := readParquetPage(b)
	return p, int64(n), true
}

// decompress fills to with what from holds, which must be as much.
func (r *pageReader) decompress(to, from []byte) error {
	switch r.codec {
	case codecSnappy:
		n, err := snappy.DecodedLen(from)
		if err == nil && n != len(to) {
			err = fmt.Errorf("snappy: %d bytes, and the page has %d", n, len(to))
		}
		if err == nil {
			_, err = snappy.Decode(to, from)
		}
		return err
	case codecLZ4:
		return lz4Block(to, from)
	case codecHadoop:
		return lz4Hadoop(to, from)
	case codecGzip:
		z, err := gzip.NewReader(bytes.NewReader(from))
		if err != nil {
			return err
		}
		return fill(to, z)
	case codecBrotli:
		return fill(to, brotli.NewReader(bytes.NewReader(from)))
	case codecZstd:
		if r.zstd == nil {
			// A window is never larger than the page needs.
			z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(64<<20))
			if err != nil {
				return err
			}
			r.zstd = z
		}
		if err := r.zstd.Reset(bytes.NewReader(from)); err != nil {
			return err
		}
		return fill(to, r.zstd)
	}
	return fmt.Errorf("compressed with %s, which is not read", codecName(r.codec))
}

func codecName(codec int64) string {
	if codec < 0 || codec >= int64(len(parquetCodecs)) {
		return fmt.Sprintf("an unknown codec (%d)", codec)
	}
	return parquetCodecs[codec]
}

// fill reads to full, and wants the end there.
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

// lz4Hadoop decodes the deprecated codec LZ4: blocks with their two lengths in
// front, or, of other writers, a block as it is.
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

func (r *pageReader) close() {
	if r.zstd != nil {
		r.zstd.Close()
		r.zstd = nil
	}
}
