package data

import (
	"io"
	"math/bits"
)

// A parquetColumn reads one leaf column, a value at a time. Each value comes
// with two levels: how much of the path to it is present, and which list goes on
// (Melnik et al., "Dremel", VLDB 2010, section 4).
type parquetColumn struct {
	element  *parquetElement
	name     string // for messages
	def, rep int    // the highest levels
	convert  func(parquetValue) any

	pages  pageReader
	left   int64 // values of the chunk that were not read yet
	inPage int64 // and of the page
	defs   counter
	reps   counter
	value  func() any // decodes the page's next value
	dict   []any      // the chunk's dictionary

	// The value that is next.
	loaded    bool
	atDef     int
	atRep     int
	taken     *int  // by the row, see rowBudget
	dictBytes int64 // what dict counts for in pages.held
}

// begin goes to the column's chunk of the next row group.
func (c *parquetColumn) begin(f io.ReaderAt, size int64, chunk *parquetChunk) {
	switch at := chunk.data; {
	case !chunk.described:
		damaged("column %q has no description", c.name)
	case chunk.elsewhere:
		panic(unreadable("column \"" + c.name + "\" is in another file"))
	case chunk.encrypted:
		panic(unreadable("column \"" + c.name + "\" is encrypted"))
	case chunk.kind != c.element.kind:
		damaged("column %q is of type %d and %d", c.name, c.element.kind, chunk.kind)
	case chunk.codec == 3 || chunk.codec < 0 || chunk.codec >= int64(len(parquetCodecs)):
		panic(unreadable("column \"" + c.name + "\" is compressed with " + codecName(chunk.codec) + ", which is not read"))
	default:
		if d := chunk.dictionary; d > 0 && d < at {
			at = d
		}
		if at < 4 || chunk.compressed < 0 || at > size || chunk.compressed > size-at || chunk.values < 0 || chunk.values > mostValues(size) {
			damaged("column %q has %d values in %d bytes at byte %d of %d", c.name, chunk.values, chunk.compressed, at, size)
		}
		c.pages.f, c.pages.at, c.pages.end, c.pages.codec = f, at, at+chunk.compressed, chunk.codec
	}
	*c.pages.held -= c.dictBytes
	c.left, c.inPage, c.dict, c.dictBytes, c.loaded = chunk.values, 0, nil, 0, false
}

// peek makes the levels of the next value known: repetition 0 is the next row's,
// and the chunk's end.
func (c *parquetColumn) peek() (def, rep int) {
	if c.loaded {
		return c.atDef, c.atRep
	}
	if c.left == 0 {
		return 0, 0
	}
	for c.inPage == 0 {
		c.page()
	}
	c.atDef, c.atRep, c.loaded = int(c.defs.next()), int(c.reps.next()), true
	if c.atDef > c.def || c.atRep > c.rep {
		damaged("column %q has levels %d and %d, at most %d and %d", c.name, c.atDef, c.atRep, c.def, c.rep)
	}
	return c.atDef, c.atRep
}

// take consumes the next value; it is nil where the value is absent.
func (c *parquetColumn) take() any {
	def, _ := c.peek()
	if !c.loaded {
		damaged("column %q has fewer values than rows want", c.name)
	}
	spend(c.taken, 1)
	c.loaded, c.left, c.inPage = false, c.left-1, c.inPage-1
	if def < c.def {
		return nil
	}
	return c.value()
}

// page goes on to the next page, taking in the dictionary before it.
func (c *parquetColumn) page() {
	if c.pages.at >= c.pages.end {
		damaged("column %q ends %d values early", c.name, c.left)
	}
	p, b := c.pages.next()
	switch p.kind {
	case dictionaryPage:
		if p.encoding != encodingPlain && p.encoding != encodingPlainDictionary {
			damaged("column %q has a dictionary in the encoding %d", c.name, p.encoding)
		}
		c.dictionary(b, p.values)
		return
	case dataPage:
		c.reps, b = levelReader(b, p.reps, c.rep, p.values)
		c.defs, b = levelReader(b, p.defs, c.def, p.values)
	case dataPageV2:
		c.reps = newHybrid(b[:p.reps], bits.Len(uint(c.rep)))
		c.defs = newHybrid(b[p.reps:p.reps+p.defs], bits.Len(uint(c.def)))
		b = b[p.reps+p.defs:]
	default: // an index, or what is not known yet
		return
	}
	if p.values > c.left {
		damaged("column %q has a page of %d values, and %d are left", c.name, p.values, c.left)
	}
	c.inPage = p.values
	if p.encoding == encodingDictionary || p.encoding == encodingPlainDictionary {
		c.value = c.indexed(b)
		return
	}
	// A page of nothing but nulls need not have a sequence of values at all.
	var next func() parquetValue
	c.value = func() any {
		if next == nil {
			next = c.element.values(b, p.encoding, p.values)
		}
		v := next()
		spend(c.taken, int64(len(v.bytes)/textShare))
		return c.convert(v)
	}
}

// dictionary decodes the values that the pages after it number.
func (c *parquetColumn) dictionary(b []byte, n int64) {
	next := c.element.values(b, encodingPlain, n)
	c.dict = c.dict[:0]
	for range n {
		c.dict = append(c.dict, c.convert(next()))
	}
	*c.pages.held -= c.dictBytes
	c.dictBytes = int64(len(b)) + 32*n
	*c.pages.held += c.dictBytes
}

func (c *parquetColumn) indexed(b []byte) func() any {
	var index *hybrid
	return func() any {
		if index == nil { // see above
			index = newHybrid(b[1:], int(b[0]))
		}
		i := index.next()
		if i >= uint64(len(c.dict)) {
			damaged("column %q has the value %d of a dictionary of %d", c.name, i, len(c.dict))
		}
		return c.dict[i]
	}
}
