package data

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"github.com/parquet-go/parquet-go/format"
)

// parquetRows reads a Parquet file row by row; memory holds one page and one
// dictionary of each column.
type parquetRows struct {
	f      *os.File
	size   int64
	groups []format.RowGroup // row groups that are still to be read
	root   *parquetNode
	leaves []*parquetColumn
	names  []string

	left  int64 // rows still to read in the current row group
	row   int
	taken int // budget used by the current row, see spend
	*unfolding
	held int64 // bytes that the pages of all columns hold
}

// isParquet also recognizes encrypted files.
func isParquet(head []byte, _ string) bool {
	return bytes.HasPrefix(head, []byte("PAR1")) || bytes.HasPrefix(head, []byte("PARE"))
}

// parquetFooter reads the metadata at the end of a file.
func (in Input) parquetFooter() (meta format.FileMetaData, err error) {
	f, err := in.whole()
	if err != nil {
		return meta, err
	}
	size := in.Size
	if head, _ := in.Text.Peek(4); string(head) == "PARE" {
		return meta, fmt.Errorf("an encrypted Parquet file: decrypt it first")
	}
	if size < 12 {
		return meta, fmt.Errorf("the file is cut short")
	}
	end := make([]byte, 8)
	if _, err := f.ReadAt(end, size-8); err != nil {
		return meta, err
	}
	if string(end[4:]) == "PARE" {
		return meta, fmt.Errorf("the file is encrypted: decrypt it first")
	}
	if string(end[4:]) != "PAR1" {
		return meta, fmt.Errorf("the file does not end with PAR1: it is cut short")
	}
	n := int64(binary.LittleEndian.Uint32(end))
	if n > size-12 || n > maxMetadata {
		return meta, fmt.Errorf("the file is damaged: a footer of %d bytes in a file of %d", n, size)
	}
	footer := make([]byte, n)
	if _, err := f.ReadAt(footer, size-8-n); err != nil {
		return meta, noEnd(err)
	}
	if _, err := decodeThrift(footer, &meta); err != nil {
		return meta, fmt.Errorf("%w: its footer cannot be read", errDamaged)
	}
	return meta, nil
}

func openParquet(in Input) (rows *Rows, err error) {
	defer inFormat("parquet", &err)
	defer recovered(&err)
	meta, err := in.parquetFooter()
	if err != nil {
		return nil, err
	}
	size := in.Size
	p := &parquetRows{f: in.File, size: size, groups: meta.RowGroups, unfolding: in.unfolding}
	b := schemaBuilder{rest: meta.Schema, rows: p}
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
	n := int64(0)
	for i, g := range p.groups {
		if len(g.Columns) != len(p.leaves) || g.NumRows < 0 {
			return nil, fmt.Errorf("the file is damaged: row group %d has %d rows and %d of %d columns", i+1, g.NumRows, len(g.Columns), len(p.leaves))
		}
		if n += min(g.NumRows, mostValues(size)+1); n > mostValues(size) {
			return nil, fmt.Errorf("the file is damaged: more than %d rows in %d bytes", mostValues(size), size)
		}
	}
	return &Rows{Next: p.next, Columns: p.names, Unit: "row"}, nil
}

func (p *parquetRows) next() (o Object, row int, err error) {
	p.row++
	row = p.row
	defer inFormat("parquet", &err)
	defer recovered(&err)
	for p.left == 0 {
		if len(p.groups) == 0 {
			return nil, row, io.EOF
		}
		group := &p.groups[0]
		p.groups = p.groups[1:]
		if group.NumRows == 0 { // the columns may lack a place in the file
			continue
		}
		for i, c := range p.leaves {
			c.begin(p.f, p.size, &group.Columns[i])
		}
		p.left = group.NumRows
	}
	p.left--
	p.taken = 0
	o = p.group(p.root)
	for _, c := range p.leaves {
		// The next value must begin a row, and the values must end with the rows.
		if _, rep := c.peek(); rep != 0 || p.left == 0 && c.left > 0 || p.left > 0 && c.left == 0 {
			damaged("column %q does not have the rows of the others", c.name)
		}
	}
	return o, row, nil
}
