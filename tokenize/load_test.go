package tokenize

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// files returns a folder whose files are in memory.
func files(contents ...string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for i := 0; i < len(contents); i += 2 {
		fsys[contents[i]] = &fstest.MapFile{Data: []byte(contents[i+1])}
	}
	return fsys
}

// edited returns testdata/qwen/tokenizer.json after edit has changed it.
func edited(tb testing.TB, edit func(top map[string]any)) string {
	tb.Helper()
	data, err := os.ReadFile("testdata/qwen/tokenizer.json")
	if err != nil {
		tb.Fatal(err)
	}
	var top map[string]any
	if err := json.Unmarshal(data, &top); err != nil {
		tb.Fatal(err)
	}
	edit(top)
	if data, err = json.MarshalIndent(top, "", "\t"); err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

func with(path string, value any) func(map[string]any) {
	return func(top map[string]any) {
		keys := strings.Split(path, ".")
		for _, key := range keys[:len(keys)-1] {
			top = top[key].(map[string]any)
		}
		top[keys[len(keys)-1]] = value
	}
}

func TestLoadMissing(t *testing.T) {
	for _, dir := range []string{t.TempDir(), t.TempDir() + "/none"} {
		if _, err := Load(dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), dir) {
			t.Errorf("Load(%q): %v, want one that wraps fs.ErrNotExist and names the folder", dir, err)
		}
	}
}

// TestVocabAndMerges has the same vocabulary in the files from before tokenizer.json.
func TestVocabAndMerges(t *testing.T) {
	top := map[string]json.RawMessage{}
	edited(t, func(m map[string]any) {
		for key, value := range m {
			top[key], _ = json.Marshal(value)
		}
	})
	var model struct {
		Vocab  json.RawMessage
		Merges [][]string
	}
	if err := json.Unmarshal(top["model"], &model); err != nil {
		t.Fatal(err)
	}
	merges := "#version: 0.2\r\n"
	for _, m := range model.Merges {
		merges += m[0] + " " + m[1] + "\r\n"
	}
	config := `{"tokenizer_class": "Qwen2TokenizerFast", "eos_token": "<|endoftext|>", "added_tokens_decoder": {
		"1757": {"content": "<|im_start|>", "special": true}, "1756": {"content": "<|endoftext|>", "special": true},
		"1758": {"content": "<|im_end|>", "special": true}, "1759": {"content": "<tool_call>"}}}`
	for name, fsys := range map[string]fs.FS{
		"added_tokens_decoder": files("vocab.json", string(model.Vocab), "merges.txt", merges, "tokenizer_config.json", config),
		"added_tokens.json": files("vocab.json", string(model.Vocab), "merges.txt", merges, "special_tokens_map.json", `{"eos_token": {"content": "<|endoftext|>"}}`,
			"added_tokens.json", `{"<|im_start|>": 1757, "<|endoftext|>": 1756, "<|im_end|>": 1758, "<tool_call>": 1759}`),
	} {
		t.Run(name, func(t *testing.T) {
			tok, err := LoadFS(fsys)
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range goldens(t, "encode") {
				if got := tok.Encode(g.Text); g.Tokenizer == "qwen" && !slices.Equal(got, g.IDs) {
					t.Errorf("Encode(%q) = %v, want %v", g.Text, got, g.IDs)
				}
			}
			if eos, ok := tok.EOS(); !ok || eos != 1756 {
				t.Errorf("EOS = %d, %v", eos, ok)
			}
		})
	}
}

func TestChatTemplatePlaces(t *testing.T) {
	model := edited(t, func(map[string]any) {})
	for _, c := range []struct {
		name string
		fsys fs.FS
		want string
	}{
		{"string", files("tokenizer.json", model, "tokenizer_config.json", `{"chat_template": "one"}`), "one"},
		{"list", files("tokenizer.json", model, "tokenizer_config.json", `{"chat_template": [{"name": "tool_use", "template": "two"}, {"name": "default", "template": "one"}]}`), "one"},
		{"file first", files("tokenizer.json", model, "tokenizer_config.json", `{"chat_template": "two"}`, "chat_template.jinja", "one"), "one"},
	} {
		tok, err := LoadFS(c.fsys)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got, err := tok.Chat(Conversation{}); err != nil || got != c.want {
			t.Errorf("%s: Chat = %q, %v, want %q", c.name, got, err, c.want)
		}
	}
	tok, err := LoadFS(files("tokenizer.json", model))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tok.Chat(Conversation{}); !errors.Is(err, ErrNoChatTemplate) {
		t.Errorf("without a template: %v, want ErrNoChatTemplate", err)
	}
}

