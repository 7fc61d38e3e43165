package dataset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// arrowBatches reads the record batches of an Arrow stream or file. (A file is
// a stream between two magics, with an index of the batches at its end, which
// reading in order does not need.)
//
// A file may be a single batch of any size, so the file is mapped into memory
// where the system can do that, and the pages read are given back every
// dropEvery rows. Otherwise, and where buffers are compressed, memory holds a
// batch.
type arrowBatches struct {
	f      *os.File
	mapped *mapping // nil where the file is read
	r      *ipc.Reader
	names  []string

	batch arrow.RecordBatch // the current one, or nil
	cols  []arrow.Array
	at    int64 // rows of it that were returned
	row   int   // rows returned in all
}

const dropEvery = 1 << 13

// arrowEnd is the magic that ends an Arrow file.
const arrowEnd = "ARROW1"

func openArrowFile(f *os.File, size int64) (source, error) {
	end := make([]byte, len(arrowEnd))
	if _, err := f.ReadAt(end, max(0, size-int64(len(end)))); err != nil || size < 8+int64(len(end)) || string(end) != arrowEnd {
		return nil, fmt.Errorf("arrow: the file does not end with %s: it is cut short", arrowEnd)
	}
	return openArrow(f, 8, size-8) // the magic is padded to 8 bytes
}

func openArrowStream(f *os.File, size int64) (source, error) { return openArrow(f, 0, size) }

func openArrow(f *os.File, offset, size int64) (source, error) {
	a := &arrowBatches{f: f}
	if m, err := mapFile(f); err == nil {
		messages := &mappedMessages{data: m.data[offset : offset+size]}
		a.r, err = ipc.NewReaderFromMessageReader(messages, ipc.WithAllocator(boundedAllocator{memory.DefaultAllocator}), ipc.WithEnsureNativeEndian(false))
		switch {
		case err != nil:
			m.close()
			return nil, arrowError(err)
		case a.r.Schema().IsNativeEndian():
			a.mapped = m
		default: // its bytes are swapped in place, which a mapping forbids
			m.close()
		}
	}
	if a.mapped == nil {
		var err error
		a.r, err = ipc.NewReader(io.NewSectionReader(f, offset, size), ipc.WithAllocator(boundedAllocator{memory.DefaultAllocator}))
		if err != nil {
			return nil, arrowError(err)
		}
	}
	for _, field := range a.r.Schema().Fields() {
		if err := readableType(field.Type); err != nil {
			a.unmap()
			return nil, fmt.Errorf("arrow: column %q: %w", field.Name, err)
		}
		a.names = append(a.names, field.Name)
	}
	return a, nil
}

func (a *arrowBatches) columns() []string { return a.names }
func (a *arrowBatches) unit() string      { return "row" }

func (a *arrowBatches) unmap() error {
	if a.mapped == nil {
		return nil
	}
	return a.mapped.close()
}

func (a *arrowBatches) close() error {
	a.r.Release()
	if err := a.unmap(); err != nil {
		a.f.Close()
		return err
	}
	return a.f.Close()
}

func (a *arrowBatches) next() (o Object, row int, err error) {
	// The library checks a batch only in part; what is wrong with the rest
	// shows as an index out of range, and a file that shrinks while it is
	// mapped as a fault.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			o, err = nil, fmt.Errorf("arrow: the file is damaged: %v", p)
		}
	}()
	a.row++
	for a.batch == nil || a.at == a.batch.NumRows() {
		a.cols = a.cols[:0]
		if !a.r.Next() {
			if err := a.r.Err(); err != nil {
				return nil, a.row, arrowError(err)
			}
			return nil, a.row, io.EOF
		}
		a.batch, a.at = a.r.RecordBatch(), 0
		for i := range a.batch.NumCols() {
			if c := a.batch.Column(int(i)); int64(c.Len()) < a.batch.NumRows() {
				return nil, a.row, fmt.Errorf("arrow: the file is damaged: column %q has %d of %d rows", a.names[i], c.Len(), a.batch.NumRows())
			}
			a.cols = append(a.cols, a.batch.Column(int(i)))
		}
	}
	o = make(Object, len(a.cols))
	for i, c := range a.cols {
		o[i] = Member{a.names[i], arrowValue(c, int(a.at))}
	}
	a.at++
	if a.mapped != nil && a.row%dropEvery == 0 {
		a.mapped.drop()
	}
	return o, a.row, nil
}

func arrowError(err error) error {
	return fmt.Errorf("arrow: %s", strings.TrimPrefix(err.Error(), "arrow/ipc: "))
}

// boundedAllocator refuses what only a damaged file asks for, so that it is an
// error and not the end of the process.
type boundedAllocator struct{ memory.Allocator }

const maxBuffer = 8 << 30

func (a boundedAllocator) Allocate(size int) []byte {
	if size < 0 || size > maxBuffer {
		panic(fmt.Errorf("a buffer of %d bytes", size))
	}
	return a.Allocator.Allocate(size)
}

func (a boundedAllocator) Reallocate(size int, b []byte) []byte {
	if size < 0 || size > maxBuffer {
		panic(fmt.Errorf("a buffer of %d bytes", size))
	}
	return a.Allocator.Reallocate(size, b)
}

