package tokenize

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// sharedDir returns the folder of records made with the reference tokenizer,
// which lies beside the repository on machines that have it.
func sharedDir(tb testing.TB) string {
	tb.Helper()
	root, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if root == filepath.Dir(root) {
			tb.Fatal("no go.mod above the package")
		}
		root = filepath.Dir(root)
	}
	dir := filepath.Join(root, "..", "shared", "data", "tokenizer")
	if _, err := os.Stat(dir); err != nil {
		tb.Skipf("the reference records are not on this machine: %v", err)
	}
	return dir
}

var loadQwen = sync.OnceValues(func() (*Tokenizer, error) { return Load(qwenDir) })

var qwenDir string

// qwen loads the tokenizer of Qwen2.5-Math-1.5B, once.
func qwen(tb testing.TB) *Tokenizer {
	tb.Helper()
	qwenDir = filepath.Join(sharedDir(tb), "qwen2.5-math-1.5b")
	t, err := loadQwen()
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// records decodes the lines of a JSONL file. (They are too long for a
// bufio.Scanner and hold U+2028 and U+0085: split at newlines only.)
func records[R any](tb testing.TB, path string) []R {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	var out []R
	for i, line := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		var r R
		if err := json.Unmarshal(line, &r); err != nil {
			tb.Fatalf("%s:%d: %v", path, i+1, err)
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		tb.Fatalf("%s has no records", path)
	}
	return out
}

type encodeRecord struct {
	ID, Category, Text string
	IDs                []int32
	Decoded            string
	DecodedSkipSpecial *string `json:"decoded_skip_special"` // nil: as Decoded
}

func checkEncode(t *testing.T, tok *Tokenizer, all []encodeRecord) {
	t.Helper()
	for _, r := range all {
		if got := tok.Encode(r.Text); !slices.Equal(got, r.IDs) {
			t.Errorf("%s (%s): Encode(%.200q) = %v, want %v", r.ID, r.Category, r.Text, got, r.IDs)
		}
		checkDecode(t, tok, r.ID, r.IDs, r.Decoded, false)
		skip := r.Decoded
		if r.DecodedSkipSpecial != nil {
			skip = *r.DecodedSkipSpecial
		}
		checkDecode(t, tok, r.ID, r.IDs, skip, true)
	}
}

func checkDecode(t *testing.T, tok *Tokenizer, id string, ids []int32, want string, skipSpecial bool) {
	t.Helper()
	if got := tok.Decode(ids, skipSpecial); got != want {
		t.Errorf("%s: Decode(%v, %v) = %q, want %q", id, ids, skipSpecial, got, want)
	}
	d := tok.NewDecoder()
	d.SkipSpecial = skipSpecial
	var stream string
	for _, id := range ids {
		stream += d.Add(id)
	}
	if stream += d.Flush(); stream != want {
		t.Errorf("%s: streaming %v (skipSpecial %v) = %q, want %q", id, ids, skipSpecial, stream, want)
	}
}

func TestEncodeRecords(t *testing.T) {
	tok := qwen(t)
	all := records[encodeRecord](t, filepath.Join(sharedDir(t), "dev", "encode.jsonl"))
	checkEncode(t, tok, all)
	t.Logf("%d records", len(all))
}

func TestDecodeRecords(t *testing.T) {
	tok := qwen(t)
	type record struct {
		ID                 string
		IDs                []int32
		Decoded            string
		DecodedSkipSpecial string `json:"decoded_skip_special"`
	}
	for _, r := range records[record](t, filepath.Join(sharedDir(t), "dev", "decode.jsonl")) {
		checkDecode(t, tok, r.ID, r.IDs, r.Decoded, false)
		checkDecode(t, tok, r.ID, r.IDs, r.DecodedSkipSpecial, true)
	}
}

func TestChatRecords(t *testing.T) {
	tok := qwen(t)
	type record struct {
		ID                  string
		Messages            []Message
		AddGenerationPrompt bool `json:"add_generation_prompt"`
		Rendered            string
		IDs                 []int32
	}
	for _, r := range records[record](t, filepath.Join(sharedDir(t), "dev", "chat.jsonl")) {
		text, ids, err := tok.EncodeChat(r.Messages, r.AddGenerationPrompt)
		if err != nil {
			t.Fatalf("%s: %v", r.ID, err)
		}
		if text != r.Rendered {
			t.Errorf("%s: Chat = %q, want %q", r.ID, text, r.Rendered)
		}
		if !slices.Equal(ids, r.IDs) {
			t.Errorf("%s: ids %v, want %v", r.ID, ids, r.IDs)
		}
	}
}

func TestTemplateRecords(t *testing.T) {
	tok := qwen(t)
	type record struct {
		ID, Template, Question, Rendered string
		IDs                              []int32
	}
	for _, r := range records[record](t, filepath.Join(sharedDir(t), "dev", "prompt_templates.jsonl")) {
		tmpl, err := LookupTemplate(r.Template)
		if err != nil {
			t.Fatal(err)
		}
		text := tmpl.Render(r.Question)
		if text != r.Rendered {
			t.Errorf("%s: Render = %q, want %q", r.ID, text, r.Rendered)
		}
		if ids := tok.Encode(text); !slices.Equal(ids, r.IDs) {
			t.Errorf("%s: ids %v, want %v", r.ID, ids, r.IDs)
		}
	}
}
