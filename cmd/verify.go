package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"onering/verifier"
)

func newVerify() *cobra.Command {
	var extract string
	var explain, strict bool
	c := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "Say whether responses answer as the references do",
		Long: `Say whether responses answer as the references do. Input is one JSON object per
line, from FILE or stdin: {"gold", "response"}, where gold is a text, a number,
or a list of which any element counts. Each gives a line

  {"correct", "answer", "gold", "reason", "status"}

with what was found in the response and the rule that decided. The status is
"ok", or "limit" or "error" where no verdict was reached.

--extract says where the answer is looked for:
  auto   <answer> tags, else the last box, else "the answer is", else the last
         expression
  boxed  the last \boxed{} only
  tag    the last <answer></answer> only
  last   the last expression`,
		Example: `  echo '{"gold":"1/2","response":"so it is \\boxed{0.5}"}' | onering verify
  onering verify --extract last answers.jsonl | jq -s 'map(.correct)'
  onering verify --explain answers.jsonl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			mode, err := verifier.ParseMode(extract)
			if err != nil {
				return usageError{err}
			}
			if strict && mode != verifier.Tag {
				return usagef("--strict goes with --extract tag")
			}
			in, name, err := openInput(inputName(args), c.InOrStdin())
			if err != nil {
				return err
			}
			defer in.Close()
			return verify(in, name, c.OutOrStdout(), verifier.Verifier{Mode: mode, Strict: strict}, explain)
		},
	}
	flags := c.Flags()
	flags.StringVar(&extract, "extract", "auto", "where the answer is looked for: auto, boxed, tag, last")
	flags.BoolVar(&strict, "strict", false, "with --extract tag: want the exact form of the r1 template")
	flags.BoolVar(&explain, "explain", false, "print a line for people instead of JSON, and a count at the end")
	modes := []string{"auto", "boxed", "tag", "last"}
	must(c.RegisterFlagCompletionFunc("extract", cobra.FixedCompletions(modes, cobra.ShellCompDirectiveNoFileComp)))
	return c
}

func verify(in io.Reader, name string, w io.Writer, v verifier.Verifier, explain bool) error {
	type row struct {
		Gold     golds   `json:"gold"`
		Response *string `json:"response"`
	}
	out := lineWriter{w}
	right, total := 0, 0
	for number, line := range readLines[row](in, name) {
		switch {
		case line.Err != nil:
			return line.Err
		case line.Row.Gold == nil:
			return missingField(name, number, "gold")
		case line.Row.Response == nil:
			return missingField(name, number, "response")
		}
		r := v.VerifyAny(line.Row.Gold, *line.Row.Response)
		if r.Correct {
			right++
		}
		total++
		var err error
		if explain {
			_, err = fmt.Fprintln(w, explainVerdict(number, r))
		} else {
			err = out.write(r)
		}
		if err != nil {
			return err
		}
	}
	if explain && total > 0 {
		_, err := fmt.Fprintf(w, "%d of %d correct, %.1f %%\n", right, total, 100*float64(right)/float64(total))
		return err
	}
	return nil
}

// explainVerdict is a verdict in one line: right or wrong, what was compared,
// and why.
func explainVerdict(number int, r verifier.Result) string {
	verdict := "wrong"
	switch {
	case r.Status != verifier.OK:
		verdict = string(r.Status)
	case r.Correct:
		verdict = "right"
	}
	return fmt.Sprintf("%d: %-5s  answer %q  gold %q  (%s)", number, verdict, r.Answer, r.Gold, r.Reason)
}

// golds are the references of a row: a text, a number, or a list of them. A
// number is taken as it is written.
type golds []string

// UnmarshalJSON implements json.Unmarshaler.
func (g *golds) UnmarshalJSON(text []byte) error {
	var list []json.RawMessage
	if json.Unmarshal(text, &list) != nil {
		list = []json.RawMessage{text}
	}
	*g = golds{}
	for _, item := range list {
		var s string
		switch {
		case json.Unmarshal(item, &s) == nil && string(item) != "null":
			*g = append(*g, s)
		case strings.ContainsRune("-0123456789", rune(item[0])):
			*g = append(*g, string(item))
		default:
			return errors.New(`field "gold" must be a text, a number or a list of them`)
		}
	}
	return nil
}
