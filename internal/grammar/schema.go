package grammar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"onering/internal/ordered"
	"onering/internal/strict"
)

// Keywords of JSON Schema by what is done about them.
var (
	heldKeywords = strings.Fields("type enum const anyOf oneOf allOf $ref nullable properties required additionalProperties items " +
		"minItems maxItems pattern format minLength maxLength minimum maximum exclusiveMinimum exclusiveMaximum")
	annotations = strings.Fields("$schema $id id $anchor $comment $defs definitions title description default examples example " +
		"deprecated readOnly writeOnly discriminator xml externalDocs contentEncoding contentMediaType contentSchema")
)

// Schema is the form of JSON that a schema describes: an object has the properties that the
// schema names, in its order, and others only if it names none. A keyword that cannot be held
// is an error if exact is set. Otherwise it is left to the model, and left has it.
func Schema(text []byte, exact bool) (f Form, left []string, err error) {
	r := newReader(text, exact)
	f, err = r.form(text, "#")
	return f, slices.Sorted(maps.Keys(r.unheld)), err
}

// A reader reads a schema. In its methods at is the place of a part of the schema, for errors.
type reader struct {
	root   []byte
	exact  bool
	refs   map[string]Form // by pointer; nil while the schema there is being read
	unheld map[string]bool // keywords that are left to the model
	depth  int             // of the schema that is read
}

func newReader(text []byte, exact bool) *reader {
	return &reader{root: text, exact: exact, refs: map[string]Form{}, unheld: map[string]bool{}}
}

// leaveToModel notes that a keyword is left to the model. With exact that is an error.
func (r *reader) leaveToModel(name, at string) error {
	r.unheld[name] = true
	if r.exact {
		return fmt.Errorf(`%s: %s cannot be held here: leave it out, or ask without "strict": true, and it is left to the model`, at, name)
	}
	return nil
}

// A schema is an object of keywords.
type schema map[string]json.RawMessage

// get reads the value of a keyword, if there is one.
func (s schema) get(name, at string, into any) error {
	if s[name] == nil {
		return nil
	}
	if err := strict.JSON(s[name], into); err != nil {
		return fmt.Errorf("%s/%s: %w", at, name, err)
	}
	return nil
}

// form is the form of a schema, text; at is its place, for errors. A schema that is only a reference to another may be a
// part of that one, so it becomes a rule. In any other, the keywords of the schemas that it refers to are merged with its own.
func (r *reader) form(text []byte, at string) (Form, error) {
	switch string(bytes.TrimSpace(text)) {
	case "true", "{}":
		return value, nil
	case "false":
		return nil, fmt.Errorf("%s: false allows no value", at)
	}
	if r.depth++; r.depth > 4*maxDepth {
		return nil, fmt.Errorf("schemas nest deeper than %d", 4*maxDepth)
	}
	defer func() { r.depth-- }()
	s, err := r.ownKeywords(text, at)
	if err != nil {
		return nil, err
	}
	if pointer, only := s.reference(); only {
		return r.refer(pointer, at)
	}
	if s, err = r.mergedKeywords(text, at); err != nil {
		return nil, err
	}
	f, err := r.ofKeywords(s, at)
	if string(s["nullable"]) == "true" { // of OpenAPI
		f = OneOf(f, null)
	}
	return f, err
}

// ownKeywords reads a schema's keywords, without those that it refers to.
func (r *reader) ownKeywords(text []byte, at string) (s schema, err error) {
	if err := strict.JSON(text, &s); err != nil || s == nil {
		return nil, fmt.Errorf("%s: a schema must be an object of keywords, true or false", at)
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		is := slices.Contains(heldKeywords, name) || slices.Contains(annotations, name) || strings.HasPrefix(name, "x-") || string(s[name]) == "null"
		if !is {
			err = errors.Join(err, r.leaveToModel(name, at))
		}
	}
	return s, err
}

