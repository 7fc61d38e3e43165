package data

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"
)

// An arrowColumn is a column of an Arrow schema, or one inside it, and the
// place in it up to which the current record batch was read. The layouts are
// those of https://arrow.apache.org/docs/format/Columnar.html.
type arrowColumn struct {
	name     string
	kind     arrowKind
	width    int              // bytes of a value, or elements of a fixed list
	large    bool             // offsets have 64 bits
	convert  func([]byte) any // of a value of fixed width
	binary   bool             // bytes, not text
	children []*arrowColumn
	dict     *arrowDictionary // of indexed values, or nil

	taken *int // of the row so far, see rowBudget

	length  int64 // values in the batch
	valid   arrowBits
	bits    arrowBits   // of booleans
	offsets arrowBuffer // of texts and lists
	data    arrowBuffer
	views   []viewBuffer
	end     int64 // the last offset read
}

type arrowKind byte

const (
	nullKind      arrowKind = iota
	boolKind                // a bit each
	fixedKind               // width bytes each
	textKind                // offsets into data
	viewKind                // 16 bytes each, which hold the text or say where it is
	listKind                // offsets into one child
	mapKind                 // the same, of structures of key and value
	fixedListKind           // width elements each
	structKind
)

// An arrowDictionary is the values that an indexed column points to.
type arrowDictionary struct {
	column *arrowColumn // reads the values
	values []any
	taken  int // of rowBudget, by the values
}

// arrowSchema turns the fields of a schema into columns.
type arrowSchema struct {
	fields int // met so far
	taken  *int
	dicts  map[int64]*arrowDictionary
}

// maxFields bounds the columns of a schema, those inside others included: a
// damaged message can name one field in many places.
const maxFields = 1 << 16

func (s *arrowSchema) column(field flatTable, depth int) *arrowColumn {
	if s.fields++; s.fields > maxFields || depth > 64 {
		damaged("the schema has too many columns")
	}
	c := s.valueColumn(field, depth)
	encoding, indexed := field.table(4)
	if !indexed {
		return c
	}
	id := encoding.integer(0, 8, 0)
	dict := s.dicts[id]
	if dict == nil {
		dict = &arrowDictionary{column: c}
		s.dicts[id] = dict
	}
	index := &arrowColumn{name: c.name, kind: fixedKind, dict: dict, taken: s.taken}
	if t, ok := encoding.table(1); ok {
		index.integer(t)
	} else {
		index.width, index.convert = 4, func(b []byte) any { return int64(int32(binary.LittleEndian.Uint32(b))) }
	}
	return index
}

// The numbers of the types in the metadata (Schema.fbs, union Type).
const (
	typeNull = iota + 1
	typeInt
	typeFloat
	typeBinary
	typeUtf8
	typeBool
	typeDecimal
	typeDate
	typeTime
	typeTimestamp
	typeInterval
	typeList
	typeStruct
	typeUnion
	typeFixedBinary
	typeFixedList
	typeMap
	typeDuration
	typeLargeBinary
	typeLargeUtf8
	typeLargeList
	typeRunEnd
	typeBinaryView
	typeUtf8View
	typeListView
	typeLargeListView
)

