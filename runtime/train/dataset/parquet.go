package dataset

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/big"
	"os"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// parquetRows reads a Parquet file row by row; memory holds a page per column.
type parquetRows struct {
	f      *os.File
	size   int64
	groups []parquet.RowGroup
	meta   []format.RowGroup // of the groups
	root   *parquetNode
	names  []string

	rows   parquet.Rows // of the current group, or nil
	left   int64        // rows of it that were not read yet
	buffer []parquet.Row
	ready  []parquet.Row // rows of buffer still to return
	row    int
	level  levels
}

func openParquet(f *os.File, size int64) (s source, err error) {
	defer func() {
		if p := recover(); p != nil {
			s, err = nil, fmt.Errorf("parquet: the file is damaged: %v", p)
		}
	}()
	if size < 12 {
		return nil, fmt.Errorf("parquet: the file is cut short")
	}
	end := make([]byte, 8)
	if _, err := f.ReadAt(end, size-8); err != nil {
		return nil, fmt.Errorf("parquet: %w", err)
	}
	if string(end[4:]) != "PAR1" {
		return nil, fmt.Errorf("parquet: the file does not end with PAR1: it is cut short")
	}
	if n := int64(binary.LittleEndian.Uint32(end)); n > size-12 {
		return nil, fmt.Errorf("parquet: the file is damaged: a footer of %d bytes in a file of %d", n, size)
	}
	file, err := parquet.OpenFile(f, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.ReadBufferSize(1<<16))
	if err != nil {
		return nil, fmt.Errorf("parquet: %w", err)
	}
	p := &parquetRows{f: f, size: size, groups: file.RowGroups(), meta: file.Metadata().RowGroups, buffer: make([]parquet.Row, 256)}
	p.root, err = parquetSchema(file.Metadata().Schema)
	if err != nil {
		return nil, fmt.Errorf("parquet: %w", err)
	}
	p.level = levels{column: make([][]parquet.Value, p.root.leaves)}
	for _, child := range p.root.children {
		p.names = append(p.names, child.name)
	}
	return p, nil
}

func (p *parquetRows) columns() []string { return p.names }
func (p *parquetRows) unit() string      { return "row" }

func (p *parquetRows) close() error {
	var err error
	if p.rows != nil {
		err = p.rows.Close()
		p.rows = nil
	}
	if closeErr := p.f.Close(); err == nil {
		err = closeErr
	}
	return err
}

func (p *parquetRows) next() (o Object, row int, err error) {
	defer func() {
		if r := recover(); r != nil {
			o, err = nil, fmt.Errorf("parquet: the file is damaged: %v", r)
		}
	}()
	p.row++
	for len(p.ready) == 0 {
		if p.rows == nil {
			if len(p.groups) == 0 {
				return nil, p.row, io.EOF
			}
			if err := p.group(); err != nil {
				return nil, p.row, fmt.Errorf("parquet: the file is damaged: %w", err)
			}
		}
		n, err := p.rows.ReadRows(p.buffer)
		if err != nil && err != io.EOF {
			return nil, p.row, fmt.Errorf("parquet: %w", err)
		}
		p.ready, p.left = p.buffer[:n], p.left-int64(n)
		if n == 0 && p.left > 0 {
			return nil, p.row, fmt.Errorf("parquet: the file is damaged: a row group ends %d rows early", p.left)
		}
		if n == 0 {
			err := p.rows.Close()
			p.rows = nil
			if err != nil {
				return nil, p.row, fmt.Errorf("parquet: %w", err)
			}
		}
	}
	p.level.begin(p.ready[0])
	p.ready = p.ready[1:]
	return p.level.group(p.root), p.row, nil
}

// group goes on to the next row group.
func (p *parquetRows) group() error {
	if err := checkPages(p.f, p.size, &p.meta[0]); err != nil {
		return err
	}
	p.rows, p.left = p.groups[0].Rows(), p.meta[0].NumRows
	p.groups, p.meta = p.groups[1:], p.meta[1:]
	return nil
}

// A parquetNode is a column or a group of columns.
type parquetNode struct {
	name     string
	kind     nodeKind
	repeat   format.FieldRepetitionType
	def, rep int // the levels from which it is present
	first    int // its first leaf column
	leaves   int // how many it has
	children []*parquetNode
	convert  func(parquet.Value) any // of a leaf
}

type nodeKind byte

const (
	leafNode nodeKind = iota
	groupNode
	listNode // children are the repeated node and its element, nil if that is itself
	mapNode  // child is the repeated group of key and value
)

