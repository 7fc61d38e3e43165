package tokenize

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
	"unicode/utf8"
)

// FuzzLoad: a tokenizer.json of any kind loads or is an error; a loaded tokenizer works.
func FuzzLoad(f *testing.F) {
	for _, name := range []string{"qwen", "deepseek"} {
		data, err := os.ReadFile("testdata/" + name + "/tokenizer.json")
		if err != nil {
			f.Fatal(err)
		}
		// The whole file is too large to mutate well, so its vocabulary is cut down.
		var top map[string]any
		if err := json.Unmarshal(data, &top); err != nil {
			f.Fatal(err)
		}
		model := top["model"].(map[string]any)
		model["vocab"] = map[string]any{"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ċ": 4}
		model["merges"] = []any{"a b", []any{"a", "b"}}
		if data, err = json.Marshal(top); err != nil {
			f.Fatal(err)
		}
		f.Add(data, []byte(`{"bos_token": {"content": "<a>"}, "eos_token": "<b>", "add_bos_token": true}`), "ab \n<|im_end|> abab é")
	}
	f.Add([]byte(`{"model":{"vocab":{"a":0},"merges":[]},"decoder":{"type":"ByteLevel"},"pre_tokenizer":{"type":"ByteLevel"}}`), []byte(`{}`), "a")
	f.Fuzz(func(t *testing.T, model, config []byte, text string) {
		tok, err := LoadFS(files("tokenizer.json", string(model), "tokenizer_config.json", string(config)))
		if err != nil {
			return
		}
		ids := tok.Encode(text)
		for _, id := range ids {
			if id < 0 || int(id) >= tok.VocabSize() {
				// A post-processor may name any id; the text itself may not.
				if !slices.Contains(tok.idsBefore, id) && !slices.Contains(tok.idsAfter, id) {
					t.Fatalf("Encode(%q) has id %d of %d", text, id, tok.VocabSize())
				}
			}
		}
		if got := tok.Decode(ids, false); !utf8.ValidString(got) {
			t.Fatalf("Decode = %q", got)
		}
		if text != "" {
			_ = tok.Check(text)
		}
	})
}

// Any text can be encoded, and decoding returns it, except for normalization and repair.
func FuzzEncode(f *testing.F) {
	tok := small(f, "qwen")
	for _, g := range goldens(f, "encode") {
		f.Add(g.Text)
	}
	f.Add("\xff\xe4\xb8 \xf0\x9f")
	f.Fuzz(func(t *testing.T, text string) {
		ids := tok.Encode(text)
		valid := string(appendValid(nil, []byte(text)))
		var want string
		tok.addedRaw.split(valid, func(s string) { want += nfc(s) }, func(id int32) { want += tok.Token(id) })
		if got := tok.Decode(ids, false); got != want {
			t.Fatalf("Decode(Encode(%+q)) = %+q, want %+q", text, got, want)
		}
	})
}

// Any expression compiles or is an error, and cuts text into pieces that are
// not empty.
func FuzzPattern(f *testing.F) {
	for _, p := range []string{qwenPattern, gptPattern, `\p{N}{1,3}`, `[^a-z\S]*(?i:x)|(?=[ab])a+`} {
		f.Add(p, "it's  10 x\n")
	}
	f.Fuzz(func(t *testing.T, expr, text string) {
		find, err := newFinder(expr)
		if err != nil || !utf8.ValidString(text) {
			return
		}
		for i := 0; i < len(text); {
			_, end := find.isolated(text, i)
			if end <= i || end > len(text) {
				t.Fatalf("pattern %q cuts %q at %d to %d", expr, text, i, end)
			}
			i = end
		}
	})
}

// Any template renders or is an error.
func FuzzChat(f *testing.F) {
	for _, name := range []string{"qwen", "deepseek"} {
		f.Add(small(f, name).chat.plain.source, "hi")
	}
	f.Fuzz(func(t *testing.T, template, content string) {
		_, _ = chatOf(template).Chat(Talk(Message{Role: "user", Content: content}, Message{Role: "assistant", Content: content}))
	})
}
