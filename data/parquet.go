package data

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
)

// parquetRows reads a Parquet file row by row; memory holds a page and a
// dictionary per column.
//
// The reader is our own because libraries believe what a file says of its
// sizes: a damaged or hostile one has them ask for memory until the program is
// ended.
type parquetRows struct {
	f      *os.File
	size   int64
	groups []parquetGroup // that were not read yet
	root   *parquetNode
	leaves []*parquetColumn
	names  []string

	left  int64 // rows of the current group that were not read yet
	row   int
	taken int   // by the row, see rowBudget
	held  int64 // bytes of the pages and dictionaries of all columns
}

func openParquet(f *os.File, size int64) (s source, err error) {
	defer func() {
		if err != nil {
			s, err = nil, fmt.Errorf("parquet: %w", err)
		}
	}()
	defer recovered(&err)
	if size < 12 {
		return nil, fmt.Errorf("the file is cut short")
	}
	end := make([]byte, 8)
	if _, err := f.ReadAt(end, size-8); err != nil {
		return nil, err
	}
	if string(end[4:]) == "PARE" {
		return nil, fmt.Errorf("the file is encrypted: decrypt it first")
	}
	if string(end[4:]) != "PAR1" {
		return nil, fmt.Errorf("the file does not end with PAR1: it is cut short")
	}
	n := int64(binary.LittleEndian.Uint32(end))
	if n > size-12 || n > maxFooter {
		return nil, fmt.Errorf("the file is damaged: a footer of %d bytes in a file of %d", n, size)
	}
	footer := make([]byte, n)
	if _, err := f.ReadAt(footer, size-8-n); err != nil {
		return nil, noEnd(err)
	}
	meta := readParquetMeta(footer)
	p := &parquetRows{f: f, size: size, groups: meta.groups}
	b := schemaBuilder{rest: meta.schema, rows: p}
	if p.root, err = b.node(0, 0, 0); err != nil {
		return nil, err
	}
	if len(b.rest) > 0 {
		return nil, fmt.Errorf("the schema has %d elements too many", len(b.rest))
	}
	if p.root.kind == leafNode {
		return nil, fmt.Errorf("the schema has no columns")
	}
	for _, child := range p.root.children {
		p.names = append(p.names, child.name)
	}
	rows := int64(0)
	for i, g := range p.groups {
		if len(g.chunks) != len(p.leaves) || g.rows < 0 {
			return nil, fmt.Errorf("the file is damaged: row group %d has %d rows and %d of %d columns", i+1, g.rows, len(g.chunks), len(p.leaves))
		}
		if rows += min(g.rows, mostValues(size)+1); rows > mostValues(size) {
			return nil, fmt.Errorf("the file is damaged: more than %d rows in %d bytes", mostValues(size), size)
		}
	}
	return p, nil
}

func (p *parquetRows) columns() []string { return p.names }
func (p *parquetRows) unit() string      { return "row" }

func (p *parquetRows) close() error {
	for _, c := range p.leaves {
		c.pages.close()
	}
	return p.f.Close()
}

func (p *parquetRows) next() (o Object, row int, err error) {
	p.row++
	defer func() {
		if err != nil && err != io.EOF {
			o, row, err = nil, p.row, fmt.Errorf("parquet: %w", err)
		}
	}()
	defer recovered(&err)
	for p.left == 0 {
		if len(p.groups) == 0 {
			return nil, p.row, io.EOF
		}
		group := p.groups[0]
		p.groups = p.groups[1:]
		if group.rows == 0 { // its chunks may be nowhere
			continue
		}
		for i, c := range p.leaves {
			c.begin(p.f, p.size, &group.chunks[i])
		}
		p.left = group.rows
	}
	p.left--
	p.taken = 0
	o = p.group(p.root)
	for _, c := range p.leaves {
		// What comes next begins a row, or there is nothing.
		if _, rep := c.peek(); rep != 0 || p.left == 0 && c.left > 0 || p.left > 0 && c.left == 0 {
			damaged("column %q does not have the rows of the others", c.name)
		}
	}
	return o, p.row, nil
}

// A parquetNode is a column or a group of columns.
type parquetNode struct {
	name     string
	kind     nodeKind
	repeat   int64
	def, rep int // the levels from which it is present
	first    int // its first leaf column
	leaves   int // how many it has
	children []*parquetNode
}

// The repetitions of a node, as parquet.thrift numbers them.
const (
	parquetOptional = 1
	parquetRepeated = 2
)

type nodeKind byte

const (
	leafNode nodeKind = iota
	groupNode
	listNode // children are the repeated node and its element, nil if that is itself
	mapNode  // child is the repeated group of key and value
)

// A schemaBuilder builds the tree of columns out of the flat list of a footer.
type schemaBuilder struct {
	rest []parquetElement
	rows *parquetRows // receives the leaves
}

// node takes the next element and what is below it; def and rep are the levels
// of what is above.
func (b *schemaBuilder) node(def, rep, depth int) (*parquetNode, error) {
	if len(b.rest) == 0 || depth > 100 {
		return nil, fmt.Errorf("the schema is damaged")
	}
	e := &b.rest[0]
	b.rest = b.rest[1:]
	n := &parquetNode{name: e.name, first: len(b.rows.leaves)}
	if depth > 0 { // the root has no repetition
		n.repeat = e.repeat
		switch n.repeat {
		case parquetOptional:
			def++
		case parquetRepeated:
			def++
			rep++
		}
	}
	n.def, n.rep = def, rep
	if e.children < 0 || e.kind >= 0 {
		if e.kind < 0 || e.kind > parquetFixed || e.kind == parquetFixed && (e.length < 1 || e.length > maxPage) {
			return nil, fmt.Errorf("the schema is damaged: column %q is of type %d and %d bytes", e.name, e.kind, e.length)
		}
		b.rows.leaves = append(b.rows.leaves, &parquetColumn{
			element: e, name: e.name, def: def, rep: rep, convert: e.converter(),
			pages: pageReader{held: &b.rows.held}, taken: &b.rows.taken,
		})
		n.leaves = 1
		return n, nil
	}
	for range e.children {
		child, err := b.node(def, rep, depth+1)
		if err != nil {
			return nil, err
		}
		n.children = append(n.children, child)
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

// logical finds the lists and maps among the groups, after the format's
// LogicalTypes.md with its rules for old writers.
func (n *parquetNode) logical(e *parquetElement) {
	if len(n.children) != 1 || n.children[0].repeat != parquetRepeated || n.repeat == parquetRepeated {
		return
	}
	inner := n.children[0]
	list := e.logical.member == logicalList || e.converted == convertedList
	dict := e.logical.member == logicalMap || e.converted == convertedMap || e.converted == convertedMapKeyValue
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

// skip takes the one value that stands for an absent n.
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

// value reads n out of the values of its leaves.
func (p *parquetRows) value(n *parquetNode) any {
	switch n.repeat {
	case parquetOptional:
		if !p.present(n) {
			p.skip(n)
			return nil
		}
	case parquetRepeated: // outside a list: a list all the same
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

// content reads n, which is there.
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
	case mapNode: // pairs, as keys need not be strings
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
