package verifier_test

import (
	"fmt"

	"onering/verifier"
)

func ExampleVerify() {
	r := verifier.Verify(`$\frac{\sqrt{2}}{2}$`, `Hence the answer is $\boxed{\frac{1}{\sqrt 2}}$.`)
	fmt.Println(r.Correct, r.Reason)
	// Output: true the same number
}

func ExampleVerifier_VerifyAny() {
	v := verifier.Verifier{Mode: verifier.Boxed}
	r := v.VerifyAny([]string{"6630.65", "6630"}, `about \boxed{6630}`)
	fmt.Println(r.Correct, r.Gold)
	// Output: true 6630
}

func ExampleVerifier_Explain() {
	e := verifier.Verifier{}.Explain([]string{"x > 5"}, `so \boxed{(5, \infty)}`)
	fmt.Println(e.Correct, e.Reason)
	fmt.Println(e.GoldTree)
	fmt.Println(e.AnswerTree)
	// Output:
	// true the same set of numbers
	// (relation x > 5)
	// (bracket () 5 const:infty)
}