// parquetSchema builds the tree of columns out of the flat list of a footer.
func parquetSchema(elements []format.SchemaElement) (*parquetNode, error) {
	b := schemaBuilder{rest: elements}
	root, err := b.node(0, 0, 0)
	if err == nil && len(b.rest) > 0 {
		err = fmt.Errorf("the schema has %d elements too many", len(b.rest))
	}
	if err == nil && root.kind == leafNode {
		err = fmt.Errorf("the schema has no columns")
	}
	return root, err
}

type schemaBuilder struct {
	rest []format.SchemaElement
	leaf int
}

// node takes the next element and what is below it; def and rep are the levels
// of what is above.
func (b *schemaBuilder) node(def, rep, depth int) (*parquetNode, error) {
	if len(b.rest) == 0 || depth > 100 {
		return nil, fmt.Errorf("the schema is damaged")
	}
	e := b.rest[0]
	b.rest = b.rest[1:]
	n := &parquetNode{name: e.Name, first: b.leaf}
	if depth > 0 { // the root has no repetition
		n.repeat = e.RepetitionType.V
		switch n.repeat {
		case format.Optional:
			def++
		case format.Repeated:
			def++
			rep++
		}
	}
	n.def, n.rep = def, rep
	if !e.NumChildren.Valid || e.Type.Valid {
		n.convert = converter(e)
		b.leaf++
		n.leaves = 1
		return n, nil
	}
	for range e.NumChildren.V {
		child, err := b.node(def, rep, depth+1)
		if err != nil {
			return nil, err
		}
		n.children = append(n.children, child)
	}
	n.leaves = b.leaf - n.first
	if n.leaves == 0 && depth > 0 {
		return nil, fmt.Errorf("the group %q has no columns", n.name)
	}
	n.kind = groupNode
	if depth > 0 {
		n.logical(e)
	}
	return n, nil
}

// logical finds the lists and maps among the groups, after the format's
// LogicalTypes.md with its rules for old writers.
func (n *parquetNode) logical(e format.SchemaElement) {
	if len(n.children) != 1 || n.children[0].repeat != format.Repeated || n.repeat == format.Repeated {
		return
	}
	inner := n.children[0]
	_, list := e.LogicalType.Value.(*format.ListType)
	_, dict := e.LogicalType.Value.(*format.MapType)
	if e.ConvertedType.Valid {
		list = list || e.ConvertedType.V == deprecated.List
		dict = dict || e.ConvertedType.V == deprecated.Map || e.ConvertedType.V == deprecated.MapKeyValue
	}
	switch {
	case list:
		n.kind = listNode
		// The repeated group is the element itself if it has several members or
		// is called so; else it only wraps the element.
		if inner.kind == groupNode && len(inner.children) == 1 && inner.name != "array" && inner.name != n.name+"_tuple" {
			n.children = []*parquetNode{inner, inner.children[0]}
		} else {
			n.children = []*parquetNode{inner, nil}
		}
	case dict && inner.kind == groupNode && len(inner.children) == 2:
		n.kind = mapNode
	}
}

// levels puts a row together out of its leaf columns' values, whose definition
// level says how much of the path to them is present, and whose repetition
// level which list goes on (Melnik et al., "Dremel", VLDB 2010, section 4).
type levels struct {
	column [][]parquet.Value // what is left of each
}

func (l *levels) begin(row parquet.Row) {
	for i := range l.column {
		l.column[i] = nil
	}
	row.Range(func(i int, values []parquet.Value) bool {
		l.column[i] = values
		return true
	})
}

// skip takes the one value that stands for an absent n.
func (l *levels) skip(n *parquetNode) {
	for i := n.first; i < n.first+n.leaves; i++ {
		l.column[i] = l.column[i][1:]
	}
}

func (l *levels) value(n *parquetNode) any {
	switch n.repeat {
	case format.Optional:
		if l.column[n.first][0].DefinitionLevel() < n.def {
			l.skip(n)
			return nil
		}
	case format.Repeated: // outside a list: a list all the same
		return l.list(n, func() any { return l.present(n) })
	}
	return l.present(n)
}

// list reads the repetitions of n.
func (l *levels) list(n *parquetNode, element func() any) []any {
	list := []any{}
	if l.column[n.first][0].DefinitionLevel() < n.def {
		l.skip(n)
		return list
	}
	for {
		list = append(list, element())
		rest := l.column[n.first]
		if len(rest) == 0 || rest[0].RepetitionLevel() != n.rep {
			return list
		}
	}
}

