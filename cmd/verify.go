package cmd

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"onering/data"
	"onering/internal/cli"
	"onering/internal/strict"
	"onering/verifier"
)

func newVerify() *cobra.Command {
	o := verifyOptions{Extract: "auto"}
	c := newCommand("verify", &o, func(c *cobra.Command, args []string) error { return o.run(c, args) })
	offer(c, []string{"auto", "boxed", "tag", "last"}, "extract")
	return c
}

// A verifyOptions has the flags of verify.
type verifyOptions struct {
	Extract   string `help:"where to look for the answer: auto, boxed, tag, last"`
	Strict    bool   `help:"with --extract tag: require the exact form of the r1 template"`
	Explain   bool   `help:"print what was compared and why, for people"`
	JSON      bool   `help:"print JSON lines, with --explain too"`
	WorkedOut bool   `help:"where the gold is a number, an answer has to work it out: 4+18 is not right for 22"`
}

// run verifies each line of the input, and prints its verdict or, with --explain, what led to it.
func (o verifyOptions) run(c *cobra.Command, args []string) error {
	mode, err := verifier.ParseMode(o.Extract)
	if err != nil {
		return usageError{err}
	}
	if o.Strict && mode != verifier.Tag {
		return usagef("--strict goes with --extract tag")
	}
	v := verifier.Verifier{Mode: mode, Strict: o.Strict, WorkedOut: o.WorkedOut}
	return withInput(c, args, func(in io.Reader, name string) error {
		right, total, out := 0, 0, c.OutOrStdout()
		err := cli.EachRow(in, name, func(_, number int, r verifiedRow) error {
			switch {
			case r.Gold == nil:
				return missingField(name, number, "gold")
			case r.Response == nil:
				return missingField(name, number, "response")
			}
			e := verifier.Explanation{}
			if o.Explain {
				e = v.Explain(r.Gold, *r.Response)
			} else {
				e.Result = v.VerifyAny(r.Gold, *r.Response)
			}
			if e.Correct {
				right++
			}
			total++
			switch {
			case !o.Explain:
				return cli.WriteLine(out, e.Result)
			case o.JSON:
				return cli.WriteLine(out, e)
			}
			return describeVerdict(out, number, e)
		})
		if err == nil && o.Explain && !o.JSON && total > 0 {
			_, err = fmt.Fprintf(out, "%d of %d correct, %.1f %%\n", right, total, 100*float64(right)/float64(total))
		}
		return err
	})
}

// describeVerdict writes a verdict for people about a line: right or wrong and why, gold and answer with their trees.
func describeVerdict(w io.Writer, number int, e verifier.Explanation) error {
	verdict := "wrong"
	switch {
	case e.Status != verifier.OK:
		verdict = string(e.Status)
	case e.Correct:
		verdict = "right"
	}
	text := fmt.Sprintf("%d: %s (%s)\n", number, verdict, e.Reason)
	const none = "no tree: too long or too deep to be read"
	if e.Gold != "" {
		text += fmt.Sprintf("   gold    %#q\n           %s\n", e.Gold, cmp.Or(e.GoldTree, none))
	}
	if e.Answer != "" {
		text += fmt.Sprintf("   answer  %#q, found in the %s\n           %s\n", e.Answer, e.From, cmp.Or(e.AnswerTree, none))
	}
	_, err := io.WriteString(w, text)
	return err
}

// A verifiedRow is a row of the input.
type verifiedRow struct {
	Gold     []string `json:"-"`
	Response *string  `json:"response"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *verifiedRow) UnmarshalJSON(text []byte) (err error) {
	type plain verifiedRow
	var row data.Object
	if err = cmp.Or(strict.JSON(text, (*plain)(r)), row.UnmarshalJSON(text)); err == nil {
		r.Gold, err = row.Golds()
	}
	return err
}
