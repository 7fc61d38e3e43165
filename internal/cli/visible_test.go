package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEscaped(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"plain – ∞ 日本 é\tx\n", "plain – ∞ 日本 é\tx\n"},
		{"\x1b[2J\x1b]0;title\x07", `\x1b[2J\x1b]0;title\x07`},
		{"a\rb\x00\x7f", `a\rb\x00\u007f`},
		{"\u009b31m", `\u009b31m`},
		{"\x9b31m", `\x9b31m`}, // a control sequence of 8 bits, which is not UTF-8
		{"gnp.\u202etxt\u2066", `gnp.\u202etxt\u2066`},
		{"bad \xff\xfe", `bad \xff\xfe`},
	} {
		if got := escaped(tt.text); got != tt.want {
			t.Errorf("escaped(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}

// TestVisibleWrites cuts texts into pieces anywhere: the output must not depend on it.
func TestVisibleWrites(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "\n", "é", "日", "😀", "\x1b[0m", "\u009b", "\xff", "\xe6\x97", "\u202e"}
	for range 2000 {
		var text strings.Builder
		for range r.IntN(8) {
			text.WriteString(alphabet[r.IntN(len(alphabet))])
		}
		text.WriteString(".") // The beginning of a character at the very end waits for the rest.
		var out bytes.Buffer
		v := &Visible{To: &out}
		for rest := text.String(); rest != ""; {
			n := 1 + r.IntN(len(rest))
			if got, err := v.Write([]byte(rest[:n])); got != n || err != nil {
				t.Fatalf("Write = %d, %v", got, err)
			}
			rest = rest[n:]
		}
		if want := escaped(text.String()); out.String() != want {
			t.Fatalf("%q in pieces: %q, want %q", text.String(), out.String(), want)
		}
	}
}

// TestEscapedJSON: JSON escaped for a terminal still has the same value.
func TestEscapedJSON(t *testing.T) {
	for r := range rune(0x3000) {
		if !utf8.ValidRune(r) {
			continue
		}
		want := "x" + string(r) + "y"
		var line bytes.Buffer
		if err := WriteLine(&line, want); err != nil {
			t.Fatal(err)
		}
		shown := escaped(line.String())
		if strings.ContainsFunc(shown, hidden) {
			t.Errorf("%U is shown as %q", r, shown)
		}
		var got string
		if err := json.Unmarshal([]byte(shown), &got); err != nil || got != want {
			t.Errorf("%U: %q reads as %q, %v", r, shown, got, err)
		}
	}
}

// TestRawResults writes results unescaped if stdout is not a terminal.
func TestRawResults(t *testing.T) {
	var out bytes.Buffer
	v := &Visible{To: &out}
	if err := WriteLine(v, "\u009b\u202e"); err != nil {
		t.Fatal(err)
	}
	if want := "\"\u009b\u202e\"\n"; out.String() != want {
		t.Errorf("a line of JSON: %q, want %q", out.String(), want)
	}
}

// A calls is a writer that counts its calls.
type calls struct {
	bytes.Buffer
	n int
}

func (c *calls) Write(p []byte) (int, error) {
	c.n++
	return c.Buffer.Write(p)
}

func TestLineWriter(t *testing.T) {
	var w calls
	out := &w
	for _, row := range []any{map[string]string{"text": "a<b"}, map[string]int{"n": 1}} {
		if err := WriteLine(out, row); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := w.String(), "{\"text\":\"a<b\"}\n{\"n\":1}\n"; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
	if w.n != 2 {
		t.Errorf("%d writes for 2 lines: a line must go out whole and at once", w.n)
	}
	if err := WriteLine(out, math.NaN()); err == nil || w.n != 2 {
		t.Errorf("NaN: error %v, %d writes", err, w.n)
	}
}

// TestErrorLines: no line of an error begins with a name from outside. Quotations are
// shortened, and the remedy is not.
func TestErrorLines(t *testing.T) {
	long := strings.Repeat("x", 3000)
	for _, tt := range []struct {
		err  error
		args []string
		want []string
	}{
		{errors.Join(errors.New("one"), errors.New("two")), nil, []string{"one", "two"}},
		{fmt.Errorf("a\nb: bad; name another"), []string{"a\nb"}, []string{`a\nb: bad; name another`}},
		{fmt.Errorf("p: %w", &fs.PathError{Op: "open", Path: "a\nb", Err: fs.ErrNotExist}), nil, []string{`p: open a\nb: file does not exist`}},
		{fmt.Errorf("--lr %q: must be a number", long), nil, []string{`--lr "` + long[:100] + `... (3000 bytes)": must be a number`}},
		{fmt.Errorf("--out %s: must be short", long), []string{"--out=" + long}, []string{"--out " + long[:100] + "... (3000 bytes): must be short"}},
		{fmt.Errorf("%q has no tokenizer", strings.Repeat("é", 200)), nil, []string{`"` + strings.Repeat("é", 50) + `... (400 bytes)" has no tokenizer`}},
	} {
		if got := ErrorLines(tt.err, tt.args); !slices.Equal(got, tt.want) {
			t.Errorf("%q\nwant %q", got, tt.want)
		}
	}
}
