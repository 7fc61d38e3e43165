package verifier

// Steps is how many steps of work a verdict takes: each byte and token that is read, each
// time, and units of algebra's budget.
func (v Verifier) Steps(golds []string, response string) (Result, int) {
	d := v.judge(golds, response)
	return d.Result, d.steps
}
