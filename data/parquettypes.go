package data

import (
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// converter returns the function that turns a leaf's values into values of an Object. The
// older annotation, ConvertedType, is read where the newer is absent.
func converter(e *format.SchemaElement) func(parquet.Value) any {
	switch t := e.LogicalType.Value.(type) {
	case *format.DecimalType:
		return decimalConverter(int(t.Scale))
	case *format.IntType:
		if !t.IsSigned {
			return unsigned
		}
	case *format.DateType:
		return date
	case *format.TimeType:
		return timeConverter(unitOf(t.Unit), clockText)
	case *format.TimestampType:
		zone := ""
		if t.IsAdjustedToUTC {
			zone = "UTC"
		}
		return timeConverter(unitOf(t.Unit), newZone(zone).format)
	case *format.UUIDType:
		return func(v parquet.Value) any {
			b := bytesOf(v)
			return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
		}
	case *format.Float16Type:
		return func(v parquet.Value) any { return shortestFloat16(float16.FromLEBytes(bytesOf(v))) }
	case *format.StringType, *format.EnumType, *format.JsonType:
		return text
	}
	if !e.ConvertedType.Valid {
		return unannotated
	}
	if e.ConvertedType.V == deprecated.Decimal {
		return decimalConverter(int(e.Scale.V))
	}
	if convert, ok := olderConverters[e.ConvertedType.V]; ok {
		return convert
	}
	return unannotated
}

// olderConverters are those of ConvertedTypes without settings of their own.
var olderConverters = map[deprecated.ConvertedType]func(parquet.Value) any{
	deprecated.Uint8: unsigned, deprecated.Uint16: unsigned, deprecated.Uint32: unsigned, deprecated.Uint64: unsigned,
	deprecated.UTF8: text, deprecated.Enum: text, deprecated.Json: text,
	deprecated.Date:            date,
	deprecated.TimeMillis:      timeConverter(time.Millisecond, clockText),
	deprecated.TimeMicros:      timeConverter(time.Microsecond, clockText),
	deprecated.TimestampMillis: timeConverter(time.Millisecond, newZone("UTC").format),
	deprecated.TimestampMicros: timeConverter(time.Microsecond, newZone("UTC").format),
}

// unannotated converts a value whose column has no annotation.
func unannotated(v parquet.Value) any {
	switch v.Kind() {
	case parquet.Boolean:
		return v.Boolean()
	case parquet.Int32, parquet.Int64:
		return integer(v)
	case parquet.Int96: // an old form of time: nanoseconds of a day, Julian day
		x := v.Int96()
		const epoch = 2440588
		return newZone("").format(time.Unix((int64(x[2])-epoch)*86400, int64(x[1])<<32|int64(x[0])).UTC())
	case parquet.Float:
		return shortestFloat32(v.Float())
	case parquet.Double:
		return v.Double()
	}
	return append([]byte{}, bytesOf(v)...)
}

func integer(v parquet.Value) int64 {
	switch v.Kind() {
	case parquet.Int32:
		return int64(v.Int32())
	case parquet.Int64:
		return v.Int64()
	}
	damaged("its type is %s, which is not that of whole numbers", v.Kind())
	return 0
}

// bytesOf returns the memory of a value, which is valid until the next page.
func bytesOf(v parquet.Value) []byte {
	if !hasBytes(v) {
		damaged("its type is %s, which is not that of bytes", v.Kind())
	}
	return v.ByteArray()
}

func hasBytes(v parquet.Value) bool {
	return v.Kind() == parquet.ByteArray || v.Kind() == parquet.FixedLenByteArray
}

func unsigned(v parquet.Value) any {
	switch v.Kind() {
	case parquet.Int32:
		return int64(v.Uint32())
	case parquet.Int64:
		if x := v.Uint64(); x > math.MaxInt64 {
			return x
		}
	}
	return unannotated(v)
}

func text(v parquet.Value) any { return string(bytesOf(v)) }
func date(v parquet.Value) any { return dateText(integer(v)) }

func unitOf(u format.TimeUnit) time.Duration {
	if u.Value == nil {
		return time.Millisecond
	}
	return u.Value.Duration()
}

func timeConverter(unit time.Duration, write func(time.Time) string) func(parquet.Value) any {
	return func(v parquet.Value) any { return write(moment(integer(v), unit)) }
}

// decimalConverter reads a whole number, stored as an integer or as two's complement
// bytes, and puts the decimal point scale digits before its end.
func decimalConverter(scale int) func(parquet.Value) any {
	return func(v parquet.Value) any {
		if hasBytes(v) {
			return decimalText(twosComplement(v.ByteArray()), scale)
		}
		return decimalText(big.NewInt(integer(v)), scale)
	}
}
