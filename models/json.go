package models

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// EachMember calls f for every member of the JSON object that data holds, in
// the order of the text: key, the value's text, and the offset of that text in
// data. Unlike json.Unmarshal it keeps the order and refuses what other readers may
// read differently: a repeated key, text that is not UTF-8, anything after the
// object. It stops at f's first error.
func EachMember(data []byte, f func(key string, value []byte, at int) error) error {
	if !utf8.Valid(data) {
		return errors.New("not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil {
		return syntax(err)
	} else if t != json.Delim('{') {
		return fmt.Errorf("want a JSON object, found %.20q", fmt.Sprint(t))
	}
	seen := make(map[string]bool)
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return syntax(err)
		}
		key := t.(string) // the decoder accepts only a string here
		if seen[key] {
			return fmt.Errorf("key %q is stated twice", key)
		}
		seen[key] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return syntax(err)
		}
		if err := f(key, value, int(dec.InputOffset())-len(value)); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil { // the closing brace
		return syntax(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("more text after the JSON object")
	}
	return nil
}

// syntax returns an error that names the place where the text stops being JSON.
func syntax(err error) error {
	var s *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("not JSON: it ends too early")
	case errors.As(err, &s):
		return fmt.Errorf("not JSON: %w at byte %d", err, s.Offset)
	}
	return fmt.Errorf("not JSON: %w", err)
}
