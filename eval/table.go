package eval

import (
	"cmp"
	"fmt"
	"io"
	"onering/internal/stat"
	"slices"
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

// String describes in a line what was evaluated and how.
func (s Settings) String() string {
	template := s.Template
	if strings.ContainsAny(template, " \n{") { // the template is a text, not a name
		template = fmt.Sprintf("%.60q", template)
	}
	if s.Extract != "" {
		template += ", answers " + s.Extract
	}
	if s.GradeTruncated {
		template += ", truncated responses graded"
	}
	return fmt.Sprintf("%s: %s, template %s, at most %d tokens", s.Model, s.sampling(), template, s.MaxNewTokens)
}

// A table has a column for each suite: a header row, then rows that begin with a label.
type table[C any] struct {
	columns []C
	rows    [][]string
}

// row adds a row.
func (t *table[C]) row(label string, cell func(C) string) {
	line := []string{label}
	for _, c := range t.columns {
		line = append(line, cell(c))
	}
	t.rows = append(t.rows, line)
}

// Print writes the report as a table with a column per suite, as the paper's
// Table 2; markdown makes it a Markdown table. Shares are in percent, and below
// each is its 95 % interval.
func (r Report) Print(w io.Writer, markdown bool) error {
	t := table[Score]{columns: slices.Clone(r.Suites)}
	if r.Average != nil {
		t.columns = append(t.columns, *r.Average)
	}
	t.row("", func(s Score) string { return heading(s.Suite) })
	estimate := func(label string, of func(Score) stat.Estimate) {
		t.row(label, func(s Score) string { return percent(of(s).Value) })
		t.row("  95 %", func(s Score) string { return interval(of(s)) })
	}
	first := "pass@1"
	if n := r.Settings.Samples; n > 1 {
		first = fmt.Sprintf("avg@%d", n)
	}
	estimate(first, func(s Score) stat.Estimate { return s.Pass1 })
	if r.Settings.Samples > 1 {
		t.row("  spread", func(s Score) string { return percent(s.Spread) })
	}
	for j, at := range t.columns[0].PassK {
		estimate(fmt.Sprintf("pass@%d", at.K), func(s Score) stat.Estimate { return s.PassK[j].Estimate })
	}
	for j, at := range t.columns[0].MajorityK {
		estimate(fmt.Sprintf("maj@%d", at.K), func(s Score) stat.Estimate { return s.MajorityK[j].Estimate })
	}
	t.row("tokens", func(s Score) string { return fmt.Sprintf("%.0f", s.Tokens) })
	t.row("truncated", func(s Score) string { return percent(s.Truncated) })
	t.row("unanswered", func(s Score) string { return percent(s.Unanswered) })
	if t.columns[len(t.columns)-1].Faults > 0 { // the average has the faults of all suites
		t.row("verifier gave up", func(s Score) string { return fmt.Sprint(s.Faults) })
	}
	t.row("problems", func(s Score) string { return fmt.Sprint(s.Problems) })
	return t.print(w, r.Settings.String(), markdown)
}

// Print writes the comparison as a table with a column per suite.
func (c comparison) Print(w io.Writer, markdown bool) error {
	t := table[settingDifference]{columns: slices.Clone(c.Suites)}
	if c.Average != nil {
		t.columns = append(t.columns, *c.Average)
	}
	t.row("", func(d settingDifference) string { return heading(d.Suite) })
	t.row("A", func(d settingDifference) string { return percent(d.A) })
	t.row("B", func(d settingDifference) string { return percent(d.B) })
	t.row("B - A", func(d settingDifference) string { return fmt.Sprintf("%+.1f", 100*d.Delta.Value) })
	t.row("  95 %", func(d settingDifference) string {
		return fmt.Sprintf("%+.1f to %+.1f", 100*d.Delta.Low, 100*d.Delta.High)
	})
	t.row("p", func(d settingDifference) string { return probability(d.P) })
	t.row("better A:B", func(d settingDifference) string { return fmt.Sprintf("%d:%d", d.BetterA, d.BetterB) })
	t.row("tokens A", func(d settingDifference) string { return fmt.Sprintf("%.0f", d.TokensA) })
	t.row("tokens B", func(d settingDifference) string { return fmt.Sprintf("%.0f", d.TokensB) })
	t.row("problems", func(d settingDifference) string { return fmt.Sprint(d.Problems) })
	return t.print(w, "A is "+c.A.String()+"\nB is "+c.B.String(), markdown)
}

// heading returns the name of a suite in tables.
func heading(suite string) string {
	if suite == "average" {
		return "Avg."
	}
	b, _ := findBenchmark(suite)
	return cmp.Or(b.Title, suite)
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
func (t *table[C]) print(w io.Writer, above string, markdown bool) error {
	widths := make([]int, len(t.rows[0]))
	for _, line := range t.rows {
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
	for n, line := range t.rows {
		var cells []string
		for i, cell := range line {
			width := widths[i]
			if i == 0 {
				width = -width
			}
			cells = append(cells, fmt.Sprintf("%*s", width, cell))
		}
		if !markdown {
			b.WriteString(strings.TrimRight(strings.Join(cells, "   "), " ") + "\n")
			continue
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
		if n == 0 {
			b.WriteString("|:" + strings.Repeat("-", max(2, widths[0])) + "-")
			for _, width := range widths[1:] {
				b.WriteString("|-" + strings.Repeat("-", max(2, width)) + ":")
			}
			b.WriteString("|\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
