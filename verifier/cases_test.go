package verifier_test

import (
	"os"
	"strings"
	"testing"

	"onering/verifier"
)

// A pair is a case of testdata (README.md there): a gold, an answer as it stands in the
// box, the verdict, and a reason unless it is obvious.
type pair struct {
	Category, Gold, Answer, Why string
	Correct                     bool
}

func ownCases(tb testing.TB) []pair {
	tb.Helper()
	var all []pair
	for _, name := range [...]string{"cases.jsonl", "variations.jsonl", "attacks.jsonl", "kinds.jsonl"} {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, decodeLines[pair](tb, string(text))...)
	}
	return all
}

func TestCases(t *testing.T) {
	total, wrong := map[string]int{}, map[string]int{}
	for _, c := range ownCases(t) {
		total[c.Category]++
		got := verifier.Verify(c.Gold, `so it is $\boxed{`+c.Answer+`}$.`)
		if got.Correct != c.Correct {
			wrong[c.Category]++
			t.Errorf("%s: %s against %s is %v (%s, %s), want %v: %s", c.Category, quoted(c.Answer), quoted(c.Gold), got.Correct, got.Status, got.Reason, c.Correct, c.Why)
		}
		if got.Correct && got.Status != verifier.OK {
			t.Errorf("%s against %s: correct with status %s", quoted(c.Answer), quoted(c.Gold), got.Status)
		}
	}
	for name, n := range total {
		if wrong[name] > 0 {
			t.Logf("%s: %d of %d", name, n-wrong[name], n)
		}
	}
}

// oneWay are pairs that are different although the other order is accepted: an answer may
// name the quantity, while a gold that is an equation demands the name.
var oneWay = map[string]bool{"x+y=7": true, "m+n=12": true, "m+n=7": true, "y=2x+3": true}

// TestCasesOtherWay exchanges gold and answer where equality is symmetric: a
// different pair must not become equal.
func TestCasesOtherWay(t *testing.T) {
	for _, c := range ownCases(t) {
		if c.Correct || oneWay[c.Gold] || c.Why == "a closed form is asked for" || strings.TrimSpace(c.Answer) == "" {
			continue
		}
		if got := verifier.Verify(c.Answer, `\boxed{`+c.Gold+`}`); got.Correct {
			t.Errorf("%s: %s against gold %s is accepted the other way round (%s)", c.Category, quoted(c.Gold), quoted(c.Answer), got.Reason)
		}
	}
}

// TestReflexive: every gold is accepted as an answer to itself, in every spelling of a box.
func TestReflexive(t *testing.T) {
	for _, c := range ownCases(t) {
		for _, gold := range []string{c.Gold, c.Answer} {
			if strings.Trim(gold, `\, ?`) == "" || gold == `\text{}` || strings.Contains(gold, `\fbox`) { // A box inside is the answer.
				continue
			}
			for _, response := range []string{`\boxed{` + gold + `}`, `$$\fbox{ ` + gold + ` }.$$`, `<think>1</think> <answer>\boxed{` + gold + `}</answer>`} {
				if got := verifier.Verify(gold, response); !got.Correct && got.Status == verifier.OK {
					t.Errorf("%s is not its own answer in %s: %s", quoted(gold), quoted(response), got.Reason)
				}
			}
		}
	}
}

