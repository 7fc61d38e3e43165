package dataset

import (
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// checkPages walks over the page headers of a row group before the library
// reads it. The library believes the sizes in them, and takes an LZ4 page that
// it cannot decode for a longer one, so a damaged file would have it ask for
// memory until the program is ended.
func checkPages(f io.ReaderAt, size int64, group *format.RowGroup) error {
	for i := range group.Columns {
		meta := &group.Columns[i].MetaData
		if err := checkColumn(f, size, meta, group.NumRows); err != nil {
			return fmt.Errorf("column %q: %w", meta.PathInSchema, err)
		}
	}
	return nil
}

const (
	maxPage   = 1 << 30 // bytes; writers make pages of about 1 MiB
	maxValues = 1 << 27 // in a page
)

func checkColumn(f io.ReaderAt, size int64, meta *format.ColumnMetaData, rows int64) error {
	at := meta.DataPageOffset
	if d := meta.DictionaryPageOffset; d > 0 && d < at {
		at = d
	}
	length := meta.TotalCompressedSize
	if at < 4 || length < 0 || at > size || length > size-at {
		return fmt.Errorf("%d bytes at byte %d of %d", length, at, size)
	}
	if meta.NumValues < rows {
		return fmt.Errorf("%d values in %d rows", meta.NumValues, rows)
	}
	for end, values := at+length, int64(0); values < meta.NumValues; {
		h, n, err := pageHeader(f, at, end)
		if err != nil {
			return err
		}
		at += n
		compressed, plain, count := int64(h.CompressedPageSize), int64(h.UncompressedPageSize), int64(0)
		switch h.Type {
		case format.DataPage:
			count = int64(h.DataPageHeader.V.NumValues)
			values += count
		case format.DataPageV2:
			count = int64(h.DataPageHeaderV2.V.NumValues)
			values += count
		case format.DictionaryPage:
			count = int64(h.DictionaryPageHeader.V.NumValues)
		}
		if compressed < 0 || compressed > end-at || plain < 0 || plain > maxPage || plain > meta.TotalUncompressedSize || count < 0 || count > maxValues {
			return fmt.Errorf("a page at byte %d of %d bytes, %d uncompressed, %d values", at, compressed, plain, count)
		}
		if meta.Codec == format.Lz4Raw {
			if err := checkLZ4(f, at, h); err != nil {
				return fmt.Errorf("a page at byte %d: %w", at, err)
			}
		}
		at += compressed
	}
	return nil
}

// pageHeader reads the header at at, and says how long it is.
func pageHeader(f io.ReaderAt, at, end int64) (format.PageHeader, int64, error) {
	// A header is of tens of bytes, but may hold the column's smallest and
	// largest value.
	for window := int64(1 << 10); ; window *= 16 {
		var h format.PageHeader
		b := make([]byte, min(window, end-at))
		if _, err := f.ReadAt(b, at); err != nil {
			return h, 0, fmt.Errorf("the page header at byte %d: %w", at, noEnd(err))
		}
		r := new(thrift.CompactProtocol).NewReaderFromBytes(b)
		err := thrift.NewDecoder(r).Decode(&h)
		if err == nil {
			return h, int64(r.BytesRead()), nil
		}
		if int64(len(b)) == end-at || window > maxLine {
			return h, 0, fmt.Errorf("the page header at byte %d: %w", at, err)
		}
	}
}

// checkLZ4 decodes a page, so that the library will not meet one that it can't.
func checkLZ4(f io.ReaderAt, at int64, h format.PageHeader) error {
	b := make([]byte, h.CompressedPageSize)
	if _, err := f.ReadAt(b, at); err != nil {
		return noEnd(err)
	}
	plain := int(h.UncompressedPageSize)
	if v2 := h.DataPageHeaderV2.V; h.Type == format.DataPageV2 {
		if v2.IsCompressed.Valid && !v2.IsCompressed.V {
			return nil
		}
		levels := int(v2.RepetitionLevelsByteLength) + int(v2.DefinitionLevelsByteLength)
		if v2.RepetitionLevelsByteLength < 0 || v2.DefinitionLevelsByteLength < 0 || levels > len(b) || levels > plain {
			return fmt.Errorf("levels of %d bytes", levels)
		}
		b, plain = b[levels:], plain-levels
	}
	if len(b) == 0 {
		return nil
	}
	_, err := lz4.UncompressBlock(b, make([]byte, plain))
	return err
}
