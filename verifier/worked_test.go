package verifier

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestWorkedOut: what counts as worked out. All answers are right without it.
func TestWorkedOut(t *testing.T) {
	for _, tt := range []struct {
		gold       string
		right      []string // separated by |, as boxes cannot hold it
		unfinished []string
	}{
		{"22", []string{"22", "22.0", "+22", `22 \text{ flowers}`, `\$22.00`, `22 \text{ km/h}`, "x = 22", "4+18=22", "22=4+18", "2.2e1", `2.2\times 10^1`, `220 \div 10 = 22`, "22%"[:2]},
			[]string{"4+18", "11*2", `2\times 11`, "44/2", `\frac{44}{2}`, "22/1", "30-8", `\sqrt{484}`, "x=4+18", `\binom{22}{1}`, "|-22|", "(4+18) flowers", `4+18=11\cdot 2`, "(-1)(-22)", "--22 + 0"}},
		{"-22", []string{"-22", "-22.0"}, []string{"-4-18", "-(4+18)", "-44/2"}},
		{"1024", []string{"1024", "1,024", `1.024\times 10^3`}, []string{"2^{10}", "32^2", "4!+1000"}},
		{"1000", []string{"1000", "10^3", `1\cdot 10^3`}, []string{`10\cdot 100`, `10^2\cdot 10^1`}},
		{"3/2", []string{"3/2", "1.5", "6/4", `1\frac{1}{2}`, "1 1/2", `\frac{3}{2}`, "-3/-2"}, []string{"1+1/2", "2-1/2", `3\cdot\frac12`, "(1+2)/2"}},
		{"-3/2", []string{"-3/2", "-1.5", `-1\frac12`, `\frac{-3}{2}`}, []string{"-1-1/2"}},
		{"0.5", []string{"1/2", "0.5", `50\%`, "2/4"}, []string{"2^{-1}", "1-0.5", `\sin 30^\circ`}},
		{"1/3", []string{`0.\overline{3}`, "1/3"}, []string{"1-2/3"}},
		{`2\sqrt{3}`, []string{`2\sqrt3`, `\sqrt{12}`, `6/\sqrt3`, `\frac{4\sqrt3}{2}`}, []string{`\sqrt3+\sqrt3`, `\sqrt4\sqrt3`, `2\cdot 1\cdot\sqrt3`, `(1+1)\sqrt3`, `\sqrt{10+2}`, `\sqrt2\sqrt6`}},
		{`\frac{\sqrt2}{2}`, []string{`\frac{\sqrt2}{2}`, `1/\sqrt2`, `\sqrt{1/2}`, `\frac12\sqrt2`}, []string{`\sin 45^\circ`, `\frac{\sqrt2}{1+1}`}},
		{"(3,4)", []string{"(3,4)", "(3.0, 4)"}, []string{"(1+2,4)", "(3,2^2)"}},
		{`\{1,2\}`, []string{`\{2,1\}`, "1, 2"}, []string{`\{1,1+1\}`}},
		{"[0,4]", []string{"[0,4]"}, []string{"[0,2+2]"}},
		// Golds that are not numbers, or not worked out, ask for nothing.
		{"4+18", []string{"22", "4+18", "18+4", "20+2"}, nil},
		{"2^{100}", []string{"2^{100}", "4^{50}"}, nil},
		{"2x+3", []string{"3+2x", "x+x+3", "2x+1+2"}, nil},
		{"x^2+1", []string{"1+x^2"}, nil},
		{"B", []string{"B", `\text{B}`}, nil},
		{"44/2", []string{"22", "44/2"}, nil},
		{"blue", []string{"blue"}, nil},
	} {
		for i, answers := range [][]string{tt.right, tt.unfinished} {
			for _, answer := range answers {
				response := `so \boxed{` + answer + `}`
				if v := Verify(tt.gold, response); !v.Correct {
					t.Errorf("%q for %q is not right at all: %+v", answer, tt.gold, v)
				}
				v := Verifier{WorkedOut: true}.Verify(tt.gold, response)
				if v.Correct != (i == 0) || i == 1 && v.Reason != "the value is right, but it is not worked out" {
					t.Errorf("%q for %q: %+v", answer, tt.gold, v)
				}
			}
		}
	}
	if v := (Verifier{WorkedOut: true}).Verify("22", "There are 4 + 18 flowers in total."); v.Correct {
		t.Errorf("running text: %+v", v)
	}
	if v := (Verifier{WorkedOut: true}).Verify("22", "There are 4 + 18 = 22 flowers in total."); !v.Correct {
		t.Errorf("running text: %+v", v)
	}
}

