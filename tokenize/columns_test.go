package tokenize

import (
	"errors"
	"strings"
	"testing"
)

// TestColumnsInTemplates: names in braces are columns, unless they are an argument of LaTeX.
func TestColumnsInTemplates(t *testing.T) {
	row := map[string]string{"Body": "B", "Question": "Q", "a.b": "C"}
	for text, want := range map[string]string{
		"{Body} {Question}":               "B Q",
		"{Body}{Question}: {problem}!":    "BQ: P!",
		"{problem}":                       "P",
		`{problem} in \boxed{answer}`:     `P in \boxed{answer}`,
		`\frac{a}{b} x^{n}_{k} {problem}`: `\frac{a}{b} x^{n}_{k} P`,
		`{{Body}} {problem} {a.b} {}`:     `{Body} P C {}`,
		`{"k": {Body}} { x } {problem}`:   `{"k": B} { x } P`,
		"{problem} {none}":                "error: the template names {none}: gone; braces of a text are doubled, as in {{none}}",
		"{problem} {problem}":             "error: tokenize: the template",
		"no columns":                      "error: tokenize: unknown template",
		`\boxed{}`:                        "error: tokenize: unknown template",
	} {
		template, err := ParseTemplate(text)
		if err == nil {
			template, err = template.Fill(func(name string) (string, error) {
				if v, ok := row[name]; ok {
					return v, nil
				}
				return "", errors.New("gone")
			})
		}
		got := template.Render("P")
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want && !(strings.HasPrefix(want, "error: tokenize") && strings.HasPrefix(got, want)) {
			t.Errorf("%q gives %q, want %q", text, got, want)
		}
	}
}
