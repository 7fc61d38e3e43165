package verifier_test

import (
	"os"
	"testing"

	"onering/verifier"
)

// A response is a case of testdata/responses.jsonl: where the answer is found.
type response struct {
	Mode, Gold, Response, Why string
	Strict, Correct           bool
}

func TestResponses(t *testing.T) {
	text, err := os.ReadFile("testdata/responses.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range decodeLines[response](t, string(text)) {
		mode, err := verifier.ParseMode(c.Mode)
		if err != nil {
			t.Fatal(err)
		}
		got := verifier.Verifier{Mode: mode, Strict: c.Strict}.Verify(c.Gold, c.Response)
		if got.Correct != c.Correct {
			t.Errorf("%s, gold %s, response %s: %v (found %s: %s), want %v: %s", c.Mode, quoted(c.Gold), quoted(c.Response), got.Correct, quoted(got.Answer), got.Reason, c.Correct, c.Why)
		}
	}
}
