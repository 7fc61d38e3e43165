package cmd

import (
	"reflect"
	"slices"

	"onering/internal/settings"
	"onering/reward"
	"onering/train/rl"
)

// A section is one table of a run file.
type section struct {
	name   string
	header string // where it is not the name in brackets
	fields []settings.Field
}

// sectionsOf lists the sections of c in the order of its declaration. The settings
// of a plug-in follow its name.
func sectionsOf(c *rl.Config) []section {
	v := reflect.ValueOf(c).Elem()
	var sections []section
	for i := range v.NumField() {
		s := section{name: v.Type().Field(i).Tag.Get("toml"), fields: settings.Fields(v.Field(i).Addr().Interface())}
		for _, p := range plugins(c) {
			if p.section == s.name {
				s.fields = append(s.fields, settings.Fields(p.chosen)...)
			}
		}
		s.fields = slices.DeleteFunc(s.fields, func(f settings.Field) bool { return f.Key == "" })
		sections = append(sections, s)
		if s.name == "reward" {
			sections = withParts(sections, c.Reward.Rule)
		}
	}
	return sections
}

// withParts appends the sections of the parts of a combined reward. Such a reward has
// no name.
func withParts(sections []section, rule reward.Reward) []section {
	several, ok := rule.(*reward.Combined)
	if !ok {
		return sections
	}
	all := &sections[len(sections)-1]
	all.fields = slices.DeleteFunc(all.fields, func(f settings.Field) bool { return f.Key == "name" })
	for i := range several.Parts {
		p := &several.Parts[i]
		sections = append(sections, section{
			name: usePath + "." + p.As, header: "[[" + usePath + "]]",
			fields: slices.Concat(settings.Fields(p), settings.Fields(p.Reward)),
		})
	}
	return sections
}

// sectionNames lists the sections that a run file may have.
func sectionNames() []string {
	var names []string
	for _, s := range sectionsOf(new(rl.Config)) {
		names = append(names, s.name)
	}
	return names
}

// sectionOf finds the section that has a key.
func sectionOf(key string) (string, bool) {
	c := rl.Default()
	for _, s := range sectionsOf(&c) {
		for _, f := range s.fields {
			if f.Key == key {
				return s.name, true
			}
		}
	}
	return "", false
}

// keysOf lists the keys of fields.
func keysOf(fields []settings.Field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.Key
	}
	return keys
}
