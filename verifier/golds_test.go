package verifier_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onering/verifier"
)

// benchmarkGolds returns the different golds of the shared benchmarks.
func benchmarkGolds(tb testing.TB) []string {
	tb.Helper()
	dir := filepath.Join("..", "..", "shared", "data", "benchmarks", "dev")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		tb.Skipf("the shared data is not beside the repository: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(files) == 0 {
		tb.Fatalf("no benchmarks in %s: %v", dir, err)
	}
	type row struct{ Answer json.RawMessage }
	seen := map[string]bool{}
	var golds []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		for _, r := range decodeLines[row](tb, string(text)) {
			var list []string
			if json.Unmarshal(r.Answer, &list) != nil {
				list = []string{strings.Trim(string(r.Answer), `"`)}
				var s string
				if json.Unmarshal(r.Answer, &s) == nil {
					list[0] = s
				}
			}
			for _, gold := range list {
				if gold = strings.TrimSpace(gold); !seen[gold] {
					seen[gold] = true
					golds = append(golds, gold)
				}
			}
		}
	}
	return golds
}

// inFormula returns a gold without the delimiters that a box in a formula has around it.
func inFormula(gold string) string {
	return strings.ReplaceAll(strings.ReplaceAll(gold, `\$`, "\x00"), "$", "")
}

// rewritings change how an answer looks and nothing else.
var rewritings = map[string]func(string) string{
	"as it is":       func(s string) string { return s },
	"in dollars":     func(s string) string { return "$" + s + "$" },
	"with spaces":    func(s string) string { return "  " + s + " " },
	"thin space":     func(s string) string { return s + `\,` },
	"display style":  func(s string) string { return `\displaystyle ` + s },
	"a full stop":    func(s string) string { return strings.TrimSuffix(s, ".") + "." },
	"dfrac":          func(s string) string { return strings.ReplaceAll(s, `\frac`, `\dfrac`) },
	"tfrac":          func(s string) string { return strings.ReplaceAll(s, `\frac`, `\tfrac`) },
	"a real minus":   func(s string) string { return strings.ReplaceAll(s, "-", "−") },
	"spaced signs":   func(s string) string { return strings.NewReplacer("+", " + ", "=", " = ").Replace(s) },
	"no left, right": func(s string) string { return strings.NewReplacer(`\left`, "", `\right`, "").Replace(s) },
	"left and right": func(s string) string {
		if strings.Contains(s, `\left`) || strings.ContainsAny(s, "[]") {
			return s // Half-open intervals need their partner.
		}
		return strings.NewReplacer("(", `\left(`, ")", `\right)`).Replace(s)
	},
}

// TestBenchmarkGolds: every gold of the benchmarks is accepted as an answer to itself, in
// any LaTeX style.
func TestBenchmarkGolds(t *testing.T) {
	for _, gold := range benchmarkGolds(t) {
		for name, rewrite := range rewritings {
			if name == "spaced signs" && strings.Contains(gold, "e") {
				continue // 1e+5
			}
			answer := strings.ReplaceAll(rewrite(inFormula(gold)), "\x00", `\$`)
			if got := verifier.Verify(gold, `Hence it is $\boxed{`+answer+`}$.`); !got.Correct {
				t.Errorf("%s: %s against %s: %s", name, quoted(answer), quoted(gold), got.Reason)
			}
		}
	}
}

