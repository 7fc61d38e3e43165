package data

import (
	"fmt"
	"math/big"
	"time"

	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// A parquetNode is a column or a group of columns.
type parquetNode struct {
	*parquet.Column
	def, rep    byte // the definition level at which it is present; the repetition level of its list
	first, last int  // its columns among the leaves of the file
	children    []*parquetNode
	list        *parquetNode              // the repeated node in a list or a map; nil for others
	element     func([][]parquetCell) any // the value of a repetition of list
}

// addNode builds the tree of a column and those inside it, and appends those that are leaves to p.leaves.
func (p *parquetFile) addNode(c *parquet.Column) *parquetNode {
	kind := any(p.schema[0].LogicalType.Value) // as the file states it; the schema lists columns in the order of these calls
	damagedIf(kind == nil && c.Leaf() && c.Type().Kind() < 0, "column %q has a type that the format does not have", c.Name())
	if logical := c.Type().LogicalType(); kind == nil && logical != nil { // the library derives it from the older ConvertedType
		kind = logical.Value
	} else if p.schema[0].ConvertedType.V == deprecated.MapKeyValue { // a map of old writers, which the library leaves out
		kind = new(format.MapType)
	}
	p.schema = p.schema[1:]
	n := &parquetNode{Column: c, def: byte(c.MaxDefinitionLevel()), rep: byte(c.MaxRepetitionLevel()), first: len(p.leaves)}
	if c.Leaf() {
		p.leaves = append(p.leaves, &parquetColumn{parquetFile: p, Column: c, maxDef: int(n.def), maxRep: int(n.rep), convert: converter(kind)})
	}
	var names []string
	for _, child := range c.Columns() {
		n.children, names = append(n.children, p.addNode(child)), append(names, child.Name())
	}
	err := checkDistinct(names)
	unreadableIf(err != nil, "%v", err)
	n.last = len(p.leaves)
	damagedIf(n.last == n.first, "the group %q has no columns", c.Name())
	if len(n.children) == 1 && n.children[0].Repeated() && !c.Repeated() && c.Depth() > 0 { // perhaps a list or a map
		n.setListOrMap(kind, n.children[0])
	}
	return n
}

// setListOrMap looks whether the group n, whose only member is inner, is a list or a map, by the rules of the format's
// LogicalTypes.md, also those for old writers. If so, it sets n.list to inner and n.element to what makes one element.
func (n *parquetNode) setListOrMap(kind any, inner *parquetNode) {
	switch kind.(type) {
	case *format.ListType:
		// The repeated group is the element itself if it has several members or
		// one of the names of old writers; else it only wraps the element.
		n.list, n.element = inner, inner.content // content is of one repetition, value would be of all
		if len(inner.children) == 1 && inner.Name() != "array" && inner.Name() != n.Name()+"_tuple" {
			n.element = inner.children[0].value // which may be null or a list, unlike content
		}
	case *format.MapType:
		if len(inner.children) == 2 { // as pairs, since keys need not be strings
			n.list, n.element = inner, func(cells [][]parquetCell) any {
				at := inner.children[0].last - inner.first
				return []any{inner.children[0].value(cells[:at]), inner.children[1].value(cells[at:])}
			}
		}
	}
}

// value assembles a node out of the cells that each of its columns has in a row, or in a repetition.
func (n *parquetNode) value(cells [][]parquetCell) any {
	if n.Repeated() { // a list without an annotation
		return n.repeated(cells, n.content)
	}
	if n.Optional() && n.absent(cells) {
		return nil
	}
	return n.content(cells)
}

func (n *parquetNode) absent(cells [][]parquetCell) bool {
	absent := cells[0][0].def < n.def
	for _, c := range cells { // then each column has one cell, which is absent, too
		if absent && (len(c) != 1 || c[0].def >= n.def) {
			damagedIf(true, "there is a value in a group that is absent")
		}
	}
	return absent
}

// repeated assembles the list of the repetitions of n, each of which element makes a value of. It cuts
// the cells of all columns where a repetition ends.
func (n *parquetNode) repeated(cells [][]parquetCell, element func([][]parquetCell) any) any {
	list := []any{}
	if n.absent(cells) {
		return list
	}
	part := make([][]parquetCell, len(cells))
	for len(cells[0]) > 0 {
		for i, c := range cells {
			end := 1
			for end < len(c) && c[end].rep > n.rep {
				end++
			}
			part[i], cells[i] = c[:end], c[end:] // a column that has no cell left panics, which recoverInto turns into an error
		}
		list = append(list, element(part))
	}
	for _, c := range cells {
		damagedIf(len(c) > 0, "lists of one group have different lengths")
	}
	return list
}

// content assembles a node that is present.
func (n *parquetNode) content(cells [][]parquetCell) any {
	if n.list != nil {
		return n.list.repeated(cells, n.element)
	}
	if n.children == nil {
		return cells[0][0].value
	}
	o := make(Object, len(n.children))
	for i, child := range n.children {
		o[i] = Member{child.Name(), child.value(cells[child.first-n.first : child.last-n.first])}
	}
	return o
}

// converter returns the function that turns the values of a column of a logical type, or without one,
// into those of an Object.
func converter(kind any) func(parquet.Value) any {
	times := func(u format.TimeUnit, write func(time.Time) string) func(parquet.Value) any {
		unit := time.Millisecond
		if u.Value != nil {
			unit = u.Value.Duration()
		}
		return func(v parquet.Value) any { return write(moment(integer(v), unit)) }
	}
	switch t := kind.(type) {
	case *format.NullType:
		return func(parquet.Value) any { return nil }
	case *format.DecimalType: // a whole number, stored as an integer or as two's complement bytes
		return func(v parquet.Value) any {
			if hasBytes(v) {
				return decimalText(twosComplement(v.ByteArray()), int(t.Scale))
			}
			return decimalText(big.NewInt(integer(v)), int(t.Scale))
		}
	case *format.IntType:
		if !t.IsSigned {
			return func(v parquet.Value) any {
				if v.Kind() == parquet.Int32 {
					return int64(v.Uint32())
				}
				return unsigned(uint64(integer(v)))
			}
		}
	case *format.DateType:
		return func(v parquet.Value) any { return dateText(integer(v)) }
	case *format.TimeType:
		return times(t.Unit, clockText)
	case *format.TimestampType:
		if t.IsAdjustedToUTC {
			return times(t.Unit, newZone("UTC").format)
		}
		return times(t.Unit, newZone("").format)
	case *format.UUIDType:
		return func(v parquet.Value) any {
			b := v.ByteArray()
			return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
		}
	case *format.Float16Type:
		return func(v parquet.Value) any { return shortestFloat16(float16.FromLEBytes(v.ByteArray())) }
	case *format.StringType, *format.EnumType, *format.JsonType:
		return func(v parquet.Value) any { return string(v.ByteArray()) }
	}
	return plainValue
}

// plainValue converts a value whose column has no annotation.
func plainValue(v parquet.Value) any {
	switch v.Kind() {
	case parquet.Boolean:
		return v.Boolean()
	case parquet.Int96: // an old form of time: nanoseconds of a day, Julian day (2440588 is 1970-01-01)
		x := v.Int96()
		return newZone("").format(time.Unix((int64(x[2])-2440588)*86400, int64(x[1])<<32|int64(x[0])).UTC())
	case parquet.Float:
		return shortestFloat32(v.Float())
	case parquet.Double:
		return v.Double()
	case parquet.ByteArray, parquet.FixedLenByteArray:
		return append([]byte{}, v.ByteArray()...)
	}
	return integer(v)
}

func integer(v parquet.Value) int64 {
	if v.Kind() == parquet.Int32 {
		return int64(v.Int32())
	}
	return v.Int64()
}

func hasBytes(v parquet.Value) bool {
	return v.Kind() == parquet.ByteArray || v.Kind() == parquet.FixedLenByteArray
}