// limitCases cost slow graders seconds; no case may be accepted for the gold "5", or take
// long.
func limitCases() []string {
	r := strings.Repeat
	return []string{
		`9^{9^{9^{9}}}`, `9**9**9**9`, `10^{-10^{10}}`, `1000000!`, `((9!)!)!`, `\binom{10^9}{5\cdot10^8}`, `3` + r("!", 30), r("(", 5000) + "6" + r(")", 5000), r("{", 20000), r(`\frac{`, 3000), r("x^", 3000) + "2", r("-", 5000) + "x",
		r("1", 100_000), r("7", 4000) + "^{" + r("7", 4000) + "}", `\sum_{k=1}^{10^{12}}\frac1k`, `\sum_{k=1}^{2000}\frac{1}{k^{50}}`, `\prod_{k=1}^{2000}\sum_{j=1}^{2000}kj`, `\sum_{k=1}^{1999}\sin k`, `(x+1)^{(x+1)^{(x+1)^{9999}}}`,
		r("1,", 20_000) + "1", r(`1\pm`, 60) + "1", `(a+b+c+d+e+f)^{5000}`, "1e999999999", "1e-999999999", "0." + r("3", 50_000), r(`\sqrt{`, 2000) + "6" + r("}", 2000), r("|", 5000), r(`\left(`, 3000), r("!", 5000),
		`\begin{pmatrix}` + r("&", 20_000) + `\end{pmatrix}`, r(`\boxed{`, 5000), r("$", 50_000), r(`\`, 50_000), r("1_{", 3000), r(`\lfloor`, 3000), r(`[1,2]\cup`, 3000) + "[1,2]", r("a/b", 3000), r("1e9", 3000), r("9e", 3000),
		`\sqrt{2}^{\sqrt{2}^{\sqrt{2}^{\sqrt{2}^{\sqrt{2}^{\sqrt{2}}}}}}`, r(`\sin(`, 60) + "1" + r(")", 60), r(`\sqrt{2+`, 60) + "2" + r("}", 60), `(` + r(`\sqrt2+`, 500) + `1)^{50}`, r("<", 3000), r("1<", 3000), r("x=", 3000), r(`x<1\text{ or }`, 500) + "x<2",
		r("a", 50_000), "1" + r("R", 90_000), "x_" + r("R", 90_000), `\mathrm{` + r("R", 90_000) + "}", "2" + r("xyz", 30_000), r(r("R", 33)+" ", 2500), `\frac` + r("1", 19_000), `\sin(0.` + r("1", 19_000) + ")", r("word ", 10_000), r(`\text{a}`, 5000), `\{` + r(`\sqrt{2},`, 1000) + `1\}`, `\{` + r(`\{`, 100) + r(`\}`, 100) + `\}`, r("(1,2),", 2000) + "(3,4)", `\begin{vmatrix}` + r(r("1&", 19)+`2\\`, 20) + `\end{vmatrix}`,
		r(`\begin{pmatrix}1&1\\1&0\end{pmatrix}`, 300), `\begin{pmatrix}1&1\\1&0\end{pmatrix}^{1000000}`, `\gcd(` + r("9", 5000) + "," + r("7", 5000) + ")", `\lfloor ` + r("9", 5000) + `\sqrt2\rfloor`, `e^{e^{e^{e^{e}}}}`, `\ln\ln\ln\ln 10^{10^6}`, `\cos(10^{10000})`, `\tan(10^{3000}\pi)`,
		`2^{2^{20}}+1`, `\frac{2^{100000}+1}{3^{100000}-1}`, r(`\frac{1}{1+`, 150) + "x" + r("}", 150), `x^{99999}-y^{99999}`, `(AB1)^{B^{2999}}`, r("5\n", 10000), r("\u2028", 10000) + "6", r("０", 50_000),
	}
}

// mostSteps is the largest number of steps for a verdict on texts within the parser's limits.
const mostSteps = 5_000_000

func TestLimits(t *testing.T) {
	long := strings.Join(func() []string {
		var all []string
		for i := range 2000 {
			all = append(all, strings.Repeat("1", i%40+1)+"7")
		}
		return all
	}(), ", ")
	for _, gold := range []string{"5", `\sqrt{2}+x`, `(0,1)\cup\{2\}`, `x^2+y^2=1`, `x+\sin 2`, long} {
		for _, s := range limitCases() {
			responses := []string{`\boxed{` + s + `}`, s, `<answer>` + s + `</answer>`}
			if gold != "5" && gold != long { // where an answer stands does not depend on the gold
				responses = responses[:1]
			}
			for _, response := range responses {
				got, steps := verifier.Verifier{}.Steps([]string{gold}, response)
				if steps > mostSteps {
					t.Errorf("%s against %.20q took %d steps", quoted(response), gold, steps)
				}
				if got.Correct && !strings.HasPrefix(s, "5\n") {
					t.Errorf("%s against %.20q is accepted: %s", quoted(response), gold, got.Reason)
				}
			}
		}
	}
}

// TestLongResponses: a megabyte of text at which the search for an answer stops.
func TestLongResponses(t *testing.T) {
	for _, unit := range []string{`\boxed{`, `\boxed{1} `, `\boxed{1}. `, `\fbox{1} `, `\boxed 1 `, `\b`, "{", "$a$ ", "$", `\(`, "<answer>", "answer is 1. ", "1 ", "1", "a ", `\begin{a}`, "####", " and "} {
		response := strings.Repeat(unit, 1<<20/len(unit)-2) + " 6"
		for mode := verifier.Auto; mode <= verifier.Last; mode++ {
			if _, steps := (verifier.Verifier{Mode: mode}).Steps([]string{"5"}, response); steps > 4*len(response) {
				t.Errorf("1 MiB of %q in mode %v took %d steps", unit, mode, steps)
			}
		}
	}
}

// TestLimitsAgainstThemselves has the same hostile text as gold and as answer.
func TestLimitsAgainstThemselves(t *testing.T) {
	for _, s := range limitCases() {
		if _, steps := (verifier.Verifier{}).Steps([]string{s}, `\boxed{`+s+`}`); steps > mostSteps {
			t.Errorf("%s against itself took %d steps", quoted(s), steps)
		}
	}
}
