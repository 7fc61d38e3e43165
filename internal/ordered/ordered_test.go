package ordered

import (
	"fmt"
	"strings"
	"testing"
)

// TestEachMember checks the order and the places of members, and refused texts.
func TestEachMember(t *testing.T) {
	for text, want := range map[string]string{
		` {"b" : 1 , "a\\n":[{"x":"]"}, 2],"c":null } `: `b="1"@8 a\n="[{\"x\":\"]\"}, 2]"@19 c="null"@38`,
		`{}`:               ``,
		`{"a":1,"a":2}`:    `key "a" is stated twice`,
		`{"a":1} {}`:       `more text follows the JSON value, at byte 8`,
		`[1]`:              `the text is a list, not an object`,
		`{"a":1`:           `it ends in the middle of the JSON text (byte 6)`,
		`{"a":1,}`:         `not JSON at byte 7, near "{\"a\":1,}"`,
		"{\"a\":\"\xff\"}": `not UTF-8`,
	} {
		var got []string
		err := EachMember([]byte(text), func(key string, value []byte, at int) error {
			if !strings.HasPrefix(text[at:], string(value)) {
				t.Errorf("%s: %s is not at %d", text, value, at)
			}
			got = append(got, fmt.Sprintf("%s=%q@%d", key, value, at))
			return nil
		})
		if err != nil {
			got = append(got, err.Error())
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s\n got %s\nwant %s", text, s, want)
		}
	}
}
