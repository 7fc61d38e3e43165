package models

import (
	"fmt"
	"hash/crc32"
)

// Checksum is a digest of the weights.
func (w *Weights) Checksum() string {
	sum, table := uint32(0), crc32.MakeTable(crc32.Castagnoli)
	w.Each(func(_ int, part []float32) { sum = crc32.Update(sum, table, Bytes(part)) })
	return fmt.Sprintf("crc32c:%08x", sum)
}
