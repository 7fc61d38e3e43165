// Package settings reads what structs of settings declare. A setting is one struct field,
// and its tags tell the program everything about it:
//
//	toml:"top_p"    the key in a run file; "-" is none, and without the tag it
//	                is the field's name in snake case
//	flag:"top-p"    the flag on the command line; without the tag it is the key
//	                with hyphens
//	range:"(0,1]"   the numbers it may have; "[1,)" has no upper end
//	choice:"a b"    the words it may have
//	note:"..."      what to add about its values, such as "1 turns it off"
//	help:"..."      what it means, for --help and docs/settings.md
//	short:"n"       the letter of the flag
//	complete:"dir"  what a shell completes the flag with: dir, file, or the ending of a file
//	split:","       on a list: the flag takes several texts with commas between them
//	choose:"kind"   on a field for a plug-in: the key "name" chooses it
//	needs:"a=x b!=" when it has an effect: if one of the conditions holds, on keys of its
//	                section or SECTION.KEY; after a comma stand more; also on a section,
//	                of which a key with "-" needs nothing
//	list:"use"      on a field of a plug-in that stands for several: they are its elements
//
// Run files, environment variables, flags, validation, run.toml and docs/settings.md all follow from these tags, so a
// setting that several commands and sections share is one field of one struct that they embed.
package settings

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// A Special is the type of a setting that reads its values from a run file by itself, and names them.
type Special interface {
	// UnmarshalTOML takes a decoded value. It leaves the setting as it was if the
	// value is wrong, which its error explains.
	UnmarshalTOML(value any) error
	// Wanted says in the words of a run file which values are possible.
	Wanted() string
}

var special = reflect.TypeFor[Special]()

// A Field is one setting of a struct.
type Field struct {
	Key   string // its key in a run file; "" if it has none
	also  string // the key under which its struct declares it, if a plug-in has renamed it; a run file may state either
	Flag  string // without the hyphens in front
	Value reflect.Value
	tag   reflect.StructTag
}

// Tag returns another tag of the field.
func (f Field) Tag(key string) string { return f.tag.Get(key) }

// Fields lists the settings of the struct that pointer points to, in the order of declaration, with those of its
// plug-in, if it has one (see Register). The fields of an embedded struct count as fields of the outer one, and those
// of an embedded pointer unless it is nil. Fields of types that a run file cannot state are left out. A nil pointer,
// and a pointer to anything else, has no settings.
func Fields(pointer any) []Field { return fieldsOf(pointer, true) }

// ownFields lists the settings of a struct without those of a plug-in.
func ownFields(pointer any) []Field { return fieldsOf(pointer, false) }

// fieldsOf returns the fields of the struct that pointer points to, with plugin also those of its chosen plug-in.
func fieldsOf(pointer any, plugin bool) []Field {
	v := reflect.ValueOf(pointer)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return nil
	}
	fields := appendFields(nil, v.Elem(), plugin)
	// Called returns the names that a plug-in has for some keys; a key that it calls "" is not one of its settings.
	if r, ok := pointer.(interface{ Called() map[string]string }); ok {
		called := r.Called()
		for i, f := range fields {
			if name, has := called[f.Key]; has {
				fields[i].Key, fields[i].Flag, fields[i].also = name, strings.ReplaceAll(name, "_", "-"), f.Key
			}
		}
		fields = slices.DeleteFunc(fields, func(f Field) bool { return f.Key == "" && f.also != "" })
	}
	return fields
}

// appendFields appends the settings of the struct v to fields. Those of an embedded struct count as v's own, unless a
// tag gives it a key. With plugin those of the field for a plug-in are added, else the field is left out.
func appendFields(fields []Field, v reflect.Value, plugin bool) []Field {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("toml"), ",")
		switch {
		case f.Anonymous && key == "" && f.Type.Kind() == reflect.Struct:
			fields = appendFields(fields, v.Field(i), plugin)
			continue
		case f.Anonymous && key == "" && f.Type.Kind() == reflect.Pointer:
			if !v.Field(i).IsNil() {
				fields = appendFields(fields, v.Field(i).Elem(), plugin)
			}
			continue
		case plugin && f.Tag.Get("choose") != "":
			fields = append(fields, Fields(v.Field(i).Interface())...)
			continue
		case !f.IsExported() || !settable(f.Type):
			continue
		case key == "-": // a flag alone
			key = ""
		case key == "":
			key = snake(f.Name)
		}
		flag := cmp.Or(f.Tag.Get("flag"), strings.ReplaceAll(key, "_", "-"))
		fields = append(fields, Field{Key: key, Flag: flag, Value: v.Field(i), tag: f.Tag})
	}
	return fields
}

// settable reports whether a run file can state a value of type t.
func settable(t reflect.Type) bool {
	if reflect.PointerTo(t).Implements(special) {
		return true
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return settable(t.Elem())
	case reflect.Bool, reflect.String, reflect.Float32, reflect.Float64:
		return true
	}
	return isInteger(t.Kind())
}

func isInteger(k reflect.Kind) bool { return reflect.Int <= k && k <= reflect.Uint64 }

// snake turns ClipLow into clip_low and EpsESS into eps_ess: a word begins with a capital behind a small letter or
// before one.
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

// Help says what the setting means, with the words it may have and its note.
func (f Field) Help() string {
	text := f.tag.Get("help")
	if words := f.choices(); len(words) > 0 {
		text += ": " + strings.Join(words, ", ")
	}
	if note := f.tag.Get("note"); note != "" {
		text += "; " + note
	}
	return text
}

func (f Field) choices() []string { return strings.Fields(f.tag.Get("choice")) }

// typeName says, in the words of a run file, which values a type has.
func typeName(t reflect.Type) string {
	if x, ok := reflect.New(t).Interface().(Special); ok {
		return x.Wanted()
	}
	switch k := t.Kind(); {
	case k == reflect.Pointer:
		return typeName(t.Elem())
	case k == reflect.Slice:
		return "a list, each element " + typeName(t.Elem())
	case k == reflect.Bool:
		return "true or false"
	case k == reflect.String:
		return "a string in quotes"
	case reflect.Uint <= k && k <= reflect.Uint64:
		return "a whole number, at least 0"
	case isInteger(k):
		return "a whole number"
	}
	return "a number"
}