// reference returns the pointer of a schema that says nothing else, perhaps in allOf.
func (s schema) reference() (pointer string, only bool) {
	s = maps.Clone(s)
	maps.DeleteFunc(s, func(name string, _ json.RawMessage) bool { return slices.Contains(annotations, name) })
	var all []schema
	if json.Unmarshal(s["allOf"], &all) == nil && len(s) == 1 && len(all) == 1 {
		return all[0].reference()
	}
	return pointer, len(s) == 1 && json.Unmarshal(s["$ref"], &pointer) == nil
}

// refer is the form of the schema at a pointer: a rule that the automaton has once, and that may be a part of itself.
func (r *reader) refer(pointer, at string) (Form, error) {
	if _, known := r.refs[pointer]; !known {
		target, err := r.resolve(pointer, at)
		if err != nil {
			return nil, err
		}
		r.refs[pointer] = nil // known from here on, so that reading a schema that refers to itself ends
		if r.refs[pointer], err = r.form(target, pointer); err != nil {
			return nil, err
		}
	}
	type key struct { // names the rule
		*reader
		pointer string
	}
	// The form is looked up when the automaton is built, and by then it is there.
	return rule(key{r, pointer}, func(b *builder, next int) int { return r.refs[pointer](b, next) }), nil
}

// resolve finds the schema at a pointer.
func (r *reader) resolve(pointer, at string) (text json.RawMessage, err error) {
	text = r.root
	path, is := strings.CutPrefix(pointer, "#")
	for _, name := range strings.Split(path, "/")[1:] {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		var object map[string]json.RawMessage
		_ = json.Unmarshal(text, &object)
		text, is = object[name], is && object[name] != nil
	}
	if !is {
		return nil, fmt.Errorf(`%s/$ref: there is nothing at %q: a reference is the path of a schema in the same text, such as "#/$defs/Name"`, at, pointer)
	}
	return text, nil
}

// mergedKeywords reads the keywords of a schema and adds those of the schemas that its $ref and allOf name, until neither is
// left. Where two of them state one keyword differently, the first counts and the other is left to the model.
func (r *reader) mergedKeywords(text []byte, at string) (schema, error) {
	s, err := r.ownKeywords(text, at)
	for depth := 0; err == nil && (s["$ref"] != nil || s["allOf"] != nil); depth++ {
		var pointer string
		var parts []json.RawMessage
		err = errors.Join(s.get("$ref", at, &pointer), s.get("allOf", at, &parts))
		delete(s, "$ref")
		delete(s, "allOf")
		if pointer != "" && err == nil {
			var target json.RawMessage
			target, err = r.resolve(pointer, at)
			parts = append(parts, target)
		}
		for _, part := range parts {
			var more schema
			if err == nil {
				more, err = r.ownKeywords(part, at)
			}
			for _, name := range slices.Sorted(maps.Keys(more)) {
				v := more[name]
				if s[name] == nil {
					s[name] = v
				} else if !bytes.Equal(s[name], v) && !slices.Contains(annotations, name) {
					err = errors.Join(err, r.leaveToModel(name+", which allOf or $ref states, too,", at))
				}
			}
		}
		if depth > maxDepth {
			err = fmt.Errorf("%s: allOf and $ref lead back to themselves", at)
		}
	}
	return s, err
}

// ofKeywords is the form of the keywords that mergedKeywords has read: of its values (const, enum), of its alternatives
// (anyOf, oneOf) or of its types.
func (r *reader) ofKeywords(s schema, at string) (Form, error) {
	var ways, values []json.RawMessage
	keyword := "anyOf"
	if s["oneOf"] != nil {
		keyword = "oneOf" // an anyOf beside it holds for each of its ways
	}
	if err := errors.Join(s.get(keyword, at, &ways), s.get("enum", at, &values)); err != nil {
		return nil, err
	}
	if s["const"] != nil {
		values = []json.RawMessage{s["const"]}
	}
	switch {
	case values != nil:
		return forms(values, OneOf, func(v json.RawMessage) (Form, error) { return literal(compact(v)), nil })
	case ways == nil:
		return r.typed(s, at)
	}
	return forms(ways, OneOf, func(way json.RawMessage) (Form, error) {
		beside := maps.Clone(s) // what stands beside the ways holds for each
		maps.DeleteFunc(beside, func(name string, _ json.RawMessage) bool {
			return slices.Contains(annotations, name) || slices.Contains([]string{keyword, "nullable"}, name)
		})
		if len(beside) == 0 {
			return r.form(way, at+"/"+keyword)
		}
		beside["allOf"] = slices.Concat([]byte("["), way, []byte("]")) // the way and what stands beside, to be merged
		text, err := json.Marshal(beside)
		if err != nil {
			return nil, err
		}
		return r.form(text, at+"/"+keyword)
	})
}

