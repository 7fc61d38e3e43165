package tokenize

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

var byHand, _ = newFinder(qwenPattern)

func pieces(cut cutter, s string) []string {
	var out []string
	for i := 0; i < len(s); {
		start, end := cut(s, i)
		if start < end {
			out = append(out, s[start:end])
		}
		i = end
	}
	return out
}

// TestCutQwen has cases that distinguish the alternatives of qwenPattern, with the reference's
// results.
func TestCutQwen(t *testing.T) {
	for text, want := range map[string]string{
		"Hello, world":    "Hello|,| world",
		"a  b":            "a| | b",
		"a   ":            "a|   ",
		"a \n b":          "a| \n| b",
		" \n \n x":        " \n \n| x",
		"\n\n":            "\n\n",
		"x\r\n\ty":        "x|\r\n|\ty",
		"1234":            "1|2|3|4",
		" 1":              " |1",
		"it's 'twas I'LL": "it|'s| '|twas| I|'LL",
		"'ſt":             "'ſ|t",
		"'re'":            "'re|'",
		"don’t":           "don|’t",
		"\"a\" (b)":       "\"a|\"| (|b|)",
		"a.\n\nb":         "a|.\n\n|b",
		"\u3000中文":        "\u3000中文",
		"\u00a0\u00a0x":   "\u00a0|\u00a0x",
		"हिन्दी":          "ह|िन|्द|ी",
		"\U00016d40":      "\U00016d40", // This character is a letter since Unicode 16.
		"x\U0001e5f1":     "x|\U0001e5f1",
		"\u200bx\u200b":   "\u200bx|\u200b",
		"\t\tx":           "\t|\tx",
		" !\n x":          " !\n| x",
		"_a-b":            "_a|-b",
		"'":               "'",
		"' ":              "'| ",
	} {
		if got := strings.Join(pieces(byHand.isolated, text), "|"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestCutQwenIsItsPattern: the hand-written cutter and the machine for its pattern agree.
func TestCutQwenIsItsPattern(t *testing.T) {
	p, err := compile(qwenPattern)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := anyText().Draw(t, "text")
		got, want := pieces(byHand.isolated, text), pieces(finder(p.find).isolated, text)
		if !slices.Equal(got, want) {
			t.Fatalf("%+q: by hand %+q, by the pattern %+q", text, got, want)
		}
	})
	// They must also agree on every character, alone and before others.
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r%7 != 0 && r > 0x3000 || r >= 0xD800 && r < 0xE000 {
			continue
		}
		text := "a" + string(r) + string(r) + "1 " + string(r) + "b"
		if got, want := pieces(byHand.isolated, text), pieces(finder(p.find).isolated, text); !slices.Equal(got, want) {
			t.Fatalf("%+q: by hand %+q, by the pattern %+q", text, got, want)
		}
	}
}

// TestSplit compares the behaviors of Split with the reference's (testdata/split.py).
func TestSplit(t *testing.T) {
	for _, c := range records[struct {
		Kind, Pattern, Behavior string
		Invert                  bool
		Rows                    [][2]any
	}](t, "testdata/split.jsonl") {
		find := literalFinder(c.Pattern)
		if c.Kind == "Regex" {
			var err error
			if find, err = newFinder(c.Pattern); err != nil {
				t.Fatal(err)
			}
		}
		cut, err := find.cutter(c.Behavior, c.Invert)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range c.Rows {
			got := pieces(cut, row[0].(string))
			if fmt.Sprint(got) != fmt.Sprint(row[1]) || len(got) != len(row[1].([]any)) {
				t.Errorf("%s %q, %s, invert %v, of %q: %q, want %q", c.Kind, c.Pattern, c.Behavior, c.Invert, row[0], got, row[1])
			}
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct{ pattern, text, want string }{
		{`a|ab`, "abab", "a|b|a|b"}, // The first alternative counts, not the longest.
		{`ab|a`, "abac", "ab|a|c"},
		{`a*b`, "xaabab", "x|aab|ab"},
		{`a*`, "baab", "b|aa|b"},
		{`(ab)+`, "ababa", "abab|a"},
		{`a{2}`, "aaaaa", "aa|aa|a"},
		{`a{1,3}`, "aaaa", "aaa|a"},
		{`a{2,}b?`, "aaaab", "aaaab"},
		{`\p{N}{1,3}`, "12345", "123|45"},
		{`[\r\n]`, "a\r\nb", "a|\r|\n|b"},
		{`[^\s\p{L}]+`, "ab 12,x", "ab |12,|x"},
		{`[a-c\-\]^]+`, "ab-]^d", "ab-]^|d"},
		{`\s+(?!\S)`, "a   b  ", "a|  | b|  "},
		{`a(?=b)`, "abac", "a|bac"},
		{`(?i:k|ss)`, "K\u212ASSs", "K|\u212A|SS|s"},
		{`\x41|\x{1F600}|\u4e2d`, "xA😀中", "x|A|😀|中"},
		{`.`, "a\nb", "a|\n|b"},
		{`\P{L}|\p{^N}`, "a1", "a|1"},
		{`\p{Han}+|\p{Lu}`, "中文aB", "中文|a|B"},
		{`\d+\.\d+`, "3.14.15", "3.14|.15"},
		{`x`, "", ""},
		{``, "ab", "ab"},
		{`(a|b|)*c`, "abac", "abac"},
		{gptPattern, "it's  10 x's", "it|'s| | 10| x|'s"},
	} {
		p, err := compile(c.pattern)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := strings.Join(pieces(finder(p.find).isolated, c.text), "|"); got != c.want {
			t.Errorf("%s on %q: %q, want %q", c.pattern, c.text, got, c.want)
		}
	}
	if got := strings.Join(pieces(literalFinder("ab").isolated, "aabab.ab"), "|"); got != "a|ab|ab|.|ab" {
		t.Errorf("literal: %q", got)
	}
}

func TestPatternErrors(t *testing.T) {
	for pattern, want := range map[string]string{
		`(`: "missing )", `a)`: `unexpected ")"`, `[a`: "missing ]", `a**`: "quantifier after a quantifier", `a+?`: "lazy",
		`*`: `unexpected "*"`, `^a`: `unexpected "^"`, `(?<n>a)`: "kind of group", `(?!ab)`: "lookahead must be of one", `\q`: `\q`,
		`\p{Xx}`: `\p{Xx}`, `\p{L`: "missing }", `a{9999}`: "repeat count", `a{3,1}`: "repeat count", `a{x}`: "repeat count",
		`[[:alpha:]]`: "class within a class", `[a&&b]`: "class within a class", `[b-a]`: "empty range", `\`: "unexpected end", `\xZZ`: "code point",
		`\1`: `\1`, `(a{1000}){1000}`: "longer than", `(((((){1000}){1000}){1000}){1000}){1000}`: "longer than",
		strings.Repeat("(", 10000): "nested deeper", `(?=`: "unexpected end",
	} {
		if _, err := compile(pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want an error with %q", pattern, err, want)
		}
	}
}

// These are patterns on which backtracking engines take exponential time.
func TestPatternIsLinear(t *testing.T) {
	p, err := compile(`(a*)*(a|a)*b`)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("a", 100_000)
	if start, end := p.find(text, 0); start != len(text) || end != len(text) {
		t.Errorf("found %d..%d in a text without b", start, end)
	}
}
