package cmd

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"reflect"

	"github.com/BurntSushi/toml"

	"onering/train/rl"
)

// encodeConfig writes c as a run file in which every key is stated; it loads
// to the same Config. Keys without a value (nil pointers and lists) are left
// out.
func encodeConfig(c rl.Config) ([]byte, error) {
	return encodeSections(sectionsOf(&c))
}

func encodeSections(sections []section) ([]byte, error) {
	var b bytes.Buffer
	for i, s := range sections {
		if i > 0 {
			b.WriteByte('\n')
		}
		if err := writeSection(&b, s); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

func writeSection(w io.Writer, s section) error {
	if _, err := fmt.Fprintln(w, cmp.Or(s.header, "["+s.name+"]")); err != nil {
		return err
	}
	for _, f := range s.fields {
		if k := f.Value.Kind(); (k == reflect.Pointer || k == reflect.Slice) && f.Value.IsNil() {
			continue
		}
		// Each pair alone: an objective may marshal as a whole to something else.
		if err := toml.NewEncoder(w).Encode(map[string]any{f.Key: f.Value.Interface()}); err != nil {
			return fmt.Errorf("write %s.%s: %w", s.name, f.Key, err)
		}
	}
	return nil
}
