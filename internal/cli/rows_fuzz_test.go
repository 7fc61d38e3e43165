package cli

import (
	"bytes"
	"strings"
	"testing"
)

// Reading any file of JSON lines ends either with all its rows or with one error that
// names a line.
func FuzzEachRow(f *testing.F) {
	f.Add([]byte("{\"prompt\": \"a\"}\n\n{\"prompt_ids\": [1, 2], \"uniforms\": [0.5]}"))
	f.Add([]byte("\xef\xbb\xbf{\"prompt\": 1}\r\n"))
	f.Add([]byte("{\"messages\": [{\"role\": \"user\", \"content\": \"\\ud800\"}]}\n{"))
	f.Add([]byte("[]\nnull\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		type row struct {
			Prompt    *string
			PromptIDs []int32 `json:"prompt_ids"`
			Uniforms  []float64
			Messages  []struct{ Role, Content string }
		}
		last := 0
		err := EachRow(bytes.NewReader(text), "in", func(_, number int, _ row) error {
			if number <= last || number > bytes.Count(text, []byte("\n"))+1 {
				t.Fatalf("line %d after line %d", number, last)
			}
			last = number
			return nil
		})
		if err != nil && !strings.HasPrefix(err.Error(), "in:") {
			t.Fatalf("the error names no line: %v", err)
		}
	})
}
