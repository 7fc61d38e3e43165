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

// An Error says that a setting has an impossible value, and which values are possible.
type Error struct {
	Key    string // the key in a run file, such as "beta1"; Config.Validate adds its section
	Value  any    // nil if Remedy already states the value
	Remedy string // for example "must be in [0, 1)"
}

func (e *Error) Error() string {
	switch value := reflect.ValueOf(e.Value); value.Kind() {
	case reflect.Invalid:
		return e.Key + ": " + e.Remedy
	case reflect.String:
		return fmt.Sprintf("%s = %q: %s", e.Key, value, e.Remedy)
	}
	return fmt.Sprintf("%s = %v: %s", e.Key, e.Value, e.Remedy)
}

// Errors collects the errors of several settings.
type Errors []error

// Want adds an *Error about a setting if ok is false.
func (e *Errors) Want(key string, value any, ok bool, remedy string) {
	if !ok {
		*e = append(*e, &Error{Key: key, Value: value, Remedy: remedy})
	}
}

// Check reports, as joined *Errors, each setting of a struct that is outside its range or
// not among its choices, and the errors of the struct's own Validate, if it has one.
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

// Flatten lists the errors that were joined to err, at any depth; none for nil.
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

// Under lists the errors that were joined to err, with prefix, such as "reward.", in front of the keys of *Errors.
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

// remedy says which values the setting may have if its value is not one of them, else nothing.
func (f Field) remedy() string {
	words, tag := f.choices(), f.tag.Get("range")
	if len(words) > 0 && !slices.Contains(words, f.Value.String()) {
		return "must be one of " + strings.Join(words, ", ") + DidYouMean(f.Value.String(), words)
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

// Allowed says in words which numbers the setting may have, such as "at least 1"; nothing if it has no range. A
// default outside the range has a special meaning, which the docs of its section state; then the result is empty too.
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

// An interval is a range of numbers. High is +Inf if there is no upper end; infinity itself is then outside.
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

// limited reports whether the interval only keeps a number within the limits of a
// machine, rather than within its meaning.
func (r interval) limited() bool { return !math.IsInf(r.high, 1) && r.high-r.low >= 1000 }

// most states the upper end in words.
func (r interval) most() string { return "at most " + strconv.FormatFloat(r.high, 'f', -1, 64) }

// least states the lower end in words.
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

// broken states the end of the interval that x exceeds, in words that follow "must be".
func (r interval) broken(kind reflect.Kind, x float64) string {
	switch {
	case !r.limited():
		return r.describe(kind)
	case x > r.high && !math.IsInf(x, 1):
		return r.most()
	}
	return r.least(kind)
}

// describe states the interval in words that follow "must be".
func (r interval) describe(kind reflect.Kind) string {
	switch {
	case math.IsInf(r.high, 1):
		return r.least(kind)
	case r.limited():
		return r.least(kind) + " and " + r.most()
	}
	return "in " + strings.Replace(r.tag, ",", ", ", 1)
}
