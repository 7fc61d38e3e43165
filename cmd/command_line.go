package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"syscall"

	"onering/internal/settings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// explainUsage rewrites the libraries' errors about a flag in the words of this
// program: the flag, what is wrong with it, and what it takes.
func explainUsage(c *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		return fmt.Errorf("--%s %q: must be %s", value.GetFlag().Name, value.GetValue(), kindOf(value.GetFlag()))
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		return fmt.Errorf("%w%s", err, settings.DidYouMean(unknown.GetSpecifiedName(), names))
	}
	var missing *pflag.ValueRequiredError
	if errors.As(err, &missing) {
		return fmt.Errorf("%w: %s", err, purpose(missing.GetFlag()))
	}
	return err
}

// checkArguments returns an error that names the argument that is missing or too
// many. validate is the command's check: one of cobra's, whose errors say less, or
// one of this program's, which returns a usageError.
func checkArguments(c *cobra.Command, validate cobra.PositionalArgs, args []string) error {
	err := validate(c, args)
	var usage usageError
	if err == nil || errors.As(err, &usage) {
		return err
	}
	for n, arg := range slices.Backward(args) {
		if validate(c, args[:n]) == nil {
			return fmt.Errorf("%q is an argument too many: %s", arg, c.UseLine())
		}
	}
	return fmt.Errorf("an argument is missing: %s", c.UseLine())
}

// checkFlags returns an error that names required flags that are not given, or given
// flags that exclude one another. cobra has the same rules, but no types for their
// errors.
func checkFlags(c *cobra.Command) error {
	missing := false
	given := map[string][]string{} // by group
	c.Flags().VisitAll(func(f *pflag.Flag) {
		_, required := f.Annotations[cobra.BashCompOneRequiredFlag]
		missing = missing || required && !f.Changed
		for _, group := range f.Annotations[exclusiveGroups] {
			if f.Changed {
				given[group] = append(given[group], f.Name)
			}
		}
	})
	if missing {
		return unsetFlags(c)
	}
	for _, group := range slices.Sorted(maps.Keys(given)) {
		if len(given[group]) > 1 {
			return fmt.Errorf("--%s exclude one another", strings.Join(given[group], " and --"))
		}
	}
	return nil
}

// exclusiveGroups is the annotation of a flag with the groups of which at most one
// flag may be given.
const exclusiveGroups = "onering_exclusive_groups"

// exclusive makes flags of c, its own or those for all commands, exclude one another.
func exclusive(c *cobra.Command, names ...string) {
	c.MarkFlagsMutuallyExclusive(names...) // for completion
	for _, name := range names {
		f := c.Flag(name)
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[exclusiveGroups] = append(f.Annotations[exclusiveGroups], strings.Join(names, " "))
	}
}

// unsetFlags returns an error that names the required flags that are missing or
// empty.
func unsetFlags(c *cobra.Command) error {
	var list []error
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if _, required := f.Annotations[cobra.BashCompOneRequiredFlag]; required && f.Value.String() == "" {
			list = append(list, fmt.Errorf("--%s is not set: %s", f.Name, purpose(f)))
		}
	})
	return errors.Join(list...)
}

// kindOf says what values a flag takes.
func kindOf(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "int", "int64":
		return "a whole number"
	case "uint64":
		return "a whole number, at least 0"
	case "float64":
		return "a number"
	case "bool":
		return "true or false"
	}
	return "a " + f.Value.Type()
}

// purpose returns what a flag's help says.
func purpose(f *pflag.Flag) string { return strings.TrimSuffix(f.Usage, " (required)") }

// unreadable returns an error that says why a file cannot be read. what is the
// flag or the kind of file; remedy says what to name if the file does not exist.
func unreadable(what, name string, err error, remedy string) error {
	var at *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s %q: no such file; %s", what, name, remedy)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s %q: this user may not read it", what, name)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s %q: a file stands where a folder of its path should be; %s", what, name, remedy)
	case errors.As(err, &at):
		err = at.Err
	}
	return fmt.Errorf("%s %q: %w", what, name, err)
}
