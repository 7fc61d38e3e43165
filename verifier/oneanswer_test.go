package verifier_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"onering/verifier"
)

// goldKinds make golds by kind, of two numbers.
var goldKinds = []func(a, b int) string{
	func(a, b int) string { return fmt.Sprint(a) },
	func(a, b int) string { return fmt.Sprintf("%d.%d", a, b) },
	func(a, b int) string { return fmt.Sprintf(`\frac{%d}{%d}`, a, b+1) },
	func(a, b int) string { return fmt.Sprintf(`%d\%%`, a) },
	func(a, b int) string { return fmt.Sprintf(`%d^\circ`, a) },
	func(a, b int) string { return fmt.Sprintf(`\frac{%d\pi}{%d}`, a, b+1) },
	func(a, b int) string { return fmt.Sprintf(`%d\sqrt{%d}`, a, 2+b%4) },
	func(a, b int) string { return fmt.Sprintf(`%d\text{ cm}`, a) },
	func(a, b int) string { return fmt.Sprintf(`%d\text{ apples}`, a) },
	func(a, b int) string { return fmt.Sprintf(`(%d,%d)`, a, b) },
	func(a, b int) string { return fmt.Sprintf(`%dx+%d`, a, b) },
	func(a, b int) string { return string(rune('A' + a%5)) },
	func(a, b int) string { return fmt.Sprintf("x=%d", a) },
	func(a, b int) string { return fmt.Sprintf("-%d", a) },
	func(a, b int) string { return fmt.Sprintf(`%d\times 10^{%d}`, a, b) },
	func(a, b int) string { return fmt.Sprintf(`[%d,%d)`, a, a+b) },
	func(a, b int) string { return fmt.Sprintf(`x>%d`, a) },
	func(a, b int) string { return fmt.Sprintf(`x^2+%dy=%d`, b, a) },
	func(a, b int) string { return fmt.Sprintf(`%d+%di`, a, b) },
	func(a, b int) string { return fmt.Sprintf(`%d:%d`, a, b) },
	func(a, b int) string { return fmt.Sprintf(`\begin{pmatrix}%d\\%d\end{pmatrix}`, a, b) },
	func(a, b int) string { return fmt.Sprintf(`x=%d+%dk\pi, k\in\mathbb{Z}`, a, b) },
	func(a, b int) string { return fmt.Sprintf("%d.%d%d%d", a, b, b, b) },
	func(a, b int) string { return []string{"Yes", "No", "even", "odd", "Monday", "Tuesday"}[a%6] },
}

// twoForOne are responses that try to give two answers at once.
var twoForOne = []string{
	`\boxed{%s = %s}`, `\boxed{%s \approx %s}`, `\boxed{x = %s \approx %s}`, `\boxed{x = %s = %s}`, `\boxed{(B)\ n = %s \approx %s}`, `\boxed{\overset{%s}{%s}}`,
	`\boxed{\underset{%s}{%s}}`, `\boxed{\stackrel{%s}{%s}}`, `\boxed{%s \text{ or } %s}`, `\boxed{%s, %s}`, `\boxed{%s; %s}`, `\boxed{%s}\boxed{%s}`, `\boxed{%s} or \boxed{%s}`,
	`\boxed{(%s)(%s)}`, `\boxed{%s (%s)}`, `\boxed{%s \to %s}`, `\boxed{%s \text{ i.e. } %s}`, `\boxed{%s\ (\text{or } %s)}`, `\boxed{\{%s, %s\}}`, `\boxed{%s \pm %s}`,
	`\boxed{%s\text{ (approximately }%s)}`, `The answer is %s, that is %s.`, `It is %s or %s`, `%s = %s`, `%s \approx %s`, `\boxed{%s/%s}`, `\boxed{%s : %s}`,
	`\boxed{\frac{%s}{%s}}`, `\boxed{%s \leq x \leq %s}`, `\boxed{%s \equiv %s}`, `\boxed{A. %s, B. %s}`, `\boxed{%s \neq %s}`, `\boxed{\text{%s not %s}}`,
	`\boxed{%s \text{ if } n \text{ is even, } %s \text{ otherwise}}`, `\boxed{%s\text{ for even }n, %s\text{ for odd }n}`, `\boxed{%s \Rightarrow %s}`, `\boxed{\text{either }%s\text{ or }%s}`,
	`\boxed{%s \lor %s}`, `\boxed{%s \cup %s}`, `\boxed{%s \cap %s}`, `\boxed{%s | %s}`, `\boxed{%s}\text{ or }\boxed{%s}`, `$x=\boxed{%s}$ or $x=\boxed{%s}$`, `<answer>%s</answer><answer>%s</answer>`,
	`The answer is %s. No, the answer is %s.`, `答案是%s或%s`, `\boxed{%s\\%s}`, `\boxed{%s \quad %s}`, `\boxed{\cancel{%s}%s}`, `\boxed{%s \to %s \to 0}`, `\boxed{%s...%s}`, `\boxed{%s \sim %s}`,
	`\boxed{\max(%s,%s)}`, `\boxed{\begin{cases}%s\\%s\end{cases}}`, `\boxed{%s \bmod %s}`, `\boxed{%s\text{, rounded: }%s}`, `\boxed{%s^{%s}}`, `\boxed{%s_{%s}}`, `\boxed{%s {,} %s}`, `\boxed{%s\text{ where }x = %s}`,
	`\boxed{%s\ [%s]}`, `\boxed{\underbrace{%s}_{%s}}`, `\boxed{\text{Option A: }%s\text{; Option B: }%s}`, `\boxed{%s = ? = %s}`, `\boxed{\sqrt{%s}=%s}`, `\boxed{%s\text{ (not }%s)}`, `\boxed{%s \ \&\ %s}`,
}

// TestOneAnswer: no response of one line is right for two golds that differ.
func TestOneAnswer(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	gold := func() string { return goldKinds[r.IntN(len(goldKinds))](1+r.IntN(99), 1+r.IntN(9)) }
	right := func(gold, response string) bool { return verifier.Verify(gold, response).Correct }
	tried := 0
	for range 20_000 {
		g, h := gold(), gold()
		if right(g, `\boxed{`+h+`}`) || right(h, `\boxed{`+g+`}`) || (len(g) == 1 && g >= "A") != (len(h) == 1 && h >= "A") {
			continue // one answer, or an option's letter and its content
		}
		form := twoForOne[r.IntN(len(twoForOne))]
		response := fmt.Sprintf(form, g, h)
		tried++
		if right(g, response) && right(h, response) {
			t.Errorf("%s is right for %s and for %s", response, g, h)
		}
	}
	if tried < 12_000 {
		t.Errorf("only %d pairs differ", tried)
	}
	if !right("5", `\boxed{x = 5}`) {
		t.Error("nothing is right")
	}
}
