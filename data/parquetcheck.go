package data

import (
	"encoding/binary"
	"fmt"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// The library allocates as much as a file states for its lists, runs and counts before it
// reads them. The checks of this file first walk over the bytes without allocating, so
// that the library decodes only what is there.

// maxElements bounds the elements of all lists in a file's metadata.
const maxElements = 1 << 20

// decodeThrift decodes the metadata at the beginning of b into v, which points to a
// structure of package format, and returns the length of the metadata.
func decodeThrift(b []byte, v any) (int, error) {
	protocol := new(thrift.CompactProtocol)
	elements := 0
	r := protocol.NewReaderFromBytes(b)
	if err := checkThrift(r, thrift.STRUCT, 0, &elements); err != nil {
		return 0, err
	}
	return r.BytesRead(), thrift.NewDecoder(protocol.NewReaderFromBytes(b)).Decode(v)
}

// checkThrift walks over one value. It bounds the nesting, since the library's decoder is
// recursive.
func checkThrift(r thrift.Reader, kind thrift.Type, depth int, elements *int) (err error) {
	if depth > 64 {
		return fmt.Errorf("metadata is nested too deep")
	}
	list := thrift.List{}
	switch kind {
	case thrift.TRUE, thrift.FALSE, thrift.I8:
		_, err = r.ReadInt8()
	case thrift.I16, thrift.I32, thrift.I64:
		_, err = r.ReadInt64()
	case thrift.DOUBLE:
		_, err = r.ReadFloat64()
	case thrift.BINARY:
		_, err = r.ReadBytes()
	case thrift.LIST, thrift.SET:
		list, err = r.ReadList()
	case thrift.STRUCT:
		for {
			field, err := r.ReadField()
			if err != nil || field.Type == thrift.STOP {
				return err
			}
			if field.Type == thrift.TRUE || field.Type == thrift.FALSE {
				continue // a boolean field has its value in its type
			}
			if err := checkThrift(r, field.Type, depth+1, elements); err != nil {
				return err
			}
		}
	default: // the format has no maps
		return fmt.Errorf("metadata has a value of type %d", kind)
	}
	for range list.Size {
		if *elements++; *elements > maxElements {
			return fmt.Errorf("metadata has more than %d elements", maxElements)
		}
		if err := checkThrift(r, list.Type, depth+1, elements); err != nil {
			return err
		}
	}
	return err
}

// maxOverrun is how many values beyond the wanted number a sequence of runs may hold.
const maxOverrun = 1 << 20

// runsOf returns the part of b that holds n numbers of so many bits each in the encoding
// RLE: runs of one value mixed with packed groups of eight.
func runsOf(b []byte, width int, n int64) []byte {
	at := 0
	for n > 0 {
		head, size := binary.Uvarint(b[at:])
		if size <= 0 || head > 1<<40 {
			damaged("a page ends too early, or has a run of %d values", head>>1)
		}
		at += size
		if count := int64(head >> 1); head&1 == 0 {
			n -= count
			at += (width + 7) / 8
		} else {
			n -= 8 * count
			at += int(min(count*int64(width), int64(len(b)+1)))
		}
		if at > len(b) || n < -maxOverrun {
			damaged("a page ends %d bytes too early, or has %d values too many", max(0, at-len(b)), max(0, -n))
		}
	}
	return b[:at]
}

// deltasEnd returns where a sequence of at most most numbers in the encoding
// DELTA_BINARY_PACKED ends in b: blocks of differences, packed in miniblocks
// with a width each.
func deltasEnd(b []byte, most int) int {
	at := 0
	number := func() uint64 {
		x, size := binary.Uvarint(b[at:])
		if size <= 0 {
			damaged("a page ends too early")
		}
		at += size
		return x
	}
	block, minis, total, _ := number(), number(), number(), number()
	damagedIf(block == 0 || block > 1<<20 || minis == 0 || block%minis != 0 || total > uint64(most), "blocks of %d numbers in %d parts, %d in all", block, minis, total)
	mini := int(block / minis)
	for left := int(total) - 1; left > 0; {
		number() // the smallest difference
		widths := b[at : at+int(minis)]
		at += int(minis)
		for _, width := range widths {
			if left > 0 {
				at += mini * int(width) / 8
				left -= mini
			}
		}
	}
	return min(at, len(b)) // some writers leave out the padding of the last miniblock
}

// maxSpread bounds the size of a page whose values each repeat the beginning of the
// previous value.
const maxSpread = 1 << 28

// checkDeltas checks a page of n values in one of the encodings by differences.
func checkDeltas(b []byte, encoding format.Encoding, n int) {
	end := deltasEnd(b, n)
	if encoding != format.DeltaByteArray {
		return
	}
	deltasEnd(b[end:], n)
	kept, err := parquet.DeltaBinaryPacked.DecodeInt32(nil, b[:end])
	damagedIf(err != nil, "%v", noEnd(err))
	spread := int64(0)
	for _, size := range kept {
		if spread += int64(size); size < 0 || spread > maxSpread {
			damaged("the values of a page come to more than %d MiB", maxSpread>>20)
		}
	}
}
