package models

import (
	"math"
	"unsafe"
)

// narrow are the matrices of Weights that are held in fewer bits in place of float32:
// those of whole matrices between two elements of the arena. They cannot be trained.
// Element i of the arena lies at i-From of Data, times the size of the type.
//
// In int8 and NF4, every block of elements of a row has a scale, by which they are multiplied. The
// scale of the block of element i is (i-From)/BlockOf of Scales. In int8 the largest element of a
// block is 127 times the scale, so rounding moves an element by at most 1/254 of the largest. In
// NF4 it is the scale, and an element is one of the 16 numbers in nf4; of two elements in a byte
// the first one has the upper four bits, as bitsandbytes has it.
type narrow struct {
	DType    DType // BF16, F16, I8 or NF4
	From, To int
	Data     []byte
	Scales   []float32 // the scales of I8 and NF4
}

// BlockOf returns how many elements of a row share one scale in a type; 0 if it has no scales.
func BlockOf(d DType) int { return map[DType]int{I8: 32, NF4: 64}[d] }

// ScaleSuffix is appended to a matrix's name for the name of its scales.
const ScaleSuffix = ".scale"

// nf4 are the numbers of NF4: quantiles of the normal distribution, from "QLoRA: Efficient
// Finetuning of Quantized LLMs" (2023), appendix E.
var nf4 = [16]float32{-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022833634, -0.09105003625154495, 0,
	0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1}

// NF4Pairs returns the two numbers [256,2] that each byte stands for in NF4.
func NF4Pairs() (pairs []float32) {
	for b := range 256 {
		pairs = append(pairs, nf4[b>>4], nf4[b&15])
	}
	return pairs
}

// nf4Ends are the numbers halfway from each of nf4 to the next, and nf4Cells the index of the
// number nearest to each 256th from -1 to 1: between two of these at most one number of nf4Ends lies.
var nf4Ends, nf4Cells = func() (ends [16]float32, cells [513]byte) {
	ends[15] = 1
	for i := range 15 {
		ends[i] = (nf4[i] + nf4[i+1]) / 2
	}
	for k := range cells {
		for float32(k)/256-1 > ends[cells[k]] {
			cells[k]++
		}
	}
	return ends, cells
}()

// nearestNF4 returns the index of the number that is nearest to x, which is from -1 to 1.
func nearestNF4(x float32) byte {
	i := nf4Cells[int((x+1)*256)]
	if x > nf4Ends[i] {
		i++
	}
	return i
}

// newNarrow makes the narrow for the elements between two places of an arena, in memory of NarrowBytes bytes.
func newNarrow(d DType, from, to int, memory []byte) *narrow {
	size := bytesOf(d, to-from)
	n := &narrow{DType: d, From: from, To: to, Data: memory[:size:size]}
	if count := scalesOf(d, to-from); count > 0 {
		scales := memory[NarrowBytes(d, to-from)-4*count:]
		n.Scales = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(scales))), count)
	}
	return n
}

// bytesOf returns how many bytes n elements take in a type, without scales.
func bytesOf(d DType, n int) int {
	if d == NF4 {
		return (n + 1) / 2
	}
	return d.Size() * n
}

// scalesOf returns how many scales n elements have, wherever the first block begins.
func scalesOf(d DType, n int) int {
	if block := BlockOf(d); block > 0 {
		return n/block + 1
	}
	return 0
}

// NarrowBytes returns how many bytes the matrices of n elements take in a type, scales included.
func NarrowBytes(d DType, n int) int {
	scales := scalesOf(d, n)
	if scales == 0 {
		return bytesOf(d, n)
	}
	return (bytesOf(d, n)+3)/4*4 + 4*scales
}

// Holds reports whether n has the tensor.
func (n *narrow) Holds(p place) bool {
	return n != nil && len(p.Shape) == 2 && n.From <= p.Offset && p.Offset+p.Size <= n.To
}

// Stored returns a matrix as Programs read it: its element type, shape and bytes.
func (n *narrow) Stored(p place) (d DType, shape []int, data []byte) {
	data = n.bytesAt(p.Offset, p.Size)
	if n.DType == NF4 {
		return U8, []int{p.Shape[0], p.Shape[1] / 2}, data
	}
	return n.DType, p.Shape, data
}

// bytesAt returns the bytes of count elements from element first on.
func (n *narrow) bytesAt(first, count int) []byte {
	from := bytesOf(n.DType, first-n.From)
	to := from + bytesOf(n.DType, count)
	return n.Data[from:to:to]
}

// scales returns the scales of count elements from element first on, which must begin a block.
func (n *narrow) scales(first, count int) []float32 {
	block := BlockOf(n.DType)
	return n.Scales[(first-n.From)/block:][: count/block : count/block]
}

// ScalesOf returns the scales of a matrix; nil in a type without scales.
func (n *narrow) ScalesOf(p place) []float32 {
	if n.Scales == nil {
		return nil
	}
	return n.scales(p.Offset, p.Size)
}

// encode rounds elements and stores them from element first of the arena on. In a type with scales
// they must be whole blocks, whose scales it sets.
func (n *narrow) encode(first int, src []float32) {
	to := n.bytesAt(first, len(src))
	if n.Scales == nil {
		Encode(to, src, n.DType)
		return
	}
	block, encode := BlockOf(n.DType), encodeInt8
	if n.DType == NF4 {
		encode = encodeNF4
	}
	for b, scales := 0, n.scales(first, len(src)); b < len(scales); b++ {
		part, largest := src[b*block:(b+1)*block], float32(0)
		for _, x := range part {
			largest = max(largest, float32(math.Abs(float64(x))))
		}
		scales[b] = encode(to[bytesOf(n.DType, b*block):], part, largest)
	}
}

// encodeInt8 rounds a block whose largest magnitude is given, and returns its scale.
func encodeInt8(to []byte, part []float32, largest float32) (scale float32) {
	scale = largest / 127
	for i, x := range part {
		q := float64(0)
		if scale > 0 {
			q = math.RoundToEven(float64(x) / float64(scale))
		}
		to[i] = byte(int8(max(-127, min(127, q))))
	}
	return scale
}

// encodeNF4 is encodeInt8 for NF4.
func encodeNF4(to []byte, part []float32, largest float32) (scale float32) {
	divisor := largest
	if divisor == 0 {
		divisor = 1
	}
	for i := 0; i < len(part); i += 2 {
		to[i/2] = nearestNF4(part[i]/divisor)<<4 | nearestNF4(part[i+1]/divisor)
	}
	return largest
}

// decode converts elements from element first on to float32. In a type with scales they must be whole blocks.
func (n *narrow) decode(dst []float32, first int) {
	from := n.bytesAt(first, len(dst))
	if n.Scales == nil {
		Decode(dst, from, n.DType)
		return
	}
	block := BlockOf(n.DType)
	for b, scale := range n.scales(first, len(dst)) {
		for i := b * block; i < (b+1)*block; i++ {
			if n.DType == I8 {
				dst[i] = float32(int8(from[i])) * scale
			} else {
				dst[i] = nf4[fourBits(from, i)] * scale
			}
		}
	}
}

// fourBits returns number i of those that bytes hold two by two, the first in the upper four bits.
func fourBits(data []byte, i int) byte { return data[i/2] >> (4 - 4*(i%2)) & 15 }
