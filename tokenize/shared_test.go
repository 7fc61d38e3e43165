package tokenize

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/ulikunitz/xz"
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

var loadedQwen struct {
	sync.Once
	tok *Tokenizer
	err error
}

// qwen loads the tokenizer of Qwen2.5-Math-1.5B once and returns it.
func qwen(tb testing.TB) *Tokenizer {
	tb.Helper()
	dir := filepath.Join(sharedDir(tb), "qwen2.5-math-1.5b")
	l := &loadedQwen
	l.Do(func() { l.tok, l.err = Load(dir) })
	if l.err != nil {
		tb.Fatal(l.err)
	}
	return l.tok
}

// eachPart runs test on the named file of each part of the records that this machine has;
// every machine has dev.
func eachPart[R any](t *testing.T, name string, test func(t *testing.T, all []R)) {
	dir := sharedDir(t)
	for _, part := range []string{"dev", "heldout"} {
		path := filepath.Join(dir, part, name)
		if _, err := os.Stat(path); err != nil && part != "dev" {
			continue
		}
		t.Run(part, func(t *testing.T) { test(t, records[R](t, path)) })
	}
}

// records decodes the lines of a JSONL file. (They are too long for a bufio.Scanner and
// hold U+2028 and U+0085, so it splits at newlines only.)
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
	Special            []int32 `json:"ids_special"` // with what the post-processor adds, if it does
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
	for i, id := range ids {
		stream += d.Add(id)
		if p := d.Pending(); p != "" && stream+p != tok.Decode(ids[:i+1], skipSpecial) {
			t.Errorf("%v: %q is pending after %q", ids[:i+1], p, stream)
		}
	}
	if stream += d.Flush(); stream != want {
		t.Errorf("%s: streaming %v (skipSpecial %v) = %q, want %q", id, ids, skipSpecial, stream, want)
	}
}

func TestEncodeRecords(t *testing.T) {
	tok := qwen(t)
	eachPart(t, "encode.jsonl", func(t *testing.T, all []encodeRecord) { checkEncode(t, tok, all) })
}

// The same tokenizer in the form of older writers, and in the files of before.
func TestOtherForms(t *testing.T) {
	dir := filepath.Join(sharedDir(t), "qwen2.5-math-1.5b")
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	var top map[string]any
	if err := json.Unmarshal([]byte(read("tokenizer.json")), &top); err != nil {
		t.Fatal(err)
	}
	model := top["model"].(map[string]any)
	for i, m := range model["merges"].([]any) {
		pair := m.([]any)
		model["merges"].([]any)[i] = pair[0].(string) + " " + pair[1].(string)
	}
	strings, err := json.MarshalIndent(top, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for name, fsys := range map[string]fs.FS{
		"merges as strings": files("tokenizer.json", string(strings)),
		"vocab.json and merges.txt": files("vocab.json", read("vocab.json"), "merges.txt", read("merges.txt"),
			"tokenizer_config.json", read("tokenizer_config.json")),
	} {
		tok, err := LoadFS(fsys)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Run(name, func(t *testing.T) {
			eachPart(t, "encode.jsonl", func(t *testing.T, all []encodeRecord) { checkEncode(t, tok, all) })
		})
	}
}

func TestDecodeRecords(t *testing.T) {
	tok := qwen(t)
	eachPart(t, "decode.jsonl", func(t *testing.T, all []decodeRecord) { checkDecodes(t, tok, all) })
}

type decodeRecord struct {
	ID                 string
	IDs                []int32
	Decoded            string
	DecodedSkipSpecial string `json:"decoded_skip_special"`
}

func checkDecodes(t *testing.T, tok *Tokenizer, all []decodeRecord) {
	for _, r := range all {
		checkDecode(t, tok, r.ID, r.IDs, r.Decoded, false)
		checkDecode(t, tok, r.ID, r.IDs, r.DecodedSkipSpecial, true)
	}
}

func TestChatRecords(t *testing.T) {
	tok := qwen(t)
	eachPart(t, "chat.jsonl", func(t *testing.T, all []chatRecord) { checkChats(t, tok, all) })
}

type chatRecord struct {
	ID string
	Conversation
	Rendered string
	IDs      []int32
}

func checkChats(t *testing.T, tok *Tokenizer, all []chatRecord) {
	for _, r := range all {
		text, ids, err := tok.EncodeChat(r.Conversation)
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
	eachPart(t, "prompt_templates.jsonl", func(t *testing.T, all []record) {
		for _, r := range all {
			tmpl, err := ParseTemplate(r.Template)
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
	})
}

// TestFamilies compares the tokenizers of more families with the reference.
func TestFamilies(t *testing.T) {
	root := filepath.Join(filepath.Dir(sharedDir(t)), "tokenizer_families")
	packed, err := filepath.Glob(filepath.Join(root, "*", "tokenizer.json.xz"))
	if err != nil || len(packed) == 0 {
		t.Skipf("the reference records are not on this machine: %v", err)
	}
	for _, path := range packed {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			t.Parallel()
			from, dir := filepath.Dir(path), t.TempDir()
			file, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			unpacked, err := xz.NewReader(file)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(unpacked)
			if err != nil {
				t.Fatal(err)
			}
			config, err := os.ReadFile(filepath.Join(from, "tokenizer_config.json"))
			if err != nil {
				t.Fatal(err)
			}
			for name, data := range map[string][]byte{"tokenizer.json": text, "tokenizer_config.json": config} {
				if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			tok, err := Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range records[encodeRecord](t, filepath.Join(from, "encode.jsonl")) {
				want := r.IDs
				if r.Special != nil {
					want = r.Special
				}
				if got := tok.Encode(r.Text); !slices.Equal(got, want) {
					t.Errorf("%s (%s): Encode(%.200q) = %v, want %v", r.ID, r.Category, r.Text, got, want)
				}
			}
			checkDecodes(t, tok, records[decodeRecord](t, filepath.Join(from, "decode.jsonl")))
			checkChats(t, tok, records[chatRecord](t, filepath.Join(from, "chat.jsonl")))
		})
	}
}
