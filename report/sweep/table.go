package sweep

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"onering/internal/stat"
	"onering/report"
)

// An outcome is the result of one run.
type outcome struct {
	Variant string
	Seed    int64
	// Values are the run's results by the name of the metric.
	Values map[string]float64
	Failed bool // the run has no values
}

// A sweepMetric is a column of the table.
type sweepMetric struct {
	Name    string // the key of Outcome.Values
	Title   string
	Percent bool // shown in percent
}

// A comparison is a question that was stated before the runs, and the test that answers it.
type comparison struct {
	question
	Metric int // a metric of the table
	Test   pairedTest
}

// A sweepRow is one variant: its means over seeds.
type sweepRow struct {
	Variant string
	Runs    int       // number of runs that succeeded
	Failed  int       // number of runs that failed
	Mean    []float64 // means by metric
	SE      []float64 // standard errors of Mean
	Values  []float64 // values of the first metric, by run
}

// A sweepTable is the result of a sweep.
type sweepTable struct {
	Metrics     []sweepMetric // the first ones are those by which variants are compared
	compared    int           // number of metrics by which variants are compared
	Rows        []sweepRow
	Comparisons []comparison
}

// newTable makes a table of outcomes: a row for each variant, in the given order, and the comparisons by
// the first metrics, as many as compared says, with p-values corrected for all of them. A comparison uses the seeds that
// both variants have. It returns an error if a comparison names an unknown variant.
func newTable(metrics []sweepMetric, compared int, variants []string, outcomes []outcome, comparisons []question) (*sweepTable, error) {
	t := &sweepTable{Metrics: metrics, compared: compared}
	bySeed := map[string][]map[int64]float64{} // by variant: for each metric its values by seed
	for _, name := range variants {
		row, values := newRow(name, metrics, outcomes)
		t.Rows = append(t.Rows, row)
		bySeed[name] = values
	}
	for _, c := range comparisons {
		for _, name := range []string{c.First, c.Second} {
			if bySeed[name] == nil {
				return nil, fmt.Errorf("variants: a comparison names variant %q; there are %s", name, strings.Join(variants, ", "))
			}
		}
		for k := range compared {
			t.Comparisons = append(t.Comparisons, comparison{c, k, paired(differences(bySeed[c.First][k], bySeed[c.Second][k]))})
		}
	}
	adjustByHolm(t.pairedTests())
	return t, nil
}

// pairedTests are the comparisons of variants that have seeds in common.
func (t *sweepTable) pairedTests() (list []*pairedTest) {
	for i := range t.Comparisons {
		if test := &t.Comparisons[i].Test; test.N > 0 {
			list = append(list, test)
		}
	}
	return list
}

// newRow returns the row of a variant, and its values of each metric by seed.
func newRow(variant string, metrics []sweepMetric, outcomes []outcome) (sweepRow, []map[int64]float64) {
	row := sweepRow{Variant: variant}
	values := make([][]float64, len(metrics))
	bySeed := make([]map[int64]float64, len(metrics))
	for k := range bySeed {
		bySeed[k] = map[int64]float64{}
	}
	for _, o := range outcomes {
		if o.Variant != variant {
			continue
		}
		if o.Failed {
			row.Failed++
			continue
		}
		row.Runs++
		for k, m := range metrics {
			if v, ok := o.Values[m.Name]; ok && !math.IsNaN(v) {
				values[k] = append(values[k], v)
				bySeed[k][o.Seed] = v
			}
		}
	}
	for k := range metrics {
		row.Mean = append(row.Mean, stat.Mean(values[k]))
		row.SE = append(row.SE, stat.StandardError(values[k]))
	}
	row.Values = values[0] // for the figure, which shows the first metric
	return row, bySeed
}

// differences returns a - b for each seed that both have, in the order of seeds.
func differences(a, b map[int64]float64) (d []float64) {
	for _, seed := range slices.Sorted(maps.Keys(a)) {
		if y, ok := b[seed]; ok {
			d = append(d, a[seed]-y)
		}
	}
	return d
}