// readableType says which column types cannot be read.
func readableType(t arrow.DataType) error {
	switch t := t.(type) {
	case arrow.ExtensionType:
		return readableType(t.StorageType())
	case *arrow.DictionaryType:
		return readableType(t.ValueType)
	case *arrow.RunEndEncodedType:
		return readableType(t.Encoded())
	case arrow.NestedType:
		for _, field := range t.Fields() {
			if err := readableType(field.Type); err != nil {
				return err
			}
		}
		return nil
	case *arrow.MonthIntervalType, *arrow.DayTimeIntervalType, *arrow.MonthDayNanoIntervalType:
		return fmt.Errorf("values of type %s are not read", t)
	}
	return nil
}

// arrowValue returns element i of a column as an Object's value. Strings and
// bytes are copied, as the column's are gone with its file.
func arrowValue(column arrow.Array, i int) any {
	if column.IsNull(i) {
		return nil
	}
	switch c := column.(type) {
	case *array.Null:
		return nil
	case *array.Boolean:
		return c.Value(i)
	case *array.Int8:
		return int64(c.Value(i))
	case *array.Int16:
		return int64(c.Value(i))
	case *array.Int32:
		return int64(c.Value(i))
	case *array.Int64:
		return c.Value(i)
	case *array.Uint8:
		return int64(c.Value(i))
	case *array.Uint16:
		return int64(c.Value(i))
	case *array.Uint32:
		return int64(c.Value(i))
	case *array.Uint64:
		return c.Value(i)
	case *array.Float16:
		return float64(c.Value(i).Float32())
	case *array.Float32:
		return float64(c.Value(i))
	case *array.Float64:
		return c.Value(i)
	case array.StringLike: // string, large_string, string_view
		return strings.Clone(c.Value(i))
	case *array.Binary:
		return bytes.Clone(c.Value(i))
	case *array.LargeBinary:
		return bytes.Clone(c.Value(i))
	case *array.BinaryView:
		return bytes.Clone(c.Value(i))
	case *array.FixedSizeBinary:
		return bytes.Clone(c.Value(i))
	case *array.Date32:
		return c.Value(i).ToTime().Format(time.DateOnly)
	case *array.Date64:
		return c.Value(i).ToTime().Format(time.DateOnly)
	case *array.Time32:
		return clock(c.Value(i).ToTime(c.DataType().(*arrow.Time32Type).Unit))
	case *array.Time64:
		return clock(c.Value(i).ToTime(c.DataType().(*arrow.Time64Type).Unit))
	case *array.Timestamp:
		t := c.DataType().(*arrow.TimestampType)
		return timestamp(c.Value(i).ToTime(t.Unit), t.TimeZone)
	case *array.Duration:
		return (time.Duration(c.Value(i)) * c.DataType().(*arrow.DurationType).Unit.Multiplier()).String()
	case *array.Decimal32:
		return json.Number(c.ValueStr(i))
	case *array.Decimal64:
		return json.Number(c.ValueStr(i))
	case *array.Decimal128:
		return json.Number(c.ValueStr(i))
	case *array.Decimal256:
		return json.Number(c.ValueStr(i))
	case *array.Map: // pairs, as its keys need not be strings
		from, to := c.ValueOffsets(i)
		pairs := make([]any, 0, to-from)
		for j := int(from); j < int(to); j++ {
			pairs = append(pairs, []any{arrowValue(c.Keys(), j), arrowValue(c.Items(), j)})
		}
		return pairs
	case array.ListLike:
		from, to := c.ValueOffsets(i)
		values := c.ListValues()
		list := make([]any, 0, to-from)
		for j := int(from); j < int(to); j++ {
			list = append(list, arrowValue(values, j))
		}
		return list
	case *array.Struct:
		t := c.DataType().(*arrow.StructType)
		o := make(Object, c.NumField())
		for j := range o {
			o[j] = Member{t.Field(j).Name, arrowValue(c.Field(j), i)}
		}
		return o
	case *array.Dictionary:
		return arrowValue(c.Dictionary(), c.GetValueIndex(i))
	case *array.RunEndEncoded:
		return arrowValue(c.Values(), c.GetPhysicalIndex(i))
	case *array.SparseUnion:
		return arrowValue(c.Field(c.ChildID(i)), i)
	case *array.DenseUnion:
		return arrowValue(c.Field(c.ChildID(i)), int(c.ValueOffset(i)))
	case array.ExtensionArray:
		return arrowValue(c.Storage(), i)
	}
	panic(fmt.Sprintf("a column of type %s", column.DataType()))
}

// timestamp writes a moment as ISO 8601; one without a time zone names no
// place, and gets no offset.
func timestamp(t time.Time, zone string) string {
	if zone == "" {
		return t.UTC().Format("2006-01-02T15:04:05.999999999")
	}
	if place, err := time.LoadLocation(zone); err == nil {
		t = t.In(place)
	}
	return t.Format(time.RFC3339Nano)
}

// clock writes a time of day.
func clock(t time.Time) string { return t.UTC().Format("15:04:05.999999999") }
