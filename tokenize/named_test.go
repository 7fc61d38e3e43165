package tokenize

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// TestNamedTemplates: which of several chat templates counts, as in transformers 5.23.
// Only a name that no template has is an error here; transformers renders the name.
func TestNamedTemplates(t *testing.T) {
	const list = `[{"name": "default", "template": "one"}, {"name": "tool_use", "template": "two"}, {"name": "rag", "template": "{{ 'three' }}"}]`
	const file, folder = "chat_template.jinja", "additional_chat_templates/"
	rows := []string{`{}`, `{"tools": []}`, `{"tools": [{"type": "function"}]}`, `{"chat_template": "rag"}`, `{"chat_template_kwargs": {"chat_template": "{{ 7 }}"}}`}
	const none, several = `error: no chat template is called "rag"`, "error: the tokenizer has chat templates for several uses, "
	for _, c := range []struct {
		config string
		files  map[string]string
		want   []string // for each row, the beginning of the rendered text
	}{
		{list, nil, []string{"one", "two", "two", "three", "7"}},
		{strings.Replace(list, "default", "rag2", 1), nil, []string{several, "two", "two", "three", "7"}},
		{`[{"name": "default", "template": "one"}]`, nil, []string{"one", "one", "one", none, "7"}},
		{`[{"name": "rag", "template": "three"}]`, nil, []string{several + "rag,", several, several, "three", "7"}},
		{`"config"`, nil, []string{"config", "config", "config", none, "7"}},
		{`"config"`, map[string]string{file: "file"}, []string{"file", "file", "file", none, "7"}},
		{list, map[string]string{file: "file"}, []string{"file", "file", "file", none, "7"}},
		{`"config"`, map[string]string{file: "file", folder + "tool_use.jinja": "two", folder + "notes.txt": "{%"}, []string{"file", "two", "two", none, "7"}},
		{`"config"`, map[string]string{folder + "rag.jinja": "R"}, []string{several, several, several, "R", "7"}},
		{`"config"`, map[string]string{file: "file", folder + "default.jinja": "D"}, []string{"D", "D", "D", none, "7"}},
		{`null`, map[string]string{file: "file", folder + "default.jinja": "D", folder + "rag.jinja": "R"}, []string{"D", "D", "D", "R", "7"}},
		{`null`, nil, []string{"error: the tokenizer has no chat template", "error: ", "error: ", none, "7"}},
	} {
		fsys := files("vocab.json", `{"a": 0}`, "merges.txt", "", "tokenizer_config.json", `{"chat_template": `+c.config+`}`)
		for name, text := range c.files {
			fsys[name] = &fstest.MapFile{Data: []byte(text)}
		}
		tok, err := LoadFS(fsys)
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range rows {
			if got := rendered(t, tok, row); !strings.HasPrefix(got, c.want[i]) {
				t.Errorf("%s with %s, %s: %q, want %q", c.config, c.files, row, got, c.want[i])
			}
		}
	}
}

// rendered returns the text of a conversation in JSON, or "error: " and the error.
func rendered(t *testing.T, tok *Tokenizer, row string) string {
	t.Helper()
	var chat Conversation
	if err := json.Unmarshal([]byte(row), &chat); err != nil {
		t.Fatal(err)
	}
	text, err := tok.Chat(chat)
	if err != nil {
		return "error: " + strings.TrimPrefix(err.Error(), "tokenize: chat template: ")
	}
	return text
}

// TestTemplateFolder: a folder that cannot be listed is an error, and so is an unreadable
// template of any name.
func TestTemplateFolder(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"vocab.json": `{"a": 0}`, "merges.txt": "", "additional_chat_templates": "no folder"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	folder := filepath.Join(dir, templateFolder)
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), folder+" is not a folder") {
		t.Errorf("Load: %v, want an error with %s", err, folder)
	}
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"rag.jinja": "{% if", "default.jinja": "fine"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	tok, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := tok.CheckChat(); err == nil || !strings.Contains(err.Error(), "rag: line 1") {
		t.Errorf("CheckChat: %v, want an error with the template's name and line", err)
	}
	for i := range maxTemplates {
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprint(i, ".jinja")), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "more than 64 templates") {
		t.Errorf("Load of %d templates: %v", maxTemplates+2, err)
	}
}

