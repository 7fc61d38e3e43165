package data

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A flatTable is a table of a FlatBuffers message, the encoding of Arrow's
// metadata (https://flatbuffers.dev/internals): its fields are found through a
// table of offsets before them, and one that is absent has a default. Reading a
// damaged message panics, with an index out of range or a fault.
type flatTable struct {
	message []byte
	at      int
}

// A fault is a panic about a damaged file, turned into an error where the
// reading of it begins.
type fault string

func damaged(format string, args ...any) { panic(fault(fmt.Sprintf(format, args...))) }

func flatRoot(message []byte) flatTable {
	return flatTable{message, int(binary.LittleEndian.Uint32(message))}
}

// field returns where field i is, or 0 if it is absent.
func (t flatTable) field(i int) int {
	offsets := t.at - int(int32(binary.LittleEndian.Uint32(t.message[t.at:])))
	if size := int(binary.LittleEndian.Uint16(t.message[offsets:])); 4+2*i >= size {
		return 0
	}
	offset := int(binary.LittleEndian.Uint16(t.message[offsets+4+2*i:]))
	if offset == 0 {
		return 0
	}
	return t.at + offset
}

// integer returns a signed field of size bytes, or the default.
func (t flatTable) integer(i, size int, absent int64) int64 {
	at := t.field(i)
	if at == 0 {
		return absent
	}
	switch b := t.message[at:]; size {
	case 1:
		return int64(int8(b[0]))
	case 2:
		return int64(int16(binary.LittleEndian.Uint16(b)))
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(b)))
	default:
		return int64(binary.LittleEndian.Uint64(b))
	}
}

func (t flatTable) flag(i int) bool { return t.integer(i, 1, 0) != 0 }

// table returns a field that is a table, and whether it is there.
func (t flatTable) table(i int) (flatTable, bool) {
	at := t.field(i)
	if at == 0 {
		return flatTable{}, false
	}
	return flatTable{t.message, t.follow(at)}, true
}

func (t flatTable) follow(at int) int {
	to := at + int(binary.LittleEndian.Uint32(t.message[at:]))
	if to > math.MaxInt32 {
		damaged("an offset leads out of the metadata")
	}
	return to
}

func (t flatTable) text(i int) string {
	at, n := t.vector(i, 1)
	return string(t.message[at : at+n])
}

// vector returns where the elements of a field are, each of size bytes, and
// how many; the field may be absent.
func (t flatTable) vector(i, size int) (at, n int) {
	if at = t.field(i); at == 0 {
		return 0, 0
	}
	at = t.follow(at)
	n = int(binary.LittleEndian.Uint32(t.message[at:]))
	if at += 4; n > (len(t.message)-at)/size {
		damaged("a list of %d is longer than the metadata", n)
	}
	return at, n
}

// tables returns a field that is a list of tables.
func (t flatTable) tables(i int) []flatTable {
	at, n := t.vector(i, 4)
	list := make([]flatTable, n)
	for j := range list {
		list[j] = flatTable{t.message, t.follow(at + 4*j)}
	}
	return list
}

// pairs returns a field that is a list of structures of two 64-bit numbers.
func (t flatTable) pairs(i int) [][2]int64 {
	at, n := t.vector(i, 16)
	list := make([][2]int64, n)
	for j := range list {
		b := t.message[at+16*j:]
		list[j] = [2]int64{int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))}
	}
	return list
}
