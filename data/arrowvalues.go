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
)

// arrowCells returns the function that reads the values of a column as values of an
// Object. The values share no memory with the record batch. Their sizes are counted in
// taken, see spend.
func arrowCells(a arrow.Array, taken *int) func(int) any {
	get := arrowValues(a, taken)
	return func(i int) any {
		if a.IsNull(i) {
			return nil
		}
		return get(i)
	}
}

// arrowValues is arrowCells for values other than null.
func arrowValues(a arrow.Array, taken *int) func(int) any {
	switch a := a.(type) {
	case *array.Null:
		return func(int) any { return nil }
	case *array.Boolean:
		return func(i int) any { return a.Value(i) }
	case *array.Struct:
		return structCells(a, taken)
	case *array.Dictionary:
		return dictionaryCells(a, taken)
	case *array.Map: // as pairs, since keys need not be strings
		key, value := arrowCells(a.Keys(), taken), arrowCells(a.Items(), taken)
		return listCells(a, func(i int) any { return []any{key(i), value(i)} }, taken)
	case array.ListLike:
		return listCells(a, arrowCells(a.ListValues(), taken), taken)
	}
	for _, values := range []func(arrow.Array, *int) func(int) any{numberCells, timeCells, textCells} {
		if get := values(a, taken); get != nil {
			return get
		}
	}
	panic(unreadable(fmt.Sprintf("values of type %s are not read", a.DataType())))
}

func structCells(a *array.Struct, taken *int) func(int) any {
	fields := a.DataType().(*arrow.StructType).Fields()
	cells, names := make([]func(int) any, len(fields)), make([]string, len(fields))
	for i := range cells {
		cells[i], names[i] = arrowCells(a.Field(i), taken), fields[i].Name
	}
	if err := distinct(names); err != nil {
		panic(unreadable(err.Error()))
	}
	return func(i int) any {
		o := make(Object, len(cells))
		for j, get := range cells {
			o[j] = Member{fields[j].Name, get(i)}
		}
		return o
	}
}

func dictionaryCells(a *array.Dictionary, taken *int) func(int) any {
	values := a.Dictionary()
	get := arrowCells(values, taken)
	return func(i int) any {
		index := a.GetValueIndex(i)
		if index < 0 || index >= values.Len() {
			damaged("it points to value %d of %d", index, values.Len())
		}
		return get(index)
	}
}

func listCells(a array.ListLike, element func(int) any, taken *int) func(int) any {
	n := int64(a.ListValues().Len())
	return func(i int) any {
		start, end := a.ValueOffsets(i)
		if start < 0 || end < start || end > n {
			damaged("a list of the values %d to %d of %d", start, end, n)
		}
		spend(taken, end-start)
		list := make([]any, 0, end-start)
		for j := start; j < end; j++ {
			list = append(list, element(int(j)))
		}
		return list
	}
}

// valued is an array of the library with values of type T.
type valued[T any] interface{ Value(int) T }

func signed[T int8 | int16 | int32 | int64](a valued[T]) func(int) any {
	return func(i int) any { return int64(a.Value(i)) }
}

func numberCells(a arrow.Array, _ *int) func(int) any {
	decimal := func(number func(int) *big.Int) func(int) any {
		scale := int(a.DataType().(arrow.DecimalType).GetScale())
		return func(i int) any { return decimalText(number(i), scale) }
	}
	switch a := a.(type) {
	case *array.Int8:
		return signed(a)
	case *array.Int16:
		return signed(a)
	case *array.Int32:
		return signed(a)
	case *array.Int64:
		return signed(a)
	case *array.Uint8:
		return func(i int) any { return int64(a.Value(i)) }
	case *array.Uint16:
		return func(i int) any { return int64(a.Value(i)) }
	case *array.Uint32:
		return func(i int) any { return int64(a.Value(i)) }
	case *array.Uint64:
		return func(i int) any {
			if x := a.Value(i); x > math.MaxInt64 {
				return x
			}
			return int64(a.Value(i))
		}
	case *array.Float16:
		return func(i int) any { return shortestFloat16(a.Value(i)) }
	case *array.Float32:
		return func(i int) any { return shortestFloat32(a.Value(i)) }
	case *array.Float64:
		return func(i int) any { return a.Value(i) }
	case *array.Decimal32:
		return decimal(func(i int) *big.Int { return big.NewInt(int64(a.Value(i))) })
	case *array.Decimal64:
		return decimal(func(i int) *big.Int { return big.NewInt(int64(a.Value(i))) })
	case *array.Decimal128:
		return decimal(func(i int) *big.Int { return a.Value(i).BigInt() })
	case *array.Decimal256:
		return decimal(func(i int) *big.Int { return a.Value(i).BigInt() })
	}
	return nil
}

func timeCells(a arrow.Array, _ *int) func(int) any {
	unit := func() time.Duration { return a.DataType().(arrow.TemporalWithUnit).TimeUnit().Multiplier() }
	switch a := a.(type) {
	case *array.Date32:
		return func(i int) any { return dateText(int64(a.Value(i))) }
	case *array.Date64:
		return func(i int) any { return moment(int64(a.Value(i)), time.Millisecond).Format(time.DateOnly) }
	case *array.Time32:
		return func(i int) any { return clockText(moment(int64(a.Value(i)), unit())) }
	case *array.Time64:
		return func(i int) any { return clockText(moment(int64(a.Value(i)), unit())) }
	case *array.Timestamp:
		zone := newZone(a.DataType().(*arrow.TimestampType).TimeZone)
		return func(i int) any { return zone.format(moment(int64(a.Value(i)), unit())) }
	case *array.Duration:
		return func(i int) any { return (time.Duration(a.Value(i)) * unit()).String() }
	}
	return nil
}

func textCells(a arrow.Array, taken *int) func(int) any {
	switch a := a.(type) {
	case valued[string]:
		return func(i int) any {
			text := a.Value(i)
			spend(taken, int64(len(text)/textShare))
			return strings.Clone(text)
		}
	case valued[[]byte]:
		return func(i int) any {
			b := a.Value(i)
			spend(taken, int64(len(b)/textShare))
			return bytes.Clone(b)
		}
	}
	return nil
}
