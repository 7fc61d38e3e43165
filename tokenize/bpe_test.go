package tokenize

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// mergeNaive is the definition: it merges the best pair, the leftmost of equal ones,
// until no pair is left.
func mergeNaive(b *bpe, ids []int32) []int32 {
	for {
		best, at := int32(noRank), -1
		for i := 0; i+1 < len(ids); i++ {
			if r := b.rank(ids[i], ids[i+1]); r < best {
				best, at = r, i
			}
		}
		if at < 0 {
			return ids
		}
		ids = slices.Concat(ids[:at], []int32{b.merged[best]}, ids[at+2:])
	}
}

func TestMerges(t *testing.T) {
	b := small(t, "qwen").bpe
	// There are few letters, so that many pairs merge and ranks repeat.
	letter := rapid.SampledFrom([]byte("aeinorst  \n=-\xc3\xa9"))
	rapid.Check(t, func(t *rapid.T) {
		var ids []int32
		for _, c := range rapid.SliceOfN(letter, 0, 2*shortPiece).Draw(t, "bytes") {
			ids = append(ids, b.bytes[c])
		}
		want := mergeNaive(b, ids)
		if got, _ := b.mergeLong(slices.Clone(ids)); !slices.Equal(got, want) {
			t.Fatalf("mergeLong(%v) = %v, want %v", ids, got, want)
		}
		if len(ids) > shortPiece {
			return
		}
		if got := b.mergeShort(slices.Clone(ids)); !slices.Equal(got, want) {
			t.Fatalf("mergeShort(%v) = %v, want %v", ids, got, want)
		}
	})
}

// A word ten times as long must not take a hundred times the work.
func TestLongWordIsNotQuadratic(t *testing.T) {
	b := small(t, "qwen").bpe
	for _, letters := range []int{20_000, 200_000} {
		var ids []int32
		for _, c := range []byte(strings.Repeat("intentional", letters/11)) {
			ids = append(ids, b.bytes[c])
		}
		n := len(ids)
		if merged, ranked := b.mergeLong(ids); len(merged) == n || ranked > 3*n {
			t.Errorf("%d letters became %d tokens, and %d pairs were ranked, want at most three a letter", n, len(merged), ranked)
		}
	}
}

func TestPairHeap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOf(rapid.Uint64Range(0, 50)).Draw(t, "values")
		var h pairHeap
		for _, v := range values {
			h.push(v)
		}
		var got []uint64
		for len(h) > 0 {
			got = append(got, h.pop())
		}
		slices.Sort(values)
		if !slices.Equal(got, values) {
			t.Fatalf("popped %v, want %v", got, values)
		}
	})
}

// TestCache: a piece that is encoded again, from the cache, gets the same ids.
func TestCache(t *testing.T) {
	tok := small(t, "qwen")
	for range 2 {
		for _, g := range goldens(t, "encode") {
			if got := tok.Encode(g.Text); g.Tokenizer == "qwen" && !slices.Equal(got, g.IDs) {
				t.Errorf("Encode(%q) = %v, want %v", g.Text, got, g.IDs)
			}
		}
	}
	used := 0
	for i := range tok.bpe.cache {
		if tok.bpe.cache[i].Load() != nil {
			used++
		}
	}
	if used == 0 {
		t.Error("nothing is in the cache")
	}
}

// TestModelOptions compares unk_token, fuse_unk and ignore_merges with the ids of the
// reference (tokenizers 0.23.3) for the same files.
func TestModelOptions(t *testing.T) {
	load := func(edits ...func(map[string]any)) *Tokenizer {
		tok, err := LoadFS(files("tokenizer.json", edited(t, func(top map[string]any) {
			for _, edit := range edits {
				edit(top)
			}
		})))
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
	vocab := map[string]any{"<unk>": 0, "a": 1, "b": 2, "ab": 3, "abb": 4}
	few := func(top map[string]any) {
		with("model.vocab", vocab)(top)
		with("model.merges", []any{"a b"})(top)
		with("added_tokens", []any{})(top)
	}
	for _, c := range []struct {
		name string
		tok  *Tokenizer
		want []int32 // of "abbé ab"
	}{
		{"dropped", load(few), []int32{3, 2, 3}},
		{"unk", load(few, with("model.unk_token", "<unk>")), []int32{3, 2, 0, 0, 0, 3}},
		{"fused", load(few, with("model.unk_token", "<unk>"), with("model.fuse_unk", true)), []int32{3, 2, 0, 0, 3}},
		{"whole", load(few, with("model.ignore_merges", true)), []int32{3, 2, 3}},
	} {
		if got := c.tok.Encode("abbé ab"); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	whole := load(few, with("model.ignore_merges", true))
	if got := whole.Encode("abb"); !slices.Equal(got, []int32{4}) {
		t.Errorf("ignore_merges: Encode(abb) = %v, want the token abb", got)
	}
	if err := whole.Check("abé"); err == nil || !strings.Contains(err.Error(), "é") {
		t.Errorf("Check = %v, want an error that names é", err)
	}
}
