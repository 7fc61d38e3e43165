package grammar

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
)

// A Writing is how a model writes arguments where they are not a JSON object.
type Writing struct {
	Before  func(name string) string // what stands before a value
	Behind  string
	Between string // what stands between two arguments
	Raw     bool   // texts stand as they are, up to Behind; other values are JSON
}

// Arguments is the form of a function's arguments that a schema of an object describes, as w writes them; exact and
// left are those of Schema.
func Arguments(text []byte, exact bool, w Writing) (f Form, left []string, err error) {
	r := newReader(text, exact)
	s, err := r.mergedKeywords(text, "#")
	var properties []property
	if err == nil {
		properties, err = r.properties(s, "#", func(name string, text []byte, at string) (Form, error) {
			v, err := r.argument(text, at, w)
			return Join(Text(w.Before(name)), v), err
		})
	}
	between := Text(w.Between)
	return punctuation{empty, between, empty, empty}.members(properties), slices.Sorted(maps.Keys(r.unheld)), err
}

// argument is the form of a value by its schema, and what stands behind it. In a Raw writing a value that may be a text
// is any text up to Behind, unless the schema lists its texts: other keywords about it are left to the model.
func (r *reader) argument(text []byte, at string, w Writing) (Form, error) {
	behind := Text(w.Behind)
	f, err := r.form(text, at)
	var s schema
	if err == nil && w.Raw {
		s, err = r.mergedKeywords(text, at)
	}
	var listed []string
	var kind string
	_ = json.Unmarshal(s["type"], &kind)
	switch {
	case err != nil || !w.Raw || kind != "" && kind != "string": // without a type (""), or with several, it may be a text
		return Join(f, behind), err
	case json.Unmarshal(s["enum"], &listed) == nil:
		return forms(listed, OneOf, func(text string) (Form, error) { return Join(literal(text), behind), nil })
	}
	for _, name := range strings.Fields("pattern format minLength maxLength") {
		if s[name] != nil {
			err = errors.Join(err, r.leaveToModel(name, at))
		}
	}
	return Until(w.Behind), err
}
