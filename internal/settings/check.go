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

// Errors are what is wrong with several settings.
type Errors []error

// Want adds an *Error about a setting that is not as it has to be.
func (e *Errors) Want(key string, value any, ok bool, remedy string) {
	if !ok {
		*e = append(*e, &Error{Key: key, Value: value, Remedy: remedy})
	}
}

// Check reports each setting of a struct that is outside its range or none of
// its choices, and what the struct's own Validate says, if it has one, as joined *Errors.
func Check(pointer any) error {
	var errs []error
	for _, f := range Fields(pointer) {
		if remedy := f.remedy(); remedy != "" {
			errs = append(errs, &Error{f.Key, f.Value.Interface(), remedy})
		}
	}
	if v, ok := pointer.(interface{ Validate() error }); ok {
		errs = append(errs, v.Validate())
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
		if bad, ok := errors.AsType[*Error](err); ok {
			errs[i] = &Error{Key: prefix + bad.Key, Value: bad.Value, Remedy: bad.Remedy}
		} else {
			errs[i] = fmt.Errorf("[%s]: %w", strings.TrimSuffix(prefix, "."), err)
		}
	}
	return errs
}

// remedy says which values the setting may have if its own is none of them, else nothing.
func (f Field) remedy() string {
	words, tag := f.choices(), f.tag.Get("range")
	if len(words) > 0 && !slices.Contains(words, f.Value.String()) {
		return "must be one of " + strings.Join(words, ", ")
	}
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
	tag       string
	low, high float64
}

// parseRange reads a range tag. A malformed one is a mistake in the program.
func parseRange(tag string) interval {
	low, high, ok := strings.Cut(tag[1:len(tag)-1], ",")
	r := interval{tag: tag, high: math.Inf(1)}
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
	return (x > r.low || x == r.low && r.tag[0] == '[') && (x < r.high || x == r.high && strings.HasSuffix(r.tag, "]"))
}

// limited reports whether the interval only keeps a number within what a machine can
// hold, rather than within what it means.
func (r interval) limited() bool { return !math.IsInf(r.high, 1) && r.high-r.low >= 1000 }

// most is the upper end in words.
func (r interval) most() string { return "at most " + strconv.FormatFloat(r.high, 'f', -1, 64) }

// least is the lower end in words.
func (r interval) least(kind reflect.Kind) string {
	switch {
	case isInteger(kind):
		return fmt.Sprintf("at least %v", r.low)
	case math.IsInf(r.low, -1):
		return "a finite number"
	case r.tag[0] == '(':
		return fmt.Sprintf("a finite number above %v", r.low)
	}
	return fmt.Sprintf("a finite number, at least %v", r.low)
}

// broken names, as what follows "must be", the end of the interval beyond which x is.
func (r interval) broken(kind reflect.Kind, x float64) string {
	switch {
	case !r.limited():
		return r.describe(kind)
	case x > r.high && !math.IsInf(x, 1):
		return r.most()
	}
	return r.least(kind)
}

// describe names the interval as what follows "must be".
func (r interval) describe(kind reflect.Kind) string {
	switch {
	case math.IsInf(r.high, 1):
		return r.least(kind)
	case r.limited():
		return r.least(kind) + " and " + r.most()
	}
	return "in " + strings.Replace(r.tag, ",", ", ", 1)
}
