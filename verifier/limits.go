package verifier

// Limits of one verdict. Package latex bounds what is read, package algebra the
// work of comparing expressions; these bound the rest.
const (
	maxResponse     = 4 << 20 // bytes of a response that are looked at
	tail            = 20_000  // bytes at the end of a response that prose is searched in
	maxSegments     = 2_000   // formulas in that
	maxJoined       = 64      // boxes in a row that make one answer
	maxSigns        = 64      // values that plus-minus signs stand for
	maxEllipsis     = 2_000   // elements that an ellipsis stands for
	maxEntries      = 400     // entries of a matrix that is computed with
	maxEntrySize    = 1_000   // nodes of one entry
	maxCompareDepth = 60      // of nested comparisons
	maxCompareSteps = 3_000   // comparisons
)
