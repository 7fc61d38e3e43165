package eval

import (
	"fmt"
	"io"
	"onering/internal/stat"
	"strings"
	"unicode/utf8"
)

// sampling says in words how responses were drawn.
func (s Settings) sampling() string {
	if s.Greedy {
		return "greedy"
	}
	if s.Samples == 1 {
		return "1 sample at " + s.Describe()
	}
	return fmt.Sprintf("%d samples at %s", s.Samples, s.Describe())
}

// String says in a line what was evaluated and how.
func (s Settings) String() string {
	template := s.Template
	if strings.ContainsAny(template, " \n{") { // a text, not a name
		template = fmt.Sprintf("%.60q", template)
	}
	if s.Extract != "" {
		template += ", answers " + s.Extract
	}
	return fmt.Sprintf("%s: %s, template %s, at most %d tokens", s.Model, s.sampling(), template, s.MaxNewTokens)
}

// A grid is a table: a row of heads, then rows that begin with a label.
type grid [][]string

// Print writes the report as a table with a column per suite, as the paper's
// Table 2; markdown makes it a Markdown table. Shares are in percent, and below
// each is its 95 % interval.
func (r Report) Print(w io.Writer, markdown bool) error {
	columns := append([]Score{}, r.Suites...)
	if r.Average != nil {
		columns = append(columns, *r.Average)
	}
	g := grid{{""}}
	row := func(label string, cell func(Score) string) {
		line := []string{label}
		for _, s := range columns {
			line = append(line, cell(s))
		}
		g = append(g, line)
	}
	for _, s := range columns {
		g[0] = append(g[0], heading(s.Suite))
	}
	estimate := func(label string, of func(Score) stat.Estimate) {
		row(label, func(s Score) string { return percent(of(s).Value) })
		row("  95 %", func(s Score) string { return interval(of(s)) })
	}
	first := "pass@1"
	if n := r.Settings.Samples; n > 1 {
		first = fmt.Sprintf("avg@%d", n)
	}
	estimate(first, func(s Score) stat.Estimate { return s.Pass1 })
	if r.Settings.Samples > 1 {
		row("  spread", func(s Score) string { return percent(s.Spread) })
	}
	for j := range columns[0].PassK {
		estimate(fmt.Sprintf("pass@%d", columns[0].PassK[j].K), func(s Score) stat.Estimate { return s.PassK[j].Estimate })
	}
	for j := range columns[0].MajorityK {
		estimate(fmt.Sprintf("maj@%d", columns[0].MajorityK[j].K), func(s Score) stat.Estimate { return s.MajorityK[j].Estimate })
	}
	row("tokens", func(s Score) string { return fmt.Sprintf("%.0f", s.Tokens) })
	row("truncated", func(s Score) string { return percent(s.Truncated) })
	row("unanswered", func(s Score) string { return percent(s.Unanswered) })
	if columns[len(columns)-1].Faults > 0 { // the average's are all
		row("verifier gave up", func(s Score) string { return fmt.Sprint(s.Faults) })
	}
	row("problems", func(s Score) string { return fmt.Sprint(s.Problems) })
	return g.print(w, r.Settings.String(), markdown)
}

// Print writes the comparison as a table with a column per suite.
func (c Comparison) Print(w io.Writer, markdown bool) error {
	columns := append([]Difference{}, c.Suites...)
	if c.Average != nil {
		columns = append(columns, *c.Average)
	}
	g := grid{{""}}
	row := func(label string, cell func(Difference) string) {
		line := []string{label}
		for _, d := range columns {
			line = append(line, cell(d))
		}
		g = append(g, line)
	}
	for _, d := range columns {
		g[0] = append(g[0], heading(d.Suite))
	}
	row("A", func(d Difference) string { return percent(d.A) })
	row("B", func(d Difference) string { return percent(d.B) })
	row("B - A", func(d Difference) string { return fmt.Sprintf("%+.1f", 100*d.Delta.Value) })
	row("  95 %", func(d Difference) string { return fmt.Sprintf("%+.1f to %+.1f", 100*d.Delta.Low, 100*d.Delta.High) })
	row("p", func(d Difference) string { return probability(d.P) })
	row("better A:B", func(d Difference) string { return fmt.Sprintf("%d:%d", d.BetterA, d.BetterB) })
	row("tokens A", func(d Difference) string { return fmt.Sprintf("%.0f", d.TokensA) })
	row("tokens B", func(d Difference) string { return fmt.Sprintf("%.0f", d.TokensB) })
	row("problems", func(d Difference) string { return fmt.Sprint(d.Problems) })
	return g.print(w, "A is "+c.A.String()+"\nB is "+c.B.String(), markdown)
}

func heading(suite string) string {
	if suite == "average" {
		return "Avg."
	}
	return title(suite)
}

func percent(share float64) string { return fmt.Sprintf("%.1f", 100*share) }

func interval(e stat.Estimate) string { return fmt.Sprintf("%.1f-%.1f", 100*e.Low, 100*e.High) }

func probability(p float64) string {
	if p < 0.0001 {
		return "<0.0001"
	}
	return fmt.Sprintf("%.4f", p)
}

// print writes the lines above the table, and the table: the first column to
// the left, the others to the right.
func (g grid) print(w io.Writer, above string, markdown bool) error {
	widths := make([]int, len(g[0]))
	for _, line := range g {
		for i, cell := range line {
			if markdown {
				line[i] = strings.ReplaceAll(strings.TrimSpace(cell), "|", `\|`)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(line[i]))
		}
	}
	var b strings.Builder
	if markdown {
		above = strings.ReplaceAll(above, "\n", "\n\n") + "\n"
	}
	b.WriteString(above + "\n")
	for n, line := range g {
		var cells []string
		for i, cell := range line {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				cells = append(cells, cell+pad)
			} else {
				cells = append(cells, pad+cell)
			}
		}
		if !markdown {
			b.WriteString(strings.TrimRight(strings.Join(cells, "   "), " ") + "\n")
			continue
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
		if n == 0 {
			for i, width := range widths {
				rule := strings.Repeat("-", max(2, width))
				if i == 0 {
					b.WriteString("|:" + rule + "-")
				} else {
					b.WriteString("|-" + rule + ":")
				}
			}
			b.WriteString("|\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