// TestDifferentGolds: no two golds of the benchmarks count as equal except those of
// testdata/equal_golds.json, which were checked by hand.
func TestDifferentGolds(t *testing.T) {
	if testing.Short() {
		t.Skip("compares a hundred thousand pairs")
	}
	step := 20 // Only one of this many pairs is compared.
	if os.Getenv("ONERING_LONG") != "" {
		step = 1
	}
	text, err := os.ReadFile("testdata/equal_golds.json")
	if err != nil {
		t.Fatal(err)
	}
	var listed []struct{ Rule, Gold, Other string }
	if err := json.Unmarshal(text, &listed); err != nil {
		t.Fatal(err)
	}
	rules := map[[2]string]string{}
	for _, e := range listed {
		rules[[2]string{e.Gold, e.Other}] = e.Rule
	}
	golds := benchmarkGolds(t)
	var structured []string // not a plain number
	for _, g := range golds {
		if strings.Trim(g, "-0123456789.") != "" {
			structured = append(structured, g)
		}
	}
	pairs := 0
	compare := func(gold, other string) {
		if pairs++; pairs%step > 0 && rules[[2]string{gold, other}] == "" {
			return
		}
		answer := strings.ReplaceAll(strings.TrimSuffix(inFormula(other), "."), "\x00", `\$`)
		got := verifier.Verify(gold, `\boxed{`+answer+`}`)
		if rule := rules[[2]string{gold, other}]; got.Correct && got.Reason != rule {
			t.Errorf("%s is accepted for %s: %s (listed: %q)", quoted(other), quoted(gold), got.Reason, rule)
		} else if !got.Correct && rule != "" {
			t.Errorf("%s is listed as equal to %s, but: %s", quoted(other), quoted(gold), got.Reason)
		}
	}
	for _, g := range structured {
		for _, h := range golds {
			if g != h {
				compare(g, h)
			}
		}
	}
	for _, g := range golds {
		if strings.Trim(g, "-0123456789.") == "" {
			for _, h := range structured {
				compare(g, h)
			}
		}
	}
}

// nearMisses are answers that differ from gold in one sign or digit, or by a
// term or factor, and so in their value.
func nearMisses(gold string) []string {
	out := []string{"-" + gold, gold + "+1", "2(" + gold + ")", gold + ",2024", gold + `\text{ or }2024`, gold + "q"}
	for i := range len(gold) {
		before, c, after := gold[:i], gold[i], gold[i+1:]
		switch {
		case isASCIIDigit(c):
			for _, d := range [...]byte{1, 3} {
				out = append(out, before+string('0'+(c-'0'+d)%10)+after)
			}
		case c == '-':
			out = append(out, before+after, before+"+"+after)
		case c == '+':
			out = append(out, before+"-"+after)
		case c == '(':
			out = append(out, before+"["+after)
		case c == '[':
			out = append(out, before+"("+after)
		}
	}
	for _, swap := range [...][2]string{{`\sin`, `\cos`}, {`\cos`, `\sin`}, {`\cup`, `\cap`}, {`\sqrt`, `\sqrt[3]`}, {`\pi`, ``}, {`^2`, ``}, {`\ln`, `\log`}, {`!`, ``}, {`\frac`, `\binom`}, {`\pm`, `+`}, {`\le `, `<`}, {`\lfloor`, `\lceil`}} {
		if strings.Contains(gold, swap[0]) {
			out = append(out, strings.Replace(gold, swap[0], swap[1], 1))
		}
	}
	return out
}

func isASCIIDigit(c byte) bool { return '0' <= c && c <= '9' }

// TestNearMisses: no near miss of the benchmarks' golds is accepted except those of
// testdata/equal_mutants.json, which were checked by hand.
func TestNearMisses(t *testing.T) {
	text, err := os.ReadFile("testdata/equal_mutants.json")
	if err != nil {
		t.Fatal(err)
	}
	var listed []struct{ Gold, Answer, Why string }
	if err := json.Unmarshal(text, &listed); err != nil {
		t.Fatal(err)
	}
	known := map[[2]string]bool{}
	for _, e := range listed {
		known[[2]string{e.Gold, e.Answer}] = true
	}
	count := 0
	for _, gold := range benchmarkGolds(t) {
		plain := strings.ReplaceAll(strings.Trim(inFormula(gold), "."), "\x00", `\$`)
		for _, answer := range nearMisses(plain) {
			count++
			got := verifier.Verify(gold, `\boxed{`+answer+`}`)
			if got.Correct != known[[2]string{gold, answer}] {
				t.Errorf("%s for %s is %v: %s", quoted(answer), quoted(gold), got.Correct, got.Reason)
			}
		}
	}
	t.Logf("%d near misses, %d of them equal", count, len(listed))
}
