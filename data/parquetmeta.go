package data

import "encoding/binary"

// Parquet's metadata (https://parquet.apache.org/docs/file-format/metadata) is
// Thrift in its compact protocol. A thrift reads one message. Reading a damaged
// one panics, with an index out of range or a fault; lists grow with what is
// really there, never with the length they state.
type thrift struct {
	b     []byte
	at    int
	depth int
}

// The types of fields in the compact protocol.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
)

func (t *thrift) byte() byte {
	b := t.b[t.at]
	t.at++
	return b
}

func (t *thrift) uvarint() uint64 {
	x, n := binary.Uvarint(t.b[t.at:])
	if n <= 0 {
		damaged("metadata ends in a number")
	}
	t.at += n
	return x
}

// int reads a whole number of any size.
func (t *thrift) int() int64 {
	x := t.uvarint()
	return int64(x>>1) ^ -int64(x&1)
}

func (t *thrift) text() string {
	n := t.uvarint()
	if n > uint64(len(t.b)-t.at) {
		damaged("metadata ends in a text of %d bytes", n)
	}
	s := string(t.b[t.at : t.at+int(n)])
	t.at += int(n)
	return s
}

// fields reads a structure, calling read for each field. What read does not
// consume is skipped.
func (t *thrift) fields(read func(id, kind int)) {
	if t.depth++; t.depth > 64 {
		damaged("metadata is nested too deep")
	}
	for id := 0; ; {
		head := t.byte()
		if head == 0 {
			t.depth--
			return
		}
		if delta := int(head >> 4); delta > 0 {
			id += delta
		} else {
			id = int(t.int())
		}
		kind, before := int(head&15), t.at
		read(id, kind)
		if t.at == before && kind != thriftTrue && kind != thriftFalse {
			t.skip(kind)
		}
	}
}

// list reads a list of structures.
func (t *thrift) list(read func()) {
	n, _ := t.listHead()
	for range n {
		read()
	}
}

func (t *thrift) listHead() (n uint64, kind int) {
	head := t.byte()
	if n = uint64(head >> 4); n == 15 {
		n = t.uvarint()
	}
	return n, int(head & 15)
}

func (t *thrift) skip(kind int) {
	switch kind {
	case thriftTrue, thriftFalse, thriftByte: // elements of lists; of fields the type is the value
		t.at++
	case thriftDouble:
		t.at += 8
	case thriftBinary:
		t.text()
	case thriftList, thriftSet:
		n, kind := t.listHead()
		for range n {
			t.skip(kind)
		}
	case thriftMap:
		if n := t.uvarint(); n > 0 {
			kinds := t.byte()
			for range n {
				t.skip(int(kinds >> 4))
				t.skip(int(kinds & 15))
			}
		}
	case thriftStruct:
		t.fields(func(int, int) {})
	case 4, 5, 6: // of 16, 32 and 64 bits
		t.uvarint()
	default:
		damaged("metadata has a value of kind %d", kind)
	}
	if t.at > len(t.b) {
		damaged("metadata is cut short")
	}
}

// A parquetMeta is what the footer of a file says.
type parquetMeta struct {
	schema []parquetElement
	groups []parquetGroup
}

// A parquetElement is a node of the schema, which is a list in depth-first
// order. Numbers are those of parquet.thrift, -1 where they are absent.
type parquetElement struct {
	name      string
	kind      int64 // the physical type of a leaf
	length    int64 // of values of fixed length
	repeat    int64
	children  int64
	converted int64
	scale     int64
	logical   parquetLogical
}

// A parquetLogical is the union LogicalType: the number of its member, and what
// members say further.
type parquetLogical struct {
	member int
	scale  int64
	unit   int  // of times: 1 ms, 2 us, 3 ns
	set    bool // isSigned of integers, isAdjustedToUTC of times
}

type parquetGroup struct {
	rows   int64
	chunks []parquetChunk
}

// A parquetChunk is the pages of one column in a row group.
type parquetChunk struct {
	kind, codec, values             int64
	compressed, plain               int64 // bytes of all pages
	data, dictionary                int64 // where the pages begin
	elsewhere, encrypted, described bool
}

// The limits of a footer, beyond which it is taken for damaged.
const (
	maxFooter   = 64 << 20 // bytes
	maxElements = 1 << 16  // of the schema
	maxChunks   = 1 << 20
)

func readParquetMeta(footer []byte) (m parquetMeta) {
	chunks := 0
	t := &thrift{b: footer}
	t.fields(func(id, kind int) {
		switch {
		case id == 2 && kind == thriftList:
			t.list(func() {
				if m.schema = append(m.schema, t.element()); len(m.schema) > maxElements {
					damaged("a schema of more than %d elements", maxElements)
				}
			})
		case id == 4 && kind == thriftList:
			t.list(func() {
				m.groups = append(m.groups, t.group())
				if chunks += len(m.groups[len(m.groups)-1].chunks) + 1; chunks > maxChunks {
					damaged("more than %d column chunks", maxChunks)
				}
			})
		}
	})
	return m
}