// TestAddBOSAndEOS: the post-processor of tokenizer.json takes precedence over
// tokenizer_config.json.
func TestAddBOSAndEOS(t *testing.T) {
	model, err := os.ReadFile("testdata/deepseek/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	const vocab = `{"a": 0, "<s>": 1, "</s>": 2}`
	for _, c := range []struct {
		fsys fs.FS
		want []int32
	}{
		{files("tokenizer.json", string(model)), []int32{1759, 64}},
		{files("tokenizer.json", string(model), "tokenizer_config.json", `{"add_bos_token": false, "add_eos_token": true, "eos_token": "a"}`), []int32{1759, 64}},
		{files("vocab.json", vocab, "merges.txt", "", "tokenizer_config.json", `{"bos_token": "<s>", "eos_token": "</s>"}`), []int32{0}},
		{files("vocab.json", vocab, "merges.txt", "", "tokenizer_config.json", `{"bos_token": "<s>", "add_bos_token": true, "add_eos_token": true}`), []int32{1, 0}},
		{files("vocab.json", vocab, "merges.txt", "", "tokenizer_config.json", `{"eos_token": "</s>", "add_bos_token": true, "add_eos_token": true}`), []int32{0, 2}},
	} {
		tok, err := LoadFS(c.fsys)
		if err != nil {
			t.Fatal(err)
		}
		if got := tok.Encode("a"); !slices.Equal(got, c.want) {
			t.Errorf("Encode = %v, want %v", got, c.want)
		}
	}
}

// TestLoadErrors: every unsupported part is an error that says where it is and what it is.
func TestLoadErrors(t *testing.T) {
	stage := func(kind string) map[string]any { return map[string]any{"type": kind} }
	split := func(key, pattern, behavior string) map[string]any {
		return map[string]any{"type": "Sequence", "pretokenizers": []any{
			map[string]any{"type": "Split", "pattern": map[string]any{key: pattern}, "behavior": behavior}, stage("ByteLevel")}}
	}
	added := func(id any, content string) []any { return []any{map[string]any{"id": id, "content": content}} }
	model := edited(t, func(map[string]any) {})
	// Each stage makes the text or a name a few bytes longer.
	replace := map[string]any{"type": "Replace", "pattern": map[string]any{"String": "a"}, "content": "aa"}
	in := func(key string, parts ...any) map[string]any { return map[string]any{"type": "Sequence", key: parts} }
	nested := any(replace)
	for range 40 {
		nested = in("normalizers", nested, replace)
	}
	chars := func(key string, stages any) fs.FS {
		text, err := json.Marshal(map[string]any{key: stages, "model": map[string]any{"type": "BPE", "vocab": map[string]any{"a": 0}, "merges": []any{}}})
		if err != nil {
			t.Fatal(err)
		}
		return files("tokenizer.json", string(text))
	}
	for _, c := range []struct {
		fsys fs.FS
		want string
	}{
		{files("tokenizer.json", ""), "ends in the middle"},
		{files("tokenizer.json", "[]"), `want '{'`},
		{files("tokenizer.json", "{}"), `no "model"`},
		{files("tokenizer.json", "\xff{}"), "UTF-8"},
		{files("tokenizer.json", model[:len(model)/2]), "ends in the middle"},
		{files("tokenizer.json", model+"x"), "after the value"},
		{files("tokenizer.json", model, "tokenizer_config.json", "{"), "tokenizer_config.json"},
		{files("tokenizer.json", model, "tokenizer_config.json", `{"eos_token": 7}`), "tokenizer_config.json"},
		{files("vocab.json", `{"a": 0}`, "merges.txt", "", "tokenizer_config.json", `{"bos_token": "<none>", "add_bos_token": true}`), `"<none>" is not in the vocabulary`},
		{files("tokenizer.json", edited(t, with("normalizer", stage("NFKC")))), `normalizer: "NFKC" is not supported`},
		{files("tokenizer.json", edited(t, with("normalizer", 5))), "normalizer"},
		{chars("normalizer", in("normalizers", slices.Repeat([]any{replace}, 40)...)), "more than 32 times as long"},
		{chars("normalizer", in("normalizers", slices.Repeat([]any{map[string]any{"type": "Prepend", "prepend": strings.Repeat("x", 1<<20)}}, 2)...)), "more than 32 times as long"},
		{chars("normalizer", nested), "more than 32 times as long"},
		{chars("normalizer", in("normalizers", slices.Repeat([]any{stage("NFC")}, 65)...)), "more than 64 stages"},
		{chars("decoder", in("decoders", slices.Repeat([]any{replace}, 40)...)), "more than 32 times as long"},
		{files("tokenizer.json", edited(t, with("pre_tokenizer", nil))), `"ByteLevel" is not supported for a vocabulary of characters`},
		{files("tokenizer.json", edited(t, with("pre_tokenizer", stage("Whitespace")))), `"Whitespace" is not supported`},
		{files("tokenizer.json", edited(t, with("pre_tokenizer", map[string]any{"type": "ByteLevel", "add_prefix_space": true}))), "add_prefix_space"},
		{files("tokenizer.json", edited(t, with("pre_tokenizer", split("Regex", "a", "Dropped")))), `behavior "Dropped"`},
		{files("tokenizer.json", edited(t, with("pre_tokenizer", split("Regex", "(", "Isolated")))), `pattern "(", offset 1`},
		{files("tokenizer.json", edited(t, with("pre_tokenizer", split("Glob", "a", "Isolated")))), "a Split has no pattern"},
		{files("tokenizer.json", edited(t, with("post_processor", stage("BertProcessing")))), "post_processor"},
		{files("tokenizer.json", edited(t, with("post_processor", stage("TemplateProcessing")))), "TemplateProcessing of 0 texts"},
		{files("tokenizer.json", edited(t, with("decoder", nil))), "decoder"},
		{files("tokenizer.json", edited(t, with("decoder", stage("WordPiece")))), `"WordPiece" is not supported`},
		{files("tokenizer.json", edited(t, with("model", nil))), "model"},
		{files("tokenizer.json", edited(t, with("model.type", "Unigram"))), `type "Unigram"`},
		{files("tokenizer.json", edited(t, with("model.byte_fallback", true))), "byte_fallback"},
		{files("tokenizer.json", edited(t, with("model.continuing_subword_prefix", "##"))), "continuing_subword_prefix"},
		{files("tokenizer.json", edited(t, with("model.dropout", 0.1))), "dropout"},
		{files("tokenizer.json", edited(t, with("model.unk_token", "<unk>"))), `unk_token "<unk>"`},
		{files("tokenizer.json", edited(t, with("model.vocab", nil))), "vocab"},
		{files("tokenizer.json", edited(t, with("model.vocab", map[string]any{"a": -1}))), "non-negative"},
		{files("tokenizer.json", edited(t, with("model.vocab", map[string]any{"a": 1.5}))), "integer"},
		{files("tokenizer.json", edited(t, with("model.vocab", map[string]any{"a": "1"}))), "integer"},
		{files("tokenizer.json", edited(t, with("model.vocab", map[string]any{"a": 99999999}))), `id 99999999 of token "a"`},
		{files("tokenizer.json", edited(t, with("model.vocab", map[string]any{"a": 9999999999}))), "too large"},
		{files("tokenizer.json", edited(t, with("model.vocab", map[string]any{"a": 1, "b": 1}))), "id 1 belongs to both"},
		{files("tokenizer.json", edited(t, with("model.merges", []any{"a b c"}))), `merge 1: "a b c"`},
		{files("tokenizer.json", edited(t, with("model.merges", []any{[]any{"a"}}))), "a merge of 1 tokens"},
		{files("tokenizer.json", edited(t, with("model.merges", []any{[]any{"a", "<no>"}}))), `of "a" and "<no>"`},
		{files("tokenizer.json", edited(t, with("model.merges", []any{7}))), "merges"},
		{files("tokenizer.json", edited(t, with("added_tokens", added(3, "<x>")))), `added token "<x>" has the id of`},
		{files("tokenizer.json", edited(t, with("added_tokens", added(5000, "a")))), `added token "a" has id 5000`},
		{files("tokenizer.json", edited(t, with("added_tokens", added(-1, "<x>")))), "out of range"},
		{files("tokenizer.json", edited(t, with("added_tokens", added("1", "<x>")))), "added_tokens"},
		{files("vocab.json", `{"a": 0}`), "file does not exist"},
		{files("vocab.json", `{"a": 0}`, "merges.txt", "a b c"), "merges.txt:1"},
		{files("vocab.json", `{"a": 0}`, "merges.txt", "#version\n\na a"), `merges.txt:3: merge 1: of "a" and "a"`},
		{files("vocab.json", `{"a": 0`, "merges.txt", ""), "vocab.json"},
		{files("vocab.json", `{"a": 0}`, "merges.txt", "", "tokenizer_config.json", `{"tokenizer_class": "BertTokenizer"}`), `tokenizer_class "BertTokenizer"`},
		{files("vocab.json", `{"a": 0}`, "merges.txt", "", "tokenizer_config.json", `{"added_tokens_decoder": {"z": {}, "y": {}, "x": {}, "w": {}}}`), `"w" is not an id`},
	} {
		tok, err := LoadFS(c.fsys)
		if err == nil {
			t.Errorf("loaded %d tokens, want an error with %q", tok.VocabSize(), c.want)
		} else if !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "tokenize: ") {
			t.Errorf("error %q, want %q in it", err, c.want)
		}
	}
}

