package data

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"time"
)

// The members of the union LogicalType, and the older ConvertedType, as far as
// they matter here, as parquet.thrift numbers them.
const (
	logicalString    = 1
	logicalMap       = 2
	logicalList      = 3
	logicalEnum      = 4
	logicalDecimal   = 5
	logicalDate      = 6
	logicalTime      = 7
	logicalTimestamp = 8
	logicalInteger   = 10
	logicalJSON      = 12
	logicalUUID      = 14
	logicalFloat16   = 15

	convertedUTF8            = 0
	convertedMap             = 1
	convertedMapKeyValue     = 2
	convertedList            = 3
	convertedEnum            = 4
	convertedDecimal         = 5
	convertedDate            = 6
	convertedTimeMillis      = 7
	convertedTimeMicros      = 8
	convertedTimestampMillis = 9
	convertedTimestampMicros = 10
	convertedUint8           = 11
	convertedUint64          = 14
	convertedJSON            = 19
)

// converter returns how a leaf's values become an Object's. The older
// annotation is read where the newer is absent.
func (e *parquetElement) converter() func(parquetValue) any {
	kind, l := e.kind, e.logical
	integer := func(v parquetValue) int64 {
		if kind == parquetInt32 {
			return int64(int32(v.bits))
		}
		return int64(v.bits)
	}
	decimal := func(scale int64) func(parquetValue) any {
		return func(v parquetValue) any { // in two's complement where it is bytes
			if kind == parquetInt32 || kind == parquetInt64 {
				return pointed(big.NewInt(integer(v)), int(scale))
			}
			return pointed(twosComplement(v.bytes), int(scale))
		}
	}
	times := func(unit time.Duration, write func(time.Time) string) func(parquetValue) any {
		return func(v parquetValue) any { return write(moment(integer(v), unit)) }
	}
	unit := []time.Duration{time.Millisecond, time.Millisecond, time.Microsecond, time.Nanosecond}[min(l.unit, 3)]
	text := func(v parquetValue) any { return string(v.bytes) }
	date := func(v parquetValue) any { return day(integer(v)) }
	numeric := kind == parquetInt32 || kind == parquetInt64
	switch l.member {
	case logicalDecimal:
		return decimal(l.scale)
	case logicalInteger:
		if !l.set && numeric {
			return unsigned
		}
	case logicalDate:
		return date
	case logicalTime:
		return times(unit, clock)
	case logicalTimestamp:
		zone := ""
		if l.set {
			zone = "UTC"
		}
		return times(unit, newZone(zone).format)
	case logicalUUID:
		return func(v parquetValue) any {
			b := v.bytes
			return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
		}
	case logicalFloat16:
		return func(v parquetValue) any { return half(binary.LittleEndian.Uint16(v.bytes)) }
	case logicalString, logicalEnum, logicalJSON:
		return text
	}
	switch c := e.converted; {
	case c == convertedDecimal:
		return decimal(e.scale)
	case c >= convertedUint8 && c <= convertedUint64 && numeric:
		return unsigned
	case c == convertedDate:
		return date
	case c == convertedTimeMillis:
		return times(time.Millisecond, clock)
	case c == convertedTimeMicros:
		return times(time.Microsecond, clock)
	case c == convertedTimestampMillis:
		return times(time.Millisecond, newZone("UTC").format)
	case c == convertedTimestampMicros:
		return times(time.Microsecond, newZone("UTC").format)
	case c == convertedUTF8 || c == convertedEnum || c == convertedJSON:
		return text
	}
	// There is no annotation.
	switch kind {
	case parquetBoolean:
		return func(v parquetValue) any { return v.bits&1 == 1 }
	case parquetInt32, parquetInt64:
		return func(v parquetValue) any { return integer(v) }
	case parquetInt96:
		return int96
	case parquetFloat:
		return func(v parquetValue) any { return float64(math.Float32frombits(uint32(v.bits))) }
	case parquetDouble:
		return func(v parquetValue) any { return math.Float64frombits(v.bits) }
	}
	return func(v parquetValue) any { return append([]byte{}, v.bytes...) }
}

// unsigned widens: 32-bit values come without a sign already.
func unsigned(v parquetValue) any {
	if v.bits <= math.MaxInt64 {
		return int64(v.bits)
	}
	return v.bits
}

// int96 is a timestamp of old writers: nanoseconds of a day, and the Julian day.
func int96(v parquetValue) any {
	nanos := int64(binary.LittleEndian.Uint64(v.bytes))
	julian := int64(binary.LittleEndian.Uint32(v.bytes[8:]))
	const epoch = 2440588
	return newZone("").format(time.Unix((julian-epoch)*86400, nanos).UTC())
}
