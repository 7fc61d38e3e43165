package tokenize

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A turnsGolden holds the assistant's turns as transformers marks them.
type turnsGolden struct {
	Name, Template, Plain string
	Messages              []Message
	IDs                   []int32
	Mask                  []int
	Added                 []string
}

// withTemplate returns testdata/qwen with more special tokens and a chat template.
func withTemplate(t *testing.T, template string, added []string) *Tokenizer {
	t.Helper()
	config, err := json.Marshal(map[string]any{"tokenizer_class": "Qwen2Tokenizer", "bos_token": "<|begin_of_text|>", "chat_template": template})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := LoadFS(files("tokenizer_config.json", string(config), "tokenizer.json", edited(t, func(top map[string]any) {
		list := top["added_tokens"].([]any)
		next := list[len(list)-1].(map[string]any)["id"].(float64) + 1
		for i, content := range added {
			list = append(list, map[string]any{"id": next + float64(i), "content": content, "special": true})
		}
		top["added_tokens"] = list
	})))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// The tokens of a conversation and those of its assistant equal transformers', both with
// a template that marks the assistant's tokens and with one that does not.
func TestDialogueGolden(t *testing.T) {
	for n, g := range records[turnsGolden](t, filepath.Join("testdata", "turns.jsonl")) {
		for _, template := range []string{g.Template, g.Plain} {
			if template == "" {
				continue
			}
			tok := withTemplate(t, template, g.Added)
			d, err := tok.Dialogue(Conversation{Messages: g.Messages}, 0)
			if err != nil {
				t.Errorf("%d %s: %v", n, g.Name, err)
				continue
			}
			ids, inside := tok.EncodeSpans(d.Text, d.Turns)
			if !slices.Equal(ids, g.IDs) {
				t.Errorf("%d %s: ids of %q, want %q", n, g.Name, tok.Decode(ids, false), tok.Decode(g.IDs, false))
				continue
			}
			for i, in := range inside {
				if in != (g.Mask[i] == 1) {
					t.Errorf("%d %s marked %v: token %d %q of %q is inside: %v", n, g.Name, template == g.Template, i, tok.Decode(ids[i:i+1], false), d.Text, in)
				}
			}
			if want := g.Name == "plain_text"; template == g.Plain && d.Open != want {
				t.Errorf("%d %s: open %v", n, g.Name, d.Open)
			}
			if several := strings.Count(d.Text, "<think>") > 1; template == g.Plain && d.Rewrites != (several && g.Name == "thinking") {
				t.Errorf("%d %s: rewrites %v: %q", n, g.Name, d.Rewrites, d.Text)
			}
		}
	}
}

// Turns before a completion belong to its prompt, which equals Chat's: parts that the
// template drops from earlier turns are missing.
func TestDialogueFrom(t *testing.T) {
	all := records[turnsGolden](t, filepath.Join("testdata", "turns.jsonl"))
	chat := Conversation{}
	if err := json.Unmarshal([]byte(`{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "reasoning_content": "long"},
		{"role": "user", "content": "r"}, {"role": "assistant", "content": "b", "reasoning_content": "short"}]}`), &chat); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, want string }{
		{"chatml", "b<|im_end|>"}, {"llama2", " b </s>"}, {"header", "b<|im_end|>\n"}, {"thinking", "<think>\nshort\n</think>\n\nb<|im_end|>"},
	} {
		g := all[slices.IndexFunc(all, func(g turnsGolden) bool { return g.Name == c.name })]
		template := g.Template
		if g.Plain != "" {
			template = g.Plain
		}
		d, err := withTemplate(t, template, g.Added).Dialogue(chat, 3)
		if err != nil || len(d.Turns) != 1 {
			t.Errorf("%s: %v, turns %v", c.name, err, d.Turns)
			continue
		}
		if got := d.Text[d.Turns[0].Start:d.Turns[0].End]; got != c.want || strings.Contains(d.Text, "long") {
			t.Errorf("%s: %q of %q, want %q", c.name, got, d.Text, c.want)
		}
	}
	for template, want := range map[string]string{
		"{{ raise_exception('no tools') }}": "no tools",
		"{{ messages[0].content }}":         "no turn of the assistant",
		"":                                  "no chat template",
		// The text after a turn depends on the number of turns.
		"{% for m in messages %}{{ m.content }}{% endfor %}!{{ messages | length }}": "cannot be told",
	} {
		if d, err := chatOf(template).Dialogue(chat, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v", template, d, err)
		}
	}
}
