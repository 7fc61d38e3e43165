package cmd

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"onering/objectives"
)

// printWeights writes the table of `onering weights --explain`, one line per
// response. A dash stands where the objective has no such quantity.
func printWeights(w io.Writer, result objectives.Result) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "response\ttokens\tA\tf\teta*\tp\tESS\tr\tlog r\tclipped\ttop 10 %\t")
	for g, group := range result.Groups {
		for k, t := range group {
			shares := objectives.GradientShares(slices.Clone(t.Weights))
			top := &shares[0]
			if *top == 0 {
				top = nil
			}
			fmt.Fprintf(tab, "%d.%d\t%d\t%s", g, k, len(t.Weights), formatOptional(&t.Advantage))
			for _, x := range []*float64{t.ClipFraction, t.TargetESS, t.P, t.ESS, t.Ratio, t.LogRatio, t.Clipped, top} {
				fmt.Fprintf(tab, "\t%s", formatOptional(x))
			}
			fmt.Fprintln(tab, "\t")
		}
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "loss %.6g\n", result.Loss)
	return err
}

// formatOptional formats a number, or "-" for nil.
func formatOptional(x *float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf("%.4g", *x)
}
