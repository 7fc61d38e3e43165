package settings

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// A Command is what messages about settings have to know of a command.
type Command struct {
	Name  string            // stands in messages about unknown keys; "" for the settings of onering train
	Flags map[string]string // its flags, without hyphens, by the paths of their settings
	// Others say what is for what in the rest of its use: flags that are not settings, with
	// hyphens, and FILE. Sets says that it takes any setting by --set.
	Others map[string]string
	Sets   bool
}

// AddFlag adds a flag of this name that sets the field of the setting. The current value is the default.
func (f Field) AddFlag(flags *pflag.FlagSet, name string) {
	short, help := f.Tag("short"), f.Help()
	at := f.Value.Addr()
	if f.Value.Kind() == reflect.String { // also of a type of its own
		at = at.Convert(reflect.TypeFor[*string]())
	}
	switch p := at.Interface().(type) {
	case *bool:
		flags.BoolVarP(p, name, short, *p, help)
	case *int:
		flags.IntVarP(p, name, short, *p, help)
	case *int64:
		flags.Int64VarP(p, name, short, *p, help)
	case *uint64:
		flags.Uint64VarP(p, name, short, *p, help)
	case *float64:
		flags.Float64VarP(p, name, short, *p, help)
	case *time.Duration:
		flags.DurationVarP(p, name, short, *p, help)
	case *string:
		flags.StringVarP(p, name, short, *p, help)
	case *[]int:
		flags.IntSliceVarP(p, name, short, *p, help)
	default:
		if !f.Value.Type().ConvertibleTo(reflect.TypeFor[[]string]()) { // a list of tables, which texts may stand for
			flags.VarP(&tablesFlag{into: f.Value}, name, short, help+"; repeatable")
			return
		}
		list := f.Value.Addr().Convert(reflect.TypeFor[*[]string]()).Interface().(*[]string)
		if f.Tag("split") != "" {
			flags.StringSliceVarP(list, name, short, *list, help)
		} else {
			flags.StringArrayVarP(list, name, short, *list, help+"; repeatable")
		}
	}
}

// A tablesFlag is the value of a flag for a list that is Special. Each text adds to the list.
type tablesFlag struct {
	into  reflect.Value
	texts []string
}

// Set implements pflag.Value.
func (v *tablesFlag) Set(text string) error {
	list := reflect.New(v.into.Type())
	if err := list.Interface().(Special).UnmarshalTOML(text); err != nil {
		return err
	}
	if v.texts != nil {
		list.Elem().Set(reflect.AppendSlice(v.into, list.Elem()))
	}
	v.into.Set(list.Elem())
	v.texts = append(v.texts, text)
	return nil
}

// String implements pflag.Value.
func (v *tablesFlag) String() string { return strings.Join(v.texts, ",") }

// Type implements pflag.Value.
func (v *tablesFlag) Type() string { return "strings" }

// Given returns the settings of config whose flags, as AddFlag has made them, were given on the command line.
func (c Command) Given(config any, given func(flag string) bool) (list Source) {
	for _, s := range Sections(config) {
		for _, f := range s.Fields {
			if flag := c.Flags[s.Name+"."+f.Key]; flag != "" && given(flag) {
				list = append(list, Setting{Section: s.Name, Key: f.Key, Place: "--" + flag, Value: f.Value.Interface(), flag: flag})
			}
		}
	}
	return list
}

// NameFlags puts the flags of the struct's settings in place of their keys in the *Errors that are joined to err.
func NameFlags(err error, pointer any) error {
	flags := map[string]string{}
	for _, f := range Fields(pointer) {
		flags[f.Key] = f.Flag
	}
	errs := Flatten(err)
	for i := range errs {
		if bad, ok := errors.AsType[*Error](errs[i]); ok && flags[bad.Key] != "" {
			errs[i] = bad.ofFlag(flags[bad.Key])
		}
	}
	return errors.Join(errs...)
}

// ofFlag is the error in the words of a command line.
func (e *Error) ofFlag(flag string) error {
	if e.Value == nil {
		return fmt.Errorf("--%s: %s", flag, e.Remedy)
	}
	return fmt.Errorf("--%s %s: %s", flag, shown(e.Value), e.Remedy)
}

// About says of an error that its remedy is to set the settings at these paths, so that a command
// that prints it can name the flags that it has for them.
func About(err error, paths ...string) error { return &about{err, paths} }

type about struct {
	error
	paths []string
}

func (a *about) Unwrap() error { return a.error }

// Remedies lists the settings that About names for err.
func Remedies(err error) []string {
	if a, ok := errors.AsType[*about](err); ok {
		return slices.Clone(a.paths)
	}
	return nil
}
