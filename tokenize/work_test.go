package tokenize

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// The tests in this file count work that grows with a file from outside.

// naive does the work of addedSet.split without an automaton: at each place it tries every token.
func naive(tokens []addedToken, s string) (pieces []string) {
	text := ""
	for i := 0; i < len(s); {
		best := ""
		for _, t := range tokens {
			if strings.HasPrefix(s[i:], t.Content) && len(t.Content) > len(best) {
				best = t.Content
			}
		}
		if best == "" {
			text, i = text+s[i:i+1], i+1
			continue
		}
		if text != "" {
			pieces = append(pieces, text)
		}
		pieces, text, i = append(pieces, "<"+best+">"), "", i+len(best)
	}
	if text != "" {
		pieces = append(pieces, text)
	}
	return pieces
}

// TestAddedTokensByTrying compares the automaton with trying every token at every
// place, on tokens that are parts of one another.
func TestAddedTokensByTrying(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	word := func(most int) string {
		var b strings.Builder
		for range 1 + r.IntN(most) {
			b.WriteByte("abc"[r.IntN(3)])
		}
		return b.String()
	}
	for range 3000 {
		var set addedSet
		for n := range 1 + r.IntN(6) {
			if text := word(5); !set.has(text) {
				set.add(addedToken{ID: int32(n), Content: text})
			}
		}
		if err := set.build(); err != nil {
			t.Fatal(err)
		}
		byID := map[int32]string{}
		for _, x := range set.tokens {
			byID[x.ID] = x.Content
		}
		s := word(40)
		var got []string
		set.split(s, func(text string) { got = append(got, text) }, func(id int32) { got = append(got, "<"+byID[id]+">") })
		if want := naive(set.tokens, s); !slices.Equal(got, want) {
			t.Fatalf("%q with tokens %v: %q, want %q", s, set.tokens, got, want)
		}
	}
}

// TestAddedTokensWork has tokens that nearly match everywhere: the number of edges that
// the automaton tries grows in proportion to the text.
func TestAddedTokensWork(t *testing.T) {
	for _, tokens := range [][]string{
		{strings.Repeat("a", 1000) + "b"},
		{"a", strings.Repeat("a", 1000) + "b"},
		{"b" + strings.Repeat("a", 1000)},
		{strings.Repeat("ab", 500) + "c", "ba", "abab"},
	} {
		var set addedSet
		for n, text := range tokens {
			set.add(addedToken{ID: int32(n), Content: text})
		}
		if err := set.build(); err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{2000, 8000, 32000} {
			for _, text := range []string{strings.Repeat("a", n), strings.Repeat("ab", n/2), strings.Repeat("a", n-1) + "b"} {
				if _, tried := set.find(text); tried > 3*n {
					t.Errorf("tokens %.10q... on %d bytes of %.10q...: %d edges tried, more than 3 for each byte", tokens, n, text, tried)
				}
			}
		}
	}
}

// TestAddedTokensStrip has tokens that take the white space around them, in a text of
// white space: each byte is read a few times.
func TestAddedTokensStrip(t *testing.T) {
	for _, token := range []addedToken{{Content: " ", LStrip: true}, {Content: " ", RStrip: true}, {Content: " ", LStrip: true, RStrip: true}} {
		var set addedSet
		set.add(token)
		if err := set.build(); err != nil {
			t.Fatal(err)
		}
		const n = 1 << 18 // Reading the rest of the text for each byte would take 34,000 million reads.
		count := 0
		set.split(strings.Repeat(" ", n), func(s string) { t.Errorf("the text %.10q", s) }, func(int32) { count++ })
		if count != n {
			t.Errorf("%+v: %d tokens in %d blanks", token, count, n)
		}
	}
}

// TestManyAddedTokens counts allocations for n tokens and for 4n.
func TestManyAddedTokens(t *testing.T) {
	allocations := func(n int) float64 {
		tokens := make([]addedToken, n)
		for i := range tokens {
			tokens[i] = addedToken{ID: int32(i), Content: fmt.Sprintf("<|%d|>", i)}
		}
		return testing.AllocsPerRun(1, func() {
			b := &builder{t: &Tokenizer{bpe: newBPE()}}
			b.t.ids = map[string]int32{}
			b.added = tokens
			for _, a := range tokens {
				if err := b.addToken(a); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.t.addedRaw.build(); err != nil {
				t.Fatal(err)
			}
		})
	}
	if one, four := allocations(2000), allocations(8000); four > 6*one {
		t.Errorf("2,000 added tokens take %.0f allocations, 8,000 take %.0f", one, four)
	}
	var set addedSet
	set.add(addedToken{Content: strings.Repeat("x", maxAddedText+1)})
	if err := set.build(); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("an added token of %d bytes: %v", maxAddedText+1, err)
	}
}

