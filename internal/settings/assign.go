package settings

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// assign stores the value of s in a field, or leaves the field unchanged. The error says which values the key takes:
// choices if there are any, else those of the field's type. It does not name the place.
func (s Setting) assign(into reflect.Value, choices ...string) error {
	if s.flag != "" { // pflag has made the value, of the field's type
		into.Set(reflect.ValueOf(s.Value))
		return nil
	}
	x, isSpecial := into.Addr().Interface().(Special)
	isList := into.Type().ConvertibleTo(reflect.TypeFor[[]string]())
	value := s.Value
	if s.plain && (isSpecial || isList || into.Kind() == reflect.String) { // plain: typed, without quotes or brackets
		value = *s.text // a path such as 7 or true needs no quotes
	}
	text, isText := value.(string)
	fresh := reflect.New(into.Type()).Elem() // decode into a copy, so that a failure leaves the field unchanged
	switch {
	case isSpecial:
		if err := x.UnmarshalTOML(value); err != nil {
			return fmt.Errorf("%s: %w", s.Path(), err)
		}
		return nil
	case isList && isText && s.text != nil: // a,b from the command line or the environment
		into.Set(reflect.ValueOf(SplitList(text)).Convert(into.Type()))
		return nil
	case Decode(value, fresh):
		into.Set(fresh)
		return nil
	}
	wanted := typeName(into.Type())
	if len(choices) > 0 {
		wanted = `one of "` + strings.Join(choices, `", "`) + `"`
	}
	return fmt.Errorf("%s = %s: must be %s", s.Path(), shown(value), wanted)
}

// Set gives the setting the value that a text states, as --set does.
func (f Field) Set(text string) error {
	list, err := Sets([]string{"setting." + f.Key + "=" + text})
	if err != nil {
		return err
	}
	return list[0].assign(f.Value)
}

// shown is a value in messages.
func shown(value any) string {
	switch value := value.(type) {
	case string:
		return strconv.Quote(value)
	case map[string]any:
		return "{...}"
	}
	return fmt.Sprint(value)
}

// SplitList reads a,b as a list of strings; an empty text is an empty list.
func SplitList(text string) []string {
	list := []string{}
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

// Decode stores a value of TOML in a setting, and reports whether it fits; one that does not may have changed the
// setting.
func Decode(value any, into reflect.Value) bool {
	v, k := reflect.ValueOf(value), into.Kind()
	n, whole := value.(int64)
	u, decodes := into.Addr().Interface().(toml.Unmarshaler)
	switch {
	case decodes:
		return u.UnmarshalTOML(value) == nil
	case k == reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		return Decode(value, into.Elem())
	case k == reflect.Slice:
		list, ok := value.([]any)
		into.Set(reflect.MakeSlice(into.Type(), len(list), len(list)))
		for i, x := range list {
			ok = ok && Decode(x, into.Index(i))
		}
		return ok
	case into.CanFloat() && whole:
		into.SetFloat(float64(n))
		return n == int64(float64(n)) // a float64 has the number exactly
	case into.CanFloat() && v.CanFloat():
		into.SetFloat(v.Float())
		return !into.OverflowFloat(v.Float())
	case isInteger(k) && whole:
		into.Set(v.Convert(into.Type()))
		return into.CanInt() && into.Int() == n || into.CanUint() && n >= 0 && into.Uint() == uint64(n)
	case k == v.Kind() && (k == reflect.Bool || k == reflect.String):
		into.Set(v.Convert(into.Type()))
		return true
	}
	return false
}
