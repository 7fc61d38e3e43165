package data

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	flatbuffers "github.com/google/flatbuffers/go"
	"github.com/klauspost/compress/zstd"
)

// arrowEnd is the magic with which an Arrow file begins and ends. A footer and its length stand
// before the last one.
const arrowEnd = "ARROW1"

// isArrow recognizes files, streams and version 1 of Feather by their first bytes. Before
// version 0.15 a stream had no mark.
func isArrow(head []byte, ext string) bool {
	return bytes.HasPrefix(head, []byte(arrowEnd)) || bytes.HasPrefix(head, []byte("\xff\xff\xff\xff")) ||
		bytes.HasPrefix(head, []byte("FEA1")) || ext == ".arrow"
}

// arrowMessages reads the messages of a stream, or those that the footer of a file names, each of
// metadata and a body of buffers. It is an ipc.MessageReader. Memory holds one record batch, and the
// dictionaries.
type arrowMessages struct {
	*columnRows
	f             *os.File
	at, end       int64              // the part of the stream that is still to be read
	isFile        bool               // it is a file, which has a footer
	schema        []byte             // the first message of a file
	messagePlaces []int64            // where the other messages of a file are
	budget        int                // bytes that lists and texts of a message may still take; tables may share bytes
	batch         *flatbuffers.Table // the record batch or dictionary of the message
	panicked      any                // the panic for which the last message was not read
}

// openArrow opens a file or a stream of Arrow: a file has a footer with the places of its messages, and a stream is
// read from byte 0. It refuses a compressed file, so in.Text has the same bytes as in.File.
func openArrow(in Input) (rows *Rows, err error) {
	c := &columnRows{format: "Arrow", unfolding: in.unfolding}
	defer c.recoverInto(&err)
	m := &arrowMessages{columnRows: c}
	if m.f, err = in.uncompressed(); err != nil {
		return nil, err
	}
	m.end = in.Size
	switch head, _ := in.Text.Peek(len(arrowEnd)); {
	case bytes.HasPrefix(head, []byte("FEA1")):
		return nil, errors.New("a Feather file of version 1: write it again as version 2 (Arrow)")
	case string(head) == arrowEnd:
		const begin, tail = int64(8), int64(4 + len(arrowEnd)) // the magic padded; the length of the footer and the magic
		m.at = max(0, m.end-tail)
		end := m.read(tail) // from m.at on, which it advances
		if string(end[4:]) != arrowEnd {
			return nil, fmt.Errorf("the file does not end with %s: it is cut short", arrowEnd)
		}
		size := int64(binary.LittleEndian.Uint32(end))
		damagedIf(size > m.end-begin-tail, "its footer is longer than it")
		m.at = m.end - tail - size
		m.readFooter(m.read(size)) // it notes where the messages are, which Message then reads
	}
	reader, err := ipc.NewReaderFromMessageReader(m)
	m.failIf(err)
	for _, field := range reader.Schema().Fields() {
		c.names = append(c.names, field.Name)
	}
	var cells []func(int) any
	c.cellAt = func(i, row int) any { return cells[i](row) }
	c.nextGroup = func() (int64, error) {
		if !reader.Next() {
			m.failIf(reader.Err())
			return 0, io.EOF
		}
		batch := reader.RecordBatch()
		cells = cells[:0]
		for i, column := range batch.Columns() {
			c.column = c.names[i] // an error of arrowCells names this column
			cells = append(cells, c.arrowCells(column))
		}
		damagedIf(len(cells) == 0, "a record batch without columns")
		return batch.NumRows(), nil
	}
	return &Rows{Next: c.next, Columns: c.names, Unit: "row"}, checkDistinct(c.names)
}

// readFooter reads from the footer b where the messages of a file are. The library wants the schema as the first message, but
// Polars writes it into the footer alone. So m.schema becomes that message: a head of 32 bytes that points into b behind it.
func (m *arrowMessages) readFooter(b []byte) {
	t := flatbuffers.Table{Bytes: b, Pos: flatbuffers.GetUOffsetT(b)}
	for _, field := range []int{2, 3} { // the dictionaries and the record batches
		o := flatbuffers.UOffsetT(t.Offset(slot(field)))
		for i := 0; o != 0 && i < t.VectorLen(o); i++ {
			m.messagePlaces = append(m.messagePlaces, t.GetInt64(t.Vector(o)+flatbuffers.UOffsetT(24*i))) // of 24 bytes each, the place is first
		}
	}
	var schema flatbuffers.Table
	t.Union(&schema, flatbuffers.UOffsetT(t.Offset(slot(1))))
	version := byte(t.GetInt16Slot(slot(0), 0))
	m.schema = append([]byte{16, 0, 0, 0, // where the table of the message begins
		10, 0, 12, 0, 8, 0, 10, 0, 4, 0, 0, 0, // two sizes, and the places of version, kind and header in the table
		12, 0, 0, 0, 0, 0, 0, 0, version, 0, 1, 0, 0, 0, 0, 0}, b...) // the table: how far back those are, header, version, kind (schema)
	binary.LittleEndian.PutUint32(m.schema[20:], uint32(32-20+schema.Pos)) // the header is the schema, counted from byte 20
	m.isFile = true
}

