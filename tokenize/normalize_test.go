package tokenize

import (
	"strings"
	"testing"
	"unicode"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

// TestNFC compares with the reference (tokenizers 0.23.3); TestGoldenEncode has more cases.
func TestNFC(t *testing.T) {
	for text, want := range map[string]string{
		"e\u0301":                                "é",
		"\u212b":                                 "Å",
		"a\u0301\u0328":                          "ą\u0301",
		"\u1100\u1161\u11a8":                     "각",
		"\U00011935\U00011930":                   "\U00011935\U00011930", // U+11938 to x/text
		"e\u1dfa\u0301":                          "e\u1dfa\u0301",        // U+1DFA moves to x/text
		"e\u0301\u1dfa\u0301":                    "é\u1dfa\u0301",
		"e" + strings.Repeat("\u0323\u0301", 40): "ẹ" + strings.Repeat("\u0323", 39) + strings.Repeat("\u0301", 40),
		"b" + strings.Repeat("\u0301", 40) + "e\u0301": "b" + strings.Repeat("\u0301", 40) + "é",
		"e" + strings.Repeat("\u0301", 40):             "é" + strings.Repeat("\u0301", 39),
	} {
		if got := nfc(text); got != want {
			t.Errorf("nfc(%+q) = %+q, want %+q", text, got, want)
		}
	}
}

// The long way of composing gives the same results as x/text wherever both apply, so it
// is right for more than 30 marks too, where x/text does not apply.
func TestAppendCluster(t *testing.T) {
	char := rapid.OneOf(rapid.RuneFrom([]rune("aeoAqß가\u1100\u1161\u11a8\u0301\u0323\u0328\u0302\u0345\u0915\u093c\u0344\u1faf")), rapid.RuneFrom(nil, unicode.Mn), rapid.Rune())
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOfN(char, 0, safeCluster).Draw(t, "text"))
		if got, want := string(appendCluster(nil, text)), norm.NFC.String(text); got != want {
			t.Fatalf("appendCluster(%+q) = %+q, x/text %+q", text, got, want)
		}
	})
}

// nfc equals x/text's NFC of the parts between inert characters, on every path through
// the code, and a second nfc changes nothing.
func TestNFCParts(t *testing.T) {
	char := rapid.OneOf(rapid.RuneFrom([]rune("ab \u0301\u0323\u0328ạ각\u1161")), rapid.RuneFrom(nil, inert), rapid.RuneFrom(nil, unicode.Mn))
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOfN(char, 0, 25).Draw(t, "text"))
		var want, part strings.Builder
		flush := func() { want.WriteString(norm.NFC.String(part.String())); part.Reset() }
		for _, r := range text {
			if unicode.Is(inert, r) {
				flush()
				want.WriteRune(r)
			} else {
				part.WriteRune(r)
			}
		}
		flush()
		got := nfc(text)
		if got != want.String() {
			t.Fatalf("nfc(%+q) = %+q, want %+q", text, got, want.String())
		}
		if again := nfc(got); again != got {
			t.Fatalf("nfc twice of %+q: %+q, then %+q", text, got, again)
		}
	})
}

// classes.txt is right for this version of x/text only: a new one that
// knows more characters needs go generate.
func TestInertIsOfThisVersion(t *testing.T) {
	if norm.Version != "15.0.0" {
		t.Errorf("x/text has Unicode %s: run go generate ./tokenize, and change this test", norm.Version)
	}
}
