package verifier

import (
	"strings"
	"testing"
)

func TestReadable(t *testing.T) {
	for _, gold := range []string{"5", `\frac{1}{2}`, "x > 5", "Monday", `\text{John's car}`, `3\text{ apples}`} {
		if err := Readable(gold); err != nil {
			t.Errorf("%q: %v", gold, err)
		}
	}
	for gold, want := range map[string]string{
		"":                        "gold is empty",
		"x+":                      `reads "x+" as text`,
		strings.Repeat("1+", 1e5): "too long or too deep",
	} {
		if err := Readable(gold); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: error %v, want %q", gold, err, want)
		}
	}
}
