package cmd

import (
	"fmt"
	"reflect"
	"strings"

	"onering/internal/settings"
)

// assign puts the value of s into the field it is for. The error says what the
// key wants, without naming the place.
func assign(s setting, into reflect.Value) error {
	if x, ok := into.Addr().Interface().(settings.Special); ok {
		value := s.value
		if _, quoted := value.(string); s.text != nil && !isCollection(value) && !(quoted && s.meta != nil) {
			value = *s.text
		}
		if err := x.UnmarshalTOML(value); err != nil {
			return fmt.Errorf("%s: %w", s.path(), err)
		}
		return nil
	}
	if s.text != nil {
		_, quoted := s.value.(string)
		switch {
		case into.Kind() == reflect.String && !(quoted && s.meta != nil):
			// A path such as 7 or true needs no quotes.
			into.SetString(*s.text)
			return nil
		case into.Type().ConvertibleTo(reflect.TypeFor[[]string]()) && !isCollection(s.value):
			into.Set(reflect.ValueOf(splitList(s.value, *s.text)).Convert(into.Type()))
			return nil
		}
	}
	if s.meta == nil { // text that is not TOML, for a key that is not a string
		return wrongType(s, into.Type())
	}
	// Decode into a new value first, so that a failure leaves the field as it was.
	fresh := reflect.New(into.Type())
	if err := s.meta.PrimitiveDecode(s.primitive, fresh.Interface()); err != nil {
		return wrongType(s, into.Type())
	}
	into.Set(fresh.Elem())
	return nil
}

func isCollection(value any) bool {
	switch value.(type) {
	case []any, map[string]any:
		return true
	}
	return false
}

// splitList reads a,b as a list of strings; an empty text is an empty list.
func splitList(value any, text string) []string {
	if s, ok := value.(string); ok {
		text = s // without its quotes
	}
	list := []string{}
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

func wrongType(s setting, t reflect.Type) error {
	if text, ok := s.value.(string); ok {
		return fmt.Errorf("%s = %q: must be %s", s.path(), text, settings.TypeName(t))
	}
	return fmt.Errorf("%s = %v: must be %s", s.path(), s.value, settings.TypeName(t))
}
