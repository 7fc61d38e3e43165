package registry

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"onering/internal/settings"
)

// A Failure is a rule that a plug-in breaks.
type Failure struct {
	// Rule is the name of the rule.
	Rule string
	// Explanation is the rule itself.
	Explanation string
	// Err describes what the check found.
	Err error
}

func (f *Failure) Error() string { return fmt.Sprintf("%s: %s: %v", f.Rule, f.Explanation, f.Err) }

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// A Rule is one case of the conformance suite of a kind of plug-in.
type Rule[T any] struct {
	Name, Explanation string
	Check             func(new func() T) error
}

// Apply runs the check and returns a *Failure, or nil. A plug-in that panics breaks the rule
// being checked. exempt, if not nil, says why a plug-in cannot keep which rules: those it
// has to break.
func (r Rule[T]) Apply(new func() T, exempt func(T) map[string]string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("a method or the constructor panics: %v", v)
		}
		if err != nil {
			err = &Failure{r.Name, r.Explanation, err}
		}
	}()
	why, exempted := "", false
	if exempt != nil {
		why, exempted = exempt(new())[r.Name]
	}
	err = r.Check(new)
	switch {
	case !exempted:
		return err
	case err == nil:
		return fmt.Errorf("the rule is kept, from which Exemptions excludes it (%q): remove the exemption", why)
	}
	return nil
}

// CheckDefaults is the Check of the rule that a constructor returns a fresh value every
// time, with defaults that settings.Check accepts and a toml name on every exported field, none of
// those that are taken. example is a name for the message.
func CheckDefaults[T any](new func() T, taken map[string]bool, example string) error {
	x := new()
	v := reflect.ValueOf(x)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("the constructor returns a %T; it must be a pointer to a struct, so that settings can be decoded into it", x)
	}
	if v.Elem().Type().Size() > 0 && any(x) == any(new()) {
		return errors.New("the constructor returned the same value twice")
	}
	if err := settings.Check(x); err != nil {
		return fmt.Errorf("the defaults are not valid: %w", err)
	}
	return checkFields(v.Elem().Type(), taken, example)
}

// checkFields looks for a toml name on every exported field, embedded ones
// included, each name once.
func checkFields(t reflect.Type, taken map[string]bool, example string) error {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("toml"), ",")
		switch {
		case f.Anonymous && f.Type.Kind() == reflect.Struct && name == "":
			if err := checkFields(f.Type, taken, example); err != nil {
				return err
			}
		case !f.IsExported() || name == "-":
		case name == "" || name != strings.ToLower(name) || strings.ContainsAny(name, " .-"):
			return fmt.Errorf("field %s needs a tag such as `toml:%q`, or `toml:\"-\"` if it is not a setting", f.Name, example)
		case taken[name]:
			return fmt.Errorf("field %s: the toml name %q is taken", f.Name, name)
		default:
			taken[name] = true
		}
	}
	return nil
}
