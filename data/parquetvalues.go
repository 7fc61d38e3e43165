package data

import (
	"encoding/binary"
	"math"
)

// The encodings, as parquet.thrift numbers them.
const (
	encodingPlain           = 0
	encodingPlainDictionary = 2
	encodingRLE             = 3
	encodingBitPacked       = 4
	encodingDelta           = 5
	encodingDeltaLength     = 6
	encodingDeltaBytes      = 7
	encodingDictionary      = 8
	encodingStreamSplit     = 9
)

// The physical types, as parquet.thrift numbers them.
const (
	parquetBoolean = 0
	parquetInt32   = 1
	parquetInt64   = 2
	parquetInt96   = 3
	parquetFloat   = 4
	parquetDouble  = 5
	parquetBytes   = 6
	parquetFixed   = 7
)

// A parquetValue is a value in its physical type: the bits of numbers, the
// bytes of the rest, which are good until the column's next page.
type parquetValue struct {
	bits  uint64
	bytes []byte
}

// widthOf is the bytes that a value of a type takes, 0 if they vary.
func widthOf(kind, length int64) int {
	switch kind {
	case parquetInt32, parquetFloat:
		return 4
	case parquetInt64, parquetDouble:
		return 8
	case parquetInt96:
		return 12
	case parquetFixed:
		return int(length)
	}
	return 0
}

// fixedValue makes a value of its bytes.
func fixedValue(kind int64, b []byte) parquetValue {
	switch kind {
	case parquetInt32, parquetFloat:
		return parquetValue{bits: uint64(binary.LittleEndian.Uint32(b))}
	case parquetInt64, parquetDouble:
		return parquetValue{bits: binary.LittleEndian.Uint64(b)}
	}
	return parquetValue{bytes: b}
}

// values returns a function that decodes the values of a page one after the
// other. count is at least how many there are.
func (e *parquetElement) values(b []byte, encoding, count int64) func() parquetValue {
	width := widthOf(e.kind, e.length)
	switch {
	case encoding == encodingPlain && e.kind == parquetBoolean:
		bit := 0
		return func() parquetValue {
			bit++
			return parquetValue{bits: uint64(b[(bit-1)>>3]) >> ((bit - 1) & 7) & 1}
		}
	case encoding == encodingPlain && e.kind == parquetBytes:
		return func() parquetValue {
			n := binary.LittleEndian.Uint32(b)
			v := b[4:][:n:n]
			b = b[4+int(n):]
			return parquetValue{bytes: v}
		}
	case encoding == encodingPlain:
		return func() parquetValue {
			v := b[:width:width]
			b = b[width:]
			return fixedValue(e.kind, v)
		}
	case encoding == encodingRLE && e.kind == parquetBoolean:
		h := newHybrid(b[4:][:binary.LittleEndian.Uint32(b)], 1)
		return func() parquetValue { return parquetValue{bits: h.next()} }
	case encoding == encodingDelta && (e.kind == parquetInt32 || e.kind == parquetInt64):
		d, mask := newDeltas(b, count), ^uint64(0)
		if e.kind == parquetInt32 {
			mask = math.MaxUint32
		}
		return func() parquetValue { return parquetValue{bits: d.next() & mask} }
	case encoding == encodingDeltaLength && e.kind == parquetBytes:
		next := deltaLengths(b, count)
		return func() parquetValue { return parquetValue{bytes: next()} }
	case encoding == encodingDeltaBytes && (e.kind == parquetBytes || e.kind == parquetFixed):
		return deltaBytes(b, count)
	case encoding == encodingStreamSplit && width > 0:
		return streamSplit(b, e.kind, width)
	}
	damaged("values of type %d in the encoding %d", e.kind, encoding)
	return nil
}

// deltaLengths decodes DELTA_LENGTH_BYTE_ARRAY: all lengths, then all bytes.
func deltaLengths(b []byte, count int64) func() []byte {
	data := b[newDeltas(b, count).end():]
	lengths := newDeltas(b, count)
	return func() []byte {
		n := lengths.next()
		if n > uint64(len(data)) {
			damaged("a value of %d bytes in a page with %d left", n, len(data))
		}
		v := data[:n:n]
		data = data[n:]
		return v
	}
}

// maxSpread bounds what the values of one page come to where each repeats the
// beginning of the one before it.
const maxSpread = 1 << 30

// deltaBytes decodes DELTA_BYTE_ARRAY: how much of the value before is kept,
// and what comes behind it.
func deltaBytes(b []byte, count int64) func() parquetValue {
	prefixes := newDeltas(b, count)
	suffix := deltaLengths(b[newDeltas(b, count).end():], count)
	var value []byte
	spread := 0
	return func() parquetValue {
		n := prefixes.next()
		if n > uint64(len(value)) {
			damaged("a value keeps %d bytes of one of %d", n, len(value))
		}
		value = append(value[:n], suffix()...)
		if spread += len(value); spread > maxSpread {
			damaged("the values of a page come to more than %d MiB", maxSpread>>20)
		}
		return parquetValue{bytes: value}
	}
}

// streamSplit decodes BYTE_STREAM_SPLIT: the first bytes of all values, then
// the second ones, and so on.
func streamSplit(b []byte, kind int64, width int) func() parquetValue {
	n := len(b) / width
	value, i := make([]byte, width), 0
	return func() parquetValue {
		if i == n {
			damaged("a page ends too early")
		}
		for j := range value {
			value[j] = b[j*n+i]
		}
		i++
		return fixedValue(kind, value)
	}
}
