package data

import (
	"encoding/binary"
	"math/bits"
)

// Decoders of Parquet's encodings (https://parquet.apache.org/docs/file-format/data-pages/encodings).
// Each gives a value at a time and holds no more than its state: what a page
// says of counts and run lengths is never taken for an amount of memory. Where a
// page ends too early they panic, with an index out of range or a fault.

// bitsAt returns the width bits from bit at of b, the lowest of each byte first.
func bitsAt(b []byte, at, width int) uint64 {
	i, shift := at>>3, at&7
	if i+8 <= len(b) && shift+width <= 64 {
		return binary.LittleEndian.Uint64(b[i:]) >> shift & (1<<width - 1)
	}
	var x uint64
	for got := 0; got < width; i++ {
		part := uint64(b[i]) >> shift
		x |= part << got
		got += 8 - shift
		shift = 0
	}
	if width < 64 {
		x &= 1<<width - 1
	}
	return x
}

// A hybrid decodes numbers of up to 32 bits: runs of one value mixed with
// packed groups of eight (RLE).
type hybrid struct {
	b      []byte
	at     int // the next byte that is not decoded
	width  int
	left   uint64 // values left in the run or the groups
	packed bool
	value  uint64 // of a run
	bit    int    // of the next packed value
}

func newHybrid(b []byte, width int) *hybrid {
	if width > 32 {
		damaged("numbers of %d bits", width)
	}
	return &hybrid{b: b, width: width}
}

func (h *hybrid) next() uint64 {
	if h.width == 0 {
		return 0
	}
	for h.left == 0 {
		h.head()
	}
	h.left--
	if !h.packed {
		return h.value
	}
	x := bitsAt(h.b, h.bit, h.width)
	h.bit += h.width
	return x
}

// head begins the next run.
func (h *hybrid) head() {
	head, n := binary.Uvarint(h.b[h.at:])
	if n <= 0 {
		damaged("a page ends too early")
	}
	h.at += n
	if head > 1<<40 {
		damaged("a run of %d values", head>>1)
	}
	if h.packed = head&1 == 1; h.packed {
		h.left = head >> 1 * 8
		h.bit = h.at * 8
		// What lies beyond the page is noticed when it is read.
		h.at += int(min(head>>1*uint64(h.width), uint64(len(h.b)-h.at)))
		return
	}
	h.left, h.value = head>>1, 0
	for i := range (h.width + 7) / 8 {
		h.value |= uint64(h.b[h.at]) << (8 * i)
		h.at++
	}
}

// bigBits decodes levels in the encoding BIT_PACKED of old files: the highest
// bit of each byte first.
type bigBits struct {
	b          []byte
	bit, width int
}

func (p *bigBits) next() uint64 {
	var x uint64
	for range p.width {
		x = x<<1 | uint64(p.b[p.bit>>3]>>(7-p.bit&7)&1)
		p.bit++
	}
	return x
}

// A counter decodes whole numbers.
type counter interface{ next() uint64 }

// levelReader returns the decoder of a version 1 page's levels, and what
// follows them.
func levelReader(b []byte, encoding int64, most int, values int64) (counter, []byte) {
	width := bits.Len(uint(most))
	switch {
	case most == 0:
		return newHybrid(nil, 0), b
	case encoding == encodingBitPacked:
		n := (int(values)*width + 7) / 8
		return &bigBits{b: b[:n], width: width}, b[n:]
	case encoding != encodingRLE:
		damaged("levels in the encoding %d", encoding)
	}
	n := binary.LittleEndian.Uint32(b)
	b = b[4:]
	return newHybrid(b[:n], width), b[n:]
}

// deltas decodes DELTA_BINARY_PACKED: blocks of differences less their smallest,
// packed in miniblocks with a width each.
type deltas struct {
	b      []byte
	at     int
	mini   int    // values of a miniblock
	minis  int    // miniblocks of a block
	total  uint64 // values left
	value  uint64
	first  bool
	least  uint64
	widths []byte // of the block's miniblocks
	which  int    // the miniblock
	left   int    // values left in it
	bit    int
}

func (d *deltas) uvarint() uint64 {
	x, n := binary.Uvarint(d.b[d.at:])
	if n <= 0 {
		damaged("a page ends too early")
	}
	d.at += n
	return x
}

func (d *deltas) zigzag() uint64 {
	x := d.uvarint()
	return x>>1 ^ -(x & 1)
}

// newDeltas begins a sequence of at most most numbers.
func newDeltas(b []byte, most int64) *deltas {
	d := &deltas{b: b, first: true}
	block, minis := d.uvarint(), d.uvarint()
	d.total, d.value = d.uvarint(), d.zigzag()
	if block == 0 || block > 1<<20 || minis == 0 || block%minis != 0 || block/minis%8 != 0 || d.total > uint64(most) {
		damaged("blocks of %d numbers in %d parts, %d in all", block, minis, d.total)
	}
	d.mini, d.minis = int(block/minis), int(minis)
	d.which = d.minis
	return d
}

func (d *deltas) next() uint64 {
	if d.total == 0 {
		damaged("a page has fewer values than it says")
	}
	d.total--
	if d.first {
		d.first = false
		return d.value
	}
	if d.left == 0 {
		d.miniblock()
	}
	d.left--
	width := int(d.widths[d.which])
	d.value += d.least + bitsAt(d.b, d.bit, width)
	d.bit += width
	return d.value
}

func (d *deltas) miniblock() {
	if d.which++; d.which >= d.minis {
		d.least = d.zigzag()
		d.widths = d.b[d.at : d.at+d.minis]
		d.at += d.minis
		d.which = 0
	}
	width := int(d.widths[d.which])
	if width > 64 {
		damaged("numbers of %d bits", width)
	}
	d.left, d.bit = d.mini, d.at*8
	d.at += d.mini * width / 8
}

// end reads the rest and returns where the sequence ends.
func (d *deltas) end() int {
	for d.total > 0 {
		d.next()
	}
	// The last miniblock is padded, but some writers leave the padding out.
	return min(d.at, len(d.b))
}
