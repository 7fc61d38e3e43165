package tokenize

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"
)

// TestSentence compares vocabularies in the style of Llama 2 with the reference
// (testdata/sentence.py): encoding, decoding at once and one token after the other.
func TestSentence(t *testing.T) {
	data, err := os.ReadFile("testdata/sentence.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Base  map[string]any
		Texts []string
		Rows  []struct {
			Name             string
			Form             map[string]any
			ByteFallback     bool      `json:"byte_fallback"`
			Fuse             bool      `json:"fuse_unk"`
			AllIDs           [][]int32 `json:"all_ids"`
			Lists            [][]int32
			Decoded, Skipped []string
		}
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	for _, r := range golden.Rows {
		maps.Copy(golden.Base, r.Form)
		model := golden.Base["model"].(map[string]any)
		model["byte_fallback"], model["fuse_unk"] = r.ByteFallback, r.Fuse
		text, err := json.Marshal(golden.Base)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := LoadFS(files("tokenizer.json", string(text)))
		if err != nil {
			t.Errorf("%s: %v", r.Name, err)
			continue
		}
		for i, text := range golden.Texts {
			if got := tok.Encode(text); !slices.Equal(got, r.AllIDs[i]) {
				t.Errorf("%s: Encode(%q) = %v, want %v", r.Name, text, got, r.AllIDs[i])
			}
		}
		if id, ok := tok.ID("<0x0A>"); ok && r.ByteFallback { // A stop text may end with this token.
			if d := tok.NewDecoder(); d.Add(id)+d.Pending() != tok.Decode([]int32{id}, false) || string(d.Bytes(id)) != tok.Decode([]int32{id}, false) {
				t.Errorf("%s: %q is pending after a byte token, its bytes are %q", r.Name, d.Pending(), d.Bytes(id))
			}
		}
		for i, ids := range r.Lists {
			checkDecode(t, tok, r.Name, ids, r.Decoded[i], false)
			checkDecode(t, tok, r.Name, ids, r.Skipped[i], true)
		}
	}
	if len(golden.Rows) < 10 {
		t.Fatalf("%d rows", len(golden.Rows))
	}
}
