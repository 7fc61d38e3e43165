package tokenize

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"
)

// TestRandom compares random texts and ids of all of Unicode with the reference
// (testdata/random.py), by the stages of each family around small vocabularies.
func TestRandom(t *testing.T) {
	toks := map[string]*Tokenizer{"qwen": small(t, "qwen")}
	n := map[string]int{}
	for _, r := range records[struct {
		Kind, Name, Of string
		Stages         map[string]any
		Whole          bool
		Text           string
		IDs            map[string][]int32
		List           []int32
		Decoded        string
		Skipped        string
	}](t, "testdata/random.jsonl") {
		n[r.Kind]++
		switch r.Kind {
		case "tokenizer":
			toks[r.Name] = staged(t, r.Of, r.Stages, r.Whole)
		case "text":
			for name, want := range r.IDs {
				if got := toks[name].Encode(r.Text); !slices.Equal(got, want) {
					t.Errorf("%s: Encode(%+q) = %v, want %v", name, r.Text, got, want)
				}
			}
		case "ids":
			tok := toks[r.Name]
			checkDecode(t, tok, r.Name, r.List, r.Decoded, false)
			checkDecode(t, tok, r.Name, r.List, r.Skipped, true)
			stream := tok.NewDecoder()
			var got string
			for _, id := range r.List {
				got += stream.Add(id)
			}
			if got += stream.Flush(); got != r.Decoded {
				t.Errorf("%s: %v one by one are %+q, want %+q", r.Name, r.List, got, r.Decoded)
			}
		}
	}
	if want := map[string]int{"tokenizer": 4, "text": 164, "ids": 300}; !maps.Equal(n, want) {
		t.Errorf("%v records, want %v", n, want)
	}
}

// staged is a tokenizer with one of the small vocabularies and these stages; with whole,
// pieces that are in the vocabulary become one token.
func staged(t *testing.T, of string, stages map[string]any, whole bool) *Tokenizer {
	t.Helper()
	path := "testdata/qwen/tokenizer.json"
	if of == "sentence" {
		path = "testdata/sentence.json"
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var content map[string]any
	if err := json.Unmarshal(data, &content); err != nil {
		t.Fatal(err)
	}
	if of == "sentence" {
		content = content["base"].(map[string]any)
	}
	maps.Copy(content, stages)
	content["model"].(map[string]any)["ignore_merges"] = whole
	if data, err = json.Marshal(content); err != nil {
		t.Fatal(err)
	}
	tok, err := LoadFS(files("tokenizer.json", string(data)))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}