// number reads a field that is a whole number into x.
func (t *thrift) number(kind int, x *int64) {
	if kind >= 4 && kind <= 6 {
		*x = t.int()
	}
}

func (t *thrift) element() parquetElement {
	e := parquetElement{kind: -1, repeat: -1, children: -1, converted: -1}
	t.fields(func(id, kind int) {
		switch {
		case id == 1:
			t.number(kind, &e.kind)
		case id == 2:
			t.number(kind, &e.length)
		case id == 3:
			t.number(kind, &e.repeat)
		case id == 4 && kind == thriftBinary:
			e.name = t.text()
		case id == 5:
			t.number(kind, &e.children)
		case id == 6:
			t.number(kind, &e.converted)
		case id == 7:
			t.number(kind, &e.scale)
		case id == 10 && kind == thriftStruct:
			e.logical = t.logical()
		}
	})
	return e
}

func (t *thrift) logical() (l parquetLogical) {
	t.fields(func(member, kind int) {
		if l.member = member; kind != thriftStruct {
			return
		}
		t.fields(func(id, kind int) {
			switch {
			case kind == thriftTrue:
				l.set = true
			case id == 1:
				t.number(kind, &l.scale)
			case id == 2 && kind == thriftStruct: // a union of empty structures
				t.fields(func(unit, _ int) { l.unit = unit })
			}
		})
	})
	return l
}

func (t *thrift) group() (g parquetGroup) {
	t.fields(func(id, kind int) {
		switch {
		case id == 1 && kind == thriftList:
			t.list(func() {
				if g.chunks = append(g.chunks, t.chunk()); len(g.chunks) > maxElements {
					damaged("a row group of more than %d columns", maxElements)
				}
			})
		case id == 3:
			t.number(kind, &g.rows)
		}
	})
	return g
}

// field is the number with that id in the chunk's description.
func (c *parquetChunk) field(id int) *int64 {
	switch id {
	case 1:
		return &c.kind
	case 4:
		return &c.codec
	case 5:
		return &c.values
	case 6:
		return &c.plain
	case 7:
		return &c.compressed
	case 9:
		return &c.data
	case 11:
		return &c.dictionary
	}
	return nil
}

func (t *thrift) chunk() (c parquetChunk) {
	t.fields(func(id, kind int) {
		switch {
		case id == 1 && kind == thriftBinary:
			c.elsewhere = t.text() != ""
		case id == 3 && kind == thriftStruct:
			c.described = true
			t.fields(func(id, kind int) {
				if into := c.field(id); into != nil {
					t.number(kind, into)
				}
			})
		case id == 8 && kind == thriftStruct:
			c.encrypted = true
		}
	})
	return c
}

// A parquetPage is the header of a page.
type parquetPage struct {
	kind              int64
	plain, compressed int64 // bytes
	crc               int64
	checked           bool // there is a crc
	values            int64
	encoding          int64
	defs, reps        int64 // encodings of the levels, or in version 2 their bytes
	uncompressed      bool  // version 2: the values were left as they are
}

// The kinds of pages.
const (
	dataPage       = 0
	dictionaryPage = 2
	dataPageV2     = 3
)

func readParquetPage(b []byte) (p parquetPage, size int) {
	t := &thrift{b: b}
	p.kind = -1
	t.fields(func(id, kind int) {
		switch id {
		case 1:
			t.number(kind, &p.kind)
		case 2:
			t.number(kind, &p.plain)
		case 3:
			t.number(kind, &p.compressed)
		case 4:
			p.checked = true
			t.number(kind, &p.crc)
		case 5, 7: // of a data page, of a dictionary
			if kind == thriftStruct {
				t.pageFields(map[int]*int64{1: &p.values, 2: &p.encoding, 3: &p.defs, 4: &p.reps}, nil)
			}
		case 8:
			if kind == thriftStruct {
				t.pageFields(map[int]*int64{1: &p.values, 4: &p.encoding, 5: &p.defs, 6: &p.reps}, &p.uncompressed)
			}
		}
	})
	return p, t.at
}

func (t *thrift) pageFields(numbers map[int]*int64, uncompressed *bool) {
	t.fields(func(id, kind int) {
		switch into := numbers[id]; {
		case into != nil:
			t.number(kind, into)
		case id == 7 && uncompressed != nil:
			*uncompressed = kind == thriftFalse
		}
	})
}