// valueColumn returns the column of a field's values, whether or not they are
// indexed.
func (s *arrowSchema) valueColumn(field flatTable, depth int) *arrowColumn {
	c := &arrowColumn{name: field.text(0), taken: s.taken}
	number := field.integer(2, 1, 0)
	t, ok := field.table(3)
	if !ok {
		damaged("column %q has no type", c.name)
	}
	for _, child := range field.tables(5) {
		c.children = append(c.children, s.column(child, depth+1))
	}
	switch number {
	case typeNull:
	case typeBool:
		c.kind = boolKind
	case typeInt:
		c.integer(t)
	case typeFloat:
		c.float(t.integer(0, 2, 0))
	case typeBinary, typeUtf8, typeLargeBinary, typeLargeUtf8:
		c.kind = textKind
		c.large = number == typeLargeBinary || number == typeLargeUtf8
		c.binary = number == typeBinary || number == typeLargeBinary
	case typeBinaryView, typeUtf8View:
		c.kind, c.binary = viewKind, number == typeBinaryView
	case typeFixedBinary:
		c.fixed(int(t.integer(0, 4, 0)), func(b []byte) any { return append([]byte{}, b...) })
	case typeDecimal:
		scale := int(t.integer(1, 4, 0))
		c.fixed(int(t.integer(2, 4, 128))/8, func(b []byte) any { return littleDecimal(b, scale) })
	case typeDate:
		if t.integer(0, 2, 1) == 0 {
			c.fixed(4, func(b []byte) any { return day(int64(int32(binary.LittleEndian.Uint32(b)))) })
		} else {
			c.fixed(8, func(b []byte) any {
				return time.UnixMilli(int64(binary.LittleEndian.Uint64(b))).UTC().Format(time.DateOnly)
			})
		}
	case typeTime:
		unit := timeUnit(t.integer(0, 2, 1))
		c.fixed(int(t.integer(1, 4, 32))/8, func(b []byte) any { return clock(moment(integerOf(b), unit)) })
	case typeTimestamp:
		unit, zone := timeUnit(t.integer(0, 2, 0)), newZone(t.text(1))
		c.fixed(8, func(b []byte) any { return zone.format(moment(integerOf(b), unit)) })
	case typeDuration:
		unit := timeUnit(t.integer(0, 2, 1))
		c.fixed(8, func(b []byte) any { return (time.Duration(integerOf(b)) * unit).String() })
	case typeList, typeLargeList:
		c.kind, c.large = listKind, number == typeLargeList
		c.needs(1)
	case typeMap:
		c.kind = mapKind
		c.needs(1)
		c.children[0].needs(2)
	case typeFixedList:
		c.kind, c.width = fixedListKind, int(t.integer(0, 4, 0))
		c.needs(1)
		if c.width < 0 {
			damaged("column %q has lists of %d", c.name, c.width)
		}
	case typeStruct:
		c.kind = structKind
	default:
		kinds := map[int64]string{typeInterval: "interval", typeUnion: "union", typeRunEnd: "run-end encoded", typeListView: "list view", typeLargeListView: "large list view"}
		if kinds[number] == "" {
			damaged("column %q has type number %d", c.name, number)
		}
		panic(unreadable(fmt.Sprintf("column %q: values of type %s are not read", c.name, kinds[number])))
	}
	return c
}

// unreadable is a panic about a file that is sound, but beyond this reader.
type unreadable string

func (c *arrowColumn) needs(children int) {
	if len(c.children) != children {
		damaged("column %q has %d columns inside it, not %d", c.name, len(c.children), children)
	}
}

func (c *arrowColumn) fixed(width int, convert func([]byte) any) {
	if width < 1 || width > bufferWindow {
		damaged("column %q has values of %d bytes", c.name, width)
	}
	c.kind, c.width, c.convert = fixedKind, width, convert
}

func (c *arrowColumn) integer(t flatTable) {
	width, signed := int(t.integer(0, 4, 0))/8, t.flag(1)
	if width != 1 && width != 2 && width != 4 && width != 8 {
		damaged("column %q has integers of %d bytes", c.name, width)
	}
	c.fixed(width, func(b []byte) any {
		if signed {
			return integerOf(b)
		}
		var x uint64
		for i := len(b) - 1; i >= 0; i-- {
			x = x<<8 | uint64(b[i])
		}
		if x <= math.MaxInt64 {
			return int64(x)
		}
		return x
	})
}

func (c *arrowColumn) float(precision int64) {
	switch precision {
	case 0:
		c.fixed(2, func(b []byte) any { return half(binary.LittleEndian.Uint16(b)) })
	case 1:
		c.fixed(4, func(b []byte) any { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) })
	default:
		c.fixed(8, func(b []byte) any { return math.Float64frombits(binary.LittleEndian.Uint64(b)) })
	}
}

// integerOf reads a signed integer of 1 to 8 bytes, the lowest first.
func integerOf(b []byte) int64 {
	x := int64(int8(b[len(b)-1]))
	for i := len(b) - 2; i >= 0; i-- {
		x = x<<8 | int64(b[i])
	}
	return x
}

func timeUnit(number int64) time.Duration {
	units := []time.Duration{time.Second, time.Millisecond, time.Microsecond, time.Nanosecond}
	return units[number]
}