// cells returns the table's headings and rows as text.
func (t *sweepTable) cells() (head []string, rows [][]string) {
	head = []string{"variant", "runs"}
	for k, m := range t.Metrics {
		head = append(head, m.title())
		if k == 0 {
			head = append(head, "range")
		}
	}
	for _, r := range t.Rows {
		runs := fmt.Sprint(r.Runs)
		if r.Failed > 0 {
			runs += fmt.Sprintf(" (%d failed)", r.Failed)
		}
		row := []string{r.Variant, runs}
		for k, m := range t.Metrics {
			cell := m.format(r.Mean[k])
			if !math.IsNaN(r.SE[k]) && k < t.compared { // only means that are compared have their standard errors
				cell += " ± " + m.format(r.SE[k])
			}
			row = append(row, cell)
			if k == 0 {
				row = append(row, m.format(stat.Quantile(r.Values, 0))+" to "+m.format(stat.Quantile(r.Values, 1)))
			}
		}
		rows = append(rows, row)
	}
	return head, rows
}

// comparisonCells returns the comparisons as text. For a metric in percent the
// differences are in percentage points.
func (t *sweepTable) comparisonCells() (head []string, rows [][]string) {
	head = []string{"comparison", "seeds", "first − second", "95 % interval", "p", fmt.Sprintf("p, Holm of %d", len(t.pairedTests())), "stated before"}
	for _, c := range t.Comparisons {
		x, m, name := c.Test, t.Metrics[c.Metric], c.First+" vs "+c.Second
		if t.compared > 1 {
			name += ": " + m.Title
		}
		rows = append(rows, []string{
			name, fmt.Sprint(x.N),
			m.signed(x.Difference) + " ± " + m.format(x.SE),
			m.signed(x.Low) + " to " + m.signed(x.High),
			fmt.Sprintf("%.3g", x.P), fmt.Sprintf("%.3g", x.Adjusted), c.Claim,
		})
	}
	return head, rows
}

// title returns the heading of the metric's column.
func (m sweepMetric) title() string {
	title := cmp.Or(m.Title, m.Name)
	if m.Percent {
		title += ", %"
	}
	return title
}

// format formats a value for the table, "-" for NaN.
func (m sweepMetric) format(x float64) string {
	switch {
	case math.IsNaN(x):
		return "-"
	case m.Percent && x != 0 && math.Abs(x) < 0.005:
		return fmt.Sprintf("%.2f", 100*x)
	case m.Percent:
		return fmt.Sprintf("%.1f", 100*x)
	}
	return fmt.Sprintf("%.3g", x)
}

// signed formats a difference, with a plus sign if it is positive.
func (m sweepMetric) signed(x float64) string {
	if x > 0 {
		return "+" + m.format(x)
	}
	return m.format(x)
}

// tables returns the table of the results and, if there are comparisons, a table of them.
func (t *sweepTable) tables() []report.Results {
	head, rows := t.cells()
	list := []report.Results{{Title: "Results", Note: "Means over seeds. The means that are compared have their standard errors.", Columns: head, Rows: rows}}
	if len(t.Comparisons) > 0 {
		head, rows := t.comparisonCells()
		list = append(list, report.Results{
			Title: "Comparisons", Columns: head, Rows: rows,
			Note: "Paired by seed: mean difference with its standard error, 95 % interval by Student's t, p-value of " +
				"the sign-flip test, p-value after Holm's correction for all comparisons.",
		})
	}
	return list
}

// Print writes the tables as text in aligned columns.
func (t *sweepTable) Print(w io.Writer) error {
	var b strings.Builder
	for i, table := range t.tables() {
		if i > 0 {
			b.WriteByte('\n')
		}
		tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, cells := range slices.Concat([][]string{table.Columns}, table.Rows) {
			fmt.Fprintln(tw, strings.Join(cells, "\t"))
		}
		tw.Flush() // writing to a Builder cannot fail
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Markdown returns the tables as Markdown.
func (t *sweepTable) Markdown() string {
	var b strings.Builder
	inRow := strings.NewReplacer("|", "\\|", "\x00", " | ") // a zero byte stands between cells
	for i, table := range t.tables() {
		if i > 0 {
			b.WriteByte('\n')
		}
		for k, cells := range slices.Concat([][]string{table.Columns}, table.Rows) {
			b.WriteString("| " + inRow.Replace(strings.Join(cells, "\x00")) + " |\n")
			if k == 0 {
				b.WriteString(strings.Repeat("|---", len(cells)) + "|\n")
			}
		}
	}
	return b.String()
}
