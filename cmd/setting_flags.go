package cmd

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"onering/internal/settings"
	"onering/tokenize"
)

// addSettings adds a flag for each setting of the struct that pointer points
// to, or only for those whose flags are named. Their values are the defaults.
func addSettings(flags *pflag.FlagSet, pointer any, names ...string) {
	for _, f := range settings.Fields(pointer) {
		if names != nil && !slices.Contains(names, f.Flag) {
			continue
		}
		switch p := f.Value.Addr().Interface().(type) {
		case *bool:
			flags.BoolVar(p, f.Flag, *p, f.Help())
		case *int:
			flags.IntVar(p, f.Flag, *p, f.Help())
		case *int64:
			flags.Int64Var(p, f.Flag, *p, f.Help())
		case *float64:
			flags.Float64Var(p, f.Flag, *p, f.Help())
		case *string:
			flags.StringVar(p, f.Flag, *p, f.Help())
		case *tokenize.ArgTexts:
			flags.StringArrayVar((*[]string)(p), f.Flag, *p, f.Help()+"; repeatable")
		case *[]string:
			flags.StringArrayVar(p, f.Flag, *p, f.Help()+"; repeatable")
		default:
			panic(fmt.Sprintf("cmd: no flag for a setting of type %T", p))
		}
	}
}

// checkAdapterFlags refuses flags about a new adapter where none is trained (on is
// false): the command would train all weights, which is not what they ask for.
func checkAdapterFlags(flags *pflag.FlagSet, on bool) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if strings.HasPrefix(f.Name, "lora-") && !on && err == nil {
			err = usagef("--%s is about a new adapter, and none is trained: add --lora, or leave it out", f.Name)
		}
	})
	return err
}

// checkSettings reports the values of the struct's settings that are out of
// their ranges, by flag.
func checkSettings(pointer any) error {
	return namingFlags(settings.Check(pointer), pointer)
}

// namingFlags puts the flags of the struct's settings in place of their keys in
// the *settings.Errors that are joined to err, as a usage error.
func namingFlags(err error, pointer any) error {
	if err == nil {
		return nil
	}
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = slices.Clone(joined.Unwrap())
	}
	for i, err := range list {
		var bad *settings.Error
		if !errors.As(err, &bad) {
			continue
		}
		for _, f := range settings.Fields(pointer) {
			if f.Key == bad.Key {
				list[i] = fmt.Errorf("--%s %v: %s", f.Flag, bad.Value, bad.Remedy)
			}
		}
	}
	return usageError{errors.Join(list...)}
}
