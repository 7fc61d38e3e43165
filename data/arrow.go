package data

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
)

// arrowRows reads an Arrow stream or file row by row. (A file is a stream
// between two magics, with an index at its end that reading in order does not
// need.) A file may be one record batch of any size, so a batch is not loaded:
// each of its buffers is read in step with the rows, and memory holds a window
// of each, besides dictionaries.
//
// The reader is our own because Apache's loads whole batches, and a damaged
// length in the metadata makes it ask for memory until the program is ended.
type arrowRows struct {
	f       *os.File
	at, end int64 // what is left of the stream
	cols    []*arrowColumn
	names   []string
	dicts   map[int64]*arrowDictionary
	left    int64 // rows of the current batch still to return
	row     int
	taken   int // by the row, see rowBudget
}

// maxMetadata bounds the metadata of one message.
const maxMetadata = 64 << 20

// arrowEnd is the magic that ends an Arrow file, behind a footer and its length.
const arrowEnd = "ARROW1"

func openArrowFile(f *os.File, size int64) (source, error) {
	var end [4 + len(arrowEnd)]byte
	if size < 8+int64(len(end)) {
		return nil, fmt.Errorf("arrow: the file is cut short")
	}
	if _, err := f.ReadAt(end[:], size-int64(len(end))); err != nil {
		return nil, fmt.Errorf("arrow: %w", err)
	}
	if string(end[4:]) != arrowEnd {
		return nil, fmt.Errorf("arrow: the file does not end with %s: it is cut short", arrowEnd)
	}
	size -= int64(len(end)) + int64(binary.LittleEndian.Uint32(end[:]))
	if size < 8 {
		return nil, fmt.Errorf("arrow: the file is damaged: its footer is longer than it")
	}
	return openArrow(f, 8, size) // the magic is padded to 8 bytes
}

func openArrowStream(f *os.File, size int64) (source, error) { return openArrow(f, 0, size) }

func openArrow(f *os.File, at, end int64) (s source, err error) {
	defer func() {
		if err != nil {
			s, err = nil, fmt.Errorf("arrow: %w", err)
		}
	}()
	defer recovered(&err)
	a := &arrowRows{f: f, at: at, end: end, dicts: map[int64]*arrowDictionary{}}
	m, err := a.message()
	if err != nil {
		return nil, noEnd(err)
	}
	if m.kind != schemaMessage {
		return nil, fmt.Errorf("the file does not begin with a schema")
	}
	if m.header.integer(0, 2, 0) != 0 {
		return nil, fmt.Errorf("numbers have their highest byte first, which is not read: write the file on another machine")
	}
	schema := arrowSchema{dicts: a.dicts, taken: &a.taken}
	for _, field := range m.header.tables(1) {
		c := schema.column(field, 0)
		a.cols = append(a.cols, c)
		a.names = append(a.names, c.name)
	}
	return a, nil
}

// recovered, deferred, turns a panic into an error, and knows what is merely not
// supported from what is damaged.
func recovered(err *error) {
	switch p := recover().(type) {
	case nil:
	case unreadable:
		*err = fmt.Errorf("%s", string(p))
	default:
		*err = fmt.Errorf("the file is damaged: %v", p)
	}
}

func (a *arrowRows) columns() []string { return a.names }
func (a *arrowRows) unit() string      { return "row" }

func (a *arrowRows) close() error {
	for _, c := range a.cols {
		c.close()
	}
	for _, d := range a.dicts {
		d.column.close()
	}
	return a.f.Close()
}

func (a *arrowRows) next() (o Object, row int, err error) {
	a.row++
	defer func() {
		if err != nil && err != io.EOF {
			o, row, err = nil, a.row, fmt.Errorf("arrow: %w", err)
		}
	}()
	defer recovered(&err)
	for a.left == 0 {
		if err := a.batch(); err != nil {
			return nil, a.row, err
		}
	}
	a.left--
	a.taken = 0
	o = make(Object, len(a.cols))
	for i, c := range a.cols {
		o[i] = Member{a.names[i], c.next()}
	}
	return o, a.row, nil
}

