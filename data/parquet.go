package data

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// A parquetFile reads a Parquet file; memory holds one page and one dictionary of each column.
type parquetFile struct {
	*columnRows
	f      *os.File
	size   int64
	schema []format.SchemaElement // of the columns that addNode has not visited yet, in its order
	leaves []*parquetColumn       // the columns that have no others inside
	held   int64                  // bytes that the pages of all columns hold
}

// isParquet also recognizes encrypted files.
func isParquet(head []byte, _ string) bool {
	return bytes.HasPrefix(head, []byte("PAR1")) || bytes.HasPrefix(head, []byte("PARE"))
}

// open opens the file. First it checks the footer itself, its length and how deep the schema nests, since the library
// trusts both; damage there is a panic, as damagedIf makes it.
func (p *parquetFile) open(head []byte) (*parquet.File, error) {
	end := make([]byte, 8)
	if _, err := p.f.ReadAt(end, max(0, p.size-8)); err != nil {
		return nil, endIsError(err)
	}
	n, mark := int64(binary.LittleEndian.Uint32(end)), string(end[4:])
	if string(head) == "PARE" || mark == "PARE" {
		return nil, errors.New("an encrypted Parquet file: decrypt it first")
	}
	if mark != "PAR1" {
		return nil, errors.New("the file does not end with PAR1: it is cut short")
	}
	damagedIf(n > p.size-12 || n > maxMetadata, "a footer of %d bytes in a file of %d", n, p.size) // 12: PAR1 twice, the length
	footer := make([]byte, n)
	if _, err := p.f.ReadAt(footer, p.size-8-n); err != nil {
		return nil, endIsError(err)
	}
	var meta format.FileMetaData
	_, err := decodeThrift(footer, &meta)
	damagedIf(err != nil, "its footer cannot be read")
	var missing []int32 // how many columns are still to come in each of the groups around the present one
	for _, e := range meta.Schema {
		for len(missing) > 0 && missing[len(missing)-1] == 0 {
			missing = missing[:len(missing)-1]
		}
		if len(missing) > 0 {
			missing[len(missing)-1]--
		}
		missing = append(missing, e.NumChildren.V)
		damagedIf(len(missing) > 100, "a schema that is nested too deep")
	}
	file, err := parquet.OpenFile(p.f, p.size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	damagedIf(err != nil, "%v", err)
	return file, nil
}

// openParquet opens the rows of a file: each is assembled out of the next cells of the leaves, the
// columns that have no others inside.
func openParquet(in Input) (rows *Rows, err error) {
	p := &parquetFile{columnRows: &columnRows{format: "Parquet", unfolding: in.unfolding}, size: in.Size}
	defer p.recoverInto(&err)
	if p.f, err = in.uncompressed(); err != nil {
		return nil, err
	}
	head, _ := in.Text.Peek(4)
	file, err := p.open(head)
	if err != nil {
		return nil, err
	}
	p.schema = file.Metadata().Schema // addNode takes its elements one by one
	root, groups := p.addNode(file.Root()), file.Metadata().RowGroups
	for _, child := range root.children {
		p.names = append(p.names, child.Name())
	}
	var cells [][]parquetCell       // used again for each value, which does not keep it
	p.cellAt = func(i, _ int) any { // the leaves know which row is next
		child := root.children[i]
		cells = cells[:0]
		for _, leaf := range p.leaves[child.first:child.last] {
			cells = append(cells, leaf.row())
		}
		return child.value(cells)
	}
	p.nextGroup = func() (int64, error) {
		for _, leaf := range p.leaves {
			p.column = leaf.Name()
			damagedIf(leaf.unread > 0 || len(leaf.defs) > 0, "it has more values than its rows need")
		}
		if len(groups) == 0 {
			return 0, io.EOF
		}
		group := groups[0]
		groups = groups[1:]
		for i, leaf := range p.leaves {
			if group.NumRows > 0 { // else the columns may lack a place in the file
				leaf.begin(&group.Columns[i])
			}
		}
		return group.NumRows, nil
	}
	return &Rows{Next: p.next, Columns: p.names, Unit: "row"}, nil
}

// A thriftReader reads Thrift. The library allocates as much as a list states, and follows nested
// structures without a limit, so these are counted.
type thriftReader struct {
	thrift.BytesReader
	budget int // how many elements and structures may follow
}

// decodeThrift decodes the metadata at the beginning of b into v, which points to a structure of
// package format, and returns its length.
func decodeThrift(b []byte, v any) (n int, err error) {
	r := &thriftReader{new(thrift.CompactProtocol).NewReaderFromBytes(b), min(len(b), 1<<20)}
	err = thrift.NewDecoder(r).Decode(v)
	return r.BytesRead(), err
}

func (r *thriftReader) count(kind thrift.Type, n int, err error) error {
	if r.budget -= n; err == nil && (r.budget < 0 || kind == thrift.SET || kind == thrift.MAP) {
		return errors.New("it has too many parts, or of a kind that the format does not have")
	}
	return err
}

// ReadList implements thrift.Reader.
func (r *thriftReader) ReadList() (thrift.List, error) {
	list, err := r.BytesReader.ReadList()
	return list, r.count(list.Type, int(list.Size), err)
}

// ReadField implements thrift.Reader.
func (r *thriftReader) ReadField() (thrift.Field, error) {
	field, err := r.BytesReader.ReadField()
	if field.Type == thrift.STRUCT {
		return field, r.count(field.Type, 1, err)
	}
	return field, r.count(field.Type, 0, err)
}

// Discard skips n bytes, as the library does where it finds this method.
func (r *thriftReader) Discard(n int) (int, error) {
	return r.BytesReader.(interface{ Discard(int) (int, error) }).Discard(n)
}
