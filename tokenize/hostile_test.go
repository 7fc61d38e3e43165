package tokenize

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// goText are words of Go's own packages, which say nothing to a user.
var goText = regexp.MustCompile(`unmarshal|Go (value|struct)|looking for beginning|\bEOF\b|strconv|reflect|jsontext|runtime error`)

// TestHostileValues puts values of other kinds, nulls, repeated keys and cuts into every
// place of the files of a tokenizer: no message has Go's own words.
func TestHostileValues(t *testing.T) {
	config := `{"bos_token": "a", "eos_token": {"content": "b"}, "add_bos_token": true, "chat_template": [{"name": "default", "template": "x"}]}`
	small := edited(t, func(top map[string]any) {
		top["model"].(map[string]any)["vocab"] = map[string]any{"a": 0, "b": 1}
		top["model"].(map[string]any)["merges"] = []any{}
		top["added_tokens"] = top["added_tokens"].([]any)[:1]
	})
	values := regexp.MustCompile(`"(\\.|[^"\\])*"|\btrue\b|\bfalse\b|\bnull\b|-?\b\d+\b|[\[{]`)
	count := 0
	for _, file := range []struct{ name, text string }{{"tokenizer.json", small}, {"tokenizer_config.json", config}} {
		for _, at := range values.FindAllStringIndex(file.text, -1) {
			for _, value := range []string{`null`, `5`, `-2.5`, `"x"`, `true`, `{}`, `[null]`, `[{"a":1,"a":1}]`, `nan`, ``} {
				text := file.text[:at[0]] + value
				if value != "" { // or else the file is cut here
					text += file.text[at[1]:]
				}
				all := map[string]string{"tokenizer.json": small, "tokenizer_config.json": config}
				all[file.name] = text
				_, err := LoadFS(files("tokenizer.json", all["tokenizer.json"], "tokenizer_config.json", all["tokenizer_config.json"]))
				if count++; err != nil && goText.MatchString(err.Error()) {
					t.Errorf("%s with %s: %v", file.name, value, fmt.Sprintf("%.200s", strings.ReplaceAll(err.Error(), "\n", " ")))
				}
			}
		}
	}
	if count < 500 || !json.Valid([]byte(small)) {
		t.Errorf("%d files were tried", count)
	}
}