// TestAddedTokenFlags has added tokens with flags that Qwen's added tokens lack. The ids
// are those of the reference (tokenizers 0.23.3) for the same file.
func TestAddedTokenFlags(t *testing.T) {
	token := func(id int, content, flag string) map[string]any {
		return map[string]any{"id": id, "content": content, flag: true}
	}
	tok, err := LoadFS(files("tokenizer.json", edited(t, with("added_tokens", []any{
		token(1756, "WORD", "single_word"), token(1757, "[L]", "lstrip"), token(1758, "[R]", "rstrip"),
		token(1759, "e\u0301!", "normalized"), token(1760, "[LL]", "special"), token(1761, "[L", "special"), token(1762, "", "special"),
	}))))
	if err != nil {
		t.Fatal(err)
	}
	plain := small(t, "qwen") // The vocabulary has neither of these tokens.
	x, y := plain.Encode("x")[0], plain.Encode("y")[0]
	for text, want := range map[string][]int32{
		"WORD":       {1756},
		"x WORD y":   slices.Concat(plain.Encode("x "), []int32{1756}, plain.Encode(" y")),
		"xWORD":      plain.Encode("xWORD"),
		"x \n [L]y":  {x, 1757, y},
		"[L] y":      slices.Concat([]int32{1757}, plain.Encode(" y")),
		"x[R] \n y":  {x, 1758, y},
		"x[R]  [L]y": {x, 1758, 1757, y},
		"é!":         {1759}, // This token is found after the text is normalized.
		"e\u0301!":   {1759},
		"[LL][L[L]":  {1760, 1761, 1757}, // leftmost, then longest
	} {
		if got := tok.Encode(text); !slices.Equal(got, want) {
			t.Errorf("Encode(%q) = %v, want %v", text, got, want)
		}
	}
	if got := tok.VocabSize(); got != 1762 {
		t.Errorf("VocabSize = %d: an empty added token must be passed over", got)
	}
}

