package jinja

import (
	"errors"
	"fmt"
)

// A chat template comes with a downloaded model. So that a short one cannot fill the
// memory or run for years, each rendering has a budget, and a template that has spent it
// ends with an error. Code spends the cost of a value before it makes the value.
const (
	renderBudget = 16 << 20
	// budgetPerByte is added for each byte of the data.
	budgetPerByte = 64

	stepCost    = 16 // cost of an expression or statement
	elementCost = 16 // cost of an element that is copied or read
	scanShare   = 8  // reading so many bytes costs 1; writing a byte costs 1
)

// Limits of nesting. Neither templates nor data in use come near them.
const (
	maxTemplate = 64 << 10 // bytes
	maxNesting  = 200      // nested brackets and blocks
	maxDepth    = 200      // nested values
	maxCalls    = 150      // nested macro calls; Python's limit is about the same
	maxRange    = 100000   // as in the sandbox of jinja2
	maxDigits   = 4300     // digits of an integer, as in Python
)

var errBudget = errors.New("the template does too much work, or makes too large values: is it damaged, or written to do harm?")

// A fault is an error at a place in a template.
type fault struct {
	Line int // counted from 1
	Err  error
}

func (e *fault) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns the error without its place.
func (e *fault) Unwrap() error { return e.Err }

// fail ends the reading or rendering of a template: Parse and Render recover.
func fail(line int, format string, args ...any) {
	panic(&fault{line, fmt.Errorf(format, args...)})
}

// failIf calls fail if the condition holds.
func failIf(wrong bool, line int, format string, args ...any) {
	if wrong {
		fail(line, format, args...)
	}
}

// catch turns a panic of fail into an error.
func catch(err *error) {
	switch p := recover().(type) {
	case nil:
	case *fault:
		*err = p
	default:
		panic(p)
	}
}

// spend takes n from what is left of the budget.
func (r *run) spend(n int) {
	if n < 0 || n > r.budget {
		r.budget = 0
		r.fail("%w", errBudget)
	}
	r.budget -= n
}

// spendTimes takes the product of two sizes from the budget, without overflow.
func (r *run) spendTimes(n, size int) {
	if n > 0 && size > 0 {
		if n > r.budget/size {
			r.spend(r.budget + 1)
		}
		r.spend(n * size)
	}
}

// payScan spends the cost of reading n bytes.
func (r *run) payScan(n int) { r.spend(n/scanShare + 1) }

func (r *run) fail(format string, args ...any) { fail(r.line, format, args...) }

func (r *run) failIf(wrong bool, format string, args ...any) { failIf(wrong, r.line, format, args...) }

// dataSize returns about how many bytes a value takes, nested in depth others: the budget grows with it.
func dataSize(v Value, depth int) int {
	size := elementCost
	if depth > maxDepth {
		return size
	}
	if s, ok := text(v); ok {
		return size + len(s)
	}
	if l, ok := sequence(v); ok {
		for _, e := range l {
			size += dataSize(e, depth+1)
		}
	}
	if d, ok := v.(*Dict); ok {
		for key, value := range d.All() {
			size += dataSize(key, depth+1) + dataSize(value, depth+1)
		}
	}
	return size
}
