package choice

import (
	"context"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"onering/data"
	"onering/reward"
)

// rightEndings pick C of Paris, London, Rome and Berlin; wrongEndings do not pick C.
var rightEndings = []string{
	"Option C is correct.", "Thus C is correct.", "C is the right answer.", "#### C", `{"answer": "C"}`, "Therefore, option C is the correct choice.", "So C is right.", "(C) is correct.", "**C** is the correct answer.",
	"Hence, C is the best option.", "I choose C.", "I'd go with C.", "Ans: C", "Answer C", "Answer: (C)", "Correct answer: C", "The correct option: C", "C is correct because it is larger than A.", "Final answer: C", "The answer: C.",
	"The correct one is C.", "We select C.", "Pick C.", "Option (C)", "C would be the correct answer.", "Therefore C.", "Thus, the answer must be C.", "So the answer should be option C.", "which means C is correct.", "C) Rome is correct.", "Rome is correct.", "Rome is the right answer.",
	"Only C is correct.", "Choice C is right.", "the best answer is C", "The right choice is C", "My final choice is C.", "<answer>C</answer>", `\boxed{C}`, "Statement C is true.", "#### Option C", "#### (C)", "#### C. Rome", `{"answer": "C", "reason": "it is in Italy"}`, `{"reasoning": "x", "choice": "C"}`, "'answer': 'C'",
	"정답: C", "정답은 C입니다", "Ответ: C", "Правильный ответ: C", "La respuesta correcta es C.", "La bonne réponse est C.", "Die richtige Antwort ist C.", "正解はCです。", "答えはC", "So, option (C) is the answer.", "C is the answer because B is in England.",
	"Die richtige Antwort lautet C.", `{"final_answer": "C"}`, `{"thought": "A is in France", "correct_option": "C"}`,
	"answer = C", "**Answer: C**", "**Answer:** C", "**Final Answer**: C", "Answer - C", "The answer is therefore C.", "The answer is clearly C.", "The answer is, of course, C.", "The answer is option C: Rome.", "Our answer is C", "the answer would be C", "C!", "C", "c", "(c)", "C.", "C)", "Answer:\nC", "The answer is:\n\nC", "The answer is:\n**C**", "it's C", "It is C.", "The correct letter is C.", "the correct answer choice is C", "Correct option is C.", "correct: C", "Solution: C", "Result: C", "=> C", "→ C", "Hence the correct option is (C) Rome.", "Therefore, the correct answer is **C. Rome**.", "Answer: $C$", "Answer: $\\text{C}$", "Answer: \\(C\\)", "Therefore the correct choice is C since B is wrong.", "Therefore, the final answer is C. I hope it is correct.", "The final answer is: $\\boxed{C}$. I hope it is correct.",
}

var wrongEndings = []string{
	"정답은 C가 아닙니다", "정답: C 또는 D", "正解はCではない", "Ответ: C или D", "La respuesta es C o D", "Die Antwort ist nicht C", "C is the answer? No, D is the answer.",
	"Option C is not correct.", "C is incorrect.", "I doubt that C is correct.", "If C is correct, then B.", "Neither B nor C is correct.", "Options B and C are correct.", "C is correct? No.", "It is false that C is correct.", "B is correct, not C.", "C is wrong. #### B", "A or C is correct.", "#### B", "#### A or C", `{"answer": "B"}`, `{"final_answer": "B"}`, `{"not_answer": "C"}`, `{"answer": ["A", "C"]}`, "C is correct. On second thought, B is correct.", "Whether C is correct is unclear.", "None of A, B or C is correct.", "C can't be right, so B is right.", "C isn't correct.", "All options but C are correct.", "C is the right answer to another question; the answer is B.", "C is almost correct.", "C is partly right.", "C is never correct.", "Option C is correct or option B is correct.", "C is the wrong answer.", "C is correct. Wait, C is wrong.", "C is correct.\nHmm, C is not correct.", "I said C is correct, yet A is correct.",
}

func TestEndings(t *testing.T) {
	r := newRule()
	r.Choices = "choices"
	row := data.Object{{Name: "choices", Value: []any{"Paris", "London", "Rome", "Berlin"}}}
	for want, endings := range [][]string{wrongEndings, rightEndings} {
		for _, ending := range endings {
			for _, before := range []string{"", "Let us think. A is in France.\n\n"} {
				s := reward.Sample{Response: before + ending}
				s.Problem.Fields, s.Problem.Answers = row, []string{"C"}
				got, err := r.Score(context.Background(), []reward.Sample{s})
				if err != nil || got[0].Value != float64(want) {
					t.Errorf("%q earns %v, want %d: %q, %s, %v", s.Response, got[0].Value, want, got[0].Answer, got[0].Reason, err)
				}
			}
		}
	}
}

// TestMatches: the quick search for words skips no text in which the expressions find a match.
func TestMatches(t *testing.T) {
	texts := append(append([]string{"答案是C", "选C", "답: C", "My choice would be C", "The solution to question 3 is C", "The result of it can only be C", "This must be C, it's D", "la resposta final es C", "la risposta corretta è C", "Lösung: C", "the best letter - C", "C has to be true", "x_answer: C"}, rightEndings...), wrongEndings...)
	texts = append(texts, strings.Join(texts, " "), strings.ToUpper(strings.Join(texts, "\n")))
	for _, s := range texts {
		for _, c := range []struct {
			expr  *regexp.Regexp
			words []string
		}{{phrase, phraseStarts}, {affirmed, verdictWords}, {denied, verdictWords}} {
			all := regexp.MustCompile(strings.Replace(c.expr.String(), "^", "", 1)).FindAllStringIndex(s, -1)
			if got := matches(s, c.words, c.expr); !reflect.DeepEqual(got, all) {
				t.Errorf("%.80q: %v, want %v", s, got, all)
			}
		}
	}
}
