package tensorboard

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns the checksum of the TFRecord format: a CRC-32C, rotated and with a
// constant added. The format does so because a plain CRC of data that contains CRCs is
// weak.
func masked(data []byte) uint32 {
	c := crc32.Checksum(data, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// appendRecord appends data as one TFRecord:
//
//	uint64 length, uint32 masked(length), data, uint32 masked(data)
//
// all little-endian.
func appendRecord(b, data []byte) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, masked(b[at:at+8]))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint32(b, masked(data))
}
