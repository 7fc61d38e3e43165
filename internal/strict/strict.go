// Package strict reads JSON that others wrote and says what is wrong with it in their
// words: the key, what was found and what is wanted. encoding/json speaks of Go types,
// counts the last of two equal keys, and reads null in a list of numbers as 0.
package strict

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"onering/internal/settings"
)

// An Error says what is wrong with a value of a JSON text.
type Error struct {
	Path   string // of the value, such as "groups[0].logp[3]"; "" is the whole text
	format string // of the message, with %s for the path
	err    error  // what a reader of our own said, if it was one
}

func (e *Error) Error() string {
	if e.Path == "" {
		return fmt.Sprintf(e.format, "the text")
	}
	return fmt.Sprintf(e.format, e.Path)
}

func (e *Error) Unwrap() error { return e.err }

// JSON decodes text as encoding/json does, but for two things: a key that is stated twice is an error, and so is null
// in a list whose elements cannot be null. Null leaves any other value as it was. Keys that into lacks are ignored.
func JSON(text []byte, into any) error { return decode(text, into) }

// Known is JSON, but refuses keys that into lacks.
func Known(text []byte, into any) error { return decode(text, into, json.RejectUnknownMembers(true)) }

// decode is JSON with further options.
func decode(text []byte, into any, options ...json.Options) error {
	options = append(options, json.MatchCaseInsensitiveNames(true), jsonv1.MatchCaseSensitiveDelimiter(true),
		jsontext.AllowInvalidUTF8(true)) // half of a surrogate pair becomes U+FFFD
	if bytes.Contains(text, []byte("null")) {
		options = append(options, json.WithUnmarshalers(nulls))
	}
	err := json.Unmarshal(text, into, options...)
	if err == nil {
		return nil
	}
	var value jsontext.Value // a text that is not JSON at all is said to be none, before an error of one of its values
	return explain(text, cmp.Or(json.Unmarshal(text, &value, jsontext.AllowInvalidUTF8(true)), err))
}

// A nullError is null where a value of the type is wanted.
type nullError struct{ reflect.Type }

func (nullError) Error() string { return "null" }

// nulls refuses null in lists whose elements cannot be null, and passes over it elsewhere.
var nulls = json.UnmarshalFromFunc(func(d *jsontext.Decoder, into any) error {
	t := reflect.TypeOf(into).Elem()
	_, own := into.(interface{ UnmarshalJSON([]byte) error })
	if own || d.PeekKind() != jsontext.KindNull || slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Map}, t.Kind()) {
		return errors.ErrUnsupported
	}
	if kind, _ := d.StackIndex(d.StackDepth()); kind == jsontext.KindBeginArray {
		return nullError{t}
	}
	return d.SkipValue()
})

// explain says what is wrong in text, by an error of package json: where, what was found and what is wanted. The %s in
// the format of an Error becomes the path.
func explain(text []byte, err error) error {
	syntax, wrong := (*jsontext.SyntacticError)(nil), (*json.SemanticError)(nil)
	switch {
	case errors.As(err, &syntax):
		return explainSyntax(text, syntax)
	case !errors.As(err, &wrong):
		return err
	}
	at := path(wrong.JSONPointer)
	if own, ok := wrong.Err.(*Error); ok { // of an UnmarshalJSON that calls this package; its path begins here
		if at != "" && own.Path != "" && own.Path[0] != '[' {
			at += "."
		}
		return &Error{at + own.Path, own.format, own.err}
	}
	t := wrong.GoType
	null, isNull := errors.AsType[nullError](wrong.Err) // of a null in a list; its Type is that of the elements
	if isNull {
		t = null.Type
	}
	wants := kindWanted(t)
	switch {
	case errors.Is(wrong.Err, json.ErrUnknownName):
		name := wrong.JSONPointer.LastToken()
		return &Error{at, "unknown key \"%s\"" + asFormat(settings.DidYouMean(name, names(t))), nil}
	case errors.Is(wrong.Err, strconv.ErrRange):
		wants += fmt.Sprintf(" of %d bits", t.Bits())
	case wrong.Err != nil && !isNull && !errors.Is(wrong.Err, strconv.ErrSyntax):
		if at == "" {
			return wrong.Err
		}
		return &Error{at, "%s: " + asFormat(wrong.Err.Error()), wrong.Err}
	}
	return &Error{at, "%s is " + asFormat(describeAt(text, wrong.ByteOffset)) + ", not " + wants, nil}
}

// explainSyntax says where a text ceases to be JSON, by line if it has several, and why.
func explainSyntax(text []byte, err *jsontext.SyntacticError) error {
	place := fmt.Sprintf("byte %d", err.ByteOffset)
	if lines := bytes.Count(bytes.TrimRight(text[:err.ByteOffset], "\r\n"), []byte("\n")); lines > 0 {
		place = fmt.Sprintf("line %d, byte %d", lines+1, err.ByteOffset)
	}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return &Error{path(err.JSONPointer), "key \"%s\" is stated twice", nil} // %s becomes the path
	case len(bytes.TrimSpace(text)) == 0:
		return errors.New("it is empty")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("it ends in the middle of the JSON text (%s)", place)
	}
	if strings.Contains(err.Error(), "max depth") {
		return fmt.Errorf("it is nested too deeply, at %s", place)
	}
	if jsontext.Value(text[:err.ByteOffset]).IsValid() {
		return fmt.Errorf("more text follows the JSON value, at %s", place)
	}
	near := text[max(0, err.ByteOffset-most/2):min(int64(len(text)), err.ByteOffset+most/2)]
	return fmt.Errorf("not JSON at %s, near %q", place, strings.ToValidUTF8(string(near), ""))
}

// asFormat writes text such that a format shows it unchanged.
func asFormat(text string) string { return strings.ReplaceAll(text, "%", "%%") }

// most bounds what a message repeats of a text, in bytes.
const most = 40

// describeAt describes the value at an offset of a text: its kind, or the beginning of its text.
func describeAt(text []byte, at int64) string {
	text = text[at:]
	d := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowInvalidUTF8(true))
	switch d.PeekKind() {
	case jsontext.KindBeginObject:
		return "an object"
	case jsontext.KindBeginArray:
		return "a list"
	}
	if value, err := d.ReadValue(); err == nil {
		text = value
	}
	if len(text) > most {
		return strings.ToValidUTF8(string(text[:most]), "") + "..."
	}
	return strings.ToValidUTF8(string(text), "?")
}

// kindWanted describes the values that a type takes.
func kindWanted(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a whole number"
}

// names are the keys of an object that is read into a type.
func names(t reflect.Type) (keys []string) {
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			keys = append(keys, name)
		}
	}
	return keys
}

// path writes a JSON pointer as people do. Keys that are not words are quoted.
func path(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		_, err := strconv.ParseUint(token, 10, 32)
		word := token != "" && len(token) <= 2*most && !strings.ContainsFunc(token, func(r rune) bool {
			return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
		})
		switch {
		case err == nil:
			b.WriteString("[" + token + "]")
			continue
		case b.Len() > 0:
			b.WriteByte('.')
		}
		if !word {
			token = strconv.Quote(token[:min(len(token), 2*most)])
		}
		b.WriteString(token)
	}
	if s := b.String(); len(s) > 6*most {
		return s[:3*most] + "..." + s[len(s)-3*most:]
	}
	return b.String()
}
