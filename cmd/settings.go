package cmd

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// A setting is one key and its value as a source states it. A run file states
// typed values. The command line and the environment state text, which is read as
// TOML if it is valid TOML, else as a string.
type setting struct {
	section, key string
	place        string // what messages begin with, such as "runs/pmpo.toml:12"
	order        int    // the line, where there is one
	value        any    // as TOML has it
	text         *string
	meta         *toml.MetaData
	primitive    toml.Primitive
	entries      []entry // of reward.use, nil if the value is no list of tables
}

// path is the setting's name in --set.
func (s setting) path() string { return s.section + "." + s.key }

// parseFile reads a run file and returns its keys in the order of the file. It does
// not check whether keys exist: that happens when they are applied.
func parseFile(name string, data []byte) ([]setting, error) {
	var top map[string]toml.Primitive
	meta, err := toml.Decode(string(data), &top)
	if err != nil {
		return nil, syntaxError(name, err)
	}
	var settings []setting
	var errs []error
	for section, primitive := range top {
		value, line := locate(&meta, primitive)
		if _, ok := value.(map[string]any); !ok {
			errs = append(errs, fmt.Errorf("%s: %s", place(name, line), strayKey(section)))
			continue
		}
		var keys map[string]toml.Primitive
		if err := meta.PrimitiveDecode(primitive, &keys); err != nil {
			errs = append(errs, syntaxError(name, err))
			continue
		}
		if !slices.Contains(sectionNames(), section) {
			errs = append(errs, fmt.Errorf("%s: unknown section [%s]%s", place(name, line), section, didYouMean(section, sectionNames())))
			continue
		}
		for key, primitive := range keys {
			s := setting{section: section, key: key, meta: &meta, primitive: primitive}
			s.value, s.order = locate(&meta, primitive)
			s.place = place(name, s.order)
			if s.path() == usePath {
				s.entries = fileEntries(name, data, s)
			}
			settings = append(settings, s)
		}
	}
	slices.SortFunc(settings, func(a, b setting) int { return a.order - b.order })
	return settings, joinSorted(errs)
}

// strayKey explains a key that stands outside the sections.
func strayKey(key string) string {
	if slices.Contains(sectionNames(), key) {
		return fmt.Sprintf("%q must be a section: write [%s] on a line of its own", key, key)
	}
	return fmt.Sprintf("key %q stands outside the sections%s", key, elsewhere("", key))
}

// elsewhere names another section that has the key, as the end of a message.
func elsewhere(here, key string) string {
	if section, ok := sectionOf(key); ok && section != here {
		return fmt.Sprintf("; it belongs in [%s]", section)
	}
	return ""
}

// parseText makes a setting of text from the command line or the environment.
func parseText(section, key, place, text string) setting {
	s := setting{section: section, key: key, place: place, text: &text, value: text}
	var one map[string]toml.Primitive
	meta, err := toml.Decode("value = "+text, &one)
	// Text with a line break may hold further keys; then it counts as a string.
	if primitive, ok := one["value"]; err == nil && ok && len(one) == 1 {
		s.value, _ = locate(&meta, primitive)
		s.meta, s.primitive = &meta, primitive
		if s.path() == usePath {
			s.entries = entriesOf(s, place)
		}
	}
	return s
}

// A locator learns the value and the line of a primitive by failing to decode it:
// the TOML library reports positions only in errors.
type locator struct{ value any }

var errLocated = errors.New("located")

func (l *locator) UnmarshalTOML(value any) error {
	l.value = value
	return errLocated
}

// locate returns the value of a primitive and its line, 0 if unknown.
func locate(meta *toml.MetaData, primitive toml.Primitive) (value any, line int) {
	var l locator
	var parse toml.ParseError
	if errors.As(meta.PrimitiveDecode(primitive, &l), &parse) {
		line = parse.Position.Line
	}
	return l.value, line
}

func place(name string, line int) string {
	if line <= 0 {
		return name
	}
	return fmt.Sprintf("%s:%d", name, line)
}

// syntaxError puts the file and line of a TOML error in front.
func syntaxError(name string, err error) error {
	var parse toml.ParseError
	if errors.As(err, &parse) {
		return fmt.Errorf("%s: %s", place(name, parse.Position.Line), strings.TrimPrefix(parse.Message, "toml: "))
	}
	return fmt.Errorf("%s: %w", name, err)
}

// joinSorted joins errors in a fixed order; ranging over a map gives them in any.
func joinSorted(errs []error) error {
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