// TestWorkedOutNumbers: a number in any way of writing it is worked out, and no sum,
// product, difference, quotient or power that has its value is.
func TestWorkedOutNumbers(t *testing.T) {
	v := Verifier{Mode: Boxed, WorkedOut: true}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(-5000, 5000).Draw(t, "n")
		k := rapid.IntRange(1, 400).Draw(t, "k")
		d := rapid.IntRange(2, 60).Draw(t, "d")
		gold := fmt.Sprint(n)
		check := func(gold, answer string, want bool) {
			if got := v.Verify(gold, `\boxed{`+answer+`}`); got.Correct != want {
				t.Fatalf("%q for %q: %+v, want %v", answer, gold, got, want)
			}
		}
		for _, answer := range []string{gold, gold + ".0", fmt.Sprintf("x=%d", n), fmt.Sprintf("%d+%d=%d", n-k, k, n)} {
			check(gold, answer, true)
		}
		unfinished := []string{
			fmt.Sprintf("%d+%d", n-k, k), fmt.Sprintf("%d-%d", n+k, k), fmt.Sprintf("%d/%d", n*d, d),
			fmt.Sprintf(`\frac{%d}{%d}`, n*d, d), fmt.Sprintf(`\frac{%d}{%d}\cdot %d`, n*d, d*d, d),
		}
		if n%d == 0 && n != 0 {
			unfinished = append(unfinished, fmt.Sprintf(`%d\times %d`, n/d, d), fmt.Sprintf("%d*%d", n/d, d))
		}
		for _, answer := range unfinished {
			check(gold, answer, false)
		}
		check(fmt.Sprint(d*d), fmt.Sprintf("%d^2", d), d == 10) // a power of ten is scientific notation
		check(fmt.Sprint(d*d), fmt.Sprintf(`\sqrt{%d}`, d*d*d*d), false)

		if r := big.NewRat(int64(n), int64(d)); !r.IsInt() {
			check(r.String(), fmt.Sprintf("%d/%d", n*k, d*k), true)
			check(r.String(), fmt.Sprintf("%d/%d+%d", n-k*d, d, k), false)
			if n > d {
				check(r.String(), fmt.Sprintf(`%d\frac{%d}{%d}`, n/d, n%d, d), true)
			}
		}
	})
}

// TestWorkedOutNarrows: the option takes verdicts back and gives none, and the gold
// itself is always right.
func TestWorkedOutNarrows(t *testing.T) {
	pieces := []string{"1", "22", "2", "+", "-", `\sqrt{`, "}", "{", "^", "/", `\pi`, "(", ")", ",", "x", "=", `\frac`, " ", "%", `\text{ m}`, "!", "|", "e", "i"}
	rapid.Check(t, func(t *rapid.T) {
		text := func(label string) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 9).Draw(t, label), "")
		}
		gold, answer := text("gold"), text("answer")
		if rapid.Bool().Draw(t, "same") {
			answer = gold
		}
		response := `<answer>` + answer + `</answer>`
		plain, worked := Verify(gold, response), Verifier{WorkedOut: true}.Verify(gold, response)
		if worked.Correct && !plain.Correct || worked.Status != plain.Status {
			t.Fatalf("%q for %q: %+v, without the option %+v", answer, gold, worked, plain)
		}
		if gold == answer && plain.Correct && !worked.Correct {
			t.Fatalf("%q is not right for itself: %+v", gold, worked)
		}
	})
}