// littleDecimal reads a number in two's complement, the lowest byte first.
func littleDecimal(b []byte, scale int) json.Number {
	big := make([]byte, len(b))
	for i := range b {
		big[len(b)-1-i] = b[i]
	}
	return pointed(twosComplement(big), scale)
}

// twosComplement reads a number whose highest byte is first.
func twosComplement(b []byte) *big.Int {
	x := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0] >= 0x80 {
		x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return x
}

// pointed writes x with the decimal point scale digits from its end.
func pointed(x *big.Int, scale int) json.Number {
	const most = 1000 // no decimal type has more digits
	digits := x.String()
	switch {
	case scale == 0 || scale < -most || scale > most:
		return json.Number(digits)
	case scale < 0:
		if x.Sign() != 0 {
			digits += strings.Repeat("0", -scale)
		}
		return json.Number(digits)
	}
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	if n := scale + 1 - len(digits); n > 0 {
		digits = strings.Repeat("0", n) + digits
	}
	at := len(digits) - scale
	return json.Number(sign + digits[:at] + "." + digits[at:])
}

// half converts an IEEE 754 half.
func half(b uint16) float64 {
	sign, exponent, fraction := 1.0, int(b>>10&31), float64(b&1023)
	if b>>15 == 1 {
		sign = -1
	}
	switch exponent {
	case 0:
		return sign * math.Ldexp(fraction, -24)
	case 31:
		if fraction != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

// moment returns the time that lies x units after the epoch.
func moment(x int64, unit time.Duration) time.Time {
	perSecond := int64(time.Second / unit)
	return time.Unix(x/perSecond, x%perSecond*int64(unit)).UTC()
}

func day(x int64) string { return moment(x*86400, time.Second).Format(time.DateOnly) }

// clock writes a time of day.
func clock(t time.Time) string { return t.Format("15:04:05.999999999") }

// A zone writes moments as ISO 8601. In the zone without a name they belong to
// no place, and have no offset.
type zone struct {
	name  string
	place *time.Location
}

func newZone(name string) zone {
	place, err := time.LoadLocation(name)
	if err != nil {
		place = time.UTC
		if offset, err := time.Parse("-07:00", name); err == nil {
			place = offset.Location()
		}
	}
	return zone{name, place}
}

func (z zone) format(t time.Time) string {
	if z.name == "" {
		return t.Format("2006-01-02T15:04:05.999999999")
	}
	return t.In(z.place).Format(time.RFC3339Nano)
}

// An arrowBatch is what the metadata says about a record batch; columns take
// their parts of it one after the other.
type arrowBatch struct {
	f        io.ReaderAt
	body     int64 // where the body is in the file
	size     int64
	codec    int
	nodes    [][2]int64 // values and nulls of each column
	buffers  [][2]int64 // where each buffer is in the body, and its length
	variadic []int64    // how many data buffers each view column has

	// weightless is how many values a column without any bytes may have. A
	// damaged file can claim any number of them, to be read for ever.
	weightless int64
	unpacked   int64 // bytes of the compressed buffers that are held whole
}

func newArrowBatch(t flatTable, f io.ReaderAt, body, size int64) *arrowBatch {
	b := &arrowBatch{f: f, body: body, size: size, codec: notCompressed, nodes: t.pairs(1), buffers: t.pairs(2), weightless: 1 << 24}
	if compression, ok := t.table(3); ok {
		b.codec = int(compression.integer(0, 1, lz4Frame))
	}
	at, n := t.vector(4, 8)
	for i := range n {
		b.variadic = append(b.variadic, int64(binary.LittleEndian.Uint64(t.message[at+8*i:])))
	}
	return b
}

func (b *arrowBatch) buffer() (at, length int64) {
	if len(b.buffers) == 0 {
		damaged("a record batch has too few buffers")
	}
	at, length = b.buffers[0][0], b.buffers[0][1]
	b.buffers = b.buffers[1:]
	if at < 0 || length < 0 || at > b.size || length > b.size-at {
		damaged("a buffer of %d bytes at byte %d of a record batch of %d", length, at, b.size)
	}
	return b.body + at, length
}

func (b *arrowBatch) open(buffer *arrowBuffer) (length int64) {
	at, length := b.buffer()
	buffer.reset(b.f, at, length, b.codec)
	return length
}

// begin places c at the first value of the batch.
func (c *arrowColumn) begin(b *arrowBatch) {
	if len(b.nodes) == 0 {
		damaged("a record batch has too few columns")
	}
	c.length = b.nodes[0][0]
	nulls := b.nodes[0][1]
	b.nodes = b.nodes[1:]
	if c.length < 0 || c.length > mostValues(b.size) || c.weightless() && c.length > b.weightless {
		damaged("column %q has %d values", c.name, c.length)
	}
	if c.kind != nullKind {
		length := b.open(&c.valid.arrowBuffer)
		c.valid.left, c.valid.all = 0, nulls == 0 || length == 0
	}
	switch c.kind {
	case boolKind:
		b.open(&c.bits.arrowBuffer)
		c.bits.left = 0
	case fixedKind:
		b.open(&c.data)
	case textKind, listKind, mapKind:
		length := b.open(&c.offsets)
		c.end = 0
		if c.kind == textKind {
			b.open(&c.data)
		}
		if length > 0 && c.length > 0 {
			c.beginOffsets(b)
		}
	case viewKind:
		b.open(&c.data)
		c.beginViews(b)
	}
	if c.kind == listKind || c.kind == mapKind || c.kind == fixedListKind {
		defer func(n int64) { b.weightless = n }(b.weightless)
		b.weightless = 1 << 20
	}
	for _, child := range c.children {
		child.begin(b)
		if need := c.length; c.kind == structKind && child.length < need || c.kind == fixedListKind && c.width > 0 && child.length/int64(c.width) < need {
			damaged("column %q has %d values, and %d in column %q of it", c.name, need, child.length, child.name)
		}
	}
	if c.kind == listKind || c.kind == mapKind {
		for range min(c.end, c.children[0].length) { // of a list that was cut out of a longer one
			c.children[0].next()
			*c.taken = 0 // they are no row's
		}
	}
}

// weightless says whether c has values without any bytes, which no buffer that
// ends can bound.
func (c *arrowColumn) weightless() bool {
	switch c.kind {
	case nullKind:
		return true
	case structKind, fixedListKind:
		return c.width == 0 && c.kind == fixedListKind || !slices.ContainsFunc(c.children, func(child *arrowColumn) bool { return !child.weightless() })
	}
	return false
}

// beginOffsets reads the first offset, which need not be 0.
func (c *arrowColumn) beginOffsets(b *arrowBatch) {
	c.end = c.offset()
	if c.end < 0 {
		damaged("column %q has a negative offset", c.name)
	}
	if c.kind == textKind {
		c.data.skip(c.end)
	}
}

func (c *arrowColumn) offset() int64 {
	if c.large {
		return int64(binary.LittleEndian.Uint64(c.offsets.take(8)))
	}
	return int64(int32(binary.LittleEndian.Uint32(c.offsets.take(4))))
}

// extent returns how long the next text or list is.
func (c *arrowColumn) extent() int64 {
	end := c.offset()
	n := end - c.end
	if n < 0 || end < 0 || c.kind != textKind && end > c.children[0].length {
		damaged("column %q has an offset %d after %d", c.name, end, c.end)
	}
	c.end = end
	return n
}

// next returns the next value. A missing one still takes its place in the
// buffers.
func (c *arrowColumn) next() any {
	if c.kind == nullKind {
		return nil
	}
	valid := c.valid.next()
	switch c.kind {
	case boolKind:
		if b := c.bits.next(); valid {
			return b
		}
	case fixedKind:
		if b := c.data.take(c.width); valid {
			return c.indexed(c.convert(b))
		}
	case textKind:
		n := c.extent()
		if valid {
			spend(c.taken, n/textShare)
			return c.textOf(c.data.copy(n))
		}
		c.data.skip(n)
	case viewKind:
		if view := c.data.take(16); valid {
			return c.textOf(c.viewed(view))
		}
	case listKind:
		return c.list(c.extent(), valid)
	case mapKind:
		return c.list(c.extent(), valid)
	case fixedListKind:
		return c.list(int64(c.width), valid)
	case structKind:
		o := make(Object, len(c.children))
		for i, child := range c.children {
			o[i] = Member{child.name, child.next()}
		}
		if valid {
			return o
		}
	}
	return nil
}

func (c *arrowColumn) textOf(b []byte) any {
	if c.binary {
		return b
	}
	return string(b)
}

func (c *arrowColumn) list(n int64, valid bool) any {
	list := make([]any, 0, min(n, 64))
	spend(c.taken, n)
	for range n {
		v := c.children[0].next()
		if c.kind == mapKind { // a pair, as keys need not be strings
			pair, _ := v.(Object)
			if len(pair) != 2 {
				damaged("column %q has an entry without key and value", c.name)
			}
			v = []any{pair[0].Value, pair[1].Value}
		}
		if valid {
			list = append(list, v)
		}
	}
	if !valid {
		return nil
	}
	return list
}

// indexed looks up v where the column's values are those of a dictionary.
func (c *arrowColumn) indexed(v any) any {
	if c.dict == nil {
		return v
	}
	i, ok := v.(int64)
	if !ok || i < 0 || i >= int64(len(c.dict.values)) {
		damaged("column %q points to value %v of %d", c.name, v, len(c.dict.values))
	}
	return c.dict.values[i]
}

// A viewBuffer is a data buffer of a view column, which is read at any place: a
// window of the file, or the whole buffer where it is compressed.
type viewBuffer struct {
	f          io.ReaderAt
	at, length int64
	window     []byte
	from       int64 // where the window is in the buffer
}

// beginViews finds the data buffers of a view column.
func (c *arrowColumn) beginViews(b *arrowBatch) {
	if len(b.variadic) == 0 || b.variadic[0] < 0 || b.variadic[0] > int64(len(b.buffers)) {
		damaged("column %q has too few buffers", c.name)
	}
	n := b.variadic[0]
	b.variadic = b.variadic[1:]
	c.views = c.views[:0]
	for range n {
		at, length := b.buffer()
		v := viewBuffer{f: b.f, at: at, length: length}
		if b.codec != notCompressed && length > 0 {
			var buffer arrowBuffer
			buffer.reset(b.f, at, length, b.codec)
			all, err := io.ReadAll(io.LimitReader(buffer.r, maxLine+1))
			buffer.close()
			if err != nil || len(all) > maxLine {
				damaged("column %q: a compressed buffer of more than %d MiB, or %v", c.name, maxLine>>20, err)
			}
			v.window, v.length = all, int64(len(all))
			if b.unpacked += v.length; b.unpacked > maxHeld {
				damaged("the compressed buffers of a record batch come to more than %d MiB", maxHeld>>20)
			}
		}
		c.views = append(c.views, v)
	}
}

// viewed returns the bytes of a view: length, then up to 12 bytes, or four of
// them, the number of a buffer and the place in it.
func (c *arrowColumn) viewed(view []byte) []byte {
	n := int64(int32(binary.LittleEndian.Uint32(view)))
	if n >= 0 && n <= 12 {
		return append([]byte{}, view[4:4+n]...)
	}
	i, at := int(binary.LittleEndian.Uint32(view[8:])), int64(int32(binary.LittleEndian.Uint32(view[12:])))
	if i >= len(c.views) {
		damaged("column %q points to buffer %d of %d", c.name, i, len(c.views))
	}
	v := &c.views[i]
	spend(c.taken, n/textShare)
	if n < 0 || at < 0 || at > v.length || n > v.length-at {
		damaged("column %q points to %d bytes at byte %d of %d", c.name, n, at, v.length)
	}
	if at < v.from || at+n > v.from+int64(len(v.window)) {
		size := min(max(n, bufferWindow), v.length-at)
		if int64(cap(v.window)) < size {
			v.window = make([]byte, size)
		}
		v.window, v.from = v.window[:size], at
		if m, err := v.f.ReadAt(v.window, v.at+at); int64(m) < size {
			damaged("column %q: %v", c.name, err)
		}
	}
	return append([]byte{}, v.window[at-v.from:at-v.from+n]...)
}

func (c *arrowColumn) close() {
	c.valid.close()
	c.bits.close()
	c.offsets.close()
	c.data.close()
	for _, child := range c.children {
		child.close()
	}
}
