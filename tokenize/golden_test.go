package tokenize

import (
	"path/filepath"
	"slices"
	"testing"
)

type golden struct {
	Tokenizer, Kind  string
	Text             string
	IDs              []int32
	Decoded, Skipped string
	Messages         []Message
	Prompt           bool
	Stage            any // for a pipeline, its pre_tokenizer
	Texts            []string
	AllIDs           [][]int32 `json:"all_ids"`
}

func small(tb testing.TB, name string) *Tokenizer {
	tb.Helper()
	t, err := Load(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func goldens(tb testing.TB, kind string) []golden {
	all := records[golden](tb, filepath.Join("testdata", "golden.jsonl"))
	return slices.DeleteFunc(all, func(g golden) bool { return g.Kind != kind })
}

func TestGoldenEncode(t *testing.T) {
	toks := map[string]*Tokenizer{"qwen": small(t, "qwen"), "deepseek": small(t, "deepseek")}
	for _, g := range goldens(t, "encode") {
		tok := toks[g.Tokenizer]
		if got := tok.Encode(g.Text); !slices.Equal(got, g.IDs) {
			t.Errorf("%s: Encode(%q) = %v, want %v", g.Tokenizer, g.Text, got, g.IDs)
		}
		checkDecode(t, tok, g.Tokenizer, g.IDs, g.Decoded, false)
		checkDecode(t, tok, g.Tokenizer, g.IDs, g.Skipped, true)
	}
}

func TestGoldenDecode(t *testing.T) {
	toks := map[string]*Tokenizer{"qwen": small(t, "qwen"), "deepseek": small(t, "deepseek")}
	for _, g := range goldens(t, "decode") {
		checkDecode(t, toks[g.Tokenizer], g.Tokenizer, g.IDs, g.Decoded, false)
		checkDecode(t, toks[g.Tokenizer], g.Tokenizer, g.IDs, g.Skipped, true)
	}
}

// TestGoldenPipelines checks pre-tokenizers other than Qwen2's, without a normalizer.
func TestGoldenPipelines(t *testing.T) {
	for _, g := range goldens(t, "pipeline") {
		tok, err := LoadFS(files("tokenizer.json", edited(t, func(top map[string]any) {
			with("pre_tokenizer", g.Stage)(top)
			with("normalizer", map[string]any{"type": "Sequence", "normalizers": []any{}})(top)
		})))
		if err != nil {
			t.Fatalf("%s: %v", g.Tokenizer, err)
		}
		for i, text := range g.Texts {
			if got := tok.Encode(text); !slices.Equal(got, g.AllIDs[i]) {
				t.Errorf("%s: Encode(%q) = %v, want %v", g.Tokenizer, text, got, g.AllIDs[i])
			}
		}
	}
}

func TestGoldenChat(t *testing.T) {
	toks := map[string]*Tokenizer{"qwen": small(t, "qwen"), "deepseek": small(t, "deepseek")}
	for _, g := range goldens(t, "chat") {
		text, ids, err := toks[g.Tokenizer].EncodeChat(Conversation{Messages: g.Messages, AddGenerationPrompt: g.Prompt})
		if err != nil {
			t.Fatalf("%s: %v", g.Tokenizer, err)
		}
		if text != g.Text {
			t.Errorf("%s: Chat = %q, want %q", g.Tokenizer, text, g.Text)
		}
		if !slices.Equal(ids, g.IDs) {
			t.Errorf("%s: ids of %q = %v, want %v", g.Tokenizer, text, ids, g.IDs)
		}
	}
}

// TestOneBOS: a chat of DeepSeek's has one BOS, though both the template and the tokenizer of an
// encoded text write one.
func TestOneBOS(t *testing.T) {
	tok := small(t, "deepseek")
	bos, ok := tok.BOS()
	if !ok || tok.Token(bos) != "<｜begin▁of▁sentence｜>" {
		t.Fatalf("BOS = %d, %v", bos, ok)
	}
	_, ids, err := tok.EncodeChat(Talk(Message{Role: "user", Content: "hi"}))
	if err != nil {
		t.Fatal(err)
	}
	written, err := ParseTemplate("<｜begin▁of▁sentence｜><｜User｜>{problem}<｜Assistant｜><think>\n") // as the run file of R1-Distill has it
	if err != nil {
		t.Fatal(err)
	}
	_, prompt, err := tok.Prompt(written, "hi")
	if err != nil {
		t.Fatal(err)
	}
	for _, ids := range [][]int32{ids, prompt, tok.Encode("hi"), tok.Encode("")} {
		if n := len(slices.DeleteFunc(slices.Clone(ids), func(id int32) bool { return id != bos })); n != 1 || ids[0] != bos {
			t.Errorf("ids %v have %d BOS (%d), want one, in front", ids, n, bos)
		}
	}
}

func TestAccessors(t *testing.T) {
	tok := small(t, "qwen")
	if n := tok.VocabSize(); n != 1760 {
		t.Errorf("VocabSize = %d, want 1760", n)
	}
	eos, ok := tok.EOS()
	if !ok || tok.Token(eos) != "<|endoftext|>" {
		t.Errorf("EOS = %d (%q), %v", eos, tok.Token(eos), ok)
	}
	if id, ok := tok.BOS(); ok {
		t.Errorf("BOS = %d, want none", id)
	}
	for id := range int32(tok.VocabSize()) {
		if got, ok := tok.ID(tok.Token(id)); !ok || got != id {
			t.Fatalf("ID(Token(%d)) = %d, %v", id, got, ok)
		}
	}
	for _, id := range []int32{-1, 1760, 1 << 30, -1 << 31} {
		if name, text := tok.Token(id), tok.Decode([]int32{id}, false); name != "" || text != "" {
			t.Errorf("id %d: Token %q, Decode %q, want nothing", id, name, text)
		}
	}
	if id, ok := tok.ID("no such token"); ok {
		t.Errorf("ID of a token that is not there = %d", id)
	}
	if err := tok.Check("any text at all \x00 é 中"); err != nil {
		t.Errorf("Check = %v, want nil: the vocabulary has all bytes", err)
	}
}
