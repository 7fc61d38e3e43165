package verifier_test

import (
	"strings"
	"testing"

	"onering/verifier"
)

// TestExtraction states where each mode finds the answer in a response.
func TestExtraction(t *testing.T) {
	for _, c := range []struct {
		mode     verifier.Mode
		gold     string
		response string
		want     bool
	}{
		{verifier.Auto, `$9$`, "Answer \\[ \n 9 \n \\]", true},
		{verifier.Auto, `$10/9$`, `Answer $ \frac{10}{9} $`, true},
		{verifier.Auto, `$1/3$`, `$\boxed{k = \frac{1}{3}}$`, true},
		{verifier.Auto, `$x>5$`, `Therefore $x \gt 5$ is the solution.`, true},
		{verifier.Auto, `100`, `The total is 100.`, true},
		{verifier.Auto, `3`, `3 times 4 is 12, not 13`, false},
		{verifier.Auto, `-5`, `The answer is -5`, true},
		{verifier.Auto, `5`, `The answer is -5`, false},
		{verifier.Auto, `28\%`, `so the share of children is 28 percent`, true},
		{verifier.Auto, `D`, `The correct answer is **D**`, true},
		{verifier.Auto, `C`, `The answer is C. Because A is wrong`, true},
		{verifier.Auto, `(A)`, `The answer is (B).`, false},
		{verifier.Auto, `72`, "He sold 48+24=72 clips.\n#### 72", true},
		{verifier.Auto, `72`, "so 72\n#### 73", false},
		{verifier.Auto, `18`, `Therefore, she makes $18 every day.`, true},
		{verifier.Auto, `5`, "**Final Answer**\n\n$5$", true},
		{verifier.Auto, `5`, "Final Answer: 5. I hope it is correct.", true},
		{verifier.Auto, `3/2`, `<think>2</think> <answer>3/2</answer>`, true},
		{verifier.Auto, `3/2`, `<think>3/2</think> <answer>2</answer>`, false},
		{verifier.Auto, `4`, `<answer></answer> \boxed{4}`, true},
		{verifier.Auto, `2`, `\boxed{2}$ or $\boxed{3}`, false},
		{verifier.Auto, `5`, `$7 = \boxed{5}$`, true},
		{verifier.Auto, `5`, `$$\boxed{5} = 6$$`, true},
		{verifier.Auto, `1`, `$15=\boxed{1}\pmod 7$`, true},
		{verifier.Auto, `111`, `$7 = \boxed{111}$ in base 2`, true},
		{verifier.Auto, `5`, `$\boxed{5}$, or $7$`, false},
		{verifier.Auto, `5`, `6 or \boxed{5}`, false},
		{verifier.Auto, `5`, `\boxed{6} or \boxed{5}`, false},
		{verifier.Auto, `1/2`, `\boxed{1/2} or \boxed{0.5}`, true},
		{verifier.Auto, `1/2`, `\boxed{\frac12} or 50%.`, true},
		{verifier.Auto, `22/7`, `$\boxed{\frac{22}{7}}$ or 3.14`, true},
		{verifier.Auto, `5, 6`, `$\boxed{5}$ or $6$`, true},
		{verifier.Auto, `\{2,3\}`, `\boxed{2} and \boxed{3}`, true},
		{verifier.Auto, `5`, `\boxed 5`, true},
		{verifier.Auto, `\pi`, `\boxed\pi`, true},
		{verifier.Auto, `5`, `5 \boxed{}`, false},
		{verifier.Auto, `5`, `5 so \boxed{`, false},
		{verifier.Auto, `5`, `\boxed{5} so \boxed{`, true},
		{verifier.Boxed, `5`, `\boxed{5} so \boxed{7`, true},
		{verifier.Boxed, `7`, `\boxed{5} so \boxed{7`, false},
		{verifier.Boxed, `5`, `\boxed{5 \text{ or } \boxed{7}`, false},
		{verifier.Boxed, `7`, `\boxed{5 \text{ or } \boxed{7}`, false},
		{verifier.Boxed, `6`, `\boxed{5} and \fbox{\frac{12}{2}} \{ \boxed{\frac{7`, true},
		{verifier.Boxed, `5`, `\boxed 5 so \boxed{\boxed{`, true},
		{verifier.Boxed, `5`, `\boxed{5} \boxed{}`, false},
		{verifier.Boxed, `5`, `\boxed{5`, false},
		{verifier.Auto, `5`, ``, false},
		{verifier.Auto, `\begin{pmatrix}1\\2\end{pmatrix}`, `the vector \begin{pmatrix}1\\2\end{pmatrix}`, true},
		{verifier.Boxed, `5`, `The answer is 5.`, false},
		{verifier.Boxed, `5`, `<answer>5</answer>`, false},
		{verifier.Boxed, `5`, `\boxed{5}`, true},
		{verifier.Boxed, `5`, `\boxed{6} <answer>5</answer>`, false},
		{verifier.Tag, `5`, `\boxed{5}`, false},
		{verifier.Tag, `5`, `<answer>5</answer>`, true},
		{verifier.Tag, `5`, `<answer>The answer is $\boxed{5}$.</answer>`, true},
		{verifier.Tag, `5`, `<answer>5`, false},
		{verifier.Tag, `5`, `<answer>4</answer> <answer>5</answer>`, true},
		{verifier.Tag, `5`, `<answer> </answer>`, false},
		{verifier.Last, `5`, `first 4, then 5`, true},
		{verifier.Last, `4`, `first 4, then 5`, false},
		{verifier.Last, `5`, `so $x = 5$`, true},
		{verifier.Last, `5`, `nothing`, false},
	} {
		v := verifier.Verifier{Mode: c.mode}
		if got := v.Verify(c.gold, c.response); got.Correct != c.want {
			t.Errorf("%v: gold %q, response %q: %v with answer %q (%s), want %v", c.mode, c.gold, c.response, got.Correct, got.Answer, got.Reason, c.want)
		}
	}
}