// TestContinue renders texts that end with a message, and compares with transformers 5.23.
func TestContinue(t *testing.T) {
	for _, c := range []struct{ row, template, want string }{
		{`[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a b "}], "continue_final_message": true`, "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}", "<user>q</><assistant>a b "},
		{`[{"content": " a b \n"}], "continue_final_message": true`, "<{{ messages[0].content | trim }}>", "<a b"},
		{`[{"content": [{"text": "x"}, {"text": "y "}, {"type": "image"}]}], "continue_final_message": "content"`, "{% for p in messages[0].content %}[{{ p.text }}]{% endfor %}", "[x][y "},
		{`[{"content": "c", "thinking": "t"}], "continue_final_message": "reasoning_content"`, "<think>{{ messages[0].thinking }}</think>{{ messages[0].content }}", "<think>t"},
		{`[{"content": "c", "thinking": "t", "reasoning": "other"}], "continue_final_message": "thinking"`, "{{ messages[0].reasoning }}|{{ messages[0].reasoning_content }}|", "other|t"},
		{`[{"content": ""}], "continue_final_message": true`, "<{{ messages[0].content }}>", "<"},
		{`[{"content": "x"}], "continue_final_message": false`, "<{{ messages[0].content }}>", "<x>"},
		{`[{"content": "x"}], "continue_final_message": null`, "<{{ messages[0].content }}>", "<x>"},
		{`[{"content": "a"}], "continue_final_message": true, "add_generation_prompt": true`, "<{{ messages[0].content }}>", "error: continue_final_message and add_generation_prompt contradict one another"},
		{`[], "continue_final_message": true`, "{{ content }}", "error: continue_final_message: there is no message"},
		{`[{"role": "assistant"}], "continue_final_message": true`, "<{{ messages[0].content }}>", "<"}, // Clients omit an empty content.
		{`[{"role": "user"}], "continue_final_message": true`, "<{{ messages[0].content }}>", `error: continue_final_message: the last message has no "content"`},
		{`[{"content": "gone"}], "continue_final_message": true`, "<{{ messages[0].content | length }}>", "error: continue_final_message: the chat template changes or leaves out the last message"},
		{`[{"content": "x", "note": "n"}], "continue_final_message": "note"`, "<{{ messages[0].content }}>", `error: continue_final_message: the chat template does not read "note"`},
		{`[{"content": [{"type": "image"}, "text"]}], "continue_final_message": true`, "<{{ messages[0].content }}>", `error: continue_final_message: "content" of the last message has no text`},
		{`[{"content": [{"text": 7}]}], "continue_final_message": true`, "<{{ messages[0].content }}>", `error: continue_final_message: "content" of the last message has no text`},
		{`[{"reasoning_content": [7]}], "continue_final_message": "reasoning_content"`, "<{{ messages[0].reasoning_content }}>", `error: continue_final_message: "reasoning_content" of the last message has no text`},
		{`[{"content": 7}], "continue_final_message": true`, "<{{ messages[0].content }}>", `error: continue_final_message: "content" of the last message has no text`},
	} {
		tok, row := chatOf(c.template), `{"messages": `+c.row+`}`
		for range 2 { // The second rendering equals the first: rendering does not change the conversation.
			if got := rendered(t, tok, row); got != c.want {
				t.Errorf("%s in %s:\n got %q\nwant %q", row, c.template, got, c.want)
			}
		}
	}
	if err := json.Unmarshal([]byte(`{"continue_final_message": 1}`), new(Conversation)); err == nil {
		t.Error("continue_final_message 1 is read")
	}
}
