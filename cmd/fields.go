package cmd

import (
	"reflect"
	"strings"
	"unicode"

	"onering/train"
)

// A field is one key of a section: the key and where its value goes.
type field struct {
	key   string
	value reflect.Value
}

// fieldsOf lists the settings that a pointer to a struct holds, in order of
// declaration. A key is the field's toml tag, else its name in snake case.
// Embedded structs count as if their fields stood in the outer one.
func fieldsOf(pointer any) []field {
	v := reflect.ValueOf(pointer)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return nil // an objective may have no settings at all
	}
	return appendFields(nil, v.Elem())
}

func appendFields(fields []field, v reflect.Value) []field {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("toml"), ",")
		switch {
		case key == "-":
			continue
		case f.Anonymous && key == "" && f.Type.Kind() == reflect.Struct:
			fields = appendFields(fields, v.Field(i))
			continue
		case !f.IsExported() || !settable(f.Type):
			continue
		case key == "":
			key = snake(f.Name)
		}
		fields = append(fields, field{key, v.Field(i)})
	}
	return fields
}

// settable reports whether a run file can state a value of type t.
func settable(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return settable(t.Elem())
	case reflect.Bool, reflect.String, reflect.Float32, reflect.Float64:
		return true
	}
	return isInteger(t.Kind())
}

func isInteger(k reflect.Kind) bool { return reflect.Int <= k && k <= reflect.Uint64 }

// snake turns ClipLow into clip_low and EpsESS into eps_ess.
func snake(name string) string {
	letters := []rune(name)
	var b strings.Builder
	for i, r := range letters {
		if unicode.IsUpper(r) && i > 0 &&
			(unicode.IsLower(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// A section is one table of a run file.
type section struct {
	name   string
	fields []field
}

// sectionsOf lists the sections of c in the order of its declaration. The
// objective's own settings follow its name.
func sectionsOf(c *train.Config) []section {
	v := reflect.ValueOf(c).Elem()
	var sections []section
	for i := range v.NumField() {
		s := section{name: v.Type().Field(i).Tag.Get("toml"), fields: fieldsOf(v.Field(i).Addr().Interface())}
		if s.name == "objective" {
			s.fields = append(s.fields, fieldsOf(c.Objective.Settings)...)
		}
		sections = append(sections, s)
	}
	return sections
}

// sectionNames lists the sections that a run file may have.
func sectionNames() []string {
	var names []string
	for _, s := range sectionsOf(new(train.Config)) {
		names = append(names, s.name)
	}
	return names
}

// sectionOf finds the section that has a key.
func sectionOf(key string) (string, bool) {
	c := train.Default()
	for _, s := range sectionsOf(&c) {
		for _, f := range s.fields {
			if f.key == key {
				return s.name, true
			}
		}
	}
	return "", false
}

// keysOf lists the keys of fields.
func keysOf(fields []field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	return keys
}
