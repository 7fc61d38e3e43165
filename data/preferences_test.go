package data

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLoadPreferences: the forms in which preferences are published are read to the same
// prompt and responses.
func TestLoadPreferences(t *testing.T) {
	user, good, bad := `{"role":"user","content":"2+2?"}`, `{"role":"assistant","content":"4"}`, `{"role":"assistant","content":"5"}`
	for _, tt := range []struct{ name, row, want string }{
		{"texts", `{"prompt":"2+2?","chosen":"4","rejected":"5"}`, "2+2?|4|5"},
		{"question", `{"question":"2+2?","chosen":"4","rejected":"5","id":7}`, "2+2?|4|5"},
		{"texts that begin alike", `{"chosen":"Human: 2+2?\n\nAssistant: 4","rejected":"Human: 2+2?\n\nAssistant: 45"}`, "Human: 2+2?\n\nAssistant: |4|45"},
		{"messages", `{"chosen":[` + user + `,` + good + `],"rejected":[` + user + `,` + bad + `]}`, "chat 1/2 1/2|4|5"},
		{"prompt of messages", `{"prompt":[` + user + `],"chosen":[` + good + `],"rejected":[` + bad + `]}`, "chat 1/2 1/2|4|5"},
		{"prompt beside whole conversations", `{"prompt":"2+2?","chosen":[` + user + `,` + good + `],"rejected":[` + user + `,` + bad + `]}`, "chat 1/2 1/2|4|5"},
		{"a longer conversation", `{"chosen":[` + user + `,` + good + `],"rejected":[` + user + `,` + good + `,` + user + `,` + bad + `]}`, "chat 1/2 1/4|4|5"},
		{"other questions", `{"chosen":[` + user + `,` + good + `],"rejected":[{"role":"user","content":"2+3?"},` + bad + `]}`, "differ in message 1, which is not a response"},
		{"equal", `{"prompt":"2+2?","chosen":"4","rejected":"4"}`, "the chosen and the rejected response are equal"},
		{"equal messages", `{"chosen":[` + user + `,` + good + `],"rejected":[` + user + `,` + good + `]}`, "the chosen and the rejected response are equal"},
		{"nothing alike", `{"chosen":"4","rejected":"5"}`, "do not begin alike"},
		{"no rejected", `{"prompt":"2+2?","chosen":"4"}`, `name it with data.chosen and data.rejected, or --chosen and --rejected`},
		{"empty", `{"prompt":"2+2?","chosen":"","rejected":"5"}`, `no response (column "chosen")`},
		{"labeled", `{"prompt":"2+2?","completion":"4","label":true}`, "2+2?|4 true"},
		{"labeled by a number", `{"question":"2+2?","response":"5","label":0}`, "2+2?|5 false"},
		{"labeled messages", `{"prompt":[` + user + `],"completion":[` + good + `],"label":true}`, "2+2?| true"},
		{"a label of another kind", `{"prompt":"2+2?","completion":"4","label":"good"}`, `the label "good" is neither true nor false (column "label")`},
		{"labeled beside a pair", `{"prompt":"2+2?","completion":"4","label":true}` + "\n" + `{"prompt":"2+2?","chosen":"4","rejected":"5"}`, "take them from two files"},
	} {
		path := filepath.Join(t.TempDir(), "pairs.jsonl")
		if err := os.WriteFile(path, []byte(tt.row+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		list, _, err := LoadPreferences(path, PreferenceColumns{Chosen: "chosen", Rejected: "rejected"}, Options{})
		if err != nil {
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
			}
			continue
		}
		if d := list[0]; d.Good != nil {
			if got := fmt.Sprint(d.Prompt, "|", d.Response, " ", *d.Good); got != tt.want || len(list) != 1 {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
			continue
		}
		c, r := list[0], list[1]
		got := c.Prompt + "|" + c.Response + "|" + r.Response
		if c.Chat != nil {
			last := func(d Demonstration) string { return d.Chat.Messages[len(d.Chat.Messages)-1].Content }
			got = fmt.Sprintf("chat %d/%d %d/%d|%s|%s", c.From, len(c.Chat.Messages), r.From, len(r.Chat.Messages), last(c), last(r))
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
