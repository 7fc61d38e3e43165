package cmd

import (
	"io"
	"math/rand/v2"

	"github.com/spf13/cobra"

	"onering/data/arithmetic"
)

func newDataArithmetic() *cobra.Command {
	var o arithmeticOptions
	c := &cobra.Command{
		Use:   "arithmetic",
		Short: "Print demonstrations of the embedded task",
		Long: `Print demonstrations of the embedded task, sums and differences of three-digit
numbers, as JSON lines {"prompt", "response", "problem", "answer"}: for a warm
start with onering sft, or with --held-out as problems to evaluate on. --guess
is how often a response is the answer alone, --slip how often a step of the
working is wrong. The held-out problems, an eighth of all, are never trained on.`,
		Example: `  onering data arithmetic -n 64000 --guess 0.6 --slip 0.05 > demonstrations.jsonl
  onering data arithmetic -n 512 --held-out > held-out.jsonl`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case o.rows < 1:
				return usagef("-n %d: must be at least 1", o.rows)
			case !(o.guess >= 0 && o.guess <= 1):
				return usagef("--guess %v: must be in [0, 1]", o.guess)
			case !(o.slip >= 0 && o.slip <= 1):
				return usagef("--slip %v: must be in [0, 1]", o.slip)
			}
			return writeArithmetic(c.OutOrStdout(), o)
		},
	}
	flags := c.Flags()
	flags.IntVarP(&o.rows, "rows", "n", 1000, "demonstrations to print")
	flags.Float64Var(&o.guess, "guess", 0, "probability of a right answer without the working")
	flags.Float64Var(&o.slip, "slip", 0, "probability of an error in each step of the working")
	flags.Uint64Var(&o.seed, "seed", 0, "seed of problems and responses")
	flags.BoolVar(&o.heldOut, "held-out", false, "problems of the held-out part")
	return c
}

type arithmeticOptions struct {
	rows        int
	guess, slip float64
	seed        uint64
	heldOut     bool
}

// writeArithmetic prints demonstrations.
func writeArithmetic(w io.Writer, o arithmeticOptions) error {
	type row struct {
		Prompt   string `json:"prompt"`
		Response string `json:"response"`
		Problem  string `json:"problem"` // as the reader of problems expects it
		Answer   string `json:"answer"`
	}
	out := lineWriter{w}
	r := rand.New(rand.NewPCG(o.seed, 0))
	for range o.rows {
		p := arithmetic.Draw(r, o.heldOut)
		if err := out.write(row{p.Prompt(), p.Demonstrate(r, o.guess, o.slip), p.Prompt(), p.Answer()}); err != nil {
			return err
		}
	}
	return nil
}
