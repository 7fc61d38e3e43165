package settings

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Tables reads and writes a setting whose value is a list of texts and tables, such as data.train. A table has the
// settings of a T, and a text is a table with the key "path" alone.
type Tables[T any] struct {
	Key  string // the key of the setting, such as "data.train"
	Kind string // the kind of an element in words, such as "a file"
}

// Read takes a text, a table, or a list of both, and returns an element for each, with the keys that it states.
// wanted says in messages which values are possible.
func (t Tables[T]) Read(value any, wanted string) (list []T, stated [][]string, err error) {
	elements := []any{value}
	switch v := value.(type) {
	case []any:
		elements = v
	case []map[string]any:
		elements = nil
		for _, table := range v {
			elements = append(elements, table)
		}
	case string: // with brackets: one whose quotes the shell has removed
		if strings.HasPrefix(v, "[") && strings.HasSuffix(v, "]") || strings.HasPrefix(v, "{") {
			return nil, nil, fmt.Errorf(`%s is not TOML: must be %s; a shell keeps the quotes inside single quotes: --set '%s=["a.jsonl", "b.jsonl"]'`, v, wanted, t.Key)
		}
	}
	list, stated = make([]T, len(elements)), make([][]string, len(elements))
	for i, element := range elements {
		place := ""
		if len(elements) > 1 {
			place = fmt.Sprintf("element %d: ", i+1)
		}
		table, ok := element.(map[string]any)
		if text, isText := element.(string); isText {
			table, ok = map[string]any{"path": text}, true
		}
		if !ok {
			return nil, nil, fmt.Errorf("%s%v: must be %s", place, element, wanted)
		}
		if err := t.read(&list[i], table); err != nil {
			return nil, nil, fmt.Errorf("%s%w", place, err)
		}
		stated[i] = slices.Sorted(maps.Keys(table))
	}
	return list, stated, nil
}

// read reads the keys of a table.
func (t Tables[T]) read(into *T, table map[string]any) error {
	fields := Fields(into)
	for _, key := range slices.Sorted(maps.Keys(table)) {
		at := slices.IndexFunc(fields, func(f Field) bool { return f.Key == key && key != "" })
		if at < 0 {
			keys := slices.DeleteFunc(keysOf(fields), func(key string) bool { return key == "" })
			return fmt.Errorf("unknown key %q%s; %s has %s", key, DidYouMean(key, keys), t.Kind, strings.Join(keys, ", "))
		}
		if value := fields[at].Value; !Decode(table[key], value) {
			return fmt.Errorf("%s = %s: must be %s", key, shown(table[key]), typeName(value.Type()))
		}
	}
	return nil
}

// Write returns the elements as Read reads them: a text in quotes for each that has no key but "path", else a table.
// has says which further keys the i-th element states.
func (t Tables[T]) Write(list []T, has func(i int, f Field) bool) ([]string, error) {
	var texts []string
	for i := range list {
		var keys []string
		for _, field := range Fields(&list[i]) {
			if field.Key != "path" && !has(i, field) {
				continue
			}
			line, err := field.TOML()
			if err != nil {
				return nil, err
			}
			keys = append(keys, strings.TrimSpace(line))
		}
		text := "{" + strings.Join(keys, ", ") + "}"
		if len(keys) == 1 {
			text = strings.TrimPrefix(keys[0], "path = ")
		}
		texts = append(texts, text)
	}
	return texts, nil
}
