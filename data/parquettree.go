package data

import (
	"fmt"
	"math"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// A parquetNode is a column or a group of columns.
type parquetNode struct {
	name     string
	kind     nodeKind
	repeat   format.FieldRepetitionType
	def, rep int // the definition level at which the node is present; the repetition level of its list
	first    int // index of its first leaf column
	leaves   int // number of its leaf columns
	children []*parquetNode
}

type nodeKind byte

const (
	leafNode nodeKind = iota
	groupNode
	listNode // its child is the repeated node, which holds the element (nil if the repeated node is the element)
	mapNode  // its child is the repeated group of key and value
)

// A schemaBuilder builds the tree of columns out of the flat list of a footer.
type schemaBuilder struct {
	rest []format.SchemaElement
	rows *parquetRows // the rows that receive the leaves
}

// node builds the tree of the next element and its descendants. def and rep are
// the levels of its parent.
func (b *schemaBuilder) node(def, rep, depth int) (*parquetNode, error) {
	if len(b.rest) == 0 || depth > 100 {
		return nil, fmt.Errorf("the schema is damaged")
	}
	e := &b.rest[0]
	b.rest = b.rest[1:]
	n := &parquetNode{name: e.Name, first: len(b.rows.leaves)}
	if depth > 0 { // the root has no repetition type
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
		kind := e.Type.V
		var typ parquet.Type
		switch length := e.TypeLength.V; {
		case e.Type.Valid && kind >= 0 && int(kind) < len(parquetTypes):
			typ = parquetTypes[kind]
		case e.Type.Valid && kind == format.FixedLenByteArray && length > 0 && length <= math.MaxInt16:
			typ = parquet.FixedLenByteArrayType(int(length))
		default:
			return nil, fmt.Errorf("the schema is damaged: column %q is of type %d and %d bytes", e.Name, kind, length)
		}
		b.rows.leaves = append(b.rows.leaves, &parquetColumn{
			name: e.Name, kind: kind, typ: typ, def: def, rep: rep, convert: converter(e),
			rows: b.rows,
		})
		n.leaves = 1
		return n, nil
	}
	var names []string
	for range e.NumChildren.V {
		child, err := b.node(def, rep, depth+1)
		if err != nil {
			return nil, err
		}
		n.children, names = append(n.children, child), append(names, child.name)
	}
	if err := distinct(names); err != nil {
		return nil, err
	}
	n.leaves = len(b.rows.leaves) - n.first
	if n.leaves == 0 && depth > 0 {
		return nil, fmt.Errorf("the group %q has no columns", n.name)
	}
	n.kind = groupNode
	if depth > 0 {
		n.logical(e)
	}
	return n, nil
}

// logical finds the lists and maps among the groups, by the rules of the format's
// LogicalTypes.md, including those for files of old writers.
func (n *parquetNode) logical(e *format.SchemaElement) {
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
		// one of the names of old writers; else it only wraps the element.
		if inner.kind == groupNode && len(inner.children) == 1 && inner.name != "array" && inner.name != n.name+"_tuple" {
			n.children = []*parquetNode{inner, inner.children[0]}
		} else {
			n.children = []*parquetNode{inner, nil}
		}
	case dict && inner.kind == groupNode && len(inner.children) == 2:
		n.kind = mapNode
	}
}

// skip consumes the values of an absent n: one in each of its leaves.
func (p *parquetRows) skip(n *parquetNode) {
	for _, c := range p.leaves[n.first : n.first+n.leaves] {
		if def, _ := c.peek(); def == c.def {
			damaged("column %q has a value where its group is absent", c.name)
		}
		c.take()
	}
}

func (p *parquetRows) present(n *parquetNode) bool {
	def, _ := p.leaves[n.first].peek()
	return def >= n.def
}

// value assembles n from the next values of its leaves.
func (p *parquetRows) value(n *parquetNode) any {
	switch n.repeat {
	case format.Optional:
		if !p.present(n) {
			p.skip(n)
			return nil
		}
	case format.Repeated: // a list without an annotation
		return p.list(n, func() any { return p.content(n) })
	}
	return p.content(n)
}

// list reads the repetitions of n.
func (p *parquetRows) list(n *parquetNode, element func() any) []any {
	list := []any{}
	if !p.present(n) {
		p.skip(n)
		return list
	}
	for {
		list = append(list, element())
		if _, rep := p.leaves[n.first].peek(); rep != n.rep {
			return list
		}
	}
}

// content reads a node n that is present.
func (p *parquetRows) content(n *parquetNode) any {
	switch n.kind {
	case leafNode:
		return p.leaves[n.first].take()
	case listNode:
		inner, element := n.children[0], n.children[1]
		return p.list(inner, func() any {
			if element == nil {
				return p.content(inner)
			}
			return p.value(element)
		})
	case mapNode: // as pairs, since keys need not be strings
		inner := n.children[0]
		return p.list(inner, func() any {
			return []any{p.value(inner.children[0]), p.value(inner.children[1])}
		})
	}
	return p.group(n)
}

func (p *parquetRows) group(n *parquetNode) Object {
	o := make(Object, len(n.children))
	for i, child := range n.children {
		o[i] = Member{child.name, p.value(child)}
	}
	return o
}
