package texts

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestFind(t *testing.T) {
	for _, tt := range []struct{ where, after, response, want string }{
		{"whole", "", " 4 \n", " 4 \n"},
		{"whole", "", " \n", ""},
		{"whole", "</think>", "<think>5</think>4", "4"},
		{"whole", "</think>", "<think>5</think>4</think>", ""},
		{"whole", "</think>", "4", ""},
		{"last_line", "####", "5 #### 6\n#### 7", "7"},
		{"last_line", "", "5\n4 \n \n", "4"},
		{"last_line", "", "5\r\n4\r\n", "4"},
		{"last_line", "", "4", "4"},
		{"last_line", "", "\n\n", ""},
		{"boxed", "", `\boxed{4}`, "4"},
		{"boxed", "", `\boxed{5} so \fbox{4}.`, "4"},
		{"boxed", "", `\boxed {4}`, "4"},
		{"boxed", "", `\boxed{\frac{1}{2}}`, `\frac{1}{2}`},
		{"boxed", "", `\boxed{\{4\}}`, `\{4\}`},
		{"boxed", "", `\boxed{a\\b}`, `a\\b`},
		{"boxed", "", `\\boxed{4}`, "4"},
		{"boxed", "", `\boxed{4}, or \boxed{5`, "4"},
		{"boxed", "", `\boxed{4 \boxed{5}`, "5"},
		{"boxed", "", `{\boxed{4}`, "4"},
		{"boxed", "", `}\boxed{4}}`, "4"},
		{"boxed", "", `\boxed{4 or \boxed{5}}`, "5"},
		{"boxed", "", `\boxed{ }`, ""},
		{"boxed", "", `\boxed{4`, ""},
		{"boxed", "", `\boxed4`, ""},
		{"boxed", "", `\boxedx{4}`, ""},
		{"boxed", "", `\boxed`, ""},
		{"boxed", "", `\`, ""},
		{"boxed", "", `boxed{4}`, ""},
		{"tag", "", "<answer>4</answer>", "4"},
		{"tag", "", "<answer>5</answer><answer>4</answer>", "4"},
		{"tag", "", "<answer>5<answer>4</answer>", "4"},
		{"tag", "", "<answer>4</answer>5</answer>", "4</answer>5"},
		{"tag", "", "</answer>4<answer>", ""},
		{"tag", "", "<answer>4", ""},
		{"tag", "", "<Answer>4</Answer>", ""},
	} {
		got, ok := Extract{Where: tt.where, Tag: "answer", After: tt.after}.Find(tt.response)
		if !ok {
			got = ""
		}
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s after %q in %q: %q, %v, want %q", tt.where, tt.after, tt.response, got, ok, tt.want)
		}
	}
}

func TestValidate(t *testing.T) {
	for name, valid := range map[string]bool{"answer": true, "final-answer_2": true, "": false, "a b": false, "<x>": false, "2": false} {
		if err := (Extract{Tag: name}).Validate(); (err == nil) != valid {
			t.Errorf("tag %q: %v", name, err)
		}
	}
}

// TestBoxes: Boxes finds the boxes that a reader who counts braces finds.
func TestBoxes(t *testing.T) {
	pieces := []string{`\boxed{`, `\fbox{`, `{`, `}`, `\{`, `\}`, `\\`, `x`, ` `, `\boxed`, `\`}
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 20).Draw(t, "pieces"), "")
		for _, b := range Boxes(s) {
			whole := s[b.Start:b.End]
			if !strings.HasPrefix(whole, `\boxed`) && !strings.HasPrefix(whole, `\fbox`) {
				t.Fatalf("%q: a box %q", s, whole)
			}
			if depth := depthOf(b.Content); b.Closed != strings.HasSuffix(whole, b.Content+"}") || b.Closed && depth != 0 {
				t.Fatalf("%q: a box %q, closed %v, with %q, in which %d braces are open", s, whole, b.Closed, b.Content, depth)
			}
		}
	})
}

// depthOf counts the braces that s leaves open.
func depthOf(s string) (depth int) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if boxCommand(s[i:]) == 0 && boxCommand(s[min(i+1, len(s)):]) == 0 {
				i++
			}
		case '{':
			depth++
		case '}':
			depth--
		}
	}
	return depth
}

func TestNormal(t *testing.T) {
	keep := Compare{Whitespace: "keep", Unicode: "none"}
	for _, tt := range []struct {
		name       string
		change     func(*Compare)
		text, want string
	}{
		{"nothing", func(c *Compare) {}, " É\u0301 ", " É\u0301 "},
		{"trim", func(c *Compare) { c.Whitespace = "trim" }, "\u00a0a  b\n", "a  b"},
		{"collapse", func(c *Compare) { c.Whitespace = "collapse" }, " a \t\n b ", "a b"},
		{"remove", func(c *Compare) { c.Whitespace = "remove" }, " a \t\n b ", "ab"},
		{"nfc", func(c *Compare) { c.Unicode = "nfc" }, "e\u0301 \uff22", "é \uff22"},
		{"nfkc", func(c *Compare) { c.Unicode = "nfkc" }, "e\u0301 \uff22 x²", "é B x2"},
		{"case", func(c *Compare) { c.IgnoreCase = true }, "STRASSE Straße ΣΑΣ", "strasse strasse σασ"},
		{"case of a wide letter", func(c *Compare) { c.IgnoreCase, c.Unicode = true, "nfkc" }, "\uff22", "b"},
		{"punctuation", func(c *Compare) { c.IgnorePunctuation = true }, `"It's (5), $x$!"`, "Its 5 x"},
		{"signs of numbers", func(c *Compare) { c.IgnorePunctuation = true }, "-5, +5, 1.5. 1/2; 20% 9:15, 1,000, x-y", "-5 +5 1.5 1/2 20% 9:15 1,000 xy"},
		{"articles", func(c *Compare) { c.IgnoreArticles, c.Whitespace = true, "collapse" }, "The cat, an  owl and a vitamin A", "cat, owl and vitamin A"},
		{"an article alone", func(c *Compare) { c.IgnoreArticles = true }, "the ", "the "},
	} {
		c := keep
		tt.change(&c)
		if got := c.Normal(tt.text); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