// TestLoadIrregular has pipes and devices in the place of files: Load must not open them.
func TestLoadIrregular(t *testing.T) {
	model := edited(t, func(map[string]any) {})
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} {
		fsys := fstest.MapFS{"tokenizer.json": {Data: []byte(model)}}
		fsys[name] = &fstest.MapFile{Mode: fs.ModeNamedPipe}
		if _, err := LoadFS(fsys); err == nil || !strings.Contains(err.Error(), name+" is not a regular file") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestStatedTokens: tokenizer_config.json may have added tokens that tokenizer.json
// lacks; they get the ids that transformers 5.23 gives them.
func TestStatedTokens(t *testing.T) {
	load := func(stated string) (*Tokenizer, error) {
		return LoadFS(files("tokenizer.json", edited(t, func(map[string]any) {}), "tokenizer_config.json", `{"added_tokens_decoder": {`+stated+`}}`))
	}
	tok, err := load(`"1756": {"content": "<|endoftext|>", "special": false}, "1761": {"content": "<b>"}, "1760": {"content": "<think>", "special": true}, "7": {"content": "in"}`)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tok.Encode("a<think>oinher<b>"), []int32{64, 1760, 78, 258, 71, 261, 1761}; !slices.Equal(got, want) {
		t.Errorf("ids %v, want %v", got, want)
	}
	if got := tok.Decode([]int32{64, 1760, 1756, 1761}, true); got != "a<b>" {
		t.Errorf("without special tokens %q, want %q", got, "a<b>")
	}
	for stated, want := range map[string]string{
		`"x": {"content": "<b>"}`: `added_tokens_decoder: "x" is not an id`,
		`"3": {"content": "<b>"}`: `added token "<b>" has the id of`,
	} {
		if _, err := load(stated); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", stated, err, want)
		}
	}
}
