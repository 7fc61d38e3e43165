package tokenize

import (
	"path/filepath"
	"strings"
	"testing"
)

// realText returns the reference texts of the given categories, all if none is given.
func realText(b *testing.B, categories ...string) string {
	var text strings.Builder
	for _, r := range records[encodeRecord](b, filepath.Join(sharedDir(b), "dev", "encode.jsonl")) {
		for _, c := range categories {
			if r.Category == c {
				text.WriteString(r.Text + "\n")
			}
		}
		if len(categories) == 0 {
			text.WriteString(r.Text + "\n")
		}
	}
	return text.String()
}

func BenchmarkEncode(b *testing.B) {
	tok := qwen(b)
	for _, c := range []struct {
		name       string
		categories []string
	}{
		{"math", []string{"math_problem", "math_solution", "model_solution", "english_gsm"}},
		{"code", []string{"code"}},
		{"chinese", []string{"chinese", "chinese_plain", "chinese_latex"}},
		{"all", nil},
	} {
		text := realText(b, c.categories...)
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				tok.Encode(text)
			}
		})
		// Every piece is encoded for the first time.
		b.Run(c.name+"/cold", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			cold := *tok // shares all but the cache
			for b.Loop() {
				b.StopTimer()
				cold.bpe = newBPE()
				cold.bpe.startCache(maxCache)
				cold.bpe.bytes, cold.bpe.ranks, cold.bpe.merged = tok.bpe.bytes, tok.bpe.ranks, tok.bpe.merged
				b.StartTimer()
				cold.Encode(text)
			}
		})
	}
	for _, word := range []string{"a", "ab", "qwxz", "ก"} {
		text := strings.Repeat(word, 20000/len(word))
		b.Run("20000-letter-word/"+word, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.Encode(text)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	tok := qwen(b)
	text := realText(b)
	ids := tok.Encode(text)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		tok.Decode(ids, true)
	}
}

func BenchmarkStreamDecode(b *testing.B) {
	tok := qwen(b)
	text := realText(b)
	ids := tok.Encode(text)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		d := tok.NewDecoder()
		for _, id := range ids {
			d.Add(id)
		}
		d.Flush()
	}
}

func BenchmarkLoad(b *testing.B) {
	dir := filepath.Join(sharedDir(b), "qwen2.5-math-1.5b")
	for b.Loop() {
		if _, err := Load(dir); err != nil {
			b.Fatal(err)
		}
	}
}
