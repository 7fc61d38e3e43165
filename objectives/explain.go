package objectives

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Explain writes out as a table for people, one line per response: its group and
// number, its tokens, and
//
//	A         the advantage
//	f         the share of tokens with |d| > eps_ess
//	eta*      the target ESS
//	p, ESS    the exponent, and the ESS there
//	r, log r  the effective ratio
//	clipped   the share of tokens that the training clip cut
//	top 10 %  the share of the gradient on the tenth of the tokens that weigh most
//
// with a dash where the objective has no such quantity.
func (out WeightsOutput) Explain(w io.Writer) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "response\ttokens\tA\tf\teta*\tp\tESS\tr\tlog r\tclipped\ttop 10 %\t")
	for g, group := range out.Groups {
		for k, t := range group {
			shares := gradientShares(slices.Clone(t.Weights))
			top := &shares[0]
			if *top == 0 {
				top = nil
			}
			fmt.Fprintf(tab, "%d.%d\t%d\t%s", g, k, len(t.Weights), figure(&t.Advantage))
			for _, x := range []*float64{t.ClipFraction, t.TargetESS, t.P, t.ESS, t.Ratio, t.LogRatio, t.Clipped, top} {
				fmt.Fprintf(tab, "\t%s", figure(x))
			}
			fmt.Fprintln(tab, "\t")
		}
	}
	if err := tab.Flush(); err != nil {
		return fmt.Errorf("objectives: explain: %w", err)
	}
	_, err := fmt.Fprintf(w, "loss %.6g\n", out.Loss)
	return err
}

func figure(x *float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf("%.4g", *x)
}