// compact is a JSON value without blanks, and a text as quoted writes it.
func compact(v json.RawMessage) string {
	var text string
	if v[0] == '"' && json.Unmarshal(v, &text) == nil {
		return quoted(text)
	}
	var b bytes.Buffer
	_ = json.Compact(&b, v) // it was read as JSON
	return b.String()
}

// typeKeywords has the types, each with the keywords that belong to it alone.
var typeKeywords = []struct{ kind, keywords string }{
	{"object", "properties required additionalProperties"}, {"array", "items minItems maxItems"},
	{"string", "pattern format minLength maxLength"}, {"number", "minimum maximum exclusiveMinimum exclusiveMaximum"},
}

// typed is the form of the types of a schema. If type is missing, the first other keyword that belongs to one type says
// it; without any, a value is of any type.
func (r *reader) typed(s schema, at string) (Form, error) {
	var kinds []string
	if json.Unmarshal(s["type"], &kinds) != nil || len(kinds) == 0 {
		kinds = []string{""}
		if err := s.get("type", at, &kinds[0]); err != nil {
			return nil, err
		}
	}
	for _, x := range typeKeywords {
		if kinds[0] == "" && slices.ContainsFunc(strings.Fields(x.keywords), func(name string) bool { return s[name] != nil }) {
			kinds[0] = x.kind
		}
	}
	return forms(kinds, OneOf, func(kind string) (Form, error) {
		switch kind {
		case "object":
			return r.object(s, at)
		case "array":
			return r.array(s, at)
		case "string":
			return r.text(s, at)
		case "integer", "number":
			return r.number(s, at, kind == "integer")
		case "boolean":
			return boolean, nil
		case "null":
			return null, nil
		case "":
			return value, nil
		}
		return nil, fmt.Errorf("%s/type: %q is not a type: there are object, array, string, number, integer, boolean and null", at, kind)
	})
}

// object is the form of objects: with the properties that the schema describes, in its order; or, if it describes none,
// with any names and values of additionalProperties.
func (r *reader) object(s schema, at string) (Form, error) {
	properties, err := r.properties(s, at, func(name string, text []byte, at string) (Form, error) {
		v, err := r.form(text, at)
		return pair(literal(quoted(name)), v), err
	})
	rest, v := s["additionalProperties"], Form(value)
	none := string(rest) == "false" || rest == nil && s["properties"] != nil
	if err == nil && !none && rest != nil {
		v, err = r.form(rest, at+"/additionalProperties")
	}
	if len(properties) == 0 && !none {
		return list("{", "}", pair(text, rule(&v, v)), 0, -1), err // -1: any number; &v is a name that no other rule has
	}
	return braces.members(properties), err
}

// properties returns the properties of an object; pair makes the form of one with its name. Those that are required and
// not described, of any value, stand behind the others.
func (r *reader) properties(s schema, at string, pair func(name string, text []byte, at string) (Form, error)) (all []property, err error) {
	var required []string
	err = s.get("required", at, &required)
	known := map[string]bool{}
	add := func(name string, text []byte, _ int) error { // EachMember gives the offset, too
		known[name] = true
		f, err := pair(name, text, at+"/properties/"+name)
		all = append(all, property{name, slices.Contains(required, name), f})
		return err
	}
	if err == nil && s["properties"] != nil {
		err = ordered.EachMember(s["properties"], add)
	}
	for _, name := range required {
		if err == nil && !known[name] {
			err = add(name, []byte("true"), 0)
		}
	}
	return all, err
}

