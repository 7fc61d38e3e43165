package settings

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// A kind is a kind of plug-in; sections choose one by name.
type kind struct {
	names   func() []string
	find    func(name string) (any, error)
	newList func() any                     // an empty list of plug-ins; nil if a section chooses only one
	newPart func(name string) (any, error) // an element of the list, with its defaults
}

var kinds = map[string]*kind{}

// Register makes a kind of plug-in known; call it from init. A section with a field that
// has the tag choose:"KIND" has the key "name" and, as further keys, the settings of the
// plug-in of that name, which are its fields. find makes a plug-in with its defaults.
func Register[T any](name string, names func() []string, find func(name string) (T, error)) {
	kinds[name] = &kind{names: names, find: func(name string) (any, error) { return find(name) }}
}

// Listed says in words which plug-ins of a registered kind there are; of many, what lists them.
func Listed(kind string) string {
	names := Names(kind)
	if len(names) > 20 {
		return "onering " + kind + "s lists them"
	}
	return "there are " + strings.Join(names, ", ")
}

// Names lists the plug-ins of a registered kind.
func Names(kind string) []string { return kinds[kind].names() }

// RegisterList lets sections choose several plug-ins of a registered kind in place of one: a list of tables under the
// key "use", each with a name, a label under the key "as", and settings. In --set and in errors the section of an
// element is named like reward.use.LABEL. list makes the plug-in that combines several; its field with the tag
// list:"use" receives what part makes of each name.
func RegisterList[T any](name string, list func() any, part func(name string) (T, error)) {
	kinds[name].newList, kinds[name].newPart = list, func(name string) (any, error) { return part(name) }
}

// A plug is the field of a section that holds its plug-in.
type plug struct {
	*kind
	what        string        // the name of the kind
	name, value reflect.Value // the section's field "name", "" for several plug-ins, and the one that holds the plug-in
}

// plugOf returns the plug of a section, or nil.
func plugOf(section any) (p *plug) {
	if field, tag := tagged(reflect.ValueOf(section).Elem(), "choose"); tag != "" {
		p = &plug{kinds[tag], tag, valueOf(section, "name"), field}
	}
	return p
}

// tagged finds the field of a struct, or of one that it embeds, with a tag of this value.
func tagged(v reflect.Value, tag string) (field reflect.Value, value string) {
	for i := 0; i < v.NumField() && value == ""; i++ {
		f := v.Type().Field(i)
		field, value = v.Field(i), f.Tag.Get(tag)
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			field, value = tagged(field, tag)
		}
	}
	return field, value
}

// valueOf returns the value of the setting with a key in a struct that has that key.
func valueOf(pointer any, key string) reflect.Value {
	fields := ownFields(pointer)
	return fields[slices.Index(keysOf(fields), key)].Value
}

// chosen names the plug-in that the section has, for messages.
func (p *plug) chosen() string { return cmp.Or(p.name.String(), "several "+p.what+"s") }

// install puts the plug-in of a name, with its defaults, into the section.
func (p *plug) install(name string) error {
	plugin, err := p.find(name)
	if err != nil {
		return p.unknown(name, err)
	}
	p.name.SetString(name)
	p.value.Set(reflect.ValueOf(plugin))
	return nil
}

// unknown returns an error if there is no plug-in of a name, or err if there are two.
func (p *plug) unknown(name string, err error) error {
	if slices.Contains(p.names(), name) {
		return err
	}
	return fmt.Errorf("unknown %s %q%s (%s)", p.what, name, DidYouMean(name, p.names()), Listed(p.what))
}

// parts returns the list of several plug-ins; its Kind is Invalid if the section has a single one.
func (p *plug) parts() (list reflect.Value) {
	if v := reflect.Indirect(p.value.Elem()); v.Kind() == reflect.Struct {
		if field, tag := tagged(v, "list"); tag != "" {
			list = field
		}
	}
	return list
}

// Choose sets the plug-in of a section to the named one, with its default settings.
func Choose(config any, section, name string) error {
	for _, s := range Sections(config) {
		if s.Name == section {
			return plugOf(s.Pointer).install(name)
		}
	}
	return fmt.Errorf("unknown section [%s]", section)
}

// A Section is one table of a run file.
type Section struct {
	Name    string
	Pointer any // pointer to the section's struct
	Fields  []Field
	list    string // the name of the list that has this table, such as "reward.use"
	needs   string // the tag of the section's field
}

// Sections lists the sections of a configuration: the fields of the struct that config points to, in the order of
// declaration and named by their toml tags; one that is a nil pointer is not there. Each of several plug-ins has a
// section too, behind that of the list, such as reward.use.LABEL.
func Sections(config any) (sections []Section) {
	v := reflect.ValueOf(config).Elem()
	for i := range v.NumField() {
		field, tag := v.Field(i), v.Type().Field(i).Tag
		if field.Kind() != reflect.Pointer {
			field = field.Addr()
		} else if field.IsNil() {
			continue
		}
		s := Section{Name: tag.Get("toml"), Pointer: field.Interface(), needs: tag.Get("needs")}
		var parts reflect.Value
		if p := plugOf(s.Pointer); p != nil {
			parts = p.parts() // valid if the section has a list of plug-ins
		}
		// A list of plug-ins has no name of its own.
		s.Fields = slices.DeleteFunc(Fields(s.Pointer), func(f Field) bool { return f.Key == "" || f.Key == "name" && parts.IsValid() })
		sections = append(sections, s)
		for i := 0; parts.IsValid() && i < parts.Len(); i++ {
			part := parts.Index(i).Addr().Interface()
			name := s.Name + partOf + valueOf(part, "as").String()
			sections = append(sections, Section{Name: name, Pointer: part, Fields: Fields(part), list: s.Name + "." + listKey})
		}
	}
	return sections
}

// listKey is the key of a section for several plug-ins, and partOf stands in the names of their sections: reward.use.LABEL.
const listKey, partOf = "use", ".use."

// namesOf lists the names of sections, without those that belong to one of several plug-ins.
func namesOf(sections []Section) (names []string) {
	for _, s := range sections {
		if s.list == "" {
			names = append(names, s.Name)
		}
	}
	return names
}

// keysOf lists the keys of settings.
func keysOf(fields []Field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.Key
	}
	return keys
}

// Write writes a configuration as a run file in which every key is stated. It loads to the same configuration.
func Write(w io.Writer, config any) error {
	for i, s := range Sections(config) {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := s.Write(w); err != nil {
			return err
		}
	}
	return nil
}

// Write writes the section without keys that have no value (nil pointers and lists).
func (s Section) Write(w io.Writer) error {
	header := "[" + s.Name + "]"
	if s.list != "" {
		header = "[[" + s.list + "]]"
	}
	_, err := fmt.Fprintln(w, header)
	for _, f := range s.Fields {
		if k := f.Value.Kind(); (k == reflect.Pointer || k == reflect.Slice) && f.Value.IsNil() {
			continue
		}
		line, failed := f.TOML()
		if failed != nil {
			return fmt.Errorf("write %s.%s: %w", s.Name, f.Key, failed)
		}
		_, failed = io.WriteString(w, line)
		err = cmp.Or(err, failed)
	}
	return err
}

// TOML returns the line that states the setting in a run file.
func (f Field) TOML() (string, error) {
	var b bytes.Buffer
	err := toml.NewEncoder(&b).Encode(map[string]any{f.Key: f.Value.Interface()})
	return b.String(), err
}
