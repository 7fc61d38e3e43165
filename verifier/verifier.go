package verifier

import (
	"fmt"
	"slices"
)

// A Mode says where in a response the answer is looked for.
type Mode int

const (
	// Auto takes <answer> tags, else the last complete box, else what follows "the
	// answer is", else the last expression.
	Auto Mode = iota
	// Boxed takes the last complete \boxed{} or \fbox{} only.
	Boxed
	// Tag takes the last <answer>...</answer> only, or the box in it.
	Tag
	// Last takes the last expression, boxed or not.
	Last
)

var modeNames = [...]string{Auto: "auto", Boxed: "boxed", Tag: "tag", Last: "last"}

// String returns the name that ParseMode reads.
func (m Mode) String() string {
	if m < 0 || int(m) >= len(modeNames) {
		return fmt.Sprintf("Mode(%d)", int(m))
	}
	return modeNames[m]
}

// ParseMode returns the mode of a name: auto, boxed, tag or last.
func ParseMode(name string) (Mode, error) {
	if m := slices.Index(modeNames[:], name); m >= 0 {
		return Mode(m), nil
	}
	return 0, fmt.Errorf("verifier: unknown extraction mode %q (have auto, boxed, tag, last)", name)
}

// A Status says whether a verdict was reached.
type Status string

const (
	// OK: a verdict was reached.
	OK Status = "ok"
	// Limit: reading or comparing would have cost more than the limits allow.
	Limit Status = "limit"
	// Error: there is nothing to compare with (an empty gold), or this package
	// is at fault (Reason says "internal error").
	Error Status = "error"
)

// A Result is the verdict on one response.
type Result struct {
	Correct bool   `json:"correct"`
	Answer  string `json:"answer"` // the answer found in the response; empty if there is none
	Gold    string `json:"gold"`   // the gold it was compared with, without its delimiters
	Reason  string `json:"reason"` // the rule that decided
	Status  Status `json:"status"` // not OK implies not Correct
}

// A Verifier is a way of verifying. Its zero value is ready for use and its methods may be called concurrently.
type Verifier struct {
	Mode Mode
	// Strict makes Tag ask for the R1 template's exact form: the response has "</think> <answer>" and "</answer>".
	Strict bool
	// Tolerance, if above 0, is how far a decimal may be from the gold, or the answer from a decimal gold, relative
	// to the gold: 0.01 is one per cent. Otherwise decimals are compared to the digits that they state.
	Tolerance float64
	// WorkedOut requires an answer of one numeral, fraction or root if the gold is one: 4+18 is then not right
	// for 22. A sign, a unit, a per cent or degree sign and a power of ten may stand with it, and a whole
	// number beside a fraction. Fractions and roots must not come out even. A list is worked out if its
	// elements are; of a chain of equations one part is enough.
	WorkedOut bool
}

// Verify compares response with gold in mode Auto.
func Verify(gold, response string) Result { return Verifier{}.Verify(gold, response) }

// Verify says whether response answers as gold does.
func (v Verifier) Verify(gold, response string) Result {
	return v.VerifyAny([]string{gold}, response)
}

// Limits of one verdict. Package latex bounds the input, package algebra the work of
// comparing expressions; these bound other work.
const (
	maxResponse     = 4 << 20 // bytes of a response that are looked at
	tail            = 20_000  // bytes at the end of a response that prose is searched in
	maxSegments     = 2_000   // formulas in that
	maxJoined       = 64      // boxes in a row that make one answer
	maxSigns        = 64      // values of plus-minus signs
	maxEntries      = 400     // entries of a matrix in a computation
	maxCompareDepth = 60      // depth of nested comparisons
	maxCompareSteps = 3_000   // comparisons
)