// present reads n, which is there.
func (l *levels) present(n *parquetNode) any {
	switch n.kind {
	case leafNode:
		v := l.column[n.first][0]
		l.column[n.first] = l.column[n.first][1:]
		return n.convert(v)
	case listNode:
		inner, element := n.children[0], n.children[1]
		return l.list(inner, func() any {
			if element == nil {
				return l.present(inner)
			}
			return l.value(element)
		})
	case mapNode: // pairs, as keys need not be strings
		inner := n.children[0]
		return l.list(inner, func() any {
			return []any{l.value(inner.children[0]), l.value(inner.children[1])}
		})
	}
	return l.group(n)
}

func (l *levels) group(n *parquetNode) Object {
	o := make(Object, len(n.children))
	for i, child := range n.children {
		o[i] = Member{child.name, l.value(child)}
	}
	return o
}

// converter returns how a leaf's values become an Object's. The older
// annotations (ConvertedType) are read where the newer are absent.
func converter(e format.SchemaElement) func(parquet.Value) any {
	old := deprecated.ConvertedType(-1)
	if e.ConvertedType.Valid {
		old = e.ConvertedType.V
	}
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
		return timeConverter(unit(t.Unit), clock)
	case *format.TimestampType:
		zone := ""
		if t.IsAdjustedToUTC {
			zone = "UTC"
		}
		return timeConverter(unit(t.Unit), newZone(zone).format)
	case *format.UUIDType:
		return func(v parquet.Value) any {
			b := v.ByteArray()
			return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
		}
	case *format.Float16Type:
		return func(v parquet.Value) any { return half(binary.LittleEndian.Uint16(v.ByteArray())) }
	case *format.StringType, *format.EnumType, *format.JsonType:
		return func(v parquet.Value) any { return string(v.ByteArray()) }
	}
	switch old {
	case deprecated.Decimal:
		return decimalConverter(int(e.Scale.V))
	case deprecated.Uint8, deprecated.Uint16, deprecated.Uint32, deprecated.Uint64:
		return unsigned
	case deprecated.Date:
		return date
	case deprecated.TimeMillis:
		return timeConverter(time.Millisecond, clock)
	case deprecated.TimeMicros:
		return timeConverter(time.Microsecond, clock)
	case deprecated.TimestampMillis:
		return timeConverter(time.Millisecond, newZone("UTC").format)
	case deprecated.TimestampMicros:
		return timeConverter(time.Microsecond, newZone("UTC").format)
	case deprecated.UTF8, deprecated.Enum, deprecated.Json:
		return func(v parquet.Value) any { return string(v.ByteArray()) }
	}
	return physical
}

// physical converts a value whose column has no annotation.
func physical(v parquet.Value) any {
	switch v.Kind() {
	case parquet.Boolean:
		return v.Boolean()
	case parquet.Int32:
		return int64(v.Int32())
	case parquet.Int64:
		return v.Int64()
	case parquet.Int96: // a timestamp of old writers: nanoseconds of a day, Julian day
		x := v.Int96()
		nanos := int64(x[1])<<32 | int64(x[0])
		const julianEpoch = 2440588
		return newZone("").format(time.Unix((int64(x[2])-julianEpoch)*86400, nanos).UTC())
	case parquet.Float:
		return float64(v.Float())
	case parquet.Double:
		return v.Double()
	}
	return append([]byte{}, v.ByteArray()...)
}

func unsigned(v parquet.Value) any {
	x := v.Uint64()
	if v.Kind() == parquet.Int32 {
		x = uint64(v.Uint32())
	}
	if x <= math.MaxInt64 {
		return int64(x)
	}
	return x
}

func date(v parquet.Value) any {
	return day(int64(v.Int32()))
}

func unit(u format.TimeUnit) time.Duration {
	if u.Value == nil {
		return time.Millisecond
	}
	return u.Value.Duration()
}

func timeConverter(unit time.Duration, write func(time.Time) string) func(parquet.Value) any {
	return func(v parquet.Value) any {
		x := v.Int64()
		if v.Kind() == parquet.Int32 {
			x = int64(v.Int32())
		}
		return write(moment(x, unit))
	}
}

// decimalConverter reads a whole number, in two's complement where it is
// bytes, and puts the point scale digits from its end.
func decimalConverter(scale int) func(parquet.Value) any {
	return func(v parquet.Value) any {
		switch v.Kind() {
		case parquet.Int32:
			return pointed(big.NewInt(int64(v.Int32())), scale)
		case parquet.Int64:
			return pointed(big.NewInt(v.Int64()), scale)
		}
		return pointed(twosComplement(v.ByteArray()), scale)
	}
}