// batch goes on to the next record batch, taking in the dictionaries before it.
func (a *arrowRows) batch() error {
	m, err := a.message()
	if err != nil {
		return err
	}
	switch m.kind {
	case dictionaryMessage:
		a.dictionary(m)
	case batchMessage:
		b := newArrowBatch(m.header, a.f, m.body, m.size)
		a.left = m.header.integer(0, 8, 0)
		for _, c := range a.cols {
			c.begin(b)
			if c.length != a.left {
				damaged("column %q has %d of %d rows", c.name, c.length, a.left)
			}
		}
		if a.left < 0 || len(a.cols) == 0 {
			damaged("a record batch of %d rows in %d columns", a.left, len(a.cols))
		}
	default:
		damaged("a message of kind %d among the record batches", m.kind)
	}
	return nil
}

// dictionary reads the values of a dictionary, or more of them.
func (a *arrowRows) dictionary(m arrowMessage) {
	d := a.dicts[m.header.integer(0, 8, 0)]
	batch, ok := m.header.table(1)
	if d == nil || !ok {
		damaged("a dictionary that no column has")
	}
	if more := m.header.flag(2); !more {
		d.values, d.taken = nil, 0
	}
	d.column.begin(newArrowBatch(batch, a.f, m.body, m.size))
	a.taken = d.taken
	spend(&a.taken, d.column.length)
	for range d.column.length {
		d.values = append(d.values, d.column.next())
	}
	d.taken = a.taken
}

// An arrowMessage is a unit of a stream: metadata, and a body of buffers.
type arrowMessage struct {
	kind       int64
	header     flatTable
	body, size int64 // where the body is in the file
}

// The kinds of messages (Message.fbs, union MessageHeader).
const (
	schemaMessage     = 1
	dictionaryMessage = 2
	batchMessage      = 3
)

// message reads the next message: four bytes FF (absent before version 0.15),
// the length of its metadata, that, and the body. A length of 0 is the end, and
// so is that of the file.
func (a *arrowRows) message() (arrowMessage, error) {
	if a.at == a.end {
		return arrowMessage{}, io.EOF
	}
	length, err := a.uint32()
	if err == nil && length == 0xffffffff {
		length, err = a.uint32()
	}
	if err != nil {
		return arrowMessage{}, err
	}
	if length == 0 {
		return arrowMessage{}, io.EOF
	}
	if length > maxMetadata {
		return arrowMessage{}, fmt.Errorf("the file is damaged: metadata of %d bytes", length)
	}
	text, err := a.read(int64(length))
	if err != nil {
		return arrowMessage{}, err
	}
	root := flatRoot(text)
	if version := root.integer(0, 2, 0); version < 3 || version > 4 {
		return arrowMessage{}, fmt.Errorf("metadata of version %d, and versions 4 and 5 are read", version+1)
	}
	m := arrowMessage{kind: root.integer(1, 1, 0), body: a.at, size: root.integer(3, 8, 0)}
	var ok bool
	if m.header, ok = root.table(2); !ok || m.size < 0 {
		damaged("a message without a header")
	}
	if m.size > a.end-a.at {
		return arrowMessage{}, a.short(m.size)
	}
	a.at += m.size
	return m, nil
}

func (a *arrowRows) uint32() (uint32, error) {
	b, err := a.read(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (a *arrowRows) read(n int64) ([]byte, error) {
	if n > a.end-a.at {
		return nil, a.short(n)
	}
	b := make([]byte, n)
	if _, err := a.f.ReadAt(b, a.at); err != nil {
		return nil, noEnd(err)
	}
	a.at += n
	return b, nil
}

func (a *arrowRows) short(n int64) error {
	return fmt.Errorf("the file is cut short: %d bytes are wanted at byte %d and %d are left", n, a.at, a.end-a.at)
}

// noEnd makes the end of the file an error where there must be more.
func noEnd(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
