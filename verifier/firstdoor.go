package verifier

import (
	"math/big"
	"strings"
)

// VerifyAny says whether response answers as any of golds does.
func (v Verifier) VerifyAny(golds []string, response string) Result {
	answer, _, closed := lastBox(response)
	answer = strings.Trim(answer, " \t\n$")
	r := Result{Answer: answer, Status: OK}
	if !closed || answer == "" {
		r.Reason = "no answer"
		return r
	}
	for _, gold := range golds {
		r.Gold = strings.Trim(gold, " \t\n$")
		if r.Gold == answer {
			r.Correct, r.Reason = true, "same text"
			return r
		}
		g, ok := plainRat(r.Gold)
		a, ok2 := plainRat(answer)
		if ok && ok2 && g.Cmp(a) == 0 {
			r.Correct, r.Reason = true, "same number"
			return r
		}
	}
	r.Reason = "different"
	return r
}

// plainRat reads a short integer, decimal or fraction without exponents.
func plainRat(s string) (*big.Rat, bool) {
	if len(s) > 100 || strings.Trim(s, "+-/.0123456789") != "" {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}
