package settings

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/spf13/pflag"
)

// AddFlags adds a flag for each setting of the struct that pointer points to, or only for
// the named flags. The current values are the defaults.
func AddFlags(flags *pflag.FlagSet, pointer any, names ...string) {
	for _, f := range Fields(pointer) {
		if names != nil && !slices.Contains(names, f.Flag) {
			continue
		}
		short, help := f.Tag("short"), f.Help()
		at := f.Value.Addr()
		if f.Value.Kind() == reflect.String { // also of a type of its own
			at = at.Convert(reflect.TypeFor[*string]())
		}
		switch p := at.Interface().(type) {
		case *bool:
			flags.BoolVarP(p, f.Flag, short, *p, help)
		case *int:
			flags.IntVarP(p, f.Flag, short, *p, help)
		case *int64:
			flags.Int64VarP(p, f.Flag, short, *p, help)
		case *uint64:
			flags.Uint64VarP(p, f.Flag, short, *p, help)
		case *float64:
			flags.Float64VarP(p, f.Flag, short, *p, help)
		case *time.Duration:
			flags.DurationVarP(p, f.Flag, short, *p, help)
		case *string:
			flags.StringVarP(p, f.Flag, short, *p, help)
		case *[]int:
			flags.IntSliceVarP(p, f.Flag, short, *p, help)
		default: // a list of strings
			list := f.Value.Addr().Convert(reflect.TypeFor[*[]string]()).Interface().(*[]string)
			if f.Tag("split") != "" {
				flags.StringSliceVarP(list, f.Flag, short, *list, help)
			} else {
				flags.StringArrayVarP(list, f.Flag, short, *list, help+"; repeatable")
			}
		}
	}
}

// NameFlags puts the flags of the struct's settings in place of their keys in the *Errors
// that are joined to err.
func NameFlags(err error, pointer any) error {
	errs := Flatten(err)
	for i := range errs {
		errs[i] = byFlag(errs[i], "", Fields(pointer))
	}
	return errors.Join(errs...)
}

// byFlag replaces the key of a field, with prefix in front, by its flag if err is an
// *Error of that key.
func byFlag(err error, prefix string, fields []Field) error {
	if bad, ok := errors.AsType[*Error](err); ok {
		for _, f := range fields {
			if prefix+f.Key == bad.Key {
				return fmt.Errorf("--%s %v: %s", f.Flag, bad.Value, bad.Remedy)
			}
		}
	}
	return err
}
