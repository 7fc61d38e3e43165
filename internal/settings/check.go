package settings

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// An Error says that a setting has an impossible value, and which are possible.
type Error struct {
	Key    string // in a run file, such as "beta1"; Config.Validate adds its section
	Value  any    // nil if the remedy tells it
	Remedy string // such as "must be in [0, 1)"
}

func (e *Error) Error() string {
	switch value := e.Value.(type) {
	case nil:
		return e.Key + ": " + e.Remedy
	case string:
		return fmt.Sprintf("%s = %q: %s", e.Key, value, e.Remedy)
	}
	return fmt.Sprintf("%s = %v: %s", e.Key, e.Value, e.Remedy)
}

// Check reports each setting of a struct that is outside its range or none of
// its choices, as joined *Errors.
func Check(pointer any) error {
	var errs []error
	for _, f := range Fields(pointer) {
		if remedy := f.remedy(); remedy != "" {
			errs = append(errs, &Error{f.Key, f.Value.Interface(), remedy})
		}
	}
	return errors.Join(errs...)
}

// Flatten lists the errors that were joined to err, however deep; none for nil.
func Flatten(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, Flatten(e)...)
	}
	return all
}

// Under lists the errors that were joined to err, with prefix, such as "reward.", in
// front of the keys of *Errors.
func Under(prefix string, err error) []error {
	errs := Flatten(err)
	for i, err := range errs {
		var bad *Error
		if errors.As(err, &bad) {
			errs[i] = &Error{Key: prefix + bad.Key, Value: bad.Value, Remedy: bad.Remedy}
		} else {
			errs[i] = fmt.Errorf("[%s]: %w", strings.TrimSuffix(prefix, "."), err)
		}
	}
	return errs
}

// remedy says which values the setting may have if its own is none of them,
// else nothing.
func (f Field) remedy() string {
	if words := f.choices(); len(words) > 0 && !slices.Contains(words, f.Value.String()) {
		return "must be one of " + strings.Join(words, ", ")
	}
	tag := f.tag.Get("range")
	if tag == "" || parseRange(tag).contains(f.number()) {
		return ""
	}
	text := "must be " + parseRange(tag).broken(f.Value.Kind(), f.number())
	if note := f.tag.Get("note"); note != "" {
		text += "; " + note
	}
	return text
}

// Allowed says in words which numbers the setting may have, such as "at least
// 1"; nothing if it has no range. A default outside the range stands for
// something else, which its section tells: nothing is said there either.
func (f Field) Allowed() string {
	tag := f.tag.Get("range")
	if tag == "" || f.remedy() != "" {
		return ""
	}
	return parseRange(tag).describe(f.Value.Kind())
}

func (f Field) number() float64 {
	switch {
	case f.Value.CanInt():
		return float64(f.Value.Int())
	case f.Value.CanUint():
		return float64(f.Value.Uint())
	}
	return f.Value.Float()
}

// An interval of numbers. High is +Inf where there is no upper end; the infinity
// itself is not inside then.
type interval struct {
	low, high         float64
	lowOpen, highOpen bool
}

// parseRange reads a range tag. A malformed one is a mistake in the program.
func parseRange(tag string) interval {
	low, high, ok := strings.Cut(tag[1:len(tag)-1], ",")
	r := interval{high: math.Inf(1), lowOpen: tag[0] == '(', highOpen: tag[len(tag)-1] == ')'}
	var errs [2]error
	r.low, errs[0] = strconv.ParseFloat(low, 64)
	if high != "" {
		r.high, errs[1] = strconv.ParseFloat(high, 64)
	}
	if err := errors.Join(errs[:]...); !ok || err != nil {
		panic(fmt.Sprintf("settings: range %q: %v", tag, err))
	}
	return r
}

// contains is false for NaN, which a run file can state.
func (r interval) contains(x float64) bool {
	above, below := x >= r.low, x <= r.high
	if r.lowOpen {
		above = x > r.low
	}
	if r.highOpen {
		below = x < r.high
	}
	return above && below
}

// limited reports whether the interval only keeps a number within what a machine can
// hold, rather than within what it means.
func (r interval) limited() bool { return !math.IsInf(r.high, 1) && r.high-r.low >= 1000 }

// broken names, as what follows "must be", the end of the interval beyond which x is.
func (r interval) broken(kind reflect.Kind, x float64) string {
	switch {
	case !r.limited():
		return r.describe(kind)
	case x > r.high && !math.IsInf(x, 1):
		return "at most " + strconv.FormatFloat(r.high, 'f', -1, 64)
	}
	r.high = math.Inf(1)
	return r.describe(kind)
}

// describe names the interval as what follows "must be".
func (r interval) describe(kind reflect.Kind) string {
	switch {
	case r.limited():
		low := r
		low.high = math.Inf(1)
		return low.describe(kind) + " and at most " + strconv.FormatFloat(r.high, 'f', -1, 64)
	case !math.IsInf(r.high, 1):
		open, end := "[", "]"
		if r.lowOpen {
			open = "("
		}
		if r.highOpen {
			end = ")"
		}
		return fmt.Sprintf("in %s%v, %v%s", open, r.low, r.high, end)
	case isInteger(kind):
		return fmt.Sprintf("at least %v", r.low)
	case r.lowOpen:
		return fmt.Sprintf("a finite number above %v", r.low)
	}
	return fmt.Sprintf("a finite number, at least %v", r.low)
}