// counts reads a pair of bounds such as minItems and maxItems; most is -1 for none.
func (s schema) counts(of, at string) (least, most int, err error) {
	most = -1
	err = errors.Join(s.get("min"+of, at, &least), s.get("max"+of, at, &most))
	if err == nil && (least < 0 || most >= 0 && most < least) {
		err = fmt.Errorf("%s: min%s %d and max%s %d allow no value", at, of, least, of, most)
	}
	return min(least, maxNodes), min(most, maxNodes), err
}

// array is the form of arrays.
func (r *reader) array(s schema, at string) (Form, error) {
	least, most, err := s.counts("Items", at)
	item := Form(value)
	if err == nil && s["items"] != nil {
		item, err = r.form(s["items"], at+"/items")
	}
	return list("[", "]", rule(&item, item), least, most), err // &item is a name that no other rule has
}

// text is the form of strings: of a pattern or, without one, a known format; else of a number of characters. What it does
// not hold is left to the model (leaveToModel), which is an error for a reader that is exact.
func (r *reader) text(s schema, at string) (Form, error) {
	least, most, err := s.counts("Length", at)
	var pattern, format string
	if err = errors.Join(err, s.get("pattern", at, &pattern), s.get("format", at, &format)); err != nil {
		return nil, err
	}
	f := repeat(character, least, most, empty)
	expression, is := formats[format]
	if s["pattern"] != nil {
		expression, is = pattern, true
	}
	if !is {
		return quotedForm(f), nil
	}
	special, err := expressionForm(expression, s["pattern"] == nil, inString) // a format is the whole text, a pattern may be a part
	switch {
	case err != nil:
		return quotedForm(f), r.leaveToModel(fmt.Sprintf("the pattern %q (%v)", pattern, err), at)
	case least > 0 || most >= 0:
		err = r.leaveToModel("minLength or maxLength beside pattern or format", at)
	}
	return quotedForm(special), err
}

// formats are the formats of strings that are held; others are annotations.
var formats = func() map[string]string {
	const (
		date = `[12]\d{3}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))`
		hour = `([01]\d|2[0-3]):[0-5]\d`
		time = hour + `:[0-5]\d(\.\d{1,6})?(Z|[+-]` + hour + `)`
		part = `(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
		name = `[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?`
		hex  = `[0-9a-f]`
		uuid = hex + `{8}-` + hex + `{4}-4` + hex + `{3}-[89ab]` + hex + `{3}-` + hex + `{12}`
	)
	return map[string]string{
		"date": date, "time": time, "date-time": date + "T" + time, "uuid": uuid, "uuid4": uuid,
		"duration": `P(\d{1,4}D(T\d{1,2}H(\d{1,2}M)?)?|T(\d{1,2}H(\d{1,2}M(\d{1,2}S)?)?|\d{1,2}M(\d{1,2}S)?|\d{1,2}S))`,
		"email":    `[A-Za-z0-9_+-]{1,20}(\.[A-Za-z0-9_+-]{1,20}){0,2}@(` + name + `\.)+[A-Za-z]{2,10}`,
		"hostname": name + `(\.` + name + `){0,5}`, "ipv4": `(` + part + `\.){3}` + part, "ipv6": `(` + hex + `{1,4}:){7}` + hex + `{1,4}`,
		"uri": `[a-z][a-z0-9+.-]{1,15}://[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*(:\d{1,4})?([/?#][A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?`,
	}
}()

// number is the form of numbers.
func (r *reader) number(s schema, at string, whole bool) (Form, error) {
	x := bounds{least: math.Inf(-1), most: math.Inf(1), integer: whole}
	above, below := x.least, x.most
	err := errors.Join(s.get("minimum", at, &x.least), s.get("maximum", at, &x.most), s.get("exclusiveMinimum", at, &above), s.get("exclusiveMaximum", at, &below))
	if s["exclusiveMinimum"] != nil && above >= x.least {
		x.least, x.leastExcluded = above, true
	}
	if s["exclusiveMaximum"] != nil && below <= x.most {
		x.most, x.mostExcluded = below, true
	}
	return x.form(), err
}
