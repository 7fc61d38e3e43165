package texts

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// A Compare says which texts are equal. Rewards embed it and have its fields as settings.
type Compare struct {
	IgnoreCase        bool   `toml:"ignore_case" needs:"compare=true" help:"let upper case be equal to lower case"`
	Whitespace        string `toml:"whitespace" needs:"compare=true" choice:"keep trim collapse remove" note:"collapse trims and makes each run of it one space" help:"what becomes of white space"`
	Unicode           string `toml:"unicode" needs:"compare=true" choice:"none nfc nfkc" note:"nfc joins letters with their accents, nfkc also makes wide letters, ligatures and raised digits plain" help:"normal form"`
	IgnorePunctuation bool   `toml:"ignore_punctuation" needs:"compare=true" help:"leave out punctuation, but for the signs of a number (-5, 1.5, 1/2, 20%)"`
	IgnoreArticles    bool   `toml:"ignore_articles" needs:"compare=true" help:"leave out a, an and the before another word"`
}

// Normal returns the form of s that equal texts share.
func (c Compare) Normal(s string) string {
	form := func(s string) string { return s } // for "none"
	switch c.Unicode {
	case "nfc":
		form = norm.NFC.String
	case "nfkc":
		form = norm.NFKC.String
	}
	s = form(s)
	if c.IgnoreCase {
		s = form(cases.Fold().String(s)) // folding may split letters into several
	}
	if c.IgnorePunctuation {
		s = withoutPunctuation(s)
	}
	if c.IgnoreArticles {
		s = withoutArticles(s)
	}
	switch c.Whitespace {
	case "trim":
		s = strings.TrimSpace(s)
	case "collapse":
		s = strings.Join(strings.Fields(s), " ")
	case "remove":
		s = strings.Join(strings.Fields(s), "")
	}
	return s
}

// Normals returns the normal forms of the accepted answers, without empty ones.
func (c Compare) Normals(answers []string) map[string]bool {
	all := map[string]bool{}
	for _, answer := range answers {
		if s := c.Normal(answer); s != "" {
			all[s] = true
		}
	}
	return all
}

// withoutPunctuation removes punctuation marks. Those of a number stay, since -5 is not 5.
func withoutPunctuation(s string) string {
	runes := []rune(s)
	digit := func(i int) bool { return i >= 0 && i < len(runes) && unicode.IsDigit(runes[i]) }
	var b strings.Builder
	for i, r := range runes {
		switch {
		case strings.ContainsRune("-−+.,/:", r) && digit(i+1):
		case strings.ContainsRune("%‰", r) && digit(i-1):
		case unicode.IsPunct(r) || r < unicode.MaxASCII && unicode.IsSymbol(r):
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// withoutArticles removes each English article that has a word after it: the A of
// "vitamin A" is not an article.
func withoutArticles(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		start := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsSpace(r) })
		if start < 0 {
			break
		}
		end := len(s)
		if n := strings.IndexFunc(s[start:], unicode.IsSpace); n >= 0 {
			end = start + n
		}
		switch word := strings.ToLower(s[start:end]); {
		case (word == "a" || word == "an" || word == "the") && strings.TrimLeftFunc(s[end:], unicode.IsSpace) != "":
		default:
			b.WriteString(s[:end])
		}
		s = s[end:]
	}
	b.WriteString(s)
	return b.String()
}
