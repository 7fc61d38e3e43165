package data

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onering/tokenize"
)

// chatFolder writes the folder of a tokenizer for single bytes, whose chat template shows
// all of its input.
func chatFolder(t *testing.T) *tokenize.Tokenizer {
	t.Helper()
	vocab := map[string]int{}
	for c := byte('!'); c <= '~'; c++ {
		vocab[string(rune(c))] = len(vocab)
	}
	vocab["Ġ"], vocab["Ċ"] = len(vocab), len(vocab)+1
	text, err := json.Marshal(vocab)
	if err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(map[string]any{
		"tokenizer_class": "Qwen2Tokenizer",
		"chat_template":   "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}{% endfor %}{% if tools %}[{{ tools | tojson }}]{% endif %}{% if brief %}!{% endif %}{% if add_generation_prompt %}<assistant>{% endif %}",
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{"vocab.json": text, "merges.txt": []byte("#version: 0.2\n"), "tokenizer_config.json": config} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tok, err := tokenize.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// A prompt that is a list of messages goes through the chat template with all values of
// its row for it; a text template takes only a single message of the user.
func TestMessages(t *testing.T) {
	tok := chatFolder(t)
	for _, tt := range []struct {
		row, template, system string
		text, want            string // want of error has "error: " in front
	}{
		{`{"prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}], "answer": 1}`, "auto", "", "system: S\n\nuser: Q", "<system>S<user>Q<assistant>"},
		{`{"prompt": [{"role": "user", "content": "Q"}], "answer": 1}`, "auto", "", "Q", "<user>Q<assistant>"},
		{`{"prompt": [{"role": "user", "content": "Q"}], "answer": 1}`, "-{problem}-", "", "Q", "-Q-"},
		{`{"prompt": [{"role": "user", "content": "Q"}], "answer": 1}`, "chat", "T", "Q", "<system>T<user>Q<assistant>"},
		{`{"prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}], "answer": 1}`, "chat", "T", "system: S\n\nuser: Q", "<system>S<user>Q<assistant>"},
		{`{"prompt": "Q", "answer": 1}`, "chat", "", "Q", "<user>Q<assistant>"},
		{`{"prompt": [{"role": "user", "content": "A", "tool_calls": null}, {"role": "assistant", "content": null, "tool_calls": [{"id": 1, "name": null}]}, {"role": "tool", "content": [{"type": "text", "text": "7"}]}], "answer": 1}`,
			"auto", "", "user: A\n\nassistant: \n\ntool: 7", `<user>A<assistant>[{"id": 1}]<tool>7<assistant>`},
		{`{"prompt": [{"role": "user", "content": "Q"}], "answer": 1, "tools": [{"b": 1, "a": null}], "chat_template_kwargs": {"brief": true}}`, "auto", "", "Q", `<user>Q[[{"b": 1}]]!<assistant>`},
		{`{"prompt": "[{\"role\": \"user\", \"content\": \"Q\"}]", "answer": 1, "tools": "[{\"a\": 1}]"}`, "auto", "", "Q", `<user>Q[[{"a": 1}]]<assistant>`},
		{`{"prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}], "answer": 1}`, "no", "", "system: S\n\nuser: Q", `error: data: problem "f:1": its prompt is a list of 2 messages, and the template "no" takes one text: set model.template to chat`},
		{`{"prompt": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}], "answer": 1}`, "auto", "", "", "error: " + answered},
		{`{"prompt": [{"role": "user", "content": [{"type": "image"}]}], "answer": 1}`, "auto", "", "", `error: a message has a part of type "image", and the model sees texts alone`},
		{`{"prompt": [{"content": "Q"}], "answer": 1}`, "auto", "", "", "error: " + oddPrompt},
		{`{"prompt": ["Q"], "answer": 1}`, "auto", "", "", "error: " + oddPrompt},
		{`{"prompt": [], "answer": 1}`, "auto", "", "", "error: " + noPrompt},
		{`{"prompt": [{"role": "user", "content": " "}], "answer": 1}`, "auto", "", "", "error: " + noPrompt},
		{`{"prompt": [{"role": "user", "content": "Q"}], "answer": 1, "chat_template_kwargs": 1}`, "auto", "", "", "error: not a conversation: "},
	} {
		got, text, err := func() (string, string, error) {
			path := filepath.Join(t.TempDir(), "f.jsonl")
			if err := os.WriteFile(path, []byte(tt.row), 0o644); err != nil {
				t.Fatal(err)
			}
			list, _, err := Load(path, Options{})
			if err != nil {
				return "", "", err
			}
			around, err := tokenize.TemplateSettings{Template: tt.template, System: tt.system}.PromptTemplate()
			if err != nil {
				return "", "", err
			}
			p, err := NewPrompter(tok, around)
			if err != nil {
				return "", "", err
			}
			got, ids, err := p.Prompt(list[0])
			if err == nil && tok.Decode(ids, false) != got {
				t.Errorf("%s: ids of %q", tt.row, tok.Decode(ids, false))
			}
			return got, list[0].Text, err
		}()
		if want, failed := strings.CutPrefix(tt.want, "error: "); failed {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s in %s: %q, %v; want an error with %q", tt.row, tt.template, got, err, want)
			}
			continue
		}
		if err != nil || got != tt.want || text != tt.text {
			t.Errorf("%s in %s:\n got %q from %q, %v\nwant %q from %q", tt.row, tt.template, got, text, err, tt.want, tt.text)
		}
	}
}

// The digest of problems includes what a conversation has besides its texts.
func TestMessagesDigest(t *testing.T) {
	digest := func(row string) string {
		path := filepath.Join(t.TempDir(), "f.jsonl")
		if err := os.WriteFile(path, []byte(row), 0o644); err != nil {
			t.Fatal(err)
		}
		list, _, err := Load(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return List(list).Digest()
	}
	plain := digest(`{"prompt": [{"role": "user", "content": "Q"}], "answer": 1}`)
	if plain != digest(`{"prompt": [{"role": "user",  "content": "Q"}], "answer": 1, "note": 2}`) {
		t.Error("blanks or another column change the digest")
	}
	for _, row := range []string{
		`{"prompt": "Q", "answer": 1}`,
		`{"prompt": [{"role": "user", "content": "Q"}], "answer": 1, "tools": [{}]}`,
		`{"prompt": [{"role": "user", "content": "Q", "name": "n"}], "answer": 1}`,
	} {
		if digest(row) == plain {
			t.Errorf("%s has the digest of a plain message", row)
		}
	}
}