// TestStrictTag: the exact form of the R1 template.
func TestStrictTag(t *testing.T) {
	v := verifier.Verifier{Mode: verifier.Tag, Strict: true}
	for response, want := range map[string]bool{
		`a</think> <answer>5</answer>`:               true,
		`a</think><answer>5</answer>`:                false,
		`<answer>5</answer>`:                         false,
		`a</think> <answer>5`:                        false,
		`a</think> <answer>5</answer> and more`:      false,
		`a</think> <answer>\boxed{5}</answer>` + " ": true,
	} {
		if got := v.Verify("5", response); got.Correct != want {
			t.Errorf("%q: %v (%s), want %v", response, got.Correct, got.Reason, want)
		}
	}
}

// TestGolds: the possible forms of a gold.
func TestGolds(t *testing.T) {
	for _, gold := range []string{`5`, `$5$`, `\(5\)`, `\boxed{5}`, `The answer is \boxed{5}.`, `5.0`, `#### 5`, `x=5`, `\text{5}`, ` 5 `} {
		if got := verifier.Verify(gold, `\boxed{5}`); !got.Correct {
			t.Errorf("gold %q: %+v", gold, got)
		}
		if got := verifier.Verify(gold, `\boxed{6}`); got.Correct {
			t.Errorf("gold %q: %+v", gold, got)
		}
	}
	var v verifier.Verifier
	if got := v.VerifyAny([]string{"1", "2", "3"}, `\boxed{2}`); !got.Correct || got.Gold != "2" {
		t.Errorf("one of three golds: %+v", got)
	}
	if got := v.VerifyAny([]string{"1", "2"}, `\boxed{3}`); got.Correct || got.Status != verifier.OK {
		t.Errorf("none of two golds: %+v", got)
	}
	for _, golds := range [][]string{nil, {""}, {"  "}, {"$$"}} {
		if got := v.VerifyAny(golds, `\boxed{3}`); got.Correct || got.Status != verifier.Error || got.Reason == "" {
			t.Errorf("golds %q: %+v", golds, got)
		}
	}
}

// TestLimitStatus: an answer beyond a limit gets the status limit, and is not just wrong.
func TestLimitStatus(t *testing.T) {
	for _, response := range []string{`\boxed{9^{9^{9^9}}}`, `\boxed{` + strings.Repeat("(", 5000) + "5" + strings.Repeat(")", 5000) + `}`, `\boxed{\sum_{k=1}^{10^{18}}\frac{1}{k}}`} {
		if got := verifier.Verify("5", response); got.Correct || got.Status != verifier.Limit || got.Reason == "" {
			t.Errorf("%.40q: %+v", response, got)
		}
	}
}

func TestModes(t *testing.T) {
	for _, m := range []verifier.Mode{verifier.Auto, verifier.Boxed, verifier.Tag, verifier.Last} {
		if got, err := verifier.ParseMode(m.String()); err != nil || got != m {
			t.Errorf("ParseMode(%q) = %v, %v", m, got, err)
		}
	}
	if _, err := verifier.ParseMode("best"); err == nil || !strings.Contains(err.Error(), "auto, boxed, tag, last") {
		t.Errorf("ParseMode(best): %v", err)
	}
	if got := verifier.Mode(9).String(); got != "Mode(9)" {
		t.Errorf("Mode(9) is %q", got)
	}
}

// TestExplain: an explanation has both trees and the rule.
func TestExplain(t *testing.T) {
	e := verifier.Verifier{}.Explain([]string{`3`, `\frac{x+1}{2}`}, `so \boxed{0.5x+0.5}`)
	if e.GoldTree != "(div (add x 1) 2)" || e.AnswerTree != "(add (mul 1/2 x) 1/2)" || !e.Correct || e.Reason == "" || e.From == "" {
		t.Errorf("Explain = %+v", e)
	}
	for _, response := range []string{"", `\boxed{}`, `\boxed{` + strings.Repeat("{", 9000)} {
		if e := (verifier.Verifier{}).Explain([]string{"5"}, response); e.Correct || e.Reason == "" || e.AnswerTree != "" {
			t.Errorf("Explain of %.20q: %+v", response, e)
		}
	}
}
