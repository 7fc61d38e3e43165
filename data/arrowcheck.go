package data

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	flatbuffers "github.com/google/flatbuffers/go"
	"github.com/klauspost/compress/zstd"
)

// An arrowCheck walks over the metadata of a message before the library does, which
// allocates as much as a list states, and follows nested tables without a limit. Fields
// are numbered as in Message.fbs and Schema.fbs. A read outside of the metadata panics
// with an index out of range.
type arrowCheck struct {
	fields int   // number of columns and notes so far
	bytes  int   // bytes that lists and texts may still take; tables may share bytes
	end    int64 // bytes of the file behind the metadata

	batch    *flatbuffers.Table // the length of a record batch or a dictionary
	columns  []arrow.Field      // the columns of the schema, once the schema was read
	nodeOf   []string           // the column of each node of a record batch
	bufferOf []string           // the column of each of its buffers
	buffers  int                // the number of buffers
}

// maxFields bounds the columns of a schema, those inside others included.
const maxFields = 1 << 16

// The kinds of messages (union MessageHeader).
const (
	schemaMessage     = 1
	dictionaryMessage = 2
	batchMessage      = 3
)

// unreadTypes are the types of columns that are refused (union Type).
var unreadTypes = map[byte]string{11: "interval", 14: "union", 22: "run-end encoded", 25: "list view", 26: "large list view"}

const typeTimestamp = 10

// The ways of compression (enum CompressionType).
const (
	lz4Codec  = 0
	zstdCodec = 1
)

// message checks a message and returns the length of its body.
func (c *arrowCheck) message(m *flatbuffers.Table) int64 {
	if version := m.GetInt16Slot(slot(0), 0); version < 3 || version > 4 {
		panic(unreadable(fmt.Sprintf("metadata of version %d, and versions 4 and 5 are read", version+1)))
	}
	header, ok := subtable(m, 2)
	size := m.GetInt64Slot(slot(3), 0)
	damagedIf(!ok || size < 0, "a message without a header")
	c.notes(m, 4)
	switch kind := m.GetByteSlot(slot(1), 0); kind {
	case schemaMessage:
		for _, field := range c.tables(header, 1) {
			c.field(field, 0)
		}
		c.notes(header, 2)
	case dictionaryMessage:
		header, ok = subtable(header, 1)
		damagedIf(!ok, "a dictionary without values")
		c.columns = nil // a dictionary may serve several columns
		fallthrough
	case batchMessage:
		c.batch = header
		c.records(size)
	default:
		damaged("a message of kind %d", kind)
	}
	return size
}

func slot(field int) flatbuffers.VOffsetT { return flatbuffers.VOffsetT(4 + 2*field) }

// subtable returns a field that is a table, and whether it is there.
func subtable(t *flatbuffers.Table, field int) (*flatbuffers.Table, bool) {
	o := t.Offset(slot(field))
	if o == 0 {
		return nil, false
	}
	var sub flatbuffers.Table
	t.Union(&sub, flatbuffers.UOffsetT(o))
	return &sub, true
}

// list returns where the elements of a field are and how many there are; each has size
// bytes. The field may be absent.
func (c *arrowCheck) list(t *flatbuffers.Table, field, size int) (at flatbuffers.UOffsetT, n int) {
	o := flatbuffers.UOffsetT(t.Offset(slot(field)))
	if o == 0 {
		return 0, 0
	}
	at, n = t.Vector(o), t.VectorLen(o)
	c.bytes -= n * size
	damagedIf(int(at)+n*size > len(t.Bytes) || c.bytes < 0, "a list of %d is longer than the metadata", n)
	return at, n
}

// tables returns a field that is a list of tables.
func (c *arrowCheck) tables(t *flatbuffers.Table, field int) []*flatbuffers.Table {
	at, n := c.list(t, field, 4)
	c.fields += n
	damagedIf(c.fields > maxFields, "the schema has more than %d columns", maxFields)
	list := make([]*flatbuffers.Table, n)
	for i := range list {
		list[i] = &flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(at + flatbuffers.UOffsetT(4*i))}
	}
	return list
}

// notes checks a field that is a list of keys with values.
func (c *arrowCheck) notes(t *flatbuffers.Table, field int) {
	for _, pair := range c.tables(t, field) {
		c.list(pair, 0, 1)
		c.list(pair, 1, 1)
	}
}

