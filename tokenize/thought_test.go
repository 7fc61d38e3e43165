package tokenize

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// TestThoughts cuts turns whole and byte by byte. A prompt that ends in <think> is "open".
func TestThoughts(t *testing.T) {
	for _, tt := range []struct{ prompt, text, thought, said string }{
		{"", "RIGHT", "", "RIGHT"},
		{"", " \n RIGHT \n", "", " \n RIGHT \n"},
		{"", "<think>\n\n</think>\n\nRIGHT", "", "RIGHT"},
		{"", "\n<think>a</think>b", "a", "b"},
		{"", "<think>\n a\n b \n</think>\n\n RIGHT\n", "a\n b", "RIGHT\n"},
		{"", "<think>a</think>\n<think>b</think> c", "ab", "c"},
		{"", "<think>a", "a", ""},
		{"", "<think>a </thi", "a </thi", ""},
		{"", "<think>a</think>\n<thi", "a", "<thi"},
		{"", "<thinking> a", "", "<thinking> a"},
		{"", " <thin", "", " <thin"},
		{"", "I say <think>a</think>", "", "I say <think>a</think>"},
		{"", "<think>a < b</think><tool_call>", "a < b", "<tool_call>"},
		{"", "", "", ""},
		{"open", "a</think>\n\nb", "a", "b"},
		{"open", "\n\n</think>\nb", "", "b"},
		{"open", "a", "a", ""},
		{"open", "", "", ""},
	} {
		begin := func() *Thoughts {
			if tt.prompt == "open" {
				return &Thoughts{state: insideThought, hadThought: true}
			}
			return new(Thoughts)
		}
		for size := range []int{1, 2, 3, 100} {
			x := begin()
			var thought, said string
			for rest := tt.text; rest != ""; {
				n := min(size+1, len(rest))
				a, b := x.Add(rest[:n])
				thought, said, rest = thought+a, said+b, rest[n:]
			}
			a, b := x.End()
			if thought, said = thought+a, said+b; thought != tt.thought || said != tt.said {
				t.Errorf("%s %q in pieces of %d: %q and %q, want %q and %q", tt.prompt, tt.text, size+1, thought, said, tt.thought, tt.said)
			}
		}
	}
}

// TestTurn: marks are read where they are special tokens, too, and a prompt that ends
// in one begins a thought.
func TestTurn(t *testing.T) {
	for _, special := range []bool{false, true} {
		k := markedTokenizer(t, special)
		for _, tt := range []struct{ prompt, turn, thought, said string }{
			{"a<think> ", "b</think> c<|end|>", "b", "c"},
			{"a<think></think>", "b<|end|>", "", "b"},
			{"a", "<think>b</think>c<|end|>", "b", "c"},
		} {
			thought, said := k.NewDecoder().Turn(k.Encode(tt.prompt), k.Encode(tt.turn))
			if thought != tt.thought || said != tt.said {
				t.Errorf("special %v, %q after %q: %q and %q", special, tt.turn, tt.prompt, thought, said)
			}
		}
	}
}

// markedTokenizer has a few letters, and the marks of thoughts as tokens.
func markedTokenizer(t *testing.T, special bool) *Tokenizer {
	t.Helper()
	added := map[string]any{}
	for i, name := range []string{"<think>", "</think>", "<|end|>"} {
		added[strconv.Itoa(4+i)] = map[string]any{"content": name, "special": special || name == "<|end|>"}
	}
	config, _ := json.Marshal(map[string]any{"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": added})
	dir := t.TempDir()
	for name, text := range map[string]string{"tokenizer_config.json": string(config), "vocab.json": `{"a": 0, "b": 1, "c": 2, "Ġ": 3}`, "merges.txt": "#version: 0.2\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tok, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}