// failIf panics with what was wrong with a message, or else says that the library met an error: its
// words are about its own parts.
func (m *arrowMessages) failIf(err error) {
	if m.panicked != nil {
		panic(m.panicked)
	}
	damagedIf(err != nil, "what begins before byte %d cannot be read", m.at)
}

// Retain implements ipc.MessageReader.
func (m *arrowMessages) Retain() {}

// Release implements ipc.MessageReader.
func (m *arrowMessages) Release() {}

// Message reads the next message: four bytes FF (absent before version 0.15), the length
// of the metadata, the metadata, and the body. A length of 0 and the end of the file both
// end the stream. A panic is kept for failIf, since the library would change its text.
func (m *arrowMessages) Message() (message *ipc.Message, err error) {
	defer func() {
		if m.panicked = recover(); m.panicked != nil {
			err = io.ErrUnexpectedEOF
		}
	}()
	m.column = ""                              // an error here is about no column
	if metadata := m.schema; metadata != nil { // only a file has it set, by its footer
		m.schema = nil
		m.checkMetadata(metadata)
		return ipc.NewMessage(memory.NewBufferBytes(metadata), memory.NewBufferBytes(nil)), nil
	}
	if m.isFile && len(m.messagePlaces) > 0 {
		m.at, m.messagePlaces = m.messagePlaces[0], m.messagePlaces[1:]
	} else if m.isFile || m.at == m.end {
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
	metadata := m.read(int64(length))
	size := m.checkMetadata(metadata) // of the body; it also sets m.batch
	unreadableIf(size > maxHeld, "a record batch of %d MiB, at most %d are read: write the file with smaller ones", size>>20, maxHeld>>20)
	body := m.read(size)
	if m.batch != nil {
		m.checkBuffers(m.batch, body)
	}
	return ipc.NewMessage(memory.NewBufferBytes(metadata), memory.NewBufferBytes(body)), nil
}

func (m *arrowMessages) read(n int64) []byte {
	unreadableIf(n < 0 || n > m.end-m.at, "the file is cut short: %d bytes are wanted at byte %d and %d are left", n, m.at, m.end-m.at)
	b := make([]byte, n)
	_, err := m.f.ReadAt(b, m.at)
	damagedIf(err != nil, "%v", endIsError(err))
	m.at += n
	return b
}

// checkBuffers checks where the buffers of a record batch lie in its body, and counts the sizes to which the library
// is to decompress them. A compressed buffer begins with its decompressed length, or with -1 if it is not
// compressed.
func (m *arrowMessages) checkBuffers(batch *flatbuffers.Table, body []byte) {
	o := flatbuffers.UOffsetT(batch.Offset(slot(2))) // field 2 of RecordBatch are the buffers, 3 is the compression
	total := int64(0)
	for i := 0; o != 0 && i < batch.VectorLen(o); i++ {
		at := batch.Vector(o) + flatbuffers.UOffsetT(16*i)
		from, length, end := batch.GetInt64(at), batch.GetInt64(at+8), int64(len(body))
		damagedIf(from < 0 || length < 0 || from > end || length > end-from || from%8 != 0, // 8: as the format aligns it
			"a buffer of %d bytes at byte %d of a record batch of %d", length, from, end)
		if length == 0 || batch.Offset(slot(3)) == 0 { // there is no compression
			continue
		}
		buffer := body[from:][:length]
		size := int64(binary.LittleEndian.Uint64(buffer))
		if size == -1 {
			continue
		}
		total += max(0, size)
		unreadableIf(size < 0 || total > maxHeld,
			"a buffer of %d bytes, %d uncompressed: at most %d MiB are read of a record batch", length, size, maxHeld>>20)
		m.countUnpacked(size)
		var frame zstd.Header // of LZ4, which needs no such check, it is not decoded
		damagedIf(frame.Decode(buffer[8:]) == nil && max(frame.WindowSize, frame.FrameContentSize) > uint64(max(size, maxWindow)),
			"a compressed buffer: %v", zstd.ErrWindowSizeExceeded)
	}
}

// arrowTables has, by the kind of a table, its fields that are lists, texts or tables, numbered as in Message.fbs and
// Schema.fbs. A list has elements of size bytes, each the place of a table if of names a kind; size 0 is one table.
var arrowTables = map[string][]struct {
	field, size int
	of          string // the kind of the table or tables, a key of arrowTables
}{
	"message":    {{4, 4, "note"}},
	"schema":     {{1, 4, "column"}, {2, 4, "note"}},
	"column":     {{0, 1, ""}, {5, 4, "column"}, {6, 4, "note"}},
	"timestamp":  {{1, 1, ""}},
	"note":       {{0, 1, ""}, {1, 1, ""}},
	"dictionary": {{1, 0, "batch"}},
	"batch":      {{1, 16, ""}, {2, 16, ""}, {4, 8, ""}},
}

// slot returns where in the head of a table the place of a field stands.
func slot(field int) flatbuffers.VOffsetT { return flatbuffers.VOffsetT(4 + 2*field) }

// checkMetadata walks over the metadata of a message before the library does, which allocates as much as a list
// states, and follows nested tables without a limit. A read outside of the metadata panics with an index
// out of range. It sets batch to the record batch of the message, and returns the length of the body.
func (m *arrowMessages) checkMetadata(metadata []byte) int64 {
	m.budget, m.batch = 4*len(metadata)+1<<20, nil
	t := &flatbuffers.Table{Bytes: metadata, Pos: flatbuffers.GetUOffsetT(metadata)}
	version := t.GetInt16Slot(slot(0), 0)
	unreadableIf(version < 3 || version > 4, "metadata of version %d, and versions 4 and 5 are read", version+1)
	m.checkTable(t, "message", 0)
	kind := t.GetByteSlot(slot(1), 0)
	damagedIf(kind < 1 || kind > 3, "a message of kind %d", kind)
	m.checkSubtable(t, 2, []string{"schema", "dictionary", "batch"}[kind-1], 0)
	return t.GetInt64Slot(slot(3), 0)
}

func (m *arrowMessages) checkSubtable(t *flatbuffers.Table, field int, kind string, depth int) {
	var sub flatbuffers.Table
	t.Union(&sub, flatbuffers.UOffsetT(t.Offset(slot(field))))
	m.checkTable(&sub, kind, depth+1)
}

// checkTable checks a table of a kind in arrowTables, and those inside it, and takes their lists' bytes off m.budget, which
// bounds what the library allocates. It sets m.batch if the table is a batch. depth is how many tables are around it.
func (m *arrowMessages) checkTable(t *flatbuffers.Table, kind string, depth int) {
	damagedIf(depth > 60, "metadata is nested too deep")
	for _, part := range arrowTables[kind] {
		o := flatbuffers.UOffsetT(t.Offset(slot(part.field)))
		if o == 0 {
			continue
		}
		if part.size == 0 { // one table and no list
			m.checkSubtable(t, part.field, part.of, depth)
			continue
		}
		at, n := t.Vector(o), t.VectorLen(o)
		m.budget -= n * part.size
		damagedIf(int(at)+n*part.size > len(t.Bytes) || m.budget < 0, "a list of %d is longer than the metadata", n)
		for i := range n {
			if part.of != "" {
				m.budget -= 64 // the library's own form of a column or a note
				m.checkTable(&flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(at + flatbuffers.UOffsetT(4*i))}, part.of, depth+1)
			}
		}
	}
	switch {
	case kind == "column" && t.GetByteSlot(slot(2), 0) == 10: // the kind of its type: 10 is a timestamp, whose table, field 3, has the time zone as a text
		m.checkSubtable(t, 3, "timestamp", depth)
	case kind == "batch": // field 2 has the buffers, 4 how many of them each column of variable parts has
		m.batch = t
		buffers, counts := flatbuffers.UOffsetT(t.Offset(slot(2))), flatbuffers.UOffsetT(t.Offset(slot(4)))
		for i := 0; counts != 0 && i < t.VectorLen(counts); i++ {
			n := t.GetInt64(t.Vector(counts) + flatbuffers.UOffsetT(8*i))
			damagedIf(n < 0 || n > int64(t.VectorLen(buffers)), "a column of %d buffers, and there are %d", n, t.VectorLen(buffers))
		}
	}
}
