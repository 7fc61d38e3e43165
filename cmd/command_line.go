package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// explainUsage rewrites the libraries' errors about a command line in the words of
// this program: the flag or argument, what is wrong with it, and what it takes.
func explainUsage(c *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		return fmt.Errorf("--%s %q: must be %s", value.GetFlag().Name, value.GetValue(), kindOf(value.GetFlag()))
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		return fmt.Errorf("%w%s", err, didYouMean(unknown.GetSpecifiedName(), names))
	}
	var missing *pflag.ValueRequiredError
	if errors.As(err, &missing) {
		return fmt.Errorf("%w: %s", err, purpose(missing.GetFlag()))
	}
	// cobra has no types for the others.
	text, args := err.Error(), c.Flags().Args()
	switch {
	case strings.HasPrefix(text, "required flag(s) "):
		return unsetFlags(c)
	case strings.HasPrefix(text, "accepts "), strings.HasPrefix(text, "requires at least "):
		if len(args) == 0 {
			return fmt.Errorf("an argument is missing: %s", c.UseLine())
		}
		return fmt.Errorf("%q is an argument too many: %s", args[len(args)-1], c.UseLine())
	case strings.HasPrefix(text, "unknown command ") && !c.HasSubCommands() && c.Name() != "help" && len(args) > 0:
		return fmt.Errorf("%q is an argument too many: %s", args[0], c.UseLine())
	}
	if m := exclusive.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("--%s exclude one another", strings.Join(strings.Fields(m[1]), " and --"))
	}
	return err
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

var exclusive = regexp.MustCompile(`^if any flags in the group .* none of the others can be; \[(.*)\] were all set$`)

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
