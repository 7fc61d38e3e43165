package data

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	flatbuffers "github.com/google/flatbuffers/go"
)

// arrowRows reads an Arrow stream or file row by row. (A file is a stream between two
// magics, with an index at its end that reading in order does not need.) Memory holds one
// record batch, and the dictionaries.
type arrowRows struct {
	messages *arrowMessages
	reader   *ipc.Reader
	names    []string
	cells    []func(int) any // readers of the columns of the batch, see arrowCells
	at, n    int             // how many rows of the batch were returned, and how many it has
	row      int
	taken    int // budget used by the current row, see spend
}

// arrowEnd is the magic with which an Arrow file begins and ends. A footer and its length stand
// before the last one.
const arrowEnd = "ARROW1"

// isArrow recognizes files, streams and version 1 of Feather by their first bytes. Before
// version 0.15 a stream had no mark.
func isArrow(head []byte, ext string) bool {
	return bytes.HasPrefix(head, []byte("ARROW1")) || bytes.HasPrefix(head, []byte("\xff\xff\xff\xff")) ||
		bytes.HasPrefix(head, []byte("FEA1")) || ext == ".arrow"
}

// messages returns where the messages of a file or stream are.
func (in Input) messages() (*arrowMessages, error) {
	f, err := in.whole()
	if err != nil {
		return nil, err
	}
	head, _ := in.Text.Peek(len(arrowEnd))
	if bytes.HasPrefix(head, []byte("FEA1")) {
		return nil, fmt.Errorf("a Feather file of version 1: write it again as version 2 (Arrow)")
	}
	if string(head) != arrowEnd {
		return &arrowMessages{f: f, end: in.Size, budget: in.unfolding}, nil
	}
	var end [4 + len(arrowEnd)]byte
	size := in.Size - int64(len(end))
	if size < 8 {
		return nil, fmt.Errorf("the file is cut short")
	}
	if _, err := f.ReadAt(end[:], size); err != nil {
		return nil, err
	}
	if string(end[4:]) != arrowEnd {
		return nil, fmt.Errorf("the file does not end with %s: it is cut short", arrowEnd)
	}
	if size -= int64(binary.LittleEndian.Uint32(end[:])); size < 8 {
		return nil, fmt.Errorf("the file is damaged: its footer is longer than it")
	}
	return &arrowMessages{f: f, at: 8, end: size, budget: in.unfolding}, nil // the magic is padded to 8 bytes
}

func openArrow(in Input) (rows *Rows, err error) {
	defer inFormat("arrow", &err)
	defer recovered(&err)
	a := &arrowRows{}
	if a.messages, err = in.messages(); err != nil {
		return nil, err
	}
	if a.reader, err = ipc.NewReaderFromMessageReader(a.messages); err != nil {
		return nil, noEnd(a.messages.reason(err))
	}
	for _, field := range a.reader.Schema().Fields() {
		a.names = append(a.names, field.Name)
	}
	a.messages.columns = a.reader.Schema().Fields()
	if err := distinct(a.names); err != nil {
		return nil, err
	}
	return &Rows{Next: a.next, Columns: a.names, Unit: "row"}, nil
}

func (a *arrowRows) next() (o Object, row int, err error) {
	a.row++
	row = a.row
	defer inFormat("arrow", &err)
	defer recovered(&err)
	for a.at == a.n {
		if !a.reader.Next() {
			if err := a.messages.reason(a.reader.Err()); err != nil {
				return nil, row, err
			}
			return nil, row, io.EOF
		}
		a.begin(a.reader.RecordBatch())
	}
	a.taken = 0
	o = make(Object, len(a.names))
	for i, name := range a.names {
		o[i] = Member{name, a.cell(i)}
	}
	a.at++
	return o, row, nil
}

// begin goes to the next record batch.
func (a *arrowRows) begin(batch arrow.RecordBatch) {
	a.at, a.n = 0, int(batch.NumRows())
	damagedIf(a.n < 0 || batch.NumCols() == 0, "a record batch of %d rows in %d columns", a.n, batch.NumCols())
	a.cells = a.cells[:0]
	for i, column := range batch.Columns() {
		a.cells = append(a.cells, a.column(a.names[i], column))
	}
}

func (a *arrowRows) column(name string, column arrow.Array) func(int) any {
	defer inColumn(name)
	return arrowCells(column, &a.taken)
}

func (a *arrowRows) cell(i int) any {
	defer inColumn(a.names[i])
	return a.cells[i](a.at)
}

// arrowMessages gives the library the messages of a stream, each of metadata
// and a body of buffers, checked so that it allocates only for what is there.
// It is an ipc.MessageReader.
type arrowMessages struct {
	f       *os.File
	at, end int64 // the part of the stream that is still to be read
	err     error // the error of the last message
	budget  *unfolding
	columns []arrow.Field // the columns of the schema
}

func (m *arrowMessages) Retain()  {}
func (m *arrowMessages) Release() {}

// reason returns why the library gave up: what is wrong with a message, or that there is a
// fault, since the library's own words are about its parts.
func (m *arrowMessages) reason(err error) error {
	switch {
	case m.err != nil:
		return m.err
	case err != nil:
		return fmt.Errorf("%w: a record batch that begins here cannot be read", errDamaged)
	}
	return nil
}

// Message reads the next message: four bytes FF (absent before version 0.15), the length
// of the metadata, the metadata, and the body. A length of 0 and the end of the file both
// end the stream.
func (m *arrowMessages) Message() (message *ipc.Message, err error) {
	defer func() {
		if err != io.EOF {
			m.err = err
		}
	}()
	defer recovered(&err)
	if m.at == m.end {
		return nil, io.EOF
	}
	length := binary.LittleEndian.Uint32(m.read(4))
	if length == 0xffffffff {
		length = binary.LittleEndian.Uint32(m.read(4))
	}
	if length == 0 {
		return nil, io.EOF
	}
	damagedIf(length > maxMetadata, "metadata of %d bytes", length)
	text := m.read(int64(length))
	check := arrowCheck{bytes: 4*len(text) + 1<<20, end: m.end - m.at, columns: m.columns}
	root := flatbuffers.Table{Bytes: text, Pos: flatbuffers.GetUOffsetT(text)}
	size := check.message(&root)
	if size > maxHeld {
		panic(unreadable(fmt.Sprintf("a record batch of %d MiB, at most %d are read: write the file with smaller ones", size>>20, maxHeld>>20)))
	}
	body := m.read(size)
	check.unpacked(body, m.budget)
	return ipc.NewMessage(memory.NewBufferBytes(text), memory.NewBufferBytes(body)), nil
}

func (m *arrowMessages) read(n int64) []byte {
	if n > m.end-m.at {
		panic(unreadable(fmt.Sprintf("the file is cut short: %d bytes are wanted at byte %d and %d are left", n, m.at, m.end-m.at)))
	}
	b := make([]byte, n)
	_, err := m.f.ReadAt(b, m.at)
	damagedIf(err != nil, "%v", noEnd(err))
	m.at += n
	return b
}