// field checks a column, and those inside it.
func (c *arrowCheck) field(f *flatbuffers.Table, depth int) {
	damagedIf(depth > 60, "the columns are nested too deep")
	at, n := c.list(f, 0, 1)
	name := string(f.Bytes[at : int(at)+n])
	defer inColumn(name)
	kind := f.GetByteSlot(slot(2), 0)
	if refused := unreadTypes[kind]; refused != "" {
		panic(unreadable(fmt.Sprintf("values of type %s are not read", refused)))
	}
	t, ok := subtable(f, 3)
	damagedIf(!ok, "it has no type")
	if kind == typeTimestamp {
		c.list(t, 1, 1) // the time zone
	}
	for _, child := range c.tables(f, 5) {
		c.field(child, depth+1)
	}
	c.notes(f, 6)
}

// records checks a record batch with a body of so many bytes.
func (c *arrowCheck) records(size int64) {
	most := mostValues(min(size, c.end))
	rows := c.batch.GetInt64Slot(slot(0), 0)
	damagedIf(rows < 0 || rows > most, "a record batch of %d rows in %d bytes", rows, size)
	bufferAt, buffers := c.list(c.batch, 2, 16)
	c.buffers = buffers
	at, views := c.list(c.batch, 4, 8)
	for i := range views {
		if count := c.number(at, i); count < 0 || count > int64(buffers) {
			damaged("a column of %d buffers, and there are %d", count, buffers)
		}
	}
	for _, field := range c.columns {
		at, views = c.own(field.Name, field.Type, at, views)
	}
	at, n := c.list(c.batch, 1, 16)
	for i := range n {
		if values := c.number(at, 2*i); values < 0 || values > most {
			damaged("%s%d values in %d bytes", owner(c.nodeOf, i), values, size)
		}
	}
	for i := range buffers {
		if from, length := c.number(bufferAt, 2*i), c.number(bufferAt, 2*i+1); from < 0 || length < 0 || from > size || length > size-from || from%8 != 0 {
			damaged("%sa buffer of %d bytes at byte %d of a record batch of %d", owner(c.bufferOf, i), length, from, size)
		}
	}
}

// own notes the nodes and the buffers of a column, or of a part of it. A column of text views has
// additional buffers; views states the number for each such column. own takes the first and returns
// the rest.
func (c *arrowCheck) own(column string, t arrow.DataType, at flatbuffers.UOffsetT, views int) (flatbuffers.UOffsetT, int) {
	layout, more := t.Layout(), 0
	if layout.VariadicSpec != nil && views > 0 {
		more = min(int(c.number(at, 0)), c.buffers-len(c.bufferOf))
		at, views = at+8, views-1
	}
	if c.nodeOf = append(c.nodeOf, column); t.ID() != arrow.NULL {
		c.bufferOf = append(c.bufferOf, slices.Repeat([]string{column}, len(layout.Buffers)+max(0, more))...)
	}
	if nested, ok := t.(arrow.NestedType); ok {
		for _, field := range nested.Fields() {
			at, views = c.own(column, field.Type, at, views)
		}
	}
	return at, views
}

// owner names the column to which a node or a buffer belongs, if it is known.
func owner(of []string, i int) string {
	if i < len(of) {
		return fmt.Sprintf("column %q: ", of[i])
	}
	return ""
}

// number returns the 64-bit number i of a list.
func (c *arrowCheck) number(at flatbuffers.UOffsetT, i int) int64 {
	return c.batch.GetInt64(at + flatbuffers.UOffsetT(8*i))
}

// unpacked checks the sizes to which the library is to decompress the buffers of a body.
// A compressed buffer begins with its decompressed length, or with -1 if it is not
// compressed.
func (c *arrowCheck) unpacked(body []byte, budget *unfolding) {
	if c.batch == nil {
		return
	}
	compression, ok := subtable(c.batch, 3)
	if !ok {
		return
	}
	codec, total := compression.GetInt8Slot(slot(0), 0), int64(0)
	damagedIf(codec != lz4Codec && codec != zstdCodec, "buffers compressed in an unknown way (%d)", codec)
	at, n := c.list(c.batch, 2, 16)
	for i := range n {
		from, length := c.number(at, 2*i), c.number(at, 2*i+1)
		if length == 0 {
			continue
		}
		buffer := body[from : from+length]
		size := int64(binary.LittleEndian.Uint64(buffer))
		if size == -1 {
			continue
		}
		if total += max(0, size); size < 0 || total > maxHeld {
			panic(unreadable(fmt.Sprintf("%sa buffer of %d bytes, %d uncompressed: at most %d MiB are read of a record batch", owner(c.bufferOf, i), length, size, maxHeld>>20)))
		}
		budget.must(size)
		var frame zstd.Header
		if codec == zstdCodec && frame.Decode(buffer[8:]) == nil && max(frame.WindowSize, frame.FrameContentSize) > uint64(max(size, maxWindow)) {
			damaged("%sa compressed buffer: %v", owner(c.bufferOf, i), zstd.ErrWindowSizeExceeded)
		}
	}
}