// TestPatternWork has expressions that read to the end of the text for each piece, or
// for each place at which they do not match.
func TestPatternWork(t *testing.T) {
	for _, expr := range []string{`a(?:.*b)?`, `(a*)*(a|a)*b|a`, `a(?=b)|a`, `(?:a|aa|aaa)+b|.`, qwenPattern, gptPattern} {
		p, err := compile(expr)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{3_000, 9_000} {
			for _, unit := range []string{"a", " ", "a \n"} {
				m, text := newMachine(p), strings.Repeat(unit, n/len(unit))
				for i := 0; i < len(text); {
					start, end := m.find(p, text, i)
					if i = end; start == len(text) {
						break
					}
				}
				if m.read > (maxAhead+3)*n {
					t.Errorf("%s on %d bytes of %q: %d characters read", expr, n, unit, m.read)
				}
			}
		}
	}
}

// TestHostileTokenizers loads files that would take years, or all memory.
func TestHostileTokenizers(t *testing.T) {
	ids := strings.TrimSuffix(strings.Repeat("7,", 1000), ",")
	process := func(parts, processors int) string {
		part := `{"type":"TemplateProcessing","single":[` + strings.Repeat(`{"SpecialToken":{"id":"x"}},`, parts) + `{"Sequence":{"id":"A"}}],"special_tokens":{"x":{"ids":[%s]}}}`
		return `{"type":"Sequence","processors":[` + strings.TrimSuffix(strings.Repeat(part+",", processors), ",") + `]}`
	}
	split := func(pattern string) string {
		quoted, err := json.Marshal(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return `{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":` + string(quoted) + `},"behavior":"Isolated"},{"type":"ByteLevel"}]}`
	}
	digits := strings.Repeat(`{"type":"Digits"},`, 1000)
	for _, tt := range []struct{ key, value, want string }{
		{"normalizer", strings.Repeat(`{"type":"Sequence","normalizers":[`, 4000) + "{}" + strings.Repeat("]}", 4000), "normalizer: nested deeper than 100"},
		{"pre_tokenizer", strings.Repeat(`{"type":"Sequence","pretokenizers":[`, 4000) + "{}" + strings.Repeat("]}", 4000), "pre_tokenizer: nested deeper than 100"},
		{"post_processor", strings.Repeat(`{"type":"Sequence","processors":[`, 4000) + "{}" + strings.Repeat("]}", 4000), "post_processor: nested deeper than 100"},
		{"decoder", strings.Repeat(`{"type":"Sequence","decoders":[`, 4000) + "{}" + strings.Repeat("]}", 4000), "decoder: nested deeper than 100"},
		{"decoder", strings.Repeat(`[`, 100_000), "ends in the middle"},
		{"post_processor", strings.ReplaceAll(process(1000, 1), "%s", ids), "more than 64 tokens"},
		{"post_processor", strings.ReplaceAll(process(1, 1000), "%s", "7"), "more than 64 tokens"},
		{"post_processor", strings.ReplaceAll(process(1, 1), "%s", "4000000"), "no token has the id 4000000"},
		{"post_processor", strings.ReplaceAll(process(1, 1), "%s", "-1"), "no token has the id -1"},
		{"pre_tokenizer", `{"type":"Sequence","pretokenizers":[` + digits + `{"type":"ByteLevel"}]}`, "pre_tokenizer: more than 64 stages"},
		{"pre_tokenizer", split("[" + strings.Repeat("ab", 200_000) + "]"), "a class of more than 20000 items"},
		{"pre_tokenizer", split(strings.Repeat("["+strings.Repeat("ab", 4000)+"]{0,100}", 4)), "longer than 20000 instructions"},
		{"pre_tokenizer", split(strings.Repeat("(a?){0,1000}", 1000)), "longer than 20000 instructions"},
		{"pre_tokenizer", split("(?<=" + strings.Repeat("a", 1<<20) + ")"), "this kind of group is not supported"},
		{"added_tokens", `[{"id":1048575,"content":"` + strings.Repeat("x", maxAddedText+1) + `"}]`, "added tokens of"},
		{"added_tokens", `[{"id":2147483647,"content":"x"}]`, "out of range"},
		{"added_tokens", `[{"id":-1,"content":"x"}]`, "out of range"},
		{"added_tokens", strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000), "added_tokens: "},
	} {
		model := edited(t, func(top map[string]any) { top[tt.key] = "PLACE" })
		_, err := LoadFS(files("tokenizer.json", strings.Replace(model, `"PLACE"`, tt.value, 1)))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s = %.60s...: error %.200v, want %q", tt.key, tt.value, err, tt.want)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%s = %.60s...: an error of %d bytes", tt.key, tt.value, len(err.Error()))
		}
	}
}
