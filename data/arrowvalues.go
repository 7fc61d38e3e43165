package data

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	decimals "github.com/apache/arrow-go/v18/arrow/decimal"
	"github.com/apache/arrow-go/v18/arrow/float16"
)

// arrowCells returns the function that reads the values of a column as values of an Object. The
// values share no memory with the record batch.
func (c *columnRows) arrowCells(a arrow.Array) func(int) any {
	get := c.arrowValues(a)
	return func(i int) any {
		if a.IsNull(i) {
			return nil
		}
		return get(i)
	}
}

// arrowValues is arrowCells for values other than null.
func (c *columnRows) arrowValues(a arrow.Array) func(int) any {
	switch a := a.(type) {
	case *array.Null:
		return func(int) any { return nil }
	case *array.Struct:
		return c.structCells(a)
	case *array.Dictionary:
		get, n := c.arrowCells(a.Dictionary()), a.Dictionary().Len()
		return func(i int) any {
			index := a.GetValueIndex(i)
			damagedIf(index < 0 || index >= n, "it points to value %d of %d", index, n)
			return get(index)
		}
	case *array.Map: // as pairs, since keys need not be strings
		key, value := c.arrowCells(a.Keys()), c.arrowCells(a.Items())
		return c.listCells(a, func(i int) any { return []any{key(i), value(i)} })
	case *array.List, *array.LargeList, *array.FixedSizeList:
		return c.listCells(a.(array.ListLike), c.arrowCells(a.(array.ListLike).ListValues()))
	}
	for _, get := range c.plainCells(a) {
		if get != nil {
			return get
		}
	}
	panic(unreadable(fmt.Sprintf("values of type %s are not read", a.DataType())))
}

// structCells returns the function that makes Objects of the values of a structure.
func (c *columnRows) structCells(a *array.Struct) func(int) any {
	fields := a.DataType().(*arrow.StructType).Fields()
	cells, names := make([]func(int) any, len(fields)), make([]string, len(fields))
	for i := range cells {
		cells[i], names[i] = c.arrowCells(a.Field(i)), fields[i].Name
	}
	err := checkDistinct(names)
	unreadableIf(err != nil, "%v", err)
	return func(i int) any {
		o := make(Object, len(cells))
		for j, get := range cells {
			o[j] = Member{names[j], get(i)}
		}
		return o
	}
}

// listCells returns the function that makes lists of the elements that element reads.
func (c *columnRows) listCells(a array.ListLike, element func(int) any) func(int) any {
	n := int64(a.ListValues().Len())
	return func(i int) any {
		start, end := a.ValueOffsets(i)
		if start < 0 || end < start || end > n { // the if spares sound lists the memory of the arguments
			damagedIf(true, "a list of the values %d to %d of %d", start, end, n)
		}
		c.countValues(end - start)
		list := make([]any, 0, end-start)
		for j := start; j < end; j++ {
			list = append(list, element(int(j)))
		}
		return list
	}
}

// reads returns the function that reads the values of an array and gives each to show; nil if they
// are not of type T.
func reads[T any](a arrow.Array, show func(T) any) func(int) any {
	if a, ok := a.(interface{ Value(int) T }); ok {
		return func(i int) any { return show(a.Value(i)) }
	}
	return nil
}

func integral[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32](x T) any { return int64(x) }

// plainCells returns functions for texts, numbers and times: that for the type of a reads its values, the
// others are nil. Texts also count against the values that a row may have, by their length.
func (c *columnRows) plainCells(a arrow.Array) []func(int) any {
	unit, scale, timeZone := time.Second, 0, zone{} // what the type says of its times and decimals
	switch t := a.DataType().(type) {
	case *arrow.TimestampType:
		unit, timeZone = t.Unit.Multiplier(), newZone(t.TimeZone)
	case arrow.TemporalWithUnit:
		unit = t.TimeUnit().Multiplier()
	case arrow.DecimalType:
		scale = int(t.GetScale())
	}
	return []func(int) any{
		reads(a, func(x string) any { c.countValues(int64(len(x) / textShare)); return strings.Clone(x) }),
		reads(a, func(x []byte) any { c.countValues(int64(len(x) / textShare)); return bytes.Clone(x) }),
		reads(a, func(x bool) any { return x }),
		reads(a, integral[int8]), reads(a, integral[int16]), reads(a, integral[int32]), reads(a, integral[int64]),
		reads(a, integral[uint8]), reads(a, integral[uint16]), reads(a, integral[uint32]), reads(a, unsigned),
		reads(a, func(x float16.Num) any { return shortestFloat16(x) }),
		reads(a, func(x float32) any { return shortestFloat32(x) }),
		reads(a, func(x float64) any { return x }),
		reads(a, func(x decimals.Decimal32) any { return decimalText(big.NewInt(int64(x)), scale) }),
		reads(a, func(x decimals.Decimal64) any { return decimalText(big.NewInt(int64(x)), scale) }),
		reads(a, func(x decimals.Decimal128) any { return decimalText(x.BigInt(), scale) }),
		reads(a, func(x decimals.Decimal256) any { return decimalText(x.BigInt(), scale) }),
		reads(a, func(x arrow.Date32) any { return dateText(int64(x)) }),
		reads(a, func(x arrow.Date64) any { return moment(int64(x), time.Millisecond).Format(time.DateOnly) }),
		reads(a, func(x arrow.Time32) any { return clockText(moment(int64(x), unit)) }),
		reads(a, func(x arrow.Time64) any { return clockText(moment(int64(x), unit)) }),
		reads(a, func(x arrow.Timestamp) any { return timeZone.format(moment(int64(x), unit)) }),
		reads(a, func(x arrow.Duration) any { return (time.Duration(x) * unit).String() }),
	}
}

// unsigned returns a number in the narrowest type of an Object.
func unsigned(x uint64) any {
	if x > math.MaxInt64 {
		return x
	}
	return int64(x)
}
